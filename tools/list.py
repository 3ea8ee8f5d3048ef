"""List the steps and the experiments: number, the GPUs that run it, the idea.

  ./ladder list            all of them
  ./ladder list 07-12      some
"""
import shutil

from .lib import device, experiments, options, steps, term


def arguments(parser):
    parser.add_argument("steps", nargs="*", default=["all"], metavar="STEP")


def main(args):
    chosen, around = experiments.pick(args.steps)
    if "all" in args.steps:
        around = experiments.everything()
    variants = [s for s in steps.everything(variants=True) if s.variant]
    width = max(len(one.id) for one in [*chosen, *around])
    columns = shutil.get_terminal_size((80, 24)).columns if term.is_terminal() else 1000
    for step in chosen:
        term.say(f"{step.id:<{width}}  {step.arch:<4} {step.unit:<9}"
                 f"{term.clip(step.idea, max(20, columns - width - 16))}")
        for variant in variants:
            if variant.folder == step.folder and not step.variant:
                term.say(f"{'':<{width}}    variant {step.id[:2]}.{variant.variant}: "
                         + term.clip(variant.idea, max(20, columns - width - 30)))
    if around:
        if chosen:
            term.say("\nexperiments around the kernel, outside the ladder; they need a GPU")
        for one in around:
            term.say(f"{one.id:<{width}}  {one.arch:<4} {'':<9}"
                     f"{term.clip(one.idea, max(20, columns - width - 16))}")
    if chosen:
        term.say()
        term.say(here(chosen))
    if term.is_terminal():
        term.say("the second column is the compute capability it needs: 75+ Turing and newer, 80+ "
                 "Ampere,\n90+ Hopper, 90a Hopper only; the third the unit that multiplies",
                 term.DIM)
    return 0


def here(chosen):
    """Which of them this machine runs."""
    gpus, problem = device.gpus()
    if not gpus:
        return f"no GPU here ({problem}): all run on the emulated device"
    fit, unfit = options.supported([s for s in chosen if not s.variant], gpus[0])
    words = f"{gpus[0].name} (compute capability {steps.dotted(gpus[0].sm)}) runs " \
            f"{options.ranges(fit) or 'none of these'}"
    return words + (f"; {options.ranges([s for s, _ in unfit])} on the emulated device" if unfit
                    else "")
