"""See what the warps of a block do, cycle by cycle: who copies, who multiplies, who waits.

  ./ladder trace 12                           trace 12_multistage at 4096 on this GPU and draw it
  ./ladder trace --compare 09,10,12,15,19,21,23       several steps at one time scale
  ./ladder trace out/trace-12_multistage.raw.json       draw a trace again: --whole, --cycles N
  ./ladder trace 23 --sizes 8192 --sm 5       another SM, another size

The kernel is built once more with a backend of common/ptx that stamps time around everything that
waits, copies, signals or stores; kernels have no line for it. No permission is needed, unlike for a
profiler. Writes a picture (PNG, SVG), a trace for https://ui.perfetto.dev or chrome://tracing, and
the raw stamps into out/. Without a GPU, recorded traces are drawn: plots/results/traces/.
"""
import json
import tempfile
from pathlib import Path

from .lib import (build, child, counts, files, lock, occupancy, options, paths, plots, results,
                  setup, sizes, source, steps, term, tracing)

SCRIPT = plots.SCRIPT.with_name("trace.py")
KEPT = paths.RECORDED / "traces"


def arguments(parser):
    parser.add_argument("what", nargs="*", metavar="STEP|FILE")
    parser.add_argument("--compare", nargs="?", const="", metavar="STEPS",
                        help="one picture of all of them")
    options.add_sizes(parser, "4096")
    parser.add_argument("--sm", type=int, help="the SM to watch (default: the first that has work)")
    parser.add_argument("--block", type=int, help="the block to draw (default: the SM's first)")
    parser.add_argument("--cycles", type=int, help="how many to draw (default 8000, compare 6000)")
    parser.add_argument("--whole", action="store_true", help="draw the block from start to end")
    parser.add_argument("--record", action="store_true",
                        help="keep the middle of each trace in plots/results/traces/")
    options.add_out(parser)


def main(args):
    size_list = sizes.parse(args.sizes)
    if len(size_list) > 1:
        raise term.UserError("trace takes one size")
    for value, name, least in ((args.sm, "--sm", 0), (args.cycles, "--cycles", 1),
                               (args.block, "--block", 0)):
        if value is not None and value < least:
            raise term.UserError(f"{name} takes a number from {least} on, not {value}")
    words = args.what + ([args.compare] if args.compare else [])
    if not words:
        raise term.UserError("name a step, as ./ladder trace 12, or a trace file")
    listed = [Path(w) for w in words if w.endswith(".json")]
    chosen = steps.select([w for w in words if not w.endswith(".json")]) if len(listed) < len(
        words) else []
    for file in listed:
        tracing.load(file)  # every complaint before any work
    for step in chosen:
        if step.arch == "75+":
            raise term.UserError(f"{step.id} has nothing asynchronous to trace; steps from 07 on "
                                 "have")
    out = files.writable_folder(args.out)
    if chosen:
        listed += _traced(chosen, size_list[0], args, out)
    ready = setup.ready()
    made = []
    for file in listed:
        made += _show(file, out)
    if not ready.plot_python:
        term.note("no pictures: they need matplotlib: apt-get install python3-matplotlib")
    else:
        extra = ["--cycles", args.cycles] if args.cycles else []
        if args.compare is not None and len(listed) > 1:
            listed.sort(key=lambda file: tracing.load(file).step)
            made += _draw(ready, "compare", listed, out, extra)
        else:
            extra += (["--block", args.block] if args.block is not None else []) + (
                ["--whole"] if args.whole else [])
            for file in listed:
                made += _draw(ready, "one", [file], out, extra + ["--name", _name(file)])
    term.say(", ".join(paths.shown(p) for p in made))
    return 0


def _name(file):
    return file.name.removesuffix(".json").removesuffix(".raw")


def _show(file, out):
    """Prints the shares; writes Chrome's trace. The files made."""
    trace = tracing.load(file)
    gpu = _gpu(trace.gpu)
    rate = gpu["flop_clk_sm"].get(trace.unit) if gpu else None
    busy = f", needed {100 * tracing.active(trace, rate):.0f} % of the time" if rate else ""
    term.say(f"{trace.step}, {sizes.text(trace.size)}, SM {trace.sm} of {trace.gpu}: tensor pipe "
             f"fed {100 * tracing.fed(trace):.0f} % of the time{busy}; warps that multiply wait "
             f"{100 * tracing.waiting(trace):.1f} % of the main loop; time stamps cost "
             f"{trace.overhead:.1f} %" + (" (more than 10 %: waits look longer than they are)"
                                          if trace.overhead > 10 else ""))
    if any(w.full for w in trace.warps):
        term.note(f"{trace.step}: a warp had more events than are kept; the end is missing")
    target = out / f"{_name(file)}.perfetto.json"
    files.write_text(target, json.dumps(tracing.chrome(trace), separators=(",", ":")) + "\n")
    return [target]


