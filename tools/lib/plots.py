"""Calls plots/plot.py with an interpreter that has matplotlib."""
from pathlib import Path

from . import child, term

SCRIPT = Path(__file__).resolve().parents[2] / "plots" / "plot.py"


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
