"""Calls plots/plot.py and its neighbours with an interpreter that has matplotlib."""
import json
from pathlib import Path

from . import child, experiments, files, term

SCRIPT = Path(__file__).resolve().parents[2] / "plots" / "plot.py"


def experiment(setup, experiment_id, file, timelines, out, recorded=False):
    """Bars of its variants and, where some were drawn, timelines with a file for Perfetto."""
    if not setup.plot_python:
        return []
    words = ["--recorded"] if recorded else []
    script = SCRIPT.with_name("experiment.py")
    made = _call(setup, script, "bars", file, experiment_id, "-o", out, *words)
    if Path(timelines).is_file():
        made += _call(setup, script, "timeline", timelines, "-o", out, *words)
        made.append(Path(out) / f"timeline-{experiment_id}.perfetto.json")
        files.write_text(made[-1], json.dumps(experiments.chrome(
            experiments.load_timelines(timelines)), separators=(",", ":")) + "\n")
    return made


def draw(setup, file, out, kinds=("ladder", "sizes"), recorded=False, extra=()):
    """The pictures made, PNG first; an empty list when there is no matplotlib."""
    if not setup.plot_python:
        return []
    made = []
    for kind in kinds:
        made += _call(setup, SCRIPT, kind, file, "-o", out, *extra,
                      *(["--recorded"] if recorded else []))
    return made


def _call(setup, script, *words):
    """The names that it prints."""
    progress = term.Progress()
    done = child.run([setup.plot_python, script, *words], limit=120,
                     tick=lambda s: progress.show("drawing"))
    progress.clear()
    if not done.ok:
        raise term.UserError(child.why(done, 120), done.code or 2)
    return [Path(line) for line in done.out.splitlines() if line.strip()]
