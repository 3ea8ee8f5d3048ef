"""Ask the GPU's counters why a step is as fast as it is.

By Nsight Compute (ncu); where an experiment's time goes, by Nsight Systems (nsys).

  ./ladder profile 11                  one launch at 4096, a table with a word on each number
  ./ladder profile 01,06,08,11,17,23   several, side by side
  ./ladder profile 23 --sizes 8192 --record    keep it in plots/results/profiles/
  ./ladder profile 11 --recorded       no GPU: what was recorded
  ./ladder profile 31 --workload batch1 --variant graph    kernels, gaps and calls of ten iterations

The kernel is launched alone, clocks left as they are, and replayed until all counters are read; so
the time shown is not a benchmark. Where the counters are forbidden the cause is said, and the way
round. notes/reading-a-profile.md explains how to read it.
"""
import datetime
import json
import tempfile
import textwrap
from pathlib import Path

from .lib import (build, child, device, experiments, files, lock, nsys, options, paths, profiling,
                  results, setup, sizes, source, term)

KEPT = paths.RECORDED / "profiles"
ITERATIONS = 10  # of an experiment's variant


def arguments(parser):
    parser.add_argument("steps", nargs="+", metavar="STEP", help="10, 07-12 or an id")
    options.add_sizes(parser, "4096")
    parser.add_argument("--record", action="store_true",
                        help="keep the numbers in plots/results/profiles/")
    parser.add_argument("--recorded", action="store_true", help="show recorded numbers")
    parser.add_argument("--workload", help="of an experiment (default: its first)")
    parser.add_argument("--variant", help="of that workload (default: its first)")
    options.add_limit(parser)


def main(args):
    chosen, programs = experiments.pick(args.steps)
    if programs:
        return timelines(chosen, programs, args)
    if args.workload or args.variant:
        raise term.UserError("--workload and --variant are of experiments; steps have --sizes")
    size_list = sizes.parse(args.sizes)
    if args.recorded:
        found = _recorded(chosen, size_list)
    else:
        found = _measured(chosen, size_list, args)
    for size in size_list:
        here = {s: found[s.id, size] for s in chosen if (s.id, size) in found}
        if here:
            table(here, size)
    if len(chosen) == 1 and (first := found.get((chosen[0].id, size_list[0]))):
        advice(chosen[0], first)
    return 0 if len(found) == len(chosen) * len(size_list) else 1


def ncu():
    """The program, or the error that says where to get it."""
    if program := child.find("ncu", "LADDER_NCU", "/opt/nvidia/nsight-compute", "*/ncu"):
        return program
    raise term.UserError(profiling.NO_TOOL)


def _measured(chosen, size_list, args):
    gpus, problem = device.gpus()
    if not gpus:
        raise term.UserError(f"no GPU to profile on ({problem}); --recorded shows recorded "
                             "profiles")
    program = ncu()
    ready = setup.ready()
    options.choose_device("gpu", ready)
    fit, unfit = options.supported(chosen, ready.gpu)
    if unfit:
        raise term.UserError(f"{unfit[0][0].id} {unfit[0][1]}")
    commit, dirty = source.state()
    if args.record and dirty:
        raise term.UserError("--record keeps numbers of committed kernels only: commit first")
    failed = build.build(ready, "gpu", [s.id for s in fit])
    if failed:
        name, reason = next(iter(failed.items()))
        raise term.UserError(f"{name} {reason}", 3)
    found = {}
    with lock.gpu(ready.gpu.uuid):
        for size in size_list:
            for step in fit:
                try:
                    found[step.id, size] = one(program, step, size, args.time_limit)
                except term.UserError as error:
                    if len(fit) * len(size_list) == 1 or str(error) == profiling.FORBIDDEN:
                        raise
                    term.say(f"{step.id}: {error}", term.RED)  # the others may well work
                    continue
                if args.record:
                    record(ready.gpu, step, size, found[step.id, size], commit)
    return found


