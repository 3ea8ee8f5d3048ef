"""Experiments: every folder steps/NN_name with a program.cu. What is done around a kernel, as named
variants of named workloads; the program checks and times them (common/harness/experiment.h)."""
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import build, device, files, lock, measure, paths, results, steps, term
from .term import UserError

# Counters that every experiment has, and what the tables call them; the others are its own.
COLUMNS = {"host_us": "host µs", "latency_us": "alone µs", "tflops": "TFLOPS", "gb_per_s": "GB/s",
           "pct_floor": "% of floor"}
KNOWN = {*COLUMNS, "time_us", "vs_first", "power_w", "sm_clock_nvml_mhz"}
LEGEND = """\
time: of one iteration, back to back with others. x first: times as fast as the
first variant, median of the rounds ± half their spread. host: the host's part
of it; alone: one iteration by itself, from call to result. floor: the longest
of its parts alone."""


@dataclass(frozen=True)
class Experiment:
    id: str
    folder: Path
    idea: str
    arch: str
    uses: tuple  # ids of steps whose kernels it calls
    needs: str  # "nccl" or ""

    @property
    def number(self):
        return int(self.id[:2])

    @property
    def program(self):
        return self.folder / "program.cu"

    runs_on, why_not = steps.Step.runs_on, steps.Step.why_not


def read(program):
    """An Experiment from the first lines of its program.cu."""
    head = []
    for line in program.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith("//"):
            break
        head.append(line[2:].strip())
    fields = dict(found.groups() for line in head
                  if (found := re.match(r"(arch|uses|needs|main):\s*(.+)", line)))
    if not re.fullmatch(r"\d\d(\+|a)", fields.get("arch", "").strip()):
        raise UserError(f"{paths.shown(program)}: its first lines need '// arch: ...' (75+, 80+, "
                        "90+ or 90a)")
    idea = head[0].split(":", 1)[1].strip() if ":" in head[0] else head[0]
    return Experiment(program.parent.name, program.parent, idea, fields["arch"].strip(),
                      tuple(re.findall(r"[^,\s]+", fields.get("uses", ""))),
                      fields.get("needs", "").strip())


def everything(folder=None):
    return sorted((read(p) for p in Path(folder or paths.STEPS).glob("[0-9][0-9]_*/program.cu")),
                  key=lambda e: e.id)


def matching(word, known):
    """Those that a word names: 30, 30-33, an id, a name, a path, or 'experiments' for all."""
    if word == "experiments":
        return list(known)
    name = word.rstrip("/").rpartition("/")[2]
    if found := re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", name):
        first, last = int(found[1]), int(found[2] or found[1])
        return [e for e in known if first <= e.number <= last]
    return [e for e in known if name in (e.id, e.id[3:])]


def pick(words):
    """(steps, experiments) that the words name. 'all' means the steps."""
    known, of_steps, chosen = everything(), [], set()
    for word in [w for group in words for w in group.split(",") if w]:
        found = matching(word, known)
        chosen |= {e.id for e in found}
        try:
            of_steps += [s.id for s in steps.select([word])]
        except UserError:
            if not found:
                raise
    all_steps = steps.everything(variants=True) if of_steps else []
    if not of_steps and not chosen:
        steps.select(words)  # says what is wrong
    return [s for s in all_steps if s.id in of_steps], [e for e in known if e.id in chosen]


def need_gpu(chosen, emulated=False):
    """The GPU, or one line that says what there is without one."""
    found, problem = device.gpus()
    if found and not emulated:
        return found[0]
    names = ", ".join(e.id for e in chosen)
    drawn = [paths.shown(p) for e in chosen
             for p in sorted((paths.ROOT / "plots" / "figures").glob(f"*-{e.id}-*.svg"))]
    raise UserError(f"{names}: what is around a kernel (streams, graphs, copies) has no emulated "
                    "form and needs a GPU" + ("" if found else f" ({problem})")
                    + (f"; recorded: {', '.join(drawn[:2])}" if drawn else ""))


