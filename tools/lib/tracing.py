"""Raw traces of NN_idea.trace, what happened in them, and Chrome's trace format.

Times are cycles of the watched SM since its first event. common/ptx/trace_format.h says what the
kernel writes.
"""
import json
from dataclasses import dataclass, field
from pathlib import Path

from . import kernel_facts, occupancy, paths, steps
from .term import UserError

# By number, as trace_format.h has them.
KINDS = {2: "label", 3: "copy_commit", 4: "copy_wait", 5: "barrier", 6: "mbarrier_wait",
         7: "tma_load", 8: "wgmma_wait", 9: "tma_store", 10: "store_wait", 11: "cluster_barrier",
         12: "flag_wait"}
WAITS = {"copy_wait", "barrier", "mbarrier_wait", "cluster_barrier", "flag_wait"}
# Activities of a span, in the order of a legend.
ACTIVITIES = {"math": "multiplies", "flight": "waits, products under way", "copy": "issues copies",
              "both": "multiplies and issues copies",
              "data": "waits for data", "slot": "waits for a free stage",
              "sync": "waits at a barrier",
              "epilogue": "epilogue", "store": "waits for stores", "other": "other"}
SHORT = 40  # cycles; a wait that found everything ready still takes the time of its two stamps


@dataclass
class Event:
    begin: int
    end: int
    kind: str
    n: int  # groups that may stay in flight, or a barrier's id
    line: int  # of kernel.cu
    name: str = ""  # of the buffer or barrier
    stage: int = -1


@dataclass
class Span:
    begin: int
    end: int
    activity: str
    line: int = 0
    stage: int = -1


@dataclass
class Warp:
    cta: int
    warp: int
    full: bool
    events: list
    role: str = ""  # producer, consumer, or "" where all do all
    spans: list = field(default_factory=list)

    @property
    def begin(self):
        return self.events[0].begin

    @property
    def end(self):
        return self.events[-1].end


@dataclass
class Trace:
    step: str
    unit: str
    size: tuple
    gpu: str
    sm: int
    sms: int
    plain_us: float
    traced_us: float
    overhead: float  # %
    mhz: float  # about
    warps: list
    shares: dict = field(default_factory=dict)  # of a reduced trace, from the whole one

    def ctas(self):
        return list(dict.fromkeys(w.cta for w in sorted(self.warps, key=lambda w: w.begin)))

    def of(self, cta):
        return sorted((w for w in self.warps if w.cta == cta), key=lambda w: w.warp)


def load(path):
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {paths.shown(path)}: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{paths.shown(path)} is damaged or cut short: trace again") from None
    return parse(data, paths.shown(path))


def parse(data, name="it"):
    try:
        if data["format"] != 2:
            raise UserError(f"{name} is a trace of another version: trace again")
        raw = data["warps"]
        trace = Trace(data["step"], data["unit"], tuple(data["size"]), data["gpu"], data["sm"],
                      data["sms"], data["plain_us"], data["traced_us"], data["overhead_pct"],
                      0.0, [])
        labels = _labels(raw)
        stamps = [e[e[2] & 0xFF == 3] for w in raw for e in w["events"]  # of a commit, its end
                  if e[2] & 0xFF in KINDS and e[2] & 0xFF != 2]
        if not stamps:
            raise UserError(f"{name} has no events: nothing in the kernel waits or copies")
        origin = min(stamps, key=lambda t: (t - stamps[0] + 2**31) % 2**32)
        for w in raw:
            warp = Warp(w["cta"], w["warp"], bool(w["full"]), _events(w["events"], origin, labels))
            if warp.events:
                trace.warps.append(warp)
    except (KeyError, TypeError, IndexError, ValueError):
        raise UserError(f"{name} is not a trace of the ladder: ./ladder trace STEP writes one"
                        ) from None
    span = max(w.end for w in trace.warps)
    trace.mhz = data.get("mhz") or (span / data["last_traced_us"] if data.get("last_traced_us")
                                    else 0.0)
    trace.shares = data.get("shares", {})
    products = _cycles_of_products(trace)
    for warp in trace.warps:
        warp.role = _role(warp)
    if all(w.role != "producer" for w in trace.warps):  # each multiplies, some of 16 copy too
        for warp in trace.warps:
            warp.role = ""
    for warp in trace.warps:
        warp.spans = _spans(warp, trace.unit, products)
    return trace


