"""Learn by doing: exercises, bug hunts, and a grade for what you made of them.

  ./ladder learn list                    what there is, and what is in work/
  ./ladder learn exercise 11             the start of exercise 11 into work/11_exercise/
  ./ladder learn exercise 11 --hint 1    the first of three hints
  ./ladder learn hunt 12                 a copy of step 12 with one mistake, into work/12_hunt1/
  ./ladder learn hunt 12 --seed 2        another mistake
  ./ladder learn grade 11                what you made of it; also 12_hunt1, or a path in work/
  ./ladder learn trap                    mistakes that cost most time; with a NAME: what it is, then
                                         the wrong and the right program run, and how it shows

grade says in order: it builds; right at every shape the step takes; no report of the emulated
device; the counter that must move has moved; 90 % of the step's speed (where there is a GPU).
"""
import os

from .lib import learn, learn_grade, learn_trap, options, paths, setup, term

COLOURS = {learn_grade.OK: term.GREEN, learn_grade.FAIL: term.RED, learn_grade.SKIP: term.YELLOW}


def arguments(parser):
    parser.add_argument("action", choices=("list", "exercise", "hunt", "grade", "trap"))
    parser.add_argument("what", nargs="?", metavar="STEP",
                        help="11; for grade also 12_hunt1; for trap a name or all")
    parser.add_argument("--hint", type=int, choices=(1, 2, 3), help="only show this hint")
    parser.add_argument("--seed", type=int, metavar="N", help="which mistake, from 1")
    parser.add_argument("--trace-report", action="store_true",
                        help="grade: a report also says what happened before")
    parser.add_argument("--again", action="store_true", help="start over (the old file is kept)")
    parser.add_argument("--record", action="store_true",
                        help="trap: keep the numbers in plots/results/traps/")
    options.add_device(parser)


def main(args):
    if args.action == "list":
        return show()
    if args.action == "trap":
        return learn_trap.main(args)
    if args.record:
        raise term.UserError("--record keeps numbers of traps alone")
    if not args.what:
        raise term.UserError(f"which one? ./ladder learn {args.action} "
                             f"{'12' if args.action == 'hunt' else '11'}; ./ladder learn list")
    if args.seed is not None and args.seed < 1:
        raise term.UserError("--seed takes 1, 2, ...")
    return globals()[args.action](args)


def show():
    there = {p.parent.name for p in learn.WORK.glob("*/kernel.cu")}
    for ex in learn.exercises():
        mark = "  (in work/)" if ex.id in there else ""
        title = ex.task.splitlines()[0].lstrip("# ").partition(": ")[2]
        term.say(f"exercise {ex.step.id[:2]}  {title}{mark}")
    found = learn.hunts()
    for step in dict.fromkeys(h.step for h in found):
        mine = [h for h in found if h.step == step]
        taken = " ".join(h.id for h in mine if h.id in there)
        term.say(f"hunt {step.id[:2]}      {step.id}, {len(mine)} mistakes"
                 + (f"  (in work/: {taken})" if taken else ""))
    learn_trap.show()
    return 0


def exercise(args):
    ex = learn.exercise(args.what)
    if args.hint:
        term.say(ex.hints[args.hint - 1])
        return 0
    target = learn.put_exercise(ex, args.again)
    term.say(ex.task + "\n")
    told(target, ex.step.id[:2])
    return 0


def hunt(args):
    one = learn.hunt(args.what, args.seed)
    if args.hint:
        term.say(one.hints[args.hint - 1])
        return 0
    told(learn.put_hunt(one, args.again), one.id)
    return 0


def told(target, name):
    term.say(f"{paths.shown(target)}/kernel.cu is yours, the task is in TASK.md beside it. "
             f"Next: ./ladder learn grade {name}", term.BOLD)


def grade(args):
    subject = learn.find(args.what)
    if args.device == "gpu":
        options.need_gpu()
    kernel = learn.WORK / subject.id / "kernel.cu"
    text = kernel.read_text(encoding="utf-8", errors="replace")
    if args.trace_report:
        os.environ["EMU_TRACE"] = "1"
    ready = setup.ready()
    learn_grade.clear()
    term.say(f"{subject.id}, against {subject.step.id}", term.BOLD)
    failed = ""
    for stage, state, words, report in learn_grade.grade(subject, text, ready, args.device):
        term.say(f"  {state:<4}  {stage}: {words}", COLOURS[state])
        lines = report.splitlines()
        most = len(lines) if args.trace_report else 12
        for line in lines[:most]:
            term.say("        " + line)
        if len(lines) > most:
            term.say(f"        ... {len(lines) - most} more")
        if state == learn_grade.FAIL:
            failed = stage
    if failed:
        term.error(f"{subject.id} does not pass yet: {failed}")
        return 1
    term.say(f"passed. Compare: ./ladder diff {subject.step.id[:2]}, and "
             f"steps/{subject.step.id}/README.md", term.BOLD)
    return 0