def one(program, step, size, limit=None):
    """{key: number} of one launch."""
    limit = limit or 240
    progress = term.Progress()
    without, text = set(), ""
    for _ in range(6):  # each version of ncu lacks others
        with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
            log = Path(folder) / "ncu.csv"
            done = child.run([program, *profiling.ncu_arguments(log, without),
                              build.program("gpu", step.id), "once", "--sizes", sizes.text(size),
                              "--launches", "2"], limit=limit,
                             env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
                             tick=lambda s: progress.show(f"{step.id}: profiling, {s:.0f} s"))
            progress.clear()
            text = log.read_text(errors="replace") if log.exists() else ""
        said = done.out + done.err + text
        lacking = profiling.unknown(said) - without
        if not lacking:
            break
        without |= lacking
    if "ERR_NVGPUCTRPERM" in said:
        raise term.UserError(profiling.FORBIDDEN, 3)
    if not text.strip() or (not done.ok and "Kernel Name" not in text):
        errors = [line.replace("==ERROR==", "").strip() for line in said.splitlines()
                  if "==ERROR==" in line or "error:" in line]
        raise term.UserError(f"{step.id}: " + (errors[0] if errors else child.why(done, limit)), 3)
    return profiling.parse(text)


# ---- kept numbers --------------------------------------------------------------------------------

def load(file):
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["format"] != profiling.FORMAT or not isinstance(data["profiles"], dict):
            raise ValueError
        return data
    except (OSError, ValueError, KeyError, TypeError):
        raise term.UserError(f"{paths.shown(file)} is not a file of profiles: record it anew"
                             ) from None


def record(gpu, step, size, values, commit):
    file = KEPT / results.file_of(gpu.name)
    data = load(file) if file.exists() else {"format": profiling.FORMAT, "gpu": gpu.name,
                                             "driver": gpu.driver, "profiles": {}}
    data["profiles"][f"{step.id}/{sizes.text(size)}"] = {
        **{k: v for k, v in values.items() if v is not None}, "commit": commit,
        "date": datetime.date.today().isoformat()}
    data["profiles"] = dict(sorted(data["profiles"].items()))
    files.write_json(file, data)


def _recorded(chosen, size_list):
    kept = sorted(KEPT.glob("*.json"))
    if not kept:
        raise term.UserError(f"nothing recorded yet: {paths.shown(KEPT)} is empty")
    data = load(kept[0])
    found = {(s.id, z): data["profiles"][f"{s.id}/{sizes.text(z)}"] for s in chosen
             for z in size_list if f"{s.id}/{sizes.text(z)}" in data["profiles"]}
    missing = [f"{s.id} at {sizes.short(z)}" for s in chosen for z in size_list
               if (s.id, z) not in found]
    if missing:
        raise term.UserError(f"not recorded: {', '.join(missing)}; recorded are "
                             f"{', '.join(data['profiles'])}")
    term.say(f"recorded on {data['gpu']}, not measured here", term.YELLOW)
    return found


# ---- the table -----------------------------------------------------------------------------------

def rows():
    """(name, how to get the cell, what it means)."""
    pct = lambda key: lambda v: _cell(v.get(key), 1)  # noqa: E731

    def excess(v):
        share = profiling.excess(v)
        return "-" if share is None else f"{100 * share:.0f}"

    def stall(rank):
        def cell(v):
            top = profiling.top_stalls(v)
            return f"{top[rank][0]} {100 * top[rank][1]:.0f}" if len(top) > rank else "-"
        return cell

    return [("tensor pipe busy, %", pct("tensor_pct"),
             "the aim; reads 98 for mma.sync at 2/3 of the wgmma rate on Hopper"),
            ("FMA pipe busy, %", pct("fma_pct"), "CUDA cores; address arithmetic counts too"),
            ("issue slots used, %", pct("issue_pct"), "near 100: too many instructions a product"),
            ("warps resident, %", pct("occupancy_pct"), "low is fine where copies need no warp"),
            ("DRAM busy, %", pct("dram_pct"), "near 100: every byte must be used more often"),
            ("L2 busy, %", pct("l2_pct"), "near 100: larger tiles or multicast"),
            ("L2 hits, %", pct("l2_hit_pct"), "low: blocks that run together share too little"),
            ("sectors per request", lambda v: _cell(v.get("sectors_per_request") or None, 1),
             "4 for 4-byte lanes, 16 for 16-byte ones; more is uncoalesced"),
            ("shared memory busy, %", pct("smem_pct"), "near 100: fewer reads per product"),
            ("excess wavefronts, %", excess, "of shared memory: bank conflicts; 0 with a swizzle"),
            ("stalled mostly by, %", stall(0), "share of the warps' waiting; see the note"),
            ("then", stall(1), ""), ("then", stall(2), "")]