def _labels(raw):
    """[(first address, one past the last, name, stage)]."""
    found = set()
    for warp in raw:
        for a, b, what, d in warp["events"]:
            if what & 0xFF == 2:
                letters = (b.to_bytes(4, "little") + d.to_bytes(4, "little")).rstrip(b"\0")
                found.add((a, a + (what >> 16) * 8, letters.decode("ascii", "replace"),
                           (what >> 8 & 0xFF) - 1))
    return sorted(found)


def _events(raw, origin, labels):
    events = []

    def since(t):
        t = (t - origin) % 2**32
        return t - 2**32 if t >= 2**31 else t

    for a, b, what, d in raw:
        kind = KINDS.get(what & 0xFF)
        if kind in (None, "label"):
            continue
        begin, end = since(a), since(b)
        if kind == "copy_commit":  # its copies come after the event before
            begin = min(end, events[-1].end) if events else end
        event = Event(begin, end, kind, what >> 8 & 0xFF, what >> 16)
        for first, last, name, stage in labels:
            if first <= d < last:
                event.name, event.stage = name, stage
                break
        events.append(event)
    return events


def _role(warp):
    waits = {e.name[:4] for e in warp.events if e.kind == "mbarrier_wait"}
    kinds = {e.kind for e in warp.events}
    if "empt" in waits and not kinds & {"wgmma_wait"}:
        return "producer"
    if "full" in waits and not kinds & {"copy_commit", "tma_load"}:
        return "consumer"
    return ""


def _cycles_of_products(trace):
    """What a block's wgmma of one tile step take at the full rate; 0 where that is not known."""
    if trace.unit != "wgmma":
        return 0
    try:
        facts = kernel_facts.read(steps.one(trace.step))
        rate = occupancy.gpu(trace.gpu)["flop_clk_sm"]["wgmma"]
        return 2 * facts.get("BLOCK_M") * facts.get("BLOCK_N") * facts.get("BLOCK_K") / rate
    except (UserError, KeyError, TypeError):
        return 0


def _spans(warp, unit, products):
    """What the warp did, without a hole from its first event to its last."""
    events = sorted((e for e in warp.events), key=lambda e: e.end)
    before_commit = others = 0
    at = None
    for e in events:
        if at is not None and e.kind != "copy_commit":
            others += max(0, e.begin - at)
        elif at is not None:
            before_commit += max(0, e.end - at)
        at = e.end
    mixed = others < 0.15 * before_commit  # copies are issued between products
    spans, at, committed, before = [], None, 0, ""
    in_flight, multiplying = 0, unit != "wgmma" and warp.role != "producer"

    def add(begin, end, activity, event):
        if end <= begin:
            return
        last = spans[-1] if spans else None
        if last and last.activity == activity and last.end == begin and activity not in (
                "data", "slot", "flight"):
            last.end = end
        else:
            spans.append(Span(begin, end, activity, event.line, event.stage))

    for e in events:
        begin = e.end if e.kind == "copy_commit" else e.begin
        if at is not None and begin > at:
            if warp.role == "producer" or before == "tma_load" and not multiplying:
                gap = "copy"
            elif e.kind in ("tma_store", "store_wait") or not multiplying:
                gap = "epilogue" if at and unit == "wgmma" and in_flight == 0 else "other"
            else:
                gap = "math"
            if e.kind == "copy_commit" and warp.role != "producer":
                gap = "both" if mixed else "copy"
            elif e.kind == "tma_load" and warp.role != "producer":
                gap = "math" if multiplying else "copy"
            add(at, begin, gap, e)
        if e.kind in WAITS:
            activity = ("slot" if e.name.startswith("empt") else
                        "sync" if e.kind in ("barrier", "cluster_barrier") else "data")
            if e.end - e.begin <= SHORT and spans and activity != "slot":
                activity = "math" if multiplying and warp.role != "producer" else spans[-1].activity
            if activity == "data" and in_flight:  # what was committed last keeps the pipe busy
                covered = int(min(e.end, max(e.begin, committed + products)))
                add(e.begin, covered, "flight", e)
                add(covered, e.end, activity, e)
            else:
                add(e.begin, e.end, activity, e)
            if e.kind == "mbarrier_wait" and warp.role != "producer":
                multiplying = True
        elif e.kind == "wgmma_wait":
            add(e.begin, e.end, "math", e)  # its products are under way
            in_flight, committed = e.n, e.begin
            multiplying = in_flight > 0
        elif e.kind == "store_wait":
            add(e.begin, e.end, "store" if e.end - e.begin > SHORT else "epilogue", e)
        at, before = max(at or e.end, e.end), e.kind
    return spans


