"""Calls plots/plot.py with an interpreter that has matplotlib."""
from pathlib import Path

from . import child, term

SCRIPT = Path(__file__).resolve().parents[2] / "plots" / "plot.py"


def experiment(setup, experiment_id, file, timelines, out, recorded=False):
    """Bars of its variants and, where some were drawn, timelines with a file for Perfetto."""
    import json

    from . import experiments, files
    if not setup.plot_python:
        return []
    script, made = SCRIPT.with_name("experiment.py"), []
    commands = [["bars", file, experiment_id]]
    if Path(timelines).is_file():
        commands.append(["timeline", timelines])
    for words in commands:
        done = child.run([setup.plot_python, script, *words, "-o", out,
                          *(["--recorded"] if recorded else [])], limit=120)
        if not done.ok:
            raise term.UserError(child.why(done, 120), done.code or 2)
        made += [Path(line) for line in done.out.splitlines() if line.strip()]
    if Path(timelines).is_file():
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
        command = [setup.plot_python, SCRIPT, kind, file, "-o", out, *extra]
        if recorded:
            command.append("--recorded")
        progress = term.Progress()
        done = child.run(command, limit=120, tick=lambda s: progress.show("drawing"))
        progress.clear()
        if done.ok:
            made += [Path(line) for line in done.out.splitlines() if line.strip()]
        else:
            raise term.UserError(child.why(done, 120), done.code or 2)
    return made
