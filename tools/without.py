"""Leave a part of a step out, and see what it costs: loads, HBM, the store.

  ./ladder without 26                      each part of steps/26_*/without, at 8192
  ./ladder without 26 hbm store --sizes 4096,8192 --regimes burst
  ./ladder without 26 --record             kept in plots/results/without/, from a clean commit

Such a copy computes something else, so its result is not checked; the step as it is, its base, is
measured beside it and checked as always. The table says how many times as fast the rest is.
notes/power.md reads one.
"""
import dataclasses

from .lib import (copies, files, options, paths, results, session, setup, sizes, source, steps,
                  term)

FOLDER = paths.BUILD / "without"
KEPT = paths.RECORDED / "without"


@dataclasses.dataclass
class Part:
    name: str
    says: str = ""
    edits: list = dataclasses.field(default_factory=list)  # (old, new)


def arguments(parser):
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("parts", nargs="*", default=[], metavar="PART",
                        help="all, if none is named")
    options.add_sizes(parser, "8192")
    options.add_regimes(parser)
    options.add_out(parser)
    options.add_limit(parser)
    parser.add_argument("--record", action="store_true",
                        help="keep the results in plots/results/without/")
    parser.add_argument("--commit", help="as ./ladder record")
    parser.add_argument("--fresh", action="store_true", help="with --record: drop the rows of "
                        "another driver or method instead of refusing")


def main(args):
    step = steps.one(args.step)
    known = parts_of(step)
    for name in args.parts:
        if name not in [part.name for part in known]:
            raise term.UserError(f"{step.id} has no part '{name}'; it has "
                                 + ", ".join(part.name for part in known))
    chosen = [part for part in known if not args.parts or part.name in args.parts]
    size_list, regimes = options.size_list(args.sizes), options.regimes(args.regimes)
    gpu = options.need_gpu()
    commit = (source.recordable(args.commit), False) if args.record else None
    target = files.writable_folder(args.out) / f"without-{step.id}.json"
    if args.record:
        folder = files.writable_folder(KEPT / results.name_of(gpu.name))
        target = folder / f"{step.id}.json"
    ready = setup.ready()
    options.choose_device("gpu", ready)
    options.need_fit(step, ready.gpu)
    kernel = step.kernel.read_text(encoding="utf-8")
    # The harness does not check a step with '-without-' in its name.
    ids = {part.name: f"{step.id}-without-{part.name}" for part in chosen}
    made = copies.write(FOLDER, step, {ids[p.name]: left_out(kernel, p) for p in chosen})
    before = results.load(target) if args.record and target.exists() and not args.fresh else None
    if before:  # before anything is measured; the method, which the programs know, after the first
        refuse(before.context, {**before.context, "gpu": gpu.name, "driver": gpu.driver}, target)

    def keep(run):
        kept = run.children
        if before:
            refuse(before.context, kept[0].context, target)
            kept = kept[:1] + [before] + kept  # the first one's context, the last one's rows
        results.save(results.merge(kept), target)

    run = session.Session(ready, made, size_list, regimes, args.time_limit, commit=commit,
                          after_each=keep, extra_steps=FOLDER,
                          names={ids[part.name]: f"without {part.name}" for part in chosen})
    code = run.run()
    session.tell_failures(run)
    term.say(f"x before: against {step.id} as it is", term.DIM)
    if run.children:
        term.say(paths.shown(target) + ("; now ./ladder readme shows it" if args.record else ""))
    return code


def refuse(recorded, new, target):
    """Rows that may not stand beside the recorded ones."""
    if differs := results.same_method(recorded, new):
        raise term.UserError(f"these rows can't stand beside those of {paths.shown(target)}: "
                             f"{differs}; --fresh drops the old ones")


def parts_of(step):
    """What the step's file `without` names, each edit checked against the kernel."""
    file = step.folder / "without"
    if not file.is_file():
        have = " ".join(s.id[:2] for s in steps.everything() if (s.folder / "without").is_file())
        raise term.UserError(f"{step.id} has no file 'without'; these have one: {have}")
    return parse(file.read_text(encoding="utf-8"), step.kernel.read_text(encoding="utf-8"),
                 paths.shown(file))


def parse(text, kernel, where):
    found, old = [], None
    for number, line in enumerate(text.splitlines(), 1):
        key, _, value = line.partition(" ")
        fits = True
        if not line or key == "#":
            continue
        if key == "without:":
            found.append(Part(value))
        elif not found:
            fits = False
        elif key == "says:":
            found[-1].says = value
        elif key == "-" and old is None and kernel.count(value) == 1:
            old = value
        elif key == "+" and old is not None:
            found[-1].edits.append((old, value))
            old = None
        else:
            fits = False
        if not fits:
            raise term.UserError(f"{where}:{number}: '{line}': without:, says:, or '- old' that is "
                                 "in the kernel exactly once, then '+ new'")
    if not found or old is not None or not all(p.says and p.edits for p in found):
        raise term.UserError(f"{where}: every part needs says: and at least one '- old', '+ new'")
    return found


def left_out(kernel, part):
    for old, new in part.edits:
        kernel = kernel.replace(old, new)
    return kernel


def table(step, data):
    """Markdown: TFLOPS of the rest and times the step as it is, for each size and regime."""
    parts = parts_of(step)
    columns = sorted({(row.size, row.regime) for row in data.rows.values()
                      if "-without-" in row.subject}, key=lambda c: (sizes.flops(c[0]), c[1]))
    lines = ["| left out | " + " | ".join(f"{sizes.short(size)} {regime}: TFLOPS | × as it is"
                                          for size, regime in columns) + " |",
             "|---|" + "---|---|" * len(columns)]
    for part in parts:
        cells = []
        for size, regime in columns:
            row = data.find(f"{step.id}-without-{part.name}", size, regime)
            ratio, spread = (row.get("vs_previous"), row.half_range("vs_previous")) if row else (
                None, None)
            cells += [f"{row.get('tflops'):.0f}" if row else "–",
                      "–" if ratio is None else f"{ratio:.3f} ± {spread or 0:.3f}"]
        lines.append(f"| {part.says} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