# ---- shares ------------------------------------------------------------------------------------

def multipliers(trace, ctas=None):
    """Warps that multiply: for wgmma one of each warpgroup."""
    chosen = [w for w in trace.warps if w.role != "producer" and (ctas is None or w.cta in ctas)]
    if trace.unit == "wgmma":
        chosen = [w for w in chosen if w.warp % 4 == 0 and
                  any(e.kind == "wgmma_wait" for e in w.events)]
    return chosen


def fed(trace):
    """Share of the SM's time in which its tensor pipe is fed, estimated: some warp is between its
    waits, in the part of the SM that it runs on (a quarter for mma.sync, the whole for wgmma)."""
    if "fed" in trace.shares:
        return trace.shares["fed"]
    warps = multipliers(trace)
    if not warps:
        return 0.0
    begin, end = min(w.begin for w in warps), max(w.end for w in warps)
    quarters = [warps] if trace.unit == "wgmma" else [
        [w for w in warps if w.warp % 4 == q] for q in range(4)]
    total = 0
    for quarter in quarters:
        spans = sorted((s.begin, s.end) for w in quarter for s in w.spans
                       if s.activity in ("math", "both", "flight"))
        reached = begin
        for a, b in spans:
            if b > reached:
                total += b - max(a, reached)
                reached = b
    return total / (end - begin) / len(quarters) if end > begin else 0.0


def active(trace, flop_per_clock):
    """Share of the SM's cycles that its tensor pipe needs for the products at full rate."""
    if "active" in trace.shares:
        return trace.shares["active"]
    m, n, k = trace.size
    span = max(w.end for w in trace.warps) - min(w.begin for w in trace.warps)
    return 2.0 * m * n * k / trace.sms / flop_per_clock / span if span else 0.0


def waiting(trace):
    """Share of the main loop that the multiplying warps wait for data or at barriers."""
    if "waiting" in trace.shares:
        return trace.shares["waiting"]
    waits = loop = 0
    for warp in multipliers(trace):
        for span in warp.spans:
            if span.activity in ("data", "sync", "math", "both", "copy", "flight"):
                loop += span.end - span.begin
                waits += span.end - span.begin if span.activity in ("data", "sync") else 0
    return waits / loop if loop else 0.0


def reduced(data, trace, cta, flop_per_clock, cycles=24000):
    """The raw trace of one block around its middle, with the shares of the whole: small enough to
    keep beside the results."""
    warps = {w.warp: w for w in trace.of(cta)}
    some = next(iter(multipliers(trace, [cta])), None) or next(iter(warps.values()))
    middle = (some.begin + some.end) / 2
    kept = []
    for raw in data["warps"]:
        if raw["cta"] != cta or raw["warp"] not in warps:
            continue
        events = iter(warps[raw["warp"]].events)
        chosen = []
        for e in raw["events"]:
            if KINDS.get(e[2] & 0xFF) == "label":
                chosen.append(e)
            elif e[2] & 0xFF in KINDS and abs(next(events).end - middle) < cycles / 2:
                chosen.append(e)
        kept.append({**raw, "events": chosen})
    return {**data, "warps": kept, "mhz": round(trace.mhz, 1),
            "shares": {"fed": round(fed(trace), 4), "waiting": round(waiting(trace), 4),
                       "active": round(active(trace, flop_per_clock), 4)}}


