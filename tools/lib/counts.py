"""What is known of a step without a GPU beside its constants: how much it moves, as the emulated
device counts it (sectors per request, bank conflicts), and the registers that ptxas gave it.

Counters grow with the number of blocks and, in each, linearly with K. So two runs at different K
give what a block costs once (epilogue, prologue) and for each element of K. A step that chooses a
tile by size (29) is asked what it takes at each of SIZES, and counted with that. Kept in
tools/counts.json with a hash of the kernel; `./ladder predict --refresh` counts anew.
"""
import hashlib
import json
import re
import tempfile
from pathlib import Path

from . import build, child, files, kernel_facts, measure, paths, sizes, term

FILE = paths.ROOT / "tools" / "counts.json"
SHAPE, SHAPE2 = (512, 512, 128), (512, 512, 256)
SIZES = tuple((n,) * 3 for n in (2048, 4096, 6144, 8192, 12288, 16384))
SMS = 132  # of the GPU that is asked about


def digest(step):
    text = "".join(f.read_text(encoding="utf-8") for f in
                   sorted([step.kernel, *step.folder.glob("*.h")]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load():
    try:
        return json.loads(FILE.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def of(step, kept=None, size=None):
    """{counter: (once, per k)} over a problem of `shape`'s M and N, or None if never counted."""
    entry = _entry(step, kept, size)
    return {k: tuple(v) for k, v in entry["counts"].items()} if entry else None


def shape(step, kept=None, size=None):
    """M and N of the problem that was counted."""
    return _entry(step, kept, size)["shape"]


def choice(step, kept=None, size=None):
    """The configuration that the step takes at this size, or None where it has no choice, or was
    not asked."""
    entry = (load() if kept is None else kept).get(step.id) or {}
    return entry.get("choices", {}).get(sizes.text(size)) if size else None


def _entry(step, kept, size):
    kept = load() if kept is None else kept
    entry = kept.get(step.id)
    chosen = choice(step, kept, size)
    return entry["chosen"][chosen] if chosen else entry


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
        try:
            entry = {"kernel": digest(step), **_count(step, SHAPE[:2])}
            if choices := _choices(step):
                entry["choices"] = choices
                entry["chosen"] = {c: _count(step, _shape_for(c), c)
                                   for c in sorted(set(choices.values()))}
        except term.UserError as error:
            failed[step.id] = str(error)
            continue
        kept[step.id] = {**entry, "resources": _compiled(ready, step)}
        say(step.id)
    files.write_json(FILE, dict(sorted(kept.items())))
    return failed


def _count(step, m_n, config=None):
    """What is kept of one shape: its M and N, and the counters of two K."""
    found = []
    for k in (SHAPE[2], SHAPE2[2]):
        env = {"LADDER_GEMM_CONFIG": config} if config else None
        outcome = measure.check(step, "emulated", [(*m_n, k)], limit=600, env=env)
        if not outcome.ok:
            raise term.UserError(outcome.reason)
        found.append(measure.shapes(outcome)[0][3])
    return {"shape": list(m_n), "counts": _linear(*found)}


def _choices(step):
    """{size: configuration} at SIZES, {} for a step that has one way only."""
    done = child.run([build.program("emulated", step.id), "describe", "--sizes",
                      ",".join(map(sizes.text, SIZES)), "--sms", SMS], limit=60)
    try:
        found = json.loads(done.out)["choices"]
    except (ValueError, KeyError):
        raise term.UserError(f"describe: {child.why(done, 60)}") from None
    return {size: c for size, c in found.items() if kernel_facts.tile_of(c)}


def _shape_for(config):
    """M and N of two by two tiles, whole ones, for each CTA of a cluster."""
    m, n, cluster_m, _ = kernel_facts.tile_of(config)
    return 2 * m * cluster_m, 2 * n


def _compiled(ready, step):
    """{compute capability: [registers, static shared memory]} by ptxas' own words; of a kernel for
    several tiles, of that tile which kernel_facts reads."""
    facts, found = kernel_facts.read(step), {}
    tile = f"ILi{facts.get('BLOCK_M')}ELi{facts.get('BLOCK_N')}E"  # as names are mangled
    for target in step.targets() if ready.nvcc else []:
        with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
            done = child.run([ready.nvcc, "-std=c++17", "-O3", "-I", paths.ROOT, "-Xptxas", "-v",
                              "-gencode", f"arch=compute_{target},code=sm_{target}",
                              f'-DSTEP_ID="{step.id}"', "-cubin", step.kernel,
                              "-o", Path(folder) / "kernel.cubin"], limit=300)
        uses = re.findall(r"entry function '(\w+)'(?:.*\n)*?.*Used (\d+) registers"
                          r"(?:.*?(\d+) bytes smem)?", done.out + done.err)
        uses = [u for u in uses if tile in u[0]] or uses
        if uses:
            found[target.rstrip("a")] = [max(int(u[1]) for u in uses),
                                         max(int(u[2] or 0) for u in uses)]
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
