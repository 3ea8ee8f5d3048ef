"""Measure steps on the GPU; takes Google Benchmark's flags too.

  ./ladder bench 06 --sizes 4096,8192 --regimes burst
  ./ladder bench 06 --benchmark_format=csv

Like run without plots. Flags that start with --benchmark_ go to Google Benchmark; those that would
change the method of measuring are refused. Results go to out/bench.json.
"""
from .lib import files, options, paths, results, session, setup, steps, term

PASS_ON = "--benchmark_"


def arguments(parser):
    options.add_steps(parser)
    options.add_sizes(parser, "4096")
    options.add_regimes(parser)
    options.add_out(parser)
    options.add_limit(parser)


def main(args):
    chosen = steps.select(args.steps)
    size_list = options.size_list(args.sizes)
    regimes = options.regimes(args.regimes)
    gpu = options.need_gpu()
    target = files.writable_folder(args.out) / "bench.json"
    ready = setup.ready()
    options.choose_device("gpu", ready)
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
    return code
