"""Result files: Google Benchmark's JSON with the names and counters of DESIGN.md.

A file is read into `Results`: its context and one `Row` for each name, the medians of the samples
with their spread. Rows are written as aggregates (median, cv, min, max) alone.
"""
import json
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from . import files, kinds, sizes
from .paths import shown
from .term import UserError

AGGREGATES = ("median", "cv", "min", "max")
# What Google Benchmark itself puts into a row; everything else there is a counter.
OWN = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
       "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit",
       "aggregate_name", "aggregate_unit", "label", "error_occurred", "error_message"}
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
# Per row, kept when a row is recorded: rows of one file may come from different commits.
ROW_WORDS = ("commit", "date", "unit")
# Counters whose spread is kept when rows are written; of the others the median is enough.
SPREAD = ("seconds", "tflops", "vs_previous", "vs_cublas_default", "vs_cublas_best", "vs_first",
          "pct_floor")
REGIMES = ("burst", "sustained")
# Of a file's context, what is kept when it is recorded; the rest is about one process.
CONTEXT = ("gpu", "driver", "cuda", "cublas", "power_limit_w", "method", "date", "sm", "sms",
           "peak_tflops", "commit", "dirty", "left_out")


@dataclass
class Row:
    name: str  # 06_warp_tile/4096x4096x4096/burst
    seconds: float | None = None
    counters: dict = field(default_factory=dict)  # medians
    spread: dict = field(default_factory=dict)  # {counter or "seconds": {"cv":, "min":, "max":}}
    words: dict = field(default_factory=dict)  # commit, date

    @property
    def subject(self):
        return self.name.split("/")[0]

    @property
    def size(self):
        parts = self.name.split("/")
        for i, part in enumerate(parts):
            if i and re.fullmatch(r"\d+x\d+x\d+", part):
                kind = parts[i + 1] if i + 2 < len(parts) and kinds.is_kind(parts[i + 1]) else ""
                return sizes.with_kind(map(int, part.split("x")), kind)
        return None

    @property
    def regime(self):
        last = self.name.split("/")[-1]
        return last if "/" in self.name else ""

    @property
    def is_experiment(self):
        """Of NN_name/workload/variant."""
        return (re.fullmatch(r"\d\d_\w+/[^/]+/[^/]+", self.name) is not None
                and self.regime not in REGIMES)

    @property
    def workload(self):
        return self.name.split("/")[1]

    @property
    def variant(self):
        return self.name.split("/")[2]

    @property
    def is_step(self):
        return re.match(r"\d\d_", self.subject) is not None and not self.is_experiment

    def get(self, counter):
        return self.counters.get(counter)

    def half_range(self, counter):
        """Half the distance from the least to the greatest sample, or None."""
        spread = self.spread.get(counter, {})
        if spread.get("min") is not None and spread.get("max") is not None:
            return (spread["max"] - spread["min"]) / 2
        if spread.get("cv") is not None and self.get(counter) is not None:
            return abs(spread["cv"] * self.get(counter))
        return None


@dataclass
class Results:
    context: dict = field(default_factory=dict)
    rows: dict = field(default_factory=dict)  # {name: Row}

    def find(self, subject, size, regime):
        return self.rows.get(f"{subject}/{sizes.text(size)}/{regime}") or self.rows.get(
            f"{subject}/{regime}")

    def value(self, subject, size, regime, counter="tflops"):
        row = self.find(subject, size, regime)
        return row.get(counter) if row else None

    def subjects(self):
        """The steps; not their variants (11_swizzle.padding), nor the copies of a sweep."""
        return sorted({row.subject for row in self.rows.values()
                       if re.fullmatch(r"\d\d_\w+", row.subject) and row.is_step})

    def sizes(self):
        found = {row.size for row in self.rows.values() if row.is_step and row.size}
        return sorted(found, key=lambda s: (sizes.flops(s), s))

    def regimes(self):
        return [r for r in REGIMES if any(row.regime == r for row in self.rows.values())]

    def peak(self):
        """The datasheet's peak in TFLOPS: said in the context, else from any row with both."""
        if self.context.get("peak_tflops"):
            return float(self.context["peak_tflops"])
        for row in self.rows.values():
            if row.get("tflops") and row.get("pct_peak"):
                return row.get("tflops") / row.get("pct_peak") * 100
        return None


