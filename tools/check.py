"""Check that steps compute the right product, on either device.

  ./ladder check                               every step, at its own list of awkward shapes
  ./ladder check 06 --sizes 100x77x33          one shape
  ./ladder check 16-25 --random 1000           as many random shapes, drawn by --seed
  ./ladder check 29 --sizes 100x77x33/NT-bf16  another kind of problem: A row-major, B column-major
  ./ladder check 19 --device emulated --seed 7 another schedule of the emulated device

Inputs are small integers (compared exactly) and random normals (compared with a bound from K). Of a
step that takes other layouts, types, factors and batches those are checked and drawn as well.
On the emulated device races, hazards and deadlocks are reported too, and counters shown.
"""
import os

from .lib import build, emulated, experiments, lock, measure, options, session, setup, term


def arguments(parser):
    options.add_steps(parser)
    options.add_sizes(parser, None)
    options.add_kinds(parser)
    parser.add_argument("--random", type=options.positive, metavar="N",
                        help="N random shapes that the step takes, in the place of --sizes")
    options.add_device(parser)
    options.add_limit(parser)
    parser.add_argument("--trace-report", action="store_true",
                        help="emulated: all that the device reports, and the story of the first")
    parser.add_argument("--seed", type=int, help="of the inputs and, emulated, of the schedule")


def main(args):
    chosen, around = experiments.pick(args.steps)
    if around:
        experiments.need_gpu(around, args.device == "emulated")
    if args.kinds and not args.sizes:
        raise term.UserError("--kinds needs --sizes: without, a step that takes kinds is checked "
                             "at all of them")
    size_list = options.size_list(args.sizes, args.kinds) if args.sizes else []
    if args.random and size_list:
        raise term.UserError("--random and --sizes exclude each other")
    if args.device == "gpu":
        options.need_gpu()
    ready = setup.ready()
    if options.choose_device(args.device, ready) == "emulated":
        if args.trace_report:
            os.environ["EMU_TRACE"] = "1"  # the first report with what happened before
        return emulated.check(ready, chosen, size_list, args.seed, args.time_limit, suite=True,
                              report_lines=10**6 if args.trace_report else 40,
                              random=args.random)
    if around:
        reasons = experiments.check(ready, experiments.supported(around, ready.gpu),
                                    args.time_limit)
        code = 1 if any(reasons.values()) else 0
        if not chosen:
            return code
        return _steps(ready, chosen, size_list, args) or code
    return _steps(ready, chosen, size_list, args)


def _steps(ready, chosen, size_list, args):
    fit, unfit = options.supported(chosen, ready.gpu)
    session.offer_emulated(unfit)
    failed = build.build(ready, "gpu", [s.id for s in fit])
    wrong = []
    table = term.Table([("step", 28), ("shapes", 6), ("right", 5), ("which", 38)])
    with lock.gpu(ready.gpu.uuid):
        table.header()
        for step in fit:
            reason = failed.get(step.id)
            outcome = None if reason else measure.check(
                step, "gpu", size_list, args.seed, progress=term.Progress(), limit=args.time_limit,
                random=args.random)
            if reason or not outcome.ok:
                wrong.append(step.id)
                table.failed(step.id, reason or outcome.reason)
                continue
            shapes = measure.shapes(outcome)
            table.row([step.id, len(shapes), "yes", shapes[0][0] if len(shapes) == 1 else
                       f"{shapes[0][0]} ... {shapes[-1][0]}"])
    if wrong:
        term.error(f"{len(wrong)} of {len(fit)} not right: {', '.join(wrong)}")
    return 1 if wrong else 0