def _gpu(name):
    try:
        return occupancy.gpu(name)
    except term.UserError:
        return None


def _draw(ready, kind, chosen, out, extra):
    done = child.run([ready.plot_python, SCRIPT, kind, *chosen, "-o", out, *map(str, extra)],
                     limit=180)
    if not done.ok:
        raise term.UserError(child.why(done, 180), done.code or 2)
    return [Path(line) for line in done.out.splitlines() if line.strip()]


def _traced(chosen, size, args, out):
    """Raw traces of these steps: measured here, else those recorded."""
    from .lib import device
    found, problem = device.gpus()
    if not found:
        recorded = [file for s in chosen for file in sorted(KEPT.glob(f"*/{s.id}*.json"))[:1]]
        if len(recorded) < len(chosen):
            raise term.UserError(f"no GPU to trace on ({problem}), and "
                                 f"{paths.shown(KEPT)} has no trace of these steps")
        term.say("no GPU here: recorded traces", term.YELLOW)
        return recorded
    ready = setup.ready()
    options.choose_device("gpu", ready)
    fit, unfit = options.supported(chosen, ready.gpu)
    if unfit:
        raise term.UserError(f"{unfit[0][0].id} {unfit[0][1]}")
    _keep_blocks(ready, fit)
    failed = build.build(ready, "gpu", [f"{s.id}.trace" for s in fit])
    if failed:
        name, reason = next(iter(failed.items()))
        raise term.UserError(f"{name} {reason}", 3)
    files_made = []
    with lock.gpu(ready.gpu.uuid):
        for step in fit:
            try:
                files_made.append(_one(step, size, args, out))
            except term.UserError as error:
                if len(fit) == 1:
                    raise
                term.say(f"{step.id}: {error}", term.RED)  # the others may well work
    if not files_made:
        raise term.UserError("none of these steps could be traced; see the reasons above", 3)
    return files_made


def _keep_blocks(ready, chosen):
    """Registers for time stamps must not cost a block of the SM: tell CMake how many there were."""
    if build.bin_dir():
        return
    gpu, pairs = _gpu(ready.gpu.name), []
    from .lib import kernel_facts
    for step in steps.everything():
        known = counts.resources(step, ready.gpu.sm)
        if gpu and known and step.arch != "75+":
            facts = kernel_facts.read(step)
            blocks, _ = occupancy.blocks(gpu, facts.threads, known[0],
                                         known[1] + (facts.dynamic_smem or 0))
            if 2 <= blocks <= 9:
                pairs.append(f"{step.id}={blocks}")
    build.configure(ready, "gpu")
    child.run(["cmake", "-B", build.folder("gpu"), f"-DLADDER_TRACE_BLOCKS={';'.join(pairs)}"],
              limit=120, cwd=paths.ROOT)


def _one(step, size, args, out):
    name = f"trace-{step.id}" + ("" if size == (4096,) * 3 else f"-{sizes.short(size)}")
    target = out / f"{name}.raw.json"
    command = [build.program("gpu", f"{step.id}.trace"), "trace", "--sizes", sizes.text(size)]
    command += ["--sm", args.sm] if args.sm is not None else []
    progress = term.Progress()
    with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
        raw = Path(folder) / "raw.json"
        try:
            done = child.run([*command, "--json", raw], limit=120,
                             env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
                             tick=lambda s: progress.show(f"{step.id}: tracing, {s:.0f} s"))
        except OSError as error:
            raise term.UserError(f"{step.id}.trace does not start: {error.strerror}", 3) from None
        finally:
            progress.clear()
        if not done.ok:
            raise term.UserError(f"{step.id}: {child.why(done, 120)}", done.code or 3)
        try:
            text = raw.read_text()
        except OSError:
            raise term.UserError(f"{step.id}: ended well but wrote no trace", 3) from None
    files.write_text(target, text)
    trace = tracing.load(target)
    if args.record:
        _record(json.loads(text), trace, name)
    return target


def _record(data, trace, name):
    commit, dirty = source.state()
    if dirty:
        raise term.UserError("--record keeps traces of committed kernels only: commit first")
    gpu = _gpu(trace.gpu)
    rate = gpu["flop_clk_sm"].get(trace.unit, 0) if gpu else 0
    small = tracing.reduced(data, trace, trace.ctas()[0], rate or 1)
    small["commit"] = commit
    folder = KEPT / results.name_of(trace.gpu)
    files.write_text(folder / f"{name.removeprefix('trace-')}.json",
                     json.dumps(small, separators=(",", ":")) + "\n")
