"""What is known of a step without a GPU beside its constants: how much it moves, as the emulated
device counts it (sectors per request, bank conflicts), and the registers that ptxas gave it.

Counters grow with the number of blocks and, in each, linearly with K. So two runs at different K
give what a block costs once (epilogue, prologue) and for each element of K. Kept in
tools/counts.json with a hash of the kernel; `./ladder predict --refresh` counts anew.
"""
import hashlib
import json
import re
import tempfile
from pathlib import Path

from . import build, child, files, measure, paths

FILE = paths.ROOT / "tools" / "counts.json"
SHAPE, SHAPE2 = (512, 512, 128), (512, 512, 256)


def digest(step):
    text = "".join(f.read_text(encoding="utf-8") for f in
                   sorted([step.kernel, *step.folder.glob("*.h")]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load():
    try:
        return json.loads(FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def of(step, kept=None):
    """{counter: (once, per k)} over a problem of SHAPE's M and N, or None if never counted."""
    entry = (load() if kept is None else kept).get(step.id)
    return {k: tuple(v) for k, v in entry["counts"].items()} if entry else None


def resources(step, sm, kept=None):
    """(registers of a thread, static shared memory) as built for this compute capability, or for
    the nearest older one that was built; None if never built."""
    entry = (load() if kept is None else kept).get(step.id, {}).get("resources", {})
    fit = [int(arch) for arch in entry if int(arch) <= sm] or [int(arch) for arch in entry]
    return tuple(entry[str(max(fit))]) if fit else None


def is_fresh(step, kept=None):
    entry = (load() if kept is None else kept).get(step.id)
    return bool(entry) and entry["kernel"] == digest(step)


def refresh(ready, chosen, say=lambda *_: None):
    """Counts the steps whose kernels changed; {step id: why not} for those that failed."""
    kept = load()
    stale = [s for s in chosen if not is_fresh(s, kept)]
    failed = build.build(ready, "emulated", [s.id for s in stale]) if stale else {}
    for step in stale:
        if step.id in failed:
            continue
        found = []
        for size in (SHAPE, SHAPE2):
            outcome = measure.check(step, "emulated", [size], limit=600)
            if not outcome.ok:
                failed[step.id] = outcome.reason
                break
            found.append(measure.shapes(outcome)[0][3])
        if len(found) == 2:
            kept[step.id] = {"kernel": digest(step), "shape": list(SHAPE[:2]),
                             "counts": _linear(*found), "resources": _compiled(ready, step)}
            say(step.id)
    files.write_json(FILE, dict(sorted(kept.items())))
    return failed


def _compiled(ready, step):
    """{compute capability: [registers, static shared memory]} by ptxas' own words."""
    found = {}
    for target in step.targets() if ready.nvcc else []:
        with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
            done = child.run([ready.nvcc, "-std=c++17", "-O3", "-I", paths.ROOT, "-Xptxas", "-v",
                              "-gencode", f"arch=compute_{target},code=sm_{target}",
                              f'-DSTEP_ID="{step.id}"', "-cubin", step.kernel,
                              "-o", Path(folder) / "kernel.cubin"], limit=300)
        uses = re.findall(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?", done.out + done.err)
        if uses:
            found[target.rstrip("a")] = [max(int(u[0]) for u in uses),
                                         max(int(u[1] or 0) for u in uses)]
    return found


def _linear(one, two):
    """Counter: [of K = 0, per element of K] over all blocks of the shape."""
    counts = {}
    for name in sorted(one.keys() | two.keys()):
        a, b = one.get(name, 0), two.get(name, 0)
        slope = (b - a) / (SHAPE2[2] - SHAPE[2])
        if a or b:
            counts[name] = [round(a - slope * SHAPE[2], 3), round(slope, 5)]
    return counts
