"""Measure steps on the GPU; takes Google Benchmark's flags too.

  ./ladder bench 06 --sizes 4096,8192 --regimes burst
  ./ladder bench 06 --benchmark_format=csv
  ./ladder bench 29 --sizes 4096x14336x4096 --kinds NT-bf16,TN
  ./ladder bench 29 --suite                  cubes, layouts, shapes of language models, odd ones

Like run without plots. --suite measures the problems of tools/suite.txt beside cuBLAS: each in
burst, some sustained too; table, out/suite.json and a heat map. A kind of problem follows a size,
4096/NT-bf16, or is named by --kinds: A's and B's layout (N row-major, T column-major: x W^T is
NT), type of A and B, of C. Flags that start with --benchmark_ go to Google Benchmark; those that
would change the method of measuring are refused. Results go to out/bench.json.
"""
from . import run as run_command
from .lib import (experiments, files, options, paths, plots, results, session, setup, steps, suite,
                  term)

PASS_ON = "--benchmark_"


def arguments(parser):
    options.add_steps(parser)
    options.add_sizes(parser, "4096")
    options.add_kinds(parser)
    options.add_suite(parser)
    options.add_regimes(parser)
    options.add_out(parser)
    options.add_limit(parser)


def main(args):
    if options.wants_suite(args):
        return _suite(args)
    chosen, around = experiments.pick(args.steps)
    if around:
        experiments.need_gpu(around)
    size_list = options.size_list(args.sizes, args.kinds)
    regimes = options.regimes(args.regimes)
    gpu = options.need_gpu()
    target = files.writable_folder(args.out) / "bench.json"
    ready = setup.ready()
    options.choose_device("gpu", ready)
    if around and not chosen:
        return run_command.run_experiments(ready, around, results.Results(), target.parent, args,
                                           target.name, draw=False)
    fit, unfit = options.supported(chosen, gpu)
    session.offer_emulated(unfit)
    if not fit:
        raise term.UserError(f"{gpu.name} runs none of these steps")
    run = session.Session(ready, fit, size_list, regimes, args.time_limit, args.passed_on,
                          after_each=lambda s: results.save(s.merged(), target))
    code = run.run()
    session.tell_failures(run)
    if run.children:
        term.say("\n" + paths.shown(target))
    if around:
        code = run_command.run_experiments(ready, around, run.merged(), target.parent, args,
                                           target.name, draw=False) or code
    return code


def _suite(args):
    step, regimes = steps.one(args.steps), options.regimes(args.regimes)
    chosen = suite.select(args.groups)
    gpu = options.need_gpu()
    options.need_fit(step, gpu)
    files.writable_folder(args.out)
    ready = setup.ready()
    options.choose_device("gpu", ready)
    code, target = suite.bench(ready, step, chosen, regimes, args.time_limit, args.out)
    if target:
        made = plots.draw(ready, target, args.out, ["suite"])
        term.say("\n" + ", ".join(paths.shown(p) for p in [target, *made]))
    return code
