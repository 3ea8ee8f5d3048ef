"""Predict the rate of steps from their constants and the GPU's measured ceilings, without a GPU.

  ./ladder predict                      every step at 4096, on an H200
  ./ladder predict 12                   one step: also where the number comes from
  ./ladder predict 07-16 --gpu a100     another GPU of tools/gpus.json
  ./ladder predict 17-23 --sizes 2048,4096,8192
  ./ladder predict --refresh            count anew (emulated device) what changed kernels move

With recorded results of that GPU the measured rate stands beside. How it works and what it leaves
out: notes/prediction.md. Nothing is fitted to a step.
"""
from .lib import counts, model, occupancy, options, paths, results, setup, sizes, steps, term


def arguments(parser):
    options.add_steps(parser)
    options.add_sizes(parser, "4096")
    options.add_regimes(parser)
    parser.add_argument("--gpu", default="h200", help="a key of tools/gpus.json (default h200)")
    parser.add_argument("--refresh", action="store_true", help="count changed steps anew first")


def main(args):
    chosen = steps.select(args.steps)
    size_list = sizes.parse(args.sizes)
    regimes = options.regimes(args.regimes)
    gpu = occupancy.gpu(args.gpu)
    if args.refresh:
        ready = setup.ready()
        for step, reason in counts.refresh(ready, chosen, say=term.note).items():
            term.note(f"{step} not counted: {reason}")
    recorded = recorded_of(gpu)
    if len(chosen) == 1:
        details(chosen[0], gpu, size_list[0], regimes[0], ceilings_of(recorded, regimes[0]))
    if not show(gpu, chosen, size_list, regimes, recorded, "recorded"):
        raise term.UserError("none of these steps can be predicted; see the reasons above")
    stale = [s.id for s in chosen if not counts.is_fresh(s)]
    if stale:
        term.note(f"kernels changed since they were counted: {', '.join(stale)}; --refresh counts "
                  "anew")
    return 0


def details(step, gpu, size, regime, ceilings):
    """Where the prediction of one step comes from."""
    try:
        p = model.predict(step, gpu, size, regime, ceilings=ceilings)
    except term.UserError:
        return  # the table says why
    flop = sizes.flops(size)
    term.say(f"\n{step.id} on {gpu['name']}, {sizes.text(size)}, {regime}", term.BOLD)
    busy = ", ".join(f"{name} {cycles:.0f}" for name, cycles in p.cycles.items() if name != "step")
    level = ", ".join(f"{name} {1e3 * p.bytes[key] / flop:.2f}" for key, name in (
        ("l2", "L2"), ("hbm", "HBM"), ("store", "C")))
    for words in (
            f"blocks of an SM: {p.blocks_sm}",
            f"bytes per 1,000 FLOP: {level}",
            f"cycles of a tile step, each unit alone: {busy}; together {p.cycles['step']:.0f}",
            f"copies need {p.latency:.0f} cycles and have {p.lead:.0f}: "
            + (f"{p.exposed:.0f} are waited for" if p.exposed >= 1 else "covered"),
            f"math busy {100 * p.duty:.0f} % of a tile step; tiles fill {100 * p.waves:.0f} % of "
            f"the SMs' time; clock {p.mhz:.0f} MHz"):
        term.say("  " + words)


def show(gpu, chosen, size_list, regimes, data, word):
    """Tables of predictions, beside the rates in `data` if there is some; how many rows. Also what
    `run --predict` prints after its own tables."""
    kept, shown = counts.load(), 0
    for size in size_list:
        term.say(f"\npredicted for {gpu['name']}, {sizes.text(size)}"
                 + ("" if data is None else f", and {word}"), term.BOLD)
        table = term.Table([("step", 28), ("regime", 9), ("predicted", 9), (word, 8), ("off", 5),
                            ("limit", 14)])
        table.header()
        close = total = 0
        for step in chosen:
            for regime in regimes:
                try:
                    p = model.predict(step, gpu, size, regime, kept=kept,
                                      ceilings=ceilings_of(data, regime))
                except term.UserError as error:
                    table.failed(step.id, error)
                    break
                shown += 1
                found = data.value(step.id, size, regime) if data else None
                off = ""
                if found:
                    total += 1
                    close += abs(p.tflops / found - 1) <= 0.15
                    off = f"{100 * (p.tflops / found - 1):+.0f} %"
                table.row([step.id, regime, term.tflops(p.tflops), term.tflops(found), off,
                           p.bound])
        if total:
            term.say(f"{close} of {total} within 15 %")
    term.say("\nTFLOPS. limit: what is busiest, or 'taking turns' (math and copies of a block do "
             "not overlap)\nor 'waiting' (latency). How: notes/prediction.md", term.DIM)
    return shown


def recorded_of(gpu):
    """Recorded results of this GPU, or None."""
    for file in sorted(paths.RECORDED.glob("*.json")):
        try:
            data = results.load(file)
        except term.UserError:
            continue  # not a result file: a profile, a trace
        if gpu["match"].lower() in str(data.context["gpu"]).lower():
            return data
    return None


def ceilings_of(recorded, regime):
    """{unit: TFLOPS} as measured, or None where they are not all there."""
    if recorded is None:
        return None
    found = {}
    for unit in ("ffma", "mma_sync", "wgmma"):
        rows = [row for row in recorded.rows.values()
                if row.subject == f"ceiling_{unit}" and row.regime == regime]
        values = [row.get("tflops") for row in rows if row.get("tflops")]
        if values:
            found[unit] = max(values)
    return found if len(found) == 3 else None
