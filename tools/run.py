"""Check and measure the steps; table and plots. Start here.

  ./ladder run                       every step this GPU can run, at 4096x4096x4096
  ./ladder run 04-06 --sizes 8192    some steps, another size
  ./ladder run --device emulated     without a GPU: checked at a small size, with counters
  ./ladder run 30                    an experiment around the kernel (30-33; `all` is the steps)

With a GPU every step is checked at the size to be timed and then measured in both regimes, each
in a process of its own: one that crashes, hangs or is wrong is one red row. Results go to
out/results.json, plots to out/. Without a GPU the same kernels run on the emulated device; no
times are shown then, and the plots are those of recorded runs. The first start sets up what is
missing. Exit code: 0 when every step asked for is right.
"""
from pathlib import Path

from . import predict
from .lib import (emulated, experiments, files, occupancy, options, paths, plots, results, session,
                  setup, sizes, source, term)


def arguments(parser):
    options.add_steps(parser)
    options.add_sizes(parser, None)
    options.add_regimes(parser)
    options.add_device(parser)
    options.add_out(parser)
    options.add_limit(parser)
    parser.add_argument("--predict", action="store_true",
                        help="then predicted beside measured (./ladder predict needs no GPU)")
    parser.add_argument("--no-plots", action="store_true", help="table and results only")


def main(args):
    chosen, around = experiments.pick(args.steps)
    if around:
        experiments.need_gpu(around, args.device == "emulated")
    size_list = sizes.parse(args.sizes) if args.sizes else None
    regimes = options.regimes(args.regimes)
    out = files.writable_folder(args.out)
    if args.device == "gpu":
        options.need_gpu()
    ready = setup.ready()
    if options.choose_device(args.device, ready) == "emulated":
        if ready.gpu and not args.device:
            term.say(f"{ready.gpu.name} is there, but {ready.why_no_nvcc}: running emulated",
                     term.YELLOW)
        return _emulated(ready, chosen, size_list, out, args)
    if around and not chosen:
        return run_experiments(ready, around, results.Results(), out, args)
    fit, unfit = options.supported(chosen, ready.gpu)
    session.offer_emulated(unfit)
    if not fit:
        raise term.UserError(f"{ready.gpu.name} runs none of these steps")
    known = occupancy.gpu(ready.gpu.name) if args.predict else None
    target = out / "results.json"
    run = session.Session(ready, fit, size_list or [(4096,) * 3], regimes, args.time_limit,
                          after_each=lambda s: results.save(s.merged(), target))
    code = run.run()
    session.tell_failures(run)
    if args.predict and run.children:
        predict.show(known, fit, run.sizes, regimes, run.merged(), "measured")
    if run.children:
        made = [] if args.no_plots else plots.draw(ready, target, out)
        term.say("\n" + ", ".join(paths.shown(p) for p in [target, *made]))
    if around:
        code = run_experiments(ready, around, run.merged(), out, args) or code
    return code


def run_experiments(ready, chosen, before, out, args, name="results.json", draw=True):
    """Measures them; their rows join those of `before` in the file of results."""
    fit = experiments.supported(chosen, ready.gpu)
    if not fit:
        raise term.UserError(f"{ready.gpu.name} runs none of these experiments")
    target, written = out / name, []

    def keep(run, experiment):
        before.context = {**run.merged.context, **before.context}
        before.rows.update(run.merged.rows)
        results.save(before, target)
        written[:] = [target]
        for key, data in run.timelines.items():
            experiments.save_timelines(experiments.timelines_file(out, key), data)
        if draw and not args.no_plots:
            drawn.extend(plots.experiment(ready, experiment.id, target,
                                          experiments.timelines_file(out, experiment.id), out))

    drawn = []
    run = experiments.Session(ready, fit, source.state(), args.time_limit, args.passed_on,
                              keep=keep)
    code = run.run()
    if written:
        term.say("\n" + ", ".join(paths.shown(p) for p in written + drawn))
    return code


def _emulated(ready, chosen, size_list, out, args):
    code = emulated.check(ready, chosen, size_list, limit=args.time_limit)
    if args.no_plots:
        return code
    for recorded in sorted(paths.RECORDED.glob("*.json")):
        made = plots.draw(ready, recorded, Path(out), recorded=True)
        if made:
            context = results.load(recorded).context
            term.say(f"\nrecorded on {context['gpu']}, {str(context.get('date', '?'))[:10]}, "
                     "not measured here: " + ", ".join(paths.shown(p) for p in made))
    return code
