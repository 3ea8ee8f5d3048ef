"""Measure and keep: rows of plots/results/<gpu>.json.

  ./ladder record                                    all steps at 4096 and 8192, both regimes
  ./ladder record 06 --sizes 4096                    replaces or adds these rows
  ./ladder record all --resume                       goes on where an interrupted run stopped
  ./ladder record 30                                 an experiment and its timelines (30-33)
  ./ladder record 29 --suite                         the suite: plots/results/suite/<gpu>.json
  ./ladder record --merge out/nvidia-h200.json       takes a file from another machine
  ./ladder record --suite --merge FILE               one of the suite

Only from a clean commit, so that a number can be traced; a GPU machine without .git trusts the id
handed in with --commit. Rows are added to a file of the same GPU, driver and method only; --fresh
starts the file anew. Written after every step, so a run that is cut short keeps what it has.
`-o FILE` writes there instead of plots/results/.
"""
import os
from pathlib import Path

from .lib import (build, experiments, lock, measure, options, paths, results, session, setup, sizes,
                  source, steps, suite, term)


def arguments(parser):
    options.add_steps(parser)
    options.add_sizes(parser, "4096,8192")
    options.add_regimes(parser)
    options.add_suite(parser)
    options.add_limit(parser)
    parser.add_argument("--commit", help="the commit of this tree, where there is no .git")
    parser.add_argument("--resume", action="store_true",
                        help="skip what the file has from this commit")
    parser.add_argument("--fresh", action="store_true", help="drop the rows of another driver or "
                        "method instead of refusing")
    parser.add_argument("--no-ceilings", action="store_true",
                        help="do not measure the ceilings anew")
    parser.add_argument("--merge", type=Path, metavar="FILE", help="take the rows of FILE")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE",
                        help="default plots/results/GPU.json")


def main(args):
    wants_suite = options.wants_suite(args)
    if args.merge:
        return _merge(args)
    if forced := [name for name in os.environ if name.startswith("LADDER_GEMM_")]:
        raise term.UserError(f"{forced[0]} is set: what is recorded must be what a step does by "
                             "itself; unset it")
    if wants_suite:
        return _suite(args)
    chosen, around = experiments.pick(args.steps)
    if around:
        experiments.need_gpu(around)
    size_list, regimes = options.size_list(args.sizes), options.regimes(args.regimes)
    gpu = options.need_gpu()
    commit = source.recordable(args.commit)
    target = args.out or paths.RECORDED / results.file_of(gpu.name)
    recorded = results.load(target) if target.exists() else results.Results()
    ready = setup.ready()
    options.choose_device("gpu", ready)
    code = 0
    if around:
        fit = experiments.supported(around, gpu)
        code = _experiments(ready, fit, commit, recorded, target, args)
    if not chosen:
        return code
    fit, unfit = options.supported(chosen, gpu)
    session.offer_emulated(unfit)
    if not fit:
        raise term.UserError(f"{gpu.name} runs none of these steps")

    def keep(run):
        add(recorded, run.merged(), args.fresh)
        results.save(recorded, target)

    def have(step, size):
        rows = [recorded.find(step.id, size, regime) for regime in regimes]
        return args.resume and all(r and r.words.get("commit") == commit for r in rows)

    run = session.Session(ready, fit, size_list, regimes, args.time_limit, commit=(commit, False),
                          after_each=keep)
    code = run.run(skip=have) or code
    session.tell_failures(run)
    if not args.no_ceilings:
        code = _ceilings(ready, fit[0], regimes, commit, recorded, target, args) or code
    if target.exists():
        term.say("\n" + paths.shown(target) + "; now ./ladder readme and ./ladder figures")
    return code


def _experiments(ready, chosen, commit, recorded, target, args):
    """Rows of experiments, each workload whole: what is left of an older run of it goes. One that
    could not be measured here keeps what is recorded. Their timelines go beside the file."""
    def keep(run, experiment):
        fresh = results.Results(run.merged.context, {
            name: row for name, row in run.merged.rows.items() if row.subject == experiment.id})
        if not fresh.rows:
            return
        anew = {row.workload for row in fresh.rows.values()}
        for name in [n for n, row in recorded.rows.items() if row.is_experiment
                     and row.subject == experiment.id and row.workload in anew]:
            del recorded.rows[name]
        add(recorded, fresh, args.fresh)
        results.save(recorded, target)
        if timelines := run.timelines.get(experiment.id):
            experiments.save_timelines(experiments.recorded_timelines(target, experiment.id),
                                       timelines)

    def stale(experiment):
        rows = [r for found in experiments.workloads(recorded, experiment.id).values()
                for r in found]
        return not (args.resume and rows and all(r.words.get("commit") == commit for r in rows))

    run = experiments.Session(ready, [e for e in chosen if stale(e)], (commit, False),
                              args.time_limit, keep=keep)
    code = run.run()
    if run.merged.rows:
        term.say("\n" + paths.shown(target) + "; now ./ladder readme and ./ladder figures")
    return code


