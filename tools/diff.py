"""Show what a step's kernel changes against another's.

  ./ladder diff 06           06 against the step it builds on
  ./ladder diff 05 11        any two
  ./ladder diff 21 -w        without the lines that only move to the right
"""
from .lib import changes, steps, term


def arguments(parser):
    parser.add_argument("steps", nargs="+", metavar="STEP")
    parser.add_argument("-U", "--context", type=int, default=3, metavar="LINES")
    parser.add_argument("-w", "--ignore-indent", action="store_true",
                        help="a line that only moves to the right has not changed")


def main(args):
    if len(args.steps) > 2:
        raise term.UserError("diff takes one step, or two")
    step = steps.one(args.steps[-1])
    if len(args.steps) == 2:
        base = steps.one(args.steps[0])
    elif step.base:
        base = steps.one(step.base)
    else:
        raise term.UserError(f"{step.id} is the first: name two steps, ./ladder diff 01 02")
    colours = {"+": term.GREEN, "-": term.RED, "@": term.DIM}
    for line in changes.unified(base, step, max(0, args.context), not args.ignore_indent):
        term.say(line, term.BOLD if line.startswith(("+++", "---")) else colours.get(line[:1]))
    added, removed = changes.count(base, step, not args.ignore_indent)
    aside = ", indentation aside" if args.ignore_indent else ""
    moved = 0 if args.ignore_indent else changes.moved(base, step)
    if moved >= 10:
        aside = f"; {moved} of these {added + removed} only move to the right (-w: without them)"
    term.say(f"{base.id} to {step.id}: {added} lines added, {removed} removed{aside}", term.BOLD)
    return 0