def load(path):
    """A result file. A damaged or foreign one is an error that says so."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {shown(path)}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{shown(path)} is not a result file: it is not text") from None
    try:
        data = json.loads(text)
    except ValueError as error:
        where = f"line {error.lineno}" if hasattr(error, "lineno") else "somewhere"
        raise UserError(f"{shown(path)} is damaged or cut short: no JSON from {where} on; "
                        "measure again or fetch the file again") from None
    return parse(data, shown(path))


def parse(data, name="it"):
    context = data.get("context") if isinstance(data, dict) else None
    rows = data.get("benchmarks") if isinstance(data, dict) else None
    if not isinstance(context, dict) or not isinstance(rows, list):
        raise UserError(f"{name} is not a result file of the ladder: it has no context and "
                        "benchmarks; ./ladder run writes one")
    if "method" not in context or "gpu" not in context:
        raise UserError(f"{name} is not a result file of the ladder: its context names no gpu and "
                        "method (another Google Benchmark file?)")
    samples, result = {}, Results(dict(context))
    for entry in rows:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise UserError(f"{name} is damaged: a row without a name")
        if entry.get("error_occurred"):
            continue
        run_name = entry.get("run_name") or entry["name"]
        kind = entry.get("aggregate_name") if entry.get("run_type") == "aggregate" else None
        if kind and entry["name"].endswith("_" + kind) and "run_name" not in entry:
            run_name = entry["name"][: -len(kind) - 1]
        run_name = clean_name(run_name)
        if kind is None:
            samples.setdefault(run_name, []).append(entry)
        elif kind in AGGREGATES:
            row = result.rows.setdefault(run_name, Row(run_name))
            _take_aggregate(row, kind, entry)
    for run_name, entries in samples.items():
        row = result.rows.setdefault(run_name, Row(run_name))
        _take_samples(row, entries)
    return result


def clean_name(name):
    """Without what Google Benchmark adds: /iterations:1, /repeats:5, /manual_time."""
    return re.sub(r"/(iterations:\d+|repeats:\d+|manual_time|real_time|process_time)", "", name)


def _numbers(entry):
    values = {k: float(v) for k, v in entry.items()
              if k not in OWN and isinstance(v, (int, float)) and not isinstance(v, bool)}
    if isinstance(entry.get("real_time"), (int, float)):
        values["seconds"] = entry["real_time"] * UNITS.get(entry.get("time_unit", "ns"), 1e-9)
    return values


def _words(row, entry):
    row.words.update({k: entry[k] for k in ROW_WORDS if isinstance(entry.get(k), str)})


def _take_aggregate(row, kind, entry):
    values = _numbers(entry)
    _words(row, entry)
    if kind == "cv" and isinstance(entry.get("real_time"), (int, float)):
        values["seconds"] = entry["real_time"]  # a ratio: it has no unit
    if kind == "median":
        row.seconds = values.pop("seconds", None)
        row.counters.update(values)
    else:
        for counter, value in values.items():
            row.spread.setdefault(counter, {})[kind] = value


def _take_samples(row, entries):
    columns = {}
    for entry in entries:
        _words(row, entry)
        for counter, value in _numbers(entry).items():
            columns.setdefault(counter, []).append(value)
    for counter, values in columns.items():
        median = statistics.median(values)
        if counter == "seconds":
            row.seconds = median if row.seconds is None else row.seconds
        else:
            row.counters.setdefault(counter, median)
        spread = row.spread.setdefault(counter, {})
        spread.setdefault("min", min(values))
        spread.setdefault("max", max(values))
        if len(values) > 1 and median:
            spread.setdefault("cv", statistics.stdev(values) / abs(statistics.fmean(values) or 1))


# ---- merging and writing -----------------------------------------------------------------------

def baselines(step_rows):
    """The rows of cuBLAS and of the ceilings: for each, the median over the children that measured
    it beside their step. In the sustained regime a block inherits the heat of those before it, so
    cuBLAS' tensor kernels count only where the step was of the same kind, if there is such a step:
    after a CUDA-core kernel, which draws 460 W and not 700, they would read as after a pause."""
    gathered = {}
    step_rows = [row for row in step_rows if row.is_step]
    hottest = next((unit for unit in ("wgmma", "mma_sync")
                    if any(row.words.get("unit") == unit for row in step_rows)), None)
    for row in step_rows:
        rest = row.name.split("/", 1)[1]
        subjects = {"cublas_default": "cublas_default_tflops",
                    "cublas_best": "cublas_best_tflops", "cublas_fp32": "cublas_fp32_tflops"}
        if row.words.get("unit"):
            subjects[f"ceiling_{row.words['unit']}"] = "ceiling_tflops"
        for subject, counter in subjects.items():
            if subject in ("cublas_default", "cublas_best") and row.regime == "sustained" \
                    and row.words.get("unit") != hottest and hottest:
                continue
            if row.get(counter):
                gathered.setdefault(f"{subject}/{rest}", []).append(row.get(counter))
    rows = {}
    for name, values in gathered.items():
        row = rows[name] = Row(name)
        median = statistics.median(values)
        row.counters["tflops"] = median
        row.counters["children"] = float(len(values))
        if row.size and name.startswith("cublas"):
            row.seconds = sizes.flops(row.size) / median / 1e12
        row.spread["tflops"] = {"min": min(values), "max": max(values)}
        if len(values) > 1:
            row.spread["tflops"]["cv"] = statistics.stdev(values) / statistics.fmean(values)
    return rows


def merge(children):
    """One Results of many children's."""
    merged = Results(dict(children[0].context) if children else {})
    for child in children:
        merged.rows.update(child.rows)
    merged.context["left_out"] = [line for child in children
                                  for line in child.context.get("left_out", [])]
    add_baselines(merged)
    return merged