# ---- Chrome's trace format (Perfetto, chrome://tracing) ------------------------------------------

def chrome(trace):
    """Trace Event Format, JSON object form: complete events and instants, microseconds."""
    scale = 1 / trace.mhz if trace.mhz else 1e-3
    events = []
    for index, cta in enumerate(trace.ctas()):
        events.append({"ph": "M", "name": "process_name", "pid": cta, "tid": 0,
                       "args": {"name": f"block {cta} on SM {trace.sm}"}})
        events.append({"ph": "M", "name": "process_sort_index", "pid": cta, "tid": 0,
                       "args": {"sort_index": index}})
        for warp in trace.of(cta):
            events.append({"ph": "M", "name": "thread_name", "pid": cta, "tid": warp.warp,
                           "args": {"name": f"warp {warp.warp} {warp.role}".strip()}})
            for s in warp.spans:
                args = {"line": s.line, "cycles": s.end - s.begin}
                if s.stage >= 0:
                    args["stage"] = s.stage
                events.append({"ph": "X", "name": ACTIVITIES[s.activity], "cat": s.activity,
                               "pid": cta, "tid": warp.warp, "ts": round(s.begin * scale, 4),
                               "dur": round((s.end - s.begin) * scale, 4), "args": args})
            for e in warp.events:
                if e.kind in WAITS or e.kind in ("wgmma_wait", "store_wait"):
                    continue
                args = {"line": e.line}
                if e.stage >= 0:
                    args.update(stage=e.stage, of=e.name)
                events.append({"ph": "i", "s": "t", "name": e.kind.replace("_", " "),
                               "cat": e.kind, "pid": cta, "tid": warp.warp,
                               "ts": round(e.end * scale, 4), "args": args})
    return {"traceEvents": events, "displayTimeUnit": "ns",
            "otherData": {"step": trace.step, "size": "x".join(map(str, trace.size)),
                          "gpu": trace.gpu, "overhead_pct": trace.overhead,
                          "clock_mhz": round(trace.mhz, 1)}}


def chrome_problem(data):
    """"" if `data` is in Trace Event Format as Perfetto reads it, else what is wrong."""
    events = data.get("traceEvents") if isinstance(data, dict) else None
    if not isinstance(events, list) or not events:
        return "no traceEvents"
    if data.get("displayTimeUnit") not in ("ms", "ns", None):
        return "displayTimeUnit is neither ms nor ns"
    for i, e in enumerate(events):
        if not isinstance(e, dict) or e.get("ph") not in ("X", "i", "M"):
            return f"event {i}: phase {e.get('ph') if isinstance(e, dict) else e!r}"
        if not isinstance(e.get("name"), str) or not e["name"]:
            return f"event {i} has no name"
        if not all(isinstance(e.get(k), int) and e[k] >= 0 for k in ("pid", "tid")):
            return f"event {i} has no pid and tid"
        if e["ph"] == "M":
            if not isinstance(e.get("args"), dict):
                return f"event {i}: metadata without args"
            continue
        if not isinstance(e.get("ts"), (int, float)) or e["ts"] < -1e6:
            return f"event {i} has no time"
        if e["ph"] == "X" and not (isinstance(e.get("dur"), (int, float)) and e["dur"] >= 0):
            return f"event {i} has no duration"
        if e["ph"] == "i" and e.get("s") not in ("t", "p", "g"):
            return f"event {i}: an instant without scope"
    return ""