def _cell(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def table(here, size):
    """Steps across, numbers down; the words on the right where there is room."""
    term.say(f"\none launch at {sizes.text(size)}, by the GPU's counters", term.BOLD)
    columns = [("", 22)] + [(step.id[:2] if len(here) > 1 else step.id, 22 if len(here) == 1 else
                             15) for step in here]
    printed = term.Table(columns)
    printed.header()
    for name, cell, words in rows():
        line = [name, *(cell(v) for v in here.values())]
        printed.row(line)
        if words and len(here) <= 2:
            term.say("    " + words, term.DIM)
    if len(here) > 2:
        term.say("\n".join(f"{name}: {words}" for name, _, words in rows() if words), term.DIM)


def advice(step, v):
    """What the numbers say about this step, and where the ladder answers."""
    for line in profiling.advice(v, step.unit):
        term.say(textwrap.fill(line, 79, initial_indent="- ", subsequent_indent="  "))


# ---- experiments ---------------------------------------------------------------------------------

def timelines(chosen, programs, args):
    """What happened around the kernels, by Nsight Systems."""
    if chosen:
        raise term.UserError("steps go to ncu, experiments to nsys: profile them apart")
    if args.record or args.recorded:
        raise term.UserError("of experiments ./ladder record keeps the timelines; --record and "
                             "--recorded are for steps")
    gpu = experiments.need_gpu(programs)
    tool = nsys.program()
    ready = setup.ready()
    options.choose_device("gpu", ready)
    programs = experiments.supported(programs, gpu)
    failed = build.build(ready, "gpu", [e.id for e in programs])
    if failed:
        name, reason = next(iter(failed.items()))
        raise term.UserError(f"{name} {reason}", 3)
    with lock.gpu(ready.gpu.uuid):
        for experiment in programs:
            show(experiment, *traced(tool, experiment, args))
    return 0 if programs else 1


def traced(tool, experiment, args):
    """(activities, calls, the report's file, what ran) of one variant's iterations."""
    words = ["once", "--iterations", str(ITERATIONS)]
    words += ["--workloads", args.workload] if args.workload else []
    words += ["--variants", args.variant] if args.variant else []
    report = files.writable_folder(paths.OUT) / "-".join(
        ["nsys", experiment.id, *filter(None, [args.workload, args.variant])])
    file = report.with_name(report.name + ".nsys-rep")
    file.unlink(missing_ok=True)  # of another time
    limit = args.time_limit or 240
    progress = term.Progress()
    done = child.run([tool, *nsys.profile_arguments(report), build.program("gpu", experiment.id),
                      *words], limit=limit,
                     tick=lambda s: progress.show(f"{experiment.id}: profiling, {s:.0f} s"))
    progress.clear()
    if not done.ok or not file.is_file():
        raise term.UserError(f"{experiment.id}: " + (child.why(done, limit) if not done.ok else
                                                     "nsys left no report"), 3)
    for names in nsys.REPORTS:
        stats = child.run([tool, *nsys.stats_arguments(file, names)], limit=limit)
        if nsys.tables(stats.out):
            break
    activities, calls = nsys.parse(stats.out)
    ran = [line for line in done.out.splitlines() if line.startswith(experiment.id)]
    return activities, calls, file, ran[-1] if ran else experiment.id


def show(experiment, activities, calls, file, ran):
    busy, idle = nsys.busy_and_idle(activities)
    term.say(f"\n{ran}, by Nsight Systems", term.BOLD)
    printed = term.Table([("on the GPU", 28), ("times", 7), ("median us", 10), ("all us", 10),
                          ("%", 5)])
    printed.header()
    for name, times, middle, every in nsys.by_name(activities):
        printed.row([term.clip(name, 28), times, f"{middle:.2f}", f"{every:.1f}",
                     f"{100 * every / (busy + idle):.0f}"])
    printed.row(["nothing", "", "", f"{idle:.1f}", f"{100 * idle / (busy + idle):.0f}"])
    for call, times, every in sorted(calls, key=lambda c: -c[2])[:6]:
        term.say(f"the host: {call} {times} times, {every / times:.2f} us each")
    if idle > busy / 4:
        term.say("The GPU waits for the host: notes/streams-and-graphs.md.", term.YELLOW)
    term.say(f"{paths.shown(file)}: open it with nsys-ui", term.DIM)
