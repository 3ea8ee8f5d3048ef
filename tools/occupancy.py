"""How many blocks of a step fit an SM, over tile sizes and stages, and what that should be worth.

  ./ladder occupancy 12                        stages and tiles around those it has, for an H200
  ./ladder occupancy 12 --gpu rtx3060          h200, a100, rtx3060, rtx4090, t4
  ./ladder occupancy 12 NUM_STAGES=2..6 BLOCK_K=32,64     these values, every combination
  ./ladder occupancy 12 NUM_STAGES=2..6 --measure         on this GPU, measured as well (a sweep)

Blocks follow NVIDIA's rules (threads, registers, shared memory of an SM); for the step as it is the
driver is asked too, where there is a GPU. Registers of values that were not compiled are estimated
(~) from the accumulators. Predicted TFLOPS at 4096 in burst: notes/prediction.md.
"""
import argparse
import itertools
import json

from . import sweep
from .lib import (build, child, counts, device, kernel_facts, model, occupancy, options, paths,
                  results, setup, sizes, steps, term)

MOST_ROWS = 64


def arguments(parser):
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("values", nargs="*", metavar="NAME=VALUES")
    parser.add_argument("--gpu", help="h200, a100, rtx3060, rtx4090 or t4 (default: this one, "
                                      "else h200)")
    parser.add_argument("--measure", action="store_true", help="measure every row on this GPU")
    options.add_sizes(parser, "4096")
    options.add_out(parser)
    options.add_limit(parser)


def main(args):
    step = steps.one(args.step)
    size = sizes.parse(args.sizes)[0]
    found, _ = device.gpus()
    gpu = occupancy.gpu(args.gpu or (found[0].name if found else "h200"))
    if not step.runs_on(gpu["sm"]):
        raise term.UserError(f"{step.id} {step.why_not(gpu['sm'])}; {gpu['name']} has "
                             f"{steps.dotted(gpu['sm'])}")
    facts = kernel_facts.read(step)
    text = step.kernel.read_text(encoding="utf-8")
    choices = [sweep.parse(word, text, step.id) for word in args.values]
    choices = choices or around(step, facts, text)
    combinations = [dict(c) for c in itertools.product(*[[(n, v) for v in values]
                                                         for n, values in choices])]
    if len(combinations) > MOST_ROWS:
        raise term.UserError(f"{len(combinations)} combinations are too many, {MOST_ROWS} at most")
    measured = {}
    if args.measure:
        measured = _measured(step, choices, size, args)
    kept = counts.load()
    names = [name for name, _ in choices]
    term.say(f"\n{step.id} on {gpu['name']}: {gpu['smem_sm'] // 1024} KB of shared memory and "
             f"{occupancy.REGISTERS:,} registers an SM", term.BOLD)
    table = term.Table([(" ".join(short(n) for n in names) or "as it is", 22), ("threads", 7),
                        ("regs", 5), ("smem", 8), ("blocks", 6), ("limit", 13), ("predicted", 9)]
                       + ([("measured", 8)] if measured else []))
    table.header()
    fitting = 0
    for values in combinations or [{}]:
        same = all(facts.get(n) == v for n, v in values.items())
        label = " ".join(str(v) for v in values.values()) + (" *" if same else "")
        row, reason = one(step, gpu, size, values, facts, kept)
        if reason:
            table.failed(label, reason)
            continue
        fitting += row[-1] != "-"
        extra = [term.tflops(measured.get(tuple(values.values())))] if measured else []
        table.row([label, *row, *extra], None if row[3] else term.DIM)
    term.say("* as it is. regs: of a thread, ~ estimated. blocks: of an SM, and what limits them.\n"
             "predicted: TFLOPS in burst, if the values build at all.", term.DIM)
    _driver(step, gpu, found, size)
    return 0


def short(name):
    return name.removeprefix("NUM_").lower()


def around(step, facts, text):
    """Stages, or the tile, around what the step has."""
    known = sweep.constants(text)
    literal = lambda name: known.get(name, "").isdigit()  # noqa: E731
    choices = []
    for name in ("BLOCK_M", "BLOCK_N"):
        if literal(name):
            value = facts.get(name)
            choices.append((name, [v for v in (value // 2, value, value * 2) if v >= 16]))
    if literal("NUM_STAGES"):
        value = facts.get("NUM_STAGES")
        choices.append(("NUM_STAGES", sorted({2, 3, 4, 6, value})))
    elif literal("BLOCK_K"):
        value = facts.get("BLOCK_K")
        choices.append(("BLOCK_K", [v for v in (value // 2, value, value * 2) if v >= 8]))
    return choices


def one(step, gpu, size, values, as_is, kept):
    """([cells], "") or (None, why not)."""
    try:
        facts = kernel_facts.read(step, values)
    except term.UserError as error:
        return None, str(error)
    if facts.dynamic_smem is None or facts.static_smem is None:
        return None, "its shared memory could not be read from the kernel"
    threads = facts.threads
    if threads <= 0 or threads > 1024:
        return None, f"{threads} threads: a block has 32 to 1,024"
    compiled = counts.resources(step, gpu["sm"], kept)
    registers, mark = (compiled or (0, 0))[0], ""
    if compiled and facts.constants != as_is.constants:
        registers = registers + facts.acc_registers - as_is.acc_registers
        mark = "~"
    smem = facts.dynamic_smem + facts.static_smem
    if registers > 255:
        return [threads, f"{mark}{registers}", f"{smem / 1024:.1f}K", 0, "spills", "-"], ""
    blocks, limit = occupancy.blocks(gpu, threads, registers, smem)
    rate = "-"
    if blocks:
        try:
            rate = term.tflops(model.predict(step, gpu, size, "burst", values, kept).tflops)
        except term.UserError:
            rate = "-"
    return [threads, f"{mark}{registers}" if registers else "?", f"{smem / 1024:.1f}K", blocks,
            limit, rate], ""


def _driver(step, gpu, found, size):
    """What cudaOccupancyMaxActiveBlocksPerMultiprocessor says of the step as it is."""
    if not found or gpu["match"].lower() not in found[0].name.lower():
        return
    ready = setup.ready()
    if not ready.nvcc or build.build(ready, "gpu", [step.id], quiet=True):
        return
    done = child.run([build.program("gpu", step.id), "occupancy", "--sizes", sizes.text(size)],
                     limit=60)
    try:
        said = json.loads(done.out)
        term.say(f"the driver says of the step as it is: {said['blocks_per_sm']} blocks an SM, "
                 f"{said['registers']} registers, {said['static_smem']} + {said['dynamic_smem']} "
                 "bytes of shared memory")
    except (ValueError, KeyError):
        term.note(f"the driver was asked and did not answer: {child.why(done, 60)}")


def _measured(step, choices, size, args):
    """{values: TFLOPS in burst}, by the sweep."""
    options.need_gpu()
    words = [f"{name}={','.join(map(str, values))}" for name, values in choices]
    sweep.main(argparse.Namespace(step=step.id, values=words, sizes=sizes.text(size),
                                  regimes="burst", device="gpu", out=args.out,
                                  time_limit=args.time_limit, passed_on=[]))
    data = results.load(paths.Path(args.out) / f"sweep-{step.id}.json")
    found = {}
    for values in itertools.product(*[v for _, v in choices]):
        name = "-".join([step.id, *(f"{n}-{v}" for (n, _), v in zip(choices, values))])
        rate = data.value(name, size, "burst")
        if rate:
            found[values] = rate
    return found
