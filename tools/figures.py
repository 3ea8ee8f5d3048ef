"""Draw the pictures that READMEs and notes show, from what is recorded.

  ./ladder figures            draws those whose input has changed, into plots/figures/
  ./ladder figures --check    only says which are stale (exit code 1), as the tests do

Timelines come from plots/results/traces/, sweeps from plots/results/sweeps/, waits from
plots/results/profiles/, roofline and utilisation from plots/results/, as do experiments and their
timelines; banks from the kernels themselves; what roofline and bytes predict, from counts.json. A
picture without recorded input is left out. Each SVG holds a fingerprint of its input.
"""
import hashlib
import json

from .lib import (banks, child, counts, experiments, occupancy, paths, plots, results, setup, steps,
                  suite, term)

FOLDER = paths.ROOT / "plots" / "figures"
BANKS = ("08", "11", "11.padding", "16", "23")
COMPARE = ("09", "10", "12", "15", "19", "21", "23")


def arguments(parser):
    parser.add_argument("--check", action="store_true", help="draw nothing")


def main(args):
    wanted = list(figures())
    old = [figure for figure in wanted if not is_fresh(*figure[:2])]
    gone = {figure[0] for figure in wanted}
    left = [file for file in sorted(FOLDER.glob("*.svg")) if file.stem not in gone]
    if args.check:
        for name, *_ in old:
            term.say(f"stale: {paths.shown(FOLDER / name)}.svg")
        for file in left:
            term.say(f"no longer drawn: {paths.shown(file)}")
        if old or left:
            raise term.UserError("pictures do not show what is recorded: run ./ladder figures", 1)
        return 0
    ready = setup.ready() if old else None
    if old and not ready.plot_python:
        raise term.UserError("figures need matplotlib: apt-get install python3-matplotlib")
    for name, fingerprint, script, words in old:
        done = child.run([ready.plot_python, plots.SCRIPT.with_name(script), *words, "-o", FOLDER,
                          "--name", name, "--svg", "--fingerprint", fingerprint], limit=180)
        if not done.ok:
            raise term.UserError(f"{name}: {child.why(done, 180)}", done.code or 2)
        term.say(f"{paths.shown(FOLDER / name)}.svg: drawn")
    for file in left:
        file.unlink()
        term.say(f"{paths.shown(file)}: removed")
    return 0


def figures():
    """(name, fingerprint of the input, script, its words) of every picture that has input."""
    for number in BANKS:
        try:
            step = steps.one(number)
            access = [(a.what, a.expression, a.bytes) for a in banks.read(step)]
        except term.UserError:
            continue
        yield (f"banks-{step.id}", digest(json.dumps([step.id, access])), "see.py",
               ["banks", step.id])
    for folder in sorted((paths.RECORDED / "traces").glob("*/")):
        traces = {file.stem: file for file in sorted(folder.glob("*.json"))}
        for name, file in traces.items():
            yield (f"trace-{name}-{folder.name}", digest(file), "trace.py", ["one", file])
        chosen = [file for number in COMPARE for name, file in traces.items()
                  if name.startswith(number + "_") and "-" not in name]
        if len(chosen) > 1:
            yield (f"trace-compare-{folder.name}", digest(*chosen), "trace.py",
                   ["compare", *chosen])
    for file in sorted((paths.RECORDED / "sweeps").glob("*/*.json")):
        kind = (["see.py", ["stages", file]] if file.stem.endswith("-NUM_STAGES")
                else ["plot.py", ["sweep", file, "--recorded"]])
        yield (f"sweep-{file.stem}-{file.parent.name}", digest(file), *kind)
    for file in sorted((paths.RECORDED / "profiles").glob("*.json")):
        yield f"waits-{file.stem}", digest(file), "see.py", ["waits", file]
    for file in sorted(suite.KEPT.glob("*.json")):
        yield (f"suite-{file.stem}", digest(file, suite.FILE), "plot.py",
               ["suite", file, "--recorded"])
    counted = json.dumps({step: {k: v for k, v in entry.items() if k != "kernel"}
                          for step, entry in counts.load().items()})  # a remark changes no number
    for file in sorted(paths.RECORDED.glob("*.json")):
        data = results.load(file)
        for e in experiments.everything():
            rows = experiments.workloads(data, e.id)
            if rows:
                yield (f"experiment-{e.id}-{file.stem}", digest(repr(rows)), "experiment.py",
                       ["bars", file, e.id, "--recorded"])
            timelines = experiments.recorded_timelines(file, e.id)
            if timelines.is_file():
                yield (f"timeline-{e.id}-{file.stem}", digest(timelines), "experiment.py",
                       ["timeline", timelines, "--recorded"])
        try:
            occupancy.gpu(str(data.context["gpu"]))
        except term.UserError:
            continue  # nothing is known of it that these show
        yield f"roofline-{file.stem}", digest(file, counted), "see.py", ["roofline", file]
        if any(row.get("gpu_util_nvml_pct") is not None for row in data.rows.values()):
            yield f"utilisation-{file.stem}", digest(file), "see.py", ["utilisation", file]
        profiles = paths.RECORDED / "profiles" / file.name
        kept = [file, profiles] if profiles.is_file() else [file]
        yield f"bytes-{file.stem}", digest(counted, *kept), "see.py", ["bytes", file]


def digest(*inputs):
    found = hashlib.sha256()
    for item in inputs:
        found.update(item.encode() if isinstance(item, str) else item.read_bytes())
    return found.hexdigest()[:16]


def is_fresh(name, fingerprint):
    file = FOLDER / f"{name}.svg"
    return file.is_file() and f"input {fingerprint}" in file.read_text(encoding="utf-8",
                                                                       errors="replace")