def add_baselines(merged):
    """Derives the baselines' rows anew from those of the steps."""
    peak = merged.peak()
    if peak:
        merged.context["peak_tflops"] = round(peak, 2)
    for name, row in baselines(merged.rows.values()).items():
        if peak:
            row.counters["pct_peak"] = row.get("tflops") / peak * 100
        merged.rows[name] = row


def order(name):
    """Steps by number, then cuBLAS, then ceilings; sizes by FLOP; burst before sustained. The rows
    of experiments last, in the order in which they were measured."""
    row = Row(name)
    if row.is_experiment:
        return (1 << 120, (0, 0, 0), 0, row.subject, "")
    group = 0 if row.is_step else 1 if row.subject.startswith("cublas") else 2
    size = row.size or (0, 0, 0)
    return (sizes.flops(size), size, group, row.subject, row.regime)


def as_json(results):
    entries = []
    for name in sorted(results.rows, key=order):
        row = results.rows[name]
        for kind in AGGREGATES:
            values = _aggregate(row, kind)
            if values:
                entries.append({"name": f"{name}_{kind}", "run_name": name,
                                "run_type": "aggregate", "aggregate_name": kind, **values,
                                **(row.words if kind == "median" else {})})
    return {"context": results.context, "benchmarks": entries}


def _aggregate(row, kind):
    if kind == "median":
        values = dict(row.counters)
        seconds = row.seconds
    else:
        values = {c: s[kind] for c, s in row.spread.items() if kind in s and c in SPREAD}
        seconds = values.pop("seconds", None)
    values = {c: _rounded(v) for c, v in sorted(values.items())}
    if seconds is not None:
        scale = 1 if kind == "cv" else 1e6
        values = {"real_time": _rounded(seconds * scale), "time_unit": "us", **values}
    return values


def _rounded(value):
    return float(f"{value:.6g}")


def save(results, path):
    files.write_json(path, as_json(results))


def name_of(gpu):
    """nvidia-h200 for 'NVIDIA H200'."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


def file_of(gpu):
    return name_of(gpu) + ".json"


def same_method(one, other):
    """"" when rows of the two may stand in one file, else what differs."""
    for key in ("gpu", "driver", "method"):
        if str(one.get(key)) != str(other.get(key)):
            return f"{key} is {other.get(key)}, the recorded rows have {one.get(key)}"
    return ""


def problems(results):
    """What keeps a file out of plots/results: one line each. Used for files from elsewhere too."""
    found = [f"its context lacks {key}" for key in ("gpu", "driver", "cuda", "method", "date")
             if not results.context.get(key)]
    if "synthetic" in str(results.context.get("gpu", "")).lower():
        found.append("its numbers are synthetic")
    if str(results.context.get("dirty", "0")).lower() not in ("0", "false", "0.0"):
        found.append("it was measured from a tree with changes (dirty)")
    if not any(row.is_step or row.is_experiment for row in results.rows.values()):
        found.append("it has no row of a step")
    for name, row in sorted(results.rows.items()):
        if row.is_experiment and not (row.seconds and row.get("time_us") and abs(
                row.seconds * 1e6 / row.get("time_us") - 1) < 0.02):
            found.append(f"{name}: is neither NN_idea/MxNxK/burst or /sustained nor an "
                         "experiment's, with its time twice")
            continue
        if row.is_step and (row.size is None or row.regime not in REGIMES):
            found.append(f"{name}: is not NN_idea/MxNxK/burst or /sustained")
            continue
        if (row.is_step or row.is_experiment) and row.words.get("commit",
                                                                "unknown") == "unknown":
            found.append(f"{name}: has no commit")
        if any(not (value == value and abs(value) < 1e18) for value in row.counters.values()):
            found.append(f"{name}: has a counter that is no number")
        peak = results.peak()
        if row.is_step and not 0 < (row.get("tflops") or 0) < 1.2 * (peak or 1e5):
            found.append(f"{name}: {row.get('tflops')} TFLOPS is not possible")
        if row.is_step and row.seconds and row.get("tflops"):
            said = sizes.flops(row.size) / row.seconds / 1e12
            if abs(said / row.get("tflops") - 1) > 0.02:
                found.append(f"{name}: its time says {said:.3g} TFLOPS, its counter "
                             f"{row.get('tflops'):.3g}")
    return found
