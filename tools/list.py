"""List the steps: number, idea, which GPUs run it, what it builds on.

  ./ladder list            all of them
  ./ladder list 07-12      some
"""
import shutil

from .lib import steps, term


def arguments(parser):
    parser.add_argument("steps", nargs="*", default=["all"], metavar="STEP")


def main(args):
    chosen = steps.select(args.steps)
    variants = [s for s in steps.everything(variants=True) if s.variant]
    width = max(len(step.id) for step in chosen)
    columns = shutil.get_terminal_size((80, 24)).columns if term.is_terminal() else 1000
    for step in chosen:
        term.say(f"{step.id:<{width}}  {step.arch:<4} {step.unit:<9}"
                 f"{term.clip(step.idea, max(20, columns - width - 16))}")
        for variant in variants:
            if variant.folder == step.folder and not step.variant:
                term.say(f"{'':<{width}}    variant {step.id[:2]}.{variant.variant}: "
                         + term.clip(variant.idea, max(20, columns - width - 30)))
    if term.is_terminal():
        term.say("\nthe second column is the compute capability it needs: 75+ Turing and newer, 80+ "
                 "Ampere,\n90+ Hopper, 90a Hopper only; the third the unit that multiplies",
                 term.DIM)
    return 0
