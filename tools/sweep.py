"""Try other values of a step's constants: tile sizes, stages.

  ./ladder sweep 12 NUM_STAGES=2..6                one by one
  ./ladder sweep 04 BLOCK_K=8..64*2                doubling
  ./ladder sweep 04 BLOCK_M=64,128 BLOCK_N=64,128  every combination

Edits `constexpr int NAME = ...;` in copies of the step, builds, checks and measures each against
the step as it is. A value that does not build or is refused is a row with the reason. Without a
GPU the copies are checked on the emulated device and their counters shown. Results and the plot go
to out/sweep-STEP.*; --record keeps them in plots/results/sweeps/ too, from a clean commit.
"""
import itertools
import re

from .lib import (copies, emulated, files, options, paths, plots, results, session, setup, sizes,
                  source, steps, term)

MOST = 64
FOLDER = paths.BUILD / "sweep"


def arguments(parser):
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("values", nargs="+", metavar="NAME=VALUES",
                        help="2..6, 8..64*2 (doubling) or 16,32")
    options.add_sizes(parser, None)
    options.add_regimes(parser)
    options.add_device(parser)
    options.add_out(parser)
    options.add_limit(parser)
    parser.add_argument("--record", action="store_true",
                        help="keep the results in plots/results/sweeps/")
    parser.add_argument("--commit", help="as ./ladder record")


def main(args):
    step = steps.one(args.step)
    commit = (source.recordable(args.commit), False) if args.record else None
    text = step.kernel.read_text(encoding="utf-8")
    choices = [parse(word, text, step.id) for word in args.values]
    combinations = list(itertools.product(*[[(name, v) for v in values]
                                            for name, values in choices]))
    if len(combinations) > MOST:
        raise term.UserError(f"{len(combinations)} combinations are too many, {MOST} at most")
    size_list = sizes.parse(args.sizes) if args.sizes else None
    regimes = options.regimes(args.regimes)
    out = files.writable_folder(args.out)
    if args.record and args.device == "emulated":
        raise term.UserError("--record keeps times of a GPU; the emulated device has none")
    if args.device == "gpu" or args.record:
        options.need_gpu()
    ready = setup.ready()
    device = options.choose_device("gpu" if args.record else args.device, ready)
    if device == "gpu" and not step.runs_on(ready.gpu.sm):
        raise term.UserError(f"{step.id} {step.why_not(ready.gpu.sm)}; --device emulated checks it")
    ids = ["-".join([step.id, *(f"{name}-{value}" for name, value in combination)])
           for combination in combinations]
    names = {copy: words(text, combination) for copy, combination in zip(ids, combinations)}
    made = copies.write(FOLDER, step, {
        copy: edited(text, combination) for copy, combination in zip(ids, combinations)})
    if device == "emulated":
        return emulated.check(ready, made, size_list, limit=args.time_limit, extra_steps=FOLDER,
                              names=names, allowed=_refused)
    if args.record:
        name = "-".join([step.id, *(name for name, _ in choices)])
        kept = paths.RECORDED / "sweeps" / results.name_of(ready.gpu.name)
        kept = files.writable_folder(kept) / f"{name}.json"
    target = out / f"sweep-{step.id}.json"
    run = session.Session(ready, made, size_list or [(4096,) * 3], regimes, args.time_limit,
                          after_each=lambda s: results.save(s.merged(), target),
                          extra_steps=FOLDER, names=names, commit=commit)
    run.run()
    if not run.children:
        raise term.UserError(f"no value of {', '.join(n for n, _ in choices)} could be measured", 1)
    term.say(f"x before: against {step.id} as it is", term.DIM)
    if args.record:
        results.save(run.merged(), kept)
        term.say(paths.shown(kept) + "; now ./ladder readme and ./ladder figures show it")
    drawn = plots.draw(ready, target, out, ["sweep"], extra=["--name", target.stem])
    term.say("\n" + ", ".join(paths.shown(p) for p in [target, *drawn]))
    # Values that are refused belong to a sweep; wrong results, crashes and hangs do not.
    return 1 if any(not _refused(reason) for _, _, reason in run.failures) else 0


def _refused(reason):
    return reason.startswith("does not build") or "needs " in reason


def constants(source):
    """{NAME: its initialiser} of a kernel."""
    types = "int|unsigned|uint32_t|int64_t|size_t"
    return dict(re.findall(rf"^constexpr (?:{types}) ([A-Z]\w*) = ([^;]+);", source, re.M))


def parse(word, source, step_id):
    """(NAME, [values]) of NAME=a..b, a..b*2 or a,b,c."""
    name, equals, text = word.partition("=")
    known = constants(source)
    if name not in known:
        raise term.UserError(f"{step_id} has no constant '{name}'; it has {', '.join(known)}")
    values = []
    for part in text.split(",") if equals else []:
        found = re.fullmatch(r"(\d+)(?:\.\.(\d+)(?:\*(\d+))?)?", part)
        if not found or (found[3] and int(found[3]) < 2) or (found[3] and int(found[1]) == 0):
            values = []
            break
        first, last, factor = int(found[1]), int(found[2] or found[1]), int(found[3] or 0)
        while first <= last and len(values) <= MOST:
            values.append(first)
            first = first * factor if factor else first + 1
    if not values:
        raise term.UserError(f"'{word}': write {name}=2..6, {name}=8..64*2 (doubling) or "
                             f"{name}=16,32")
    return name, list(dict.fromkeys(values))


def edited(text, combination):
    """The kernel with these values."""
    for name, value in combination:
        text = re.sub(rf"^(constexpr \w+ {name} = )[^;]+;", rf"\g<1>{value};", text, count=1,
                      flags=re.M)
    return text


def words(text, combination):
    """What to call a copy."""
    same = all(constants(text)[name] == str(value) for name, value in combination)
    return ",".join(f"{name}={value}" for name, value in combination) + (" as is" if same else "")