def supported(chosen, gpu):
    """Those that this GPU runs; a line for each of the others."""
    for e in chosen:
        if not e.runs_on(gpu.sm):
            term.say(f"{e.id}: {e.why_not(gpu.sm)}", term.YELLOW)
    return [e for e in chosen if e.runs_on(gpu.sm)]


def why_not_built(experiment, reason):
    if experiment.needs and reason == "has no program for this device":
        return f"needs {experiment.needs.upper()}, which is not installed here"
    return reason


# ---- running -----------------------------------------------------------------------------------

class Session:
    """Builds and runs experiments; `merged` is what was measured, `timelines` the drawn iterations
    by id. `keep(session, experiment)` is called after each."""

    def __init__(self, ready, chosen, commit, limit=None, extra=(), keep=None):
        self.ready, self.chosen, self.commit, self.limit = ready, chosen, commit, limit
        self.extra, self.keep = list(extra), keep
        self.merged, self.timelines, self.failures = results.Results(), {}, []

    def run(self):
        failed = build.build(self.ready, "gpu", [e.id for e in self.chosen])
        with lock.gpu(self.ready.gpu.uuid):
            for experiment in self.chosen:
                reason = failed.get(experiment.id)
                if reason:
                    reason = why_not_built(experiment, reason)
                else:
                    reason = self._one(experiment)
                if reason:
                    self.failures.append(experiment.id)
                    term.say(f"\n{experiment.id}: {term.one_line(reason)}", term.RED)
        if self.failures:
            term.error(f"{len(self.failures)} of {len(self.chosen)} not measured: "
                       + ", ".join(self.failures))
        return 1 if self.failures else 0

    def _one(self, experiment):
        commit, dirty = self.commit
        with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
            drawn = Path(folder) / "timelines.json"
            command = ["bench", "--timelines", drawn, "--commit", commit or "unknown",
                       "--dirty", int(bool(dirty)), *self.extra]
            outcome = measure.call(experiment, "gpu", command, self.limit or 300, term.Progress(),
                                   "checking and timing")
            if not outcome.ok:
                return outcome.reason
            found = results.parse(outcome.data, "what its program wrote")
            timelines = parse_timelines(drawn.read_text(), "what its program drew") \
                if drawn.is_file() else None
        if timelines and found.context.get("date"):
            timelines["context"].setdefault("date", found.context["date"])
        for row in found.rows.values():
            row.words.setdefault("commit", commit)
            row.words.setdefault("date", str(found.context.get("date", ""))[:10])
        found.context["left_out"] = [f"{experiment.id}: {line}" for line in re.findall(
            r"^left out: (.*)$", outcome.ran.out, re.M)]
        table(experiment, found)
        before = self.merged.context.get("left_out", [])
        self.merged.context = {**found.context, "left_out": before + found.context["left_out"]}
        self.merged.rows.update(found.rows)
        if timelines and timelines["timelines"]:
            self.timelines[experiment.id] = timelines
        if self.keep:
            self.keep(self, experiment)
        return ""


def check(ready, chosen, limit=None, quiet=False):
    """{id: "" or what is wrong}, in the order of `chosen`; each said as it comes."""
    failed = build.build(ready, "gpu", [e.id for e in chosen])
    reasons = {}
    with lock.gpu(ready.gpu.uuid):
        for e in chosen:
            reason, count = failed.get(e.id), 0
            if reason:
                reason = why_not_built(e, reason)
            else:
                outcome = measure.call(e, "gpu", ["check"], limit or 300, term.Progress(),
                                       "checking")
                reason = outcome.reason
                count = len((outcome.data or {}).get("benchmarks", []))
            reasons[e.id] = reason
            if quiet:
                continue
            term.say(f"{e.id}: " + (term.one_line(reason) if reason else
                                    f"{count} variants of its workloads right"),
                     term.RED if reason else None)
    return reasons


# ---- tables ------------------------------------------------------------------------------------

def workloads(data, experiment_id):
    """{workload: [rows]} in the order of the file."""
    found = {}
    for row in data.rows.values():
        if row.is_experiment and row.subject == experiment_id:
            found.setdefault(row.workload, []).append(row)
    return found