def _suite(args):
    step, regimes = steps.one(args.steps), options.regimes(args.regimes)
    chosen = suite.select(args.groups)
    gpu = options.need_gpu()
    options.need_fit(step, gpu)
    commit = source.recordable(args.commit)
    target = args.out or suite.KEPT / results.file_of(gpu.name)
    recorded = results.load(target) if target.exists() else results.Results()
    ready = setup.ready()
    options.choose_device("gpu", ready)

    def keep(run):
        add(recorded, run.merged(), args.fresh)
        results.save(recorded, target)

    def have(size, regime):
        row = recorded.find(step.id, size, regime)
        return args.resume and row is not None and row.words.get("commit") == commit

    run = suite.Session(ready, step, chosen, regimes, args.time_limit, (commit, False),
                        after_each=keep)
    code = run.run(skip=have)
    if target.exists():
        term.say("\n" + paths.shown(target) + "; now ./ladder readme and ./ladder figures")
    return code


def _ceilings(ready, step, regimes, commit, recorded, target, args):
    have = [r for r in recorded.rows.values() if r.subject.startswith("ceiling_hbm")
            and r.words.get("commit") == commit]
    if args.resume and have:
        return 0
    failed = build.build(ready, "gpu", [step.id], quiet=True)
    with lock.gpu(ready.gpu.uuid):
        outcome = measure.ceilings(step, regimes, commit, False, term.Progress())
    reason = failed.get(step.id) or outcome.reason
    if reason:
        term.error(f"the ceilings were not measured: {reason}")
        return 1
    found = results.parse(outcome.data, "what the ceilings program wrote")
    for row in found.rows.values():
        row.words.setdefault("commit", commit)
        row.words.setdefault("date", str(found.context.get("date", ""))[:10])
    add(recorded, found, args.fresh)
    results.save(recorded, target)
    for name in sorted(found.rows):
        row = found.rows[name]
        rate = row.get("bytes_per_second")
        term.say(f"{name}: " + (f"{rate / 1e12:.2f} TB/s" if rate else
                                f"{term.tflops(row.get('tflops'))} TFLOPS"))
    return 0


def add(recorded, new, fresh=False):
    """Adds or replaces rows; refuses those that may not stand beside the ones there."""
    if recorded.rows:
        differs = results.same_method(recorded.context, new.context)
        if differs and fresh:
            recorded.rows.clear()
        elif differs:
            raise term.UserError(f"these rows can't stand beside the recorded ones: {differs}; "
                                 "--fresh drops the old ones")
    context = {k: v for k, v in new.context.items() if k in results.CONTEXT}
    # "step: size/regime: who, why": what was said of a row that is measured anew goes.
    said = recorded.context.get("left_out") or []
    said = [line for line in said if "/".join(line.split(": ")[:2]) not in new.rows
            and not any(row.is_experiment and line.startswith(row.subject + ": ")
                        for row in new.rows.values())]
    context["left_out"] = sorted(set(said) | set(new.context.get("left_out") or []))
    recorded.context = {**recorded.context, **context}
    recorded.rows.update(new.rows)
    results.add_baselines(recorded)


def _merge(args):
    new = results.load(args.merge)
    problems = results.problems(new)
    if problems:
        raise term.UserError(f"{paths.shown(args.merge)}: {problems[0]}"
                             + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""))
    folder = suite.KEPT if args.suite else paths.RECORDED
    target = args.out or folder / results.file_of(new.context["gpu"])
    recorded = results.load(target) if target.exists() else results.Results()
    before = set(recorded.rows)
    add(recorded, new, args.fresh)
    results.save(recorded, target)
    for one in {row.subject for row in new.rows.values() if row.is_experiment}:
        drawn = experiments.recorded_timelines(args.merge, one)
        if drawn.is_file():
            experiments.save_timelines(experiments.recorded_timelines(target, one),
                                       experiments.load_timelines(drawn))
    replaced = len(before & set(new.rows))
    term.say(f"{paths.shown(target)}: {len(new.rows) - replaced} rows added, {replaced} replaced, "
             f"sizes {', '.join(map(sizes.short, recorded.sizes()))}")
    return 0
