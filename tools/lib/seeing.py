"""Calls plots/see.py, the pictures that explain: what `./ladder plot --kind` takes besides."""
from pathlib import Path

from . import child, files, paths, plots, setup, sizes, steps, term

KINDS = ("roofline", "waits", "bytes", "stages", "tile", "banks", "utilisation")
SCRIPT = plots.SCRIPT.with_name("see.py")


def plot(kind, what, size, out):
    """Draws, prints the names; 0."""
    words = [str(word) for word in what]
    if kind == "banks":
        if len(words) != 1:
            raise term.UserError("banks takes one step: ./ladder plot --kind banks 11")
        words = [steps.one(words[0]).id]
    elif not words and kind != "bytes":
        words = [str(_default(kind))]
    if size:
        sizes.parse(size)
    files.writable_folder(out)
    ready = setup.ready()
    if not ready.plot_python:
        raise term.UserError("plots need matplotlib: apt-get install python3-matplotlib")
    done = child.run([ready.plot_python, SCRIPT, kind, *words, "-o", out,
                      *(["--sizes", size] if size else [])], limit=180)
    if not done.ok:
        raise term.UserError(child.why(done, 180), done.code or 2)
    for line in done.out.splitlines():
        term.say(paths.shown(Path(line)))
    return 0


def _default(kind):
    """The recorded file of this kind."""
    if kind == "waits":
        found = sorted((paths.RECORDED / "profiles").glob("*.json"))
    elif kind in ("stages", "tile"):
        found = sorted(paths.OUT.glob("sweep-*.json"))
    else:
        last = paths.OUT / "results.json"
        found = [last] if last.is_file() else sorted(paths.RECORDED.glob("*.json"))
    if not found:
        how = {"waits": "./ladder profile STEP --record",
               "stages": "./ladder sweep 12 NUM_STAGES=2..6",
               "tile": "./ladder sweep 12 BLOCK_K=16..64*2"}.get(kind, "./ladder run")
        raise term.UserError(f"nothing to draw yet: {how} writes a file for {kind}")
    return found[0]
