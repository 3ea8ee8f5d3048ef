"""Checking steps on the emulated device, with its counters in the place of times."""
from . import build, measure, sizes, term

SMALL = (256, 256, 256)


def check(setup, chosen, size_list=None, seed=None, limit=None, suite=False,
          extra_steps=None, names=None):
    """Prints a row per step; returns the exit code. Without sizes: the step's own list of shapes
    (`suite`), or one small one, the nearest that it takes."""
    failed = {s.id: "is GPU-only: it includes CUDA's own headers" for s in chosen if s.gpu_only}
    failed |= build.build(setup, "emulated", [s.id for s in chosen if not s.gpu_only], extra=extra_steps)
    term.say("\nemulated device: the same kernels on this CPU, checked; no times, they would mean "
             "nothing", term.BOLD)
    table = term.Table([("step", 28), ("size", 14), ("right", 5), ("sect/req", 8), ("used%", 5),
                        ("conflict", 8), ("barriers", 8)])
    table.header()
    wrong = []
    for step in chosen:
        name = (names or {}).get(step.id, step.id)
        reason = failed.get(step.id)
        outcome = None
        if not reason:
            outcome = _one(step, size_list, seed, limit, suite)
            reason = outcome.reason
        if reason:
            wrong.append(step.id)
            table.failed(name, reason)
            _tell_report(outcome)
            continue
        for size, _, _, found in measure.shapes(outcome):
            table.row([name, size, "yes", *cells(found)])
    term.say(LEGEND, term.DIM)
    if wrong:
        term.error(f"{len(wrong)} of {len(chosen)} not right: {', '.join(wrong)}")
    return 1 if wrong else 0


LEGEND = """\
sect/req: 32-byte sectors per global request of a warp (4 is ideal for 4-byte lanes);
used%: bytes used of bytes moved; conflict: shared-memory wavefronts beyond the ideal, in %;
barriers: waits of a block, all blocks together."""


def _one(step, size_list, seed, limit, suite):
    progress = term.Progress()
    if size_list or suite:
        return measure.check(step, "emulated", size_list or (), seed, progress, limit)
    outcome = measure.check(step, "emulated", [SMALL], seed, progress, limit)
    nearest = measure.nearest_legal(outcome.reason) if outcome.refused else None
    if nearest and sizes.flops(nearest) <= 64 * sizes.flops(SMALL):
        return measure.check(step, "emulated", [nearest], seed, progress, limit)
    return outcome


def _tell_report(outcome):
    """The emulator's whole report under the red row: it is what a learner needs."""
    if outcome and outcome.ran and outcome.ran.code == 1:
        lines = [line for line in (outcome.ran.out + outcome.ran.err).splitlines() if line.strip()]
        for line in lines[:40]:
            term.say("    " + line)
        if len(lines) > 40:
            term.say(f"    ... {len(lines) - 40} more lines")


def cells(c):
    """The cells of the table from a step's counters; a dash where there is none."""
    def ratio(a, b, scale=1.0, less=0.0):
        return None if not c.get(b) or c.get(a) is None else scale * (c[a] / c[b] - less)

    return [term.number(ratio("global_sectors", "global_requests")),
            term.number(ratio("global_bytes_used", "global_bytes_moved", 100), 0),
            term.number(ratio("shared_wavefronts", "shared_wavefronts_ideal", 100, 1), 0),
            term.number(c.get("barriers"), 0)]
