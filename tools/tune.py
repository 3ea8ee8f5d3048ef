"""Choose tile, cluster and split for shapes, on your GPU.

  ./ladder tune                                    29 at the shapes of the suite, 3 minutes at most
  ./ladder tune --sizes 4096,64x7168x2048/NT-bf16  these alone
  ./ladder tune --regime sustained                 under load, where the power limit rules

Each candidate must compute the right product before it is timed. One process per shape, with a time
limit: a candidate that hangs is ended and left out. Shapes that the time for all does not reach are
named, and no failure. The choices are added to a file in out/ of this
GPU's name; it is read where the variable LADDER_GEMM_TUNED names it, as the last line says. Beside
it, in a .json, all that was measured.
"""
import re
import time
from pathlib import Path

from .lib import (build, files, kinds, lock, measure, options, paths, results, setup, sizes, steps,
                  suite, term)

VARIABLE = "LADDER_GEMM_TUNED"
IN_ALL = 180.0  # seconds
UNREACHED = "not reached"


def arguments(parser):
    parser.add_argument("step", nargs="?", default="29", metavar="STEP", help="default 29")
    options.add_sizes(parser, None)
    options.add_kinds(parser)
    parser.add_argument("--regime", default="burst", choices=results.REGIMES,
                        help="in which the candidates are timed (default burst)")
    parser.add_argument("--fresh", action="store_true", help="forget what the file says so far")
    parser.add_argument("--time-limit", type=options.seconds, metavar="SECONDS",
                        help=f"for all shapes together (default {IN_ALL:.0f})")
    parser.add_argument("--shape-limit", type=options.seconds, metavar="SECONDS",
                        help="for one shape, then a candidate hangs (default 20 and more for large "
                        "ones)")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE",
                        help="default out/tuned-GPU.txt")


def main(args):
    step = steps.one(args.step)
    if args.kinds and not args.sizes:
        raise term.UserError("--kinds needs --sizes")
    size_list = (options.size_list(args.sizes, args.kinds) if args.sizes
                 else [p.size for p in suite.problems()])
    gpu = options.need_gpu()
    options.need_fit(step, gpu)
    name = results.name_of(gpu.name)
    target = args.out or paths.OUT / f"tuned-{name}.txt"
    files.writable_folder(target.parent)
    choices = {} if args.fresh else read(target, gpu.name)
    ready = setup.ready()
    options.choose_device("gpu", ready)
    if failed := build.build(ready, "gpu", [step.id]).get(step.id):
        raise term.UserError(f"{step.id}: {failed}", 1)
    term.say(f"\n{step.id}: candidates checked and timed, {args.regime}\n{gpu.name}", term.BOLD)
    table = term.Table([("problem", 28), ("built in", 9), ("chosen", 9), ("gain", 6),
                        ("configuration", 24)])
    table.header()
    measured = []
    end, failures, unreached = time.monotonic() + (args.time_limit or IN_ALL), [], []
    with lock.gpu(ready.gpu.uuid):
        for size in size_list:
            if not suits(size):
                table.failed(sizes.short(size), "left out: a choice is by size, layouts, types and "
                             "batch alone", term.DIM)
                continue
            rows, reason = tune(step, size, args.regime, args.shape_limit or one_limit(size), end)
            if reason == UNREACHED:
                unreached.append(size)
                continue
            if reason:
                failures.append(size)
                table.failed(sizes.short(size), reason)
                continue
            best = rows[0]
            built_in = next((row for row in rows if row.get("built_in")), None)
            gain = f"{(built_in['us'] / best['us'] - 1) * 100:.1f}%" if built_in else "-"
            table.row([sizes.short(size), shown(built_in), shown(best), gain, best["config"]])
            choices[line_key(size)] = best["config"]
            measured += rows
            write(target, gpu.name, choices)  # whole after each: a run cut short keeps what it has
            files.write_json(target.with_suffix(".json"), {
                "gpu": gpu.name, "regime": args.regime, "step": step.id, "rows": measured})
    if unreached:
        term.say("not reached in the time: " + ", ".join(map(sizes.short, unreached))
                 + "; --time-limit gives more", term.YELLOW)
    if failures:
        term.error(f"{len(failures)} of {len(size_list)} not tuned: "
                   + ", ".join(map(sizes.short, failures)))
    if choices:
        term.say(f"\nexport {VARIABLE}={target.resolve()}   # {step.id} then reads it")
    return 1 if failures or (unreached and not measured) else 0


def one_limit(size):
    """Seconds for one shape: 24 candidates of a sound step take two or three."""
    return 20 + sizes.flops(size) / 5e11


def tune(step, size, regime, limit, end):
    """(rows of the candidates, fastest first; "") or ([], why not). A candidate at which the
    process hangs or crashes is left out, and the others are tried once more, until `end`."""
    skip = []
    for _ in range(3):
        left = end - time.monotonic()
        if left <= 0:
            return [], UNREACHED
        command = ["tune", "--sizes", sizes.text(size), "--regimes", regime]
        if skip:
            command += ["--skip", ",".join(skip)]
        outcome = measure.call(step, "gpu", command, min(limit, left), term.Progress(),
                               "trying candidates")
        if outcome.ok:
            rows = sorted(outcome.data.get("benchmarks", []), key=lambda row: row["us"])
            return (rows, "") if rows else ([], "no candidate was measured")
        if outcome.ran and outcome.ran.timed_out and left < limit:
            return [], UNREACHED  # whether it hangs, nobody knows
        told = re.findall(r"^trying \S+ (\S+)$", outcome.ran.out, re.M) if outcome.ran else []
        if outcome.refused or not told or told[-1] in skip:
            break
        term.note(f"{sizes.short(size)}: {told[-1]}: {outcome.reason}; left out")
        skip.append(told[-1])
    return [], outcome.reason


def shown(row):
    return f"{row['us']:.1f}us" if row else "-"


# ---- the file ------------------------------------------------------------------------------------

def suits(size):
    """Does a line of the file say all of it?"""
    plain = kinds.parse("-".join(
        [(sizes.kind_of(size) or "NN")[:2], *kinds.types(sizes.kind_of(size))]
        + [f"batch{kinds.batch(sizes.kind_of(size))}"]))
    return plain == sizes.kind_of(size)


def line_key(size):
    kind = sizes.kind_of(size) or "NN"
    layouts = ["row" if letter == "N" else "col" for letter in kind[:2]]
    return " ".join(map(str, [*size, *layouts, *kinds.types(kind), kinds.batch(kind)]))


def read(file, gpu):
    """{key: configuration} of a file of this GPU; nothing where there is none."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise term.UserError(f"cannot read {paths.shown(file)}: {error}; "
                             "--fresh starts anew") from None
    lines = [line for line in (line.split("#")[0].strip() for line in lines) if line]
    if not lines or not lines[0].startswith("gpu "):
        raise term.UserError(f"{paths.shown(file)} is not a file of tune; name another with -o")
    if lines[0] != f"gpu {gpu}":
        raise term.UserError(f"{paths.shown(file)} is of the {lines[0][4:]}, this is the {gpu}: "
                             "--fresh starts anew")
    return dict(line.rsplit(" ", 1) for line in lines[1:] if len(line.split()) == 9)


def write(file, gpu, choices):
    files.write_text(file, "# Written by ./ladder tune: M N K, layouts of A and B, types of A and "
                     "B, of C, batch, configuration\n"
                     + f"gpu {gpu}\n" + "".join(f"{k} {v}\n" for k, v in choices.items()))
