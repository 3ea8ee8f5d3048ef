"""Checking steps on the emulated device, with its counters in the place of times."""
import textwrap

from . import build, child, measure, sizes, term

SMALL = (256, 256, 256)


def check(setup, chosen, size_list=None, seed=None, limit=None, suite=False,
          extra_steps=None, names=None, allowed=lambda reason: False,
          report_lines=40, random=None):
    """Prints a row per step; returns the exit code. Without sizes: the step's own list of shapes
    (`suite`), or one small one, the nearest that it takes. A reason that is `allowed` is a row, but
    no failure."""
    failed = {s.id: "is GPU-only: it includes CUDA's own headers" for s in chosen if s.gpu_only}
    failed |= build.build(setup, "emulated", [s.id for s in chosen if not s.gpu_only],
                          extra=extra_steps)
    term.say("\nemulated device: the same kernels on this CPU, checked; no times, they would mean "
             "nothing", term.BOLD)
    width = max([20, *map(len, (names or {}).values())])
    table = term.Table([("step", width), ("size", 11), ("right", 5), ("MB read", 7),
                        ("sect/req", 8), ("used%", 5), ("smem x", 6), ("waits", 9)])
    table.header()
    wrong = []
    for step, outcome in child.side_by_side(
            chosen, lambda step: failed.get(step.id)
            or _one(step, size_list, seed, limit, suite, random)):
        name = (names or {}).get(step.id, step.id)
        reason = outcome if isinstance(outcome, str) else outcome.reason
        if reason:
            if not allowed(reason):
                wrong.append(name)
            table.failed(name, reason)
            _tell_report(outcome, report_lines)
            continue
        if random:
            table.row([name, f"{random} random", "yes"])
            continue
        shapes = measure.shapes(outcome)
        kinds = [] if size_list else [size for size, *_ in shapes if "/" in size]
        for size, _, _, found in shapes:
            if size not in kinds:
                table.row([name, size, "yes", *cells(found)])
        if kinds:  # too many to be looked at one by one
            table.row([name, f"{len(kinds)} more", "yes", " of other layouts, types, strides ..."])
    term.say(textwrap.fill(LEGEND, 79), term.DIM)
    if wrong:
        term.error(f"{len(wrong)} of {len(chosen)} not right: {', '.join(wrong)}")
    return 1 if wrong else 0


LEGEND = """\
Counters of one launch. MB read: from global memory, all threads together. sect/req: 32-byte
sectors per load of a warp (4: every lane the next 4 bytes). used%: bytes that lanes ask for
of bytes loaded, over 100 where lanes share. smem x: wavefronts of shared memory against the ideal,
1 without bank conflicts. waits: at __syncthreads and mbarriers, threads counted."""


def _one(step, size_list, seed, limit, suite, random=None):
    if random:
        return measure.check(step, "emulated", (), seed, limit=limit, random=random)
    if size_list or suite:
        return measure.check(step, "emulated", size_list or (), seed, limit=limit)
    outcome = measure.check(step, "emulated", [SMALL], seed, limit=limit)
    nearest = measure.nearest_legal(outcome.reason) if outcome.refused else None
    if nearest and sizes.flops(nearest) <= 64 * sizes.flops(SMALL):
        return measure.check(step, "emulated", [nearest], seed, limit=limit)
    return outcome


def _tell_report(outcome, most):
    """The emulator's whole report under the red row: it is what a learner needs."""
    if not isinstance(outcome, str) and outcome.ran and outcome.ran.code == 1:
        lines = [line for line in (outcome.ran.out + outcome.ran.err).splitlines() if line.strip()]
        for line in lines[:most]:
            term.say("    " + line)
        if len(lines) > most:
            term.say(f"    ... {len(lines) - most} more lines: ./ladder check --trace-report")


def cells(c):
    """The cells of the table from a step's counters; a dash where there is nothing to say."""
    def total(ending, *prefixes):
        return sum(c.get(prefix + ending, 0) for prefix in prefixes)

    shared = ("shared_load", "shared_store", "ldmatrix", "stmatrix", "cp_async")
    sectors, requests = c.get("global_load_sectors", 0), c.get("global_load_requests", 0)
    read = 32 * sectors + total("_bytes", "cp_async", "tma_load")
    used = c.get("global_load_bytes", 0)
    ideal = total("_ideal_wavefronts", *shared)
    waits = c.get("barriers", 0) + c.get("mbarrier_waits", 0)
    return [term.number(read / 1e6 if read else None),
            term.number(sectors / requests if requests else None),
            term.number(100 * used / (32 * sectors) if sectors else None, 0),
            term.number(total("_wavefronts", *shared) / ideal if ideal else None, 2),
            term.number(waits or None, 0)]