def columns(rows):
    """The counters that some of the rows have: (those of every experiment, its own)."""
    have = {counter for row in rows for counter in row.counters}
    return [c for c in COLUMNS if c in have], sorted(have - KNOWN)


def times_first(row):
    ratio, spread = row.get("vs_first"), row.half_range("vs_first")
    if ratio is None:
        return "-"
    return f"{ratio:.2f}" + (f" ±{spread:.2f}" if spread is not None else "")


def table(experiment, data):
    titles = {"host_us": "host us", "latency_us": "alone us", "pct_floor": "floor%"}
    for workload, rows in workloads(data, experiment.id).items():
        term.say(f"\n{experiment.id}, {workload}, {data.context['gpu']}", term.BOLD)
        shared, _ = columns(rows)
        shown = term.Table([("variant", 20), ("time", 7), ("x first", 12)]
                           + [(titles.get(c, COLUMNS[c]), 8) for c in shared])
        shown.header()
        for row in rows:
            shown.row([row.variant, term.duration(row.seconds).replace(" ", ""), times_first(row)]
                      + [short(row.get(c)) for c in shared])
    for line in data.context.get("left_out") or []:
        term.say(f"left out: {line}", term.DIM)
    term.say(LEGEND, term.DIM)


def short(value):
    """Three digits that matter."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 \
        else f"{value:.2f}"


# ---- timelines -----------------------------------------------------------------------------------

def parse_timelines(text, name):
    """The file of drawn iterations; a damaged one is an error that says so."""
    try:
        data = json.loads(text)
        well = isinstance(data["context"], dict)
        for line in data["timelines"]:
            well &= isinstance(line["workload"], str) and isinstance(line["variant"], str)
            for span in line["spans"]:
                well &= isinstance(span["lane"], str) and isinstance(span["name"], str)
                well &= float(span["end_us"]) >= float(span["begin_us"])
    except (ValueError, KeyError, TypeError):
        well = False
    if not well:
        raise UserError(f"{name} is no file of timelines: damaged, or of something else")
    return data


def load_timelines(path):
    try:
        return parse_timelines(Path(path).read_text(encoding="utf-8"), paths.shown(path))
    except OSError as error:
        raise UserError(f"cannot read {paths.shown(path)}: {error.strerror}") from None


def save_timelines(path, data):
    context = {k: v for k, v in data["context"].items() if k in results.CONTEXT}
    files.write_text(path, json.dumps({**data, "context": context}, indent=0) + "\n")


def chrome(data):
    """Trace Event Format, for https://ui.perfetto.dev: a process for each iteration."""
    events = []
    for process, line in enumerate(data["timelines"], 1):
        name = f"{line['workload']}, {line['variant']}"
        events.append({"ph": "M", "name": "process_name", "pid": process, "tid": 0,
                       "args": {"name": name}})
        for thread, lane in enumerate(lanes(line), 1):
            events.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread,
                           "args": {"name": lane}})
            events += [{"ph": "X", "name": s["name"], "cat": lane, "pid": process, "tid": thread,
                        "ts": s["begin_us"], "dur": s["end_us"] - s["begin_us"]}
                       for s in line["spans"] if s["lane"] == lane]
    return {"traceEvents": events, "displayTimeUnit": "ns",
            "otherData": {"experiment": data.get("experiment", ""), **data["context"]}}


def lanes(line):
    """The host first, then as they begin; stream 2 before stream 10."""
    found = list(dict.fromkeys(s["lane"] for s in line["spans"]))
    number = lambda lane: [int(t) if t.isdigit() else t  # noqa: E731
                           for t in re.split(r"(\d+)", lane)]
    if all(re.fullmatch(r"stream \d+|host", lane) for lane in found):
        found.sort(key=number)
    return sorted(found, key=lambda lane: lane != "host")


def timelines_file(folder, experiment_id):
    return Path(folder) / f"timelines-{experiment_id}.json"


def recorded_timelines(results_file, experiment_id):
    """plots/results/timelines/nvidia-h200/30_name.json beside plots/results/nvidia-h200.json."""
    results_file = Path(results_file)
    return results_file.parent / "timelines" / results_file.stem / f"{experiment_id}.json"
