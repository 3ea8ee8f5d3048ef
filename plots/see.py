#!/usr/bin/env python3
"""Pictures that explain the numbers.

  see.py roofline plots/results/nvidia-h200.json     each step against its limits
  see.py bytes [RESULTS]                             bytes per FLOP by level, predicted and counted
  see.py waits plots/results/profiles/nvidia-h200.json    what warps wait for, step by step
  see.py stages out/sweep-12_multistage.json         TFLOPS over stages, and predicted
  see.py tile out/sweep-A.json [out/sweep-B.json]    double the tile: what does it buy?
  see.py utilisation RESULTS                         NVML's figures beside percent of peak
  see.py banks STEP                                  which bank each lane touches
"""
import argparse
import sys
from math import log10
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from plot import BURST, GRID, INK, SOFT, SUSTAINED, headline, pyplot, save, spread_out  # noqa: E402
from tools.lib import (banks, counts, kernel_facts, model, occupancy, paths,  # noqa: E402
                       profiling, results, sizes, steps)
from tools.lib.term import UserError  # noqa: E402

UNITS = {"ffma": ("#b06a3c", "CUDA cores"), "mma_sync": ("#a0528f", "mma.sync"),
         "wgmma": ("#1f5fa8", "wgmma")}
LEVELS = {"smem": ("#5b8a3c", "shared memory and L1"), "l2": ("#e08b2c", "L2"),
          "hbm": ("#b3261e", "HBM")}
HEADLINE = (4096, 4096, 4096)


def gpu_of(data):
    return occupancy.gpu(str(data.context["gpu"]))


def size_in(data, asked):
    found = data.sizes()
    if not found:
        raise UserError("the file has no measured steps to draw")
    return asked if asked in found else HEADLINE if HEADLINE in found else found[-1]


def known_steps():
    return {step.id: step for step in steps.everything()}


def title(figure, words, line):
    height = figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.58 / height))
    figure.text(0.012, 1 - 0.10 / height, words, fontsize=12, fontweight="bold", va="top")
    figure.text(0.012, 1 - 0.36 / height, line, color=SOFT, fontsize=8.5, va="top")


def moved(step, gpu, size, kept, profile=None):
    """{level: bytes per FLOP}: predicted, or counted by the hardware where there is a profile."""
    flop = sizes.flops(size)
    if profile is not None:
        wavefronts = profile.get("smem_wavefronts")
        return {"l2": 32 * (profile.get("l2_read_sectors") or 0) / flop or None,
                "hbm": (profile.get("dram_bytes") or 0) / flop or None,
                "smem": wavefronts * 128 / flop if wavefronts and step.unit != "wgmma" and
                kernel_facts.read(step).copies != "none" else None}
    p = model.predict(step, gpu, size, "burst", kept=kept)
    facts = kernel_facts.read(step, config=counts.choice(step, kept, size))
    tile_flop = 2.0 * facts.get("BLOCK_M") * facts.get("BLOCK_N") * (facts.get("BLOCK_K") or 1)
    smem = p.cycles["shared memory"] * gpu["smem_bytes_clk_sm"] / tile_flop
    if step.unit == "wgmma":  # wgmma reads its operands itself: 64 rows of A and N of B for each k
        n = facts.get("BLOCK_M" if facts.get("TRANSPOSED") else "BLOCK_N")
        smem = (64 + n) * 2.0 / (2 * 64 * n)
    return {"smem": smem, "l2": p.bytes["l2"] / flop,
            "hbm": (p.bytes["hbm"] + p.bytes["store"]) / flop}


# ---- roofline ------------------------------------------------------------------------------------

def roofline(data, size, recorded):
    plt = pyplot()
    gpu, known, kept = gpu_of(data), known_steps(), counts.load()
    size = size_in(data, size)
    points = []
    for subject in data.subjects():
        rate = data.value(subject, size, "burst")
        if subject in known and rate:
            try:
                points.append((known[subject], rate, moved(known[subject], gpu, size, kept)))
            except UserError:
                continue
    if not points:
        raise UserError("the file has no step whose bytes are known (./ladder predict --refresh)")
    clock = gpu["max_mhz"] * 1e6
    levels = [("smem", gpu["smem_bytes_clk_sm"] * gpu["sms"] * clock * 1e-12),
              ("l2", gpu["l2_tbs"]), ("hbm", gpu["hbm_tbs"])]
    figure, axes = plt.subplots(1, 3, figsize=(13.5, 5.6), sharey=True, layout="constrained")
    for axis, (level, bandwidth) in zip(axes, levels):
        _roof(axis, data, size, points, level, bandwidth)
    axes[0].set_ylabel("TFLOPS (log scale)")
    headline(figure, f"Roofline, {sizes.text(size)}, burst: {data.context['gpu']}", data, recorded)
    return figure


def _roof(axis, data, size, points, level, bandwidth):
    xs = [1 / p[2][level] for p in points if p[2][level]]
    low, high = min(xs) / 2, max(xs) * 2
    bottom = min(p[1] for p in points) / 2
    ceilings = []
    for unit, (colour, words) in UNITS.items():
        top = data.value(f"ceiling_{unit}", size, "burst")
        if top:
            ceilings.append(top)
            axis.plot([max(low, top / bandwidth), high], [top, top], color=colour, linewidth=1.2)
            axis.text(low, top, f" {words} {top:.0f}", fontsize=7.5, color=colour, va="bottom")
    top = max(ceilings, default=max(p[1] for p in points) * 1.2)
    axis.plot([low, top / bandwidth], [low * bandwidth, top], color=INK, linewidth=1.4)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(low, high)
    axis.set_ylim(bottom, top * 1.6)
    columns = {}
    for step, rate, by_level in points:
        x = 1 / by_level[level]
        axis.plot(x, rate, "o", markersize=4.5, color=UNITS[step.unit][0])
        columns.setdefault(round(4 * log10(x)), []).append((x, rate, step.id[:2]))
    gap = log10(top * 1.6 / bottom) * 0.032
    for column in columns.values():  # numbers beside their points, none over another
        spots = spread_out([log10(rate) for _, rate, _ in column], gap, log10(bottom),
                           log10(top * 1.5))
        right = max(x for x, _, _ in column) * (high / low) ** 0.022
        for (x, rate, name), spot in zip(column, spots):
            axis.annotate(name, (x, rate), xytext=(right, 10 ** spot), fontsize=7, color=INK,
                          va="center", arrowprops=dict(arrowstyle="-", color="#b0b0b0",
                                                       linewidth=0.5, shrinkA=0, shrinkB=2))
    for which in ("x", "y"):
        getattr(axis, f"{which}axis").set_major_formatter(lambda v, _: f"{v:g}")
    axis.grid(color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.set_xlabel(f"FLOP per byte from {LEVELS[level][1]} (predicted bytes)")
    axis.set_title(f"{LEVELS[level][1]}: {bandwidth:.3g} TB/s", loc="left", fontsize=10)


# ---- bytes per FLOP ------------------------------------------------------------------------------

def bytes_moved(data, size, recorded, gpu=None, profiles=None):
    plt = pyplot()
    gpu = gpu or occupancy.gpu("h200")
    kept, found = counts.load(), []
    for step in steps.everything():
        try:
            found.append((step, moved(step, gpu, size or HEADLINE, kept)))
        except UserError:
            continue
    if not found:
        raise UserError("no step's bytes are known: ./ladder predict --refresh")
    figure, axis = plt.subplots(figsize=(max(8, 0.42 * len(found) + 2.5), 4.8),
                                layout="constrained")
    for level, (colour, words) in LEVELS.items():
        axis.plot(range(len(found)), [m[level] for _, m in found], "o-", color=colour, markersize=5,
                  linewidth=1, label=f"{words}, predicted")
        counted = []
        for x, (step, _) in enumerate(found):
            profile = (profiles or {}).get(f"{step.id}/{sizes.text(size or HEADLINE)}")
            if profile and (value := moved(step, gpu, size or HEADLINE, kept, profile)[level]):
                counted.append((x, value))
        if counted:
            axis.plot(*zip(*counted), linestyle="none", marker="D", markersize=7, color=colour,
                      markerfacecolor="none", label=f"{words}, counted by the GPU")
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axis.set_ylabel("bytes per FLOP (log scale)")
    axis.set_xticks(range(len(found)))
    axis.set_xticklabels([s.id.replace("_", " ", 1) for s, _ in found], rotation=60, ha="right",
                         rotation_mode="anchor", fontsize=8)
    axis.grid(axis="y", color=GRID, linewidth=0.7)
    axis.legend(frameon=False, fontsize=8, ncols=2)
    title(figure, "What a FLOP costs in bytes, level by level",
          f"{gpu['name']}, {sizes.text(size or HEADLINE)}; predicted from tile sizes and the "
          "emulated device's counters")
    return figure


# ---- waits ---------------------------------------------------------------------------------------

def waits(profiles, gpu_name):
    plt = pyplot()
    rows = [(name, v) for name, v in profiles.items() if profiling.top_stalls(v)]
    if not rows:
        raise UserError("the file has no stall reasons")
    total = {s: sum(v.get(f"stall_{s}") or 0 for _, v in rows) for s in profiling.STALLS}
    reasons = sorted(total, key=lambda s: -total[s])
    good = {"math_pipe_throttle": "#1f5fa8", "gmma": "#5b93d1", "not_selected": "#a9c6e8"}
    rest = iter(["#b3261e", "#e08b2c", "#7a3b9a", "#8a8a8a", "#5b8a3c", "#c9a227", "#b08ab8",
                 "#9c6b4f", "#cccccc"])
    colours = {reason: good.get(reason) or next(rest, "#dddddd") for reason in reasons}
    figure, axis = plt.subplots(figsize=(10.5, 1.7 + 0.36 * len(rows)), layout="constrained")
    left = [0.0] * len(rows)
    whole = [sum(v.get(f"stall_{s}") or 0 for s in profiling.STALLS) for _, v in rows]
    for reason in reasons:
        values = [100 * (v.get(f"stall_{reason}") or 0) / w for (_, v), w in zip(rows, whole)]
        if max(values) < 1:
            continue
        short, words = profiling.STALLS[reason]
        axis.barh(range(len(rows)), values, left=left, color=colours[reason], height=0.72,
                  label=f"{short}: {words}")
        left = [a + b for a, b in zip(left, values)]
    axis.set_yticks(range(len(rows)))
    names = [name.removesuffix("/" + sizes.text(HEADLINE)).replace("/", "  ") for name, _ in rows]
    axis.set_yticklabels(names, fontsize=8)
    axis.invert_yaxis()
    for y, cycles in enumerate(whole):
        axis.text(101, y, f"{cycles:.1f}", va="center", fontsize=8, color=SOFT)
    axis.set_xlim(0, 110)
    axis.set_xticks(range(0, 101, 20))
    axis.set_xlabel("% of the waiting of its warps; at the right: cycles waited for an instruction")
    axis.grid(axis="x", color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.legend(frameon=False, fontsize=7.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    title(figure, "What warps wait for", f"{gpu_name}; blue: the math pipe or its own turn, as it "
          "should be. Few warps that wait long can be better than many")
    return figure


# ---- sweeps --------------------------------------------------------------------------------------

def sweep_rows(data):
    """[({NAME: value}, step id, row subject)] of a sweep's file."""
    found = []
    for subject in dict.fromkeys(row.subject for row in data.rows.values() if row.is_step):
        step, *parts = subject.split("-")
        if parts and len(parts) % 2 == 0:
            found.append((dict(zip(parts[::2], map(int, parts[1::2]))), step, subject))
    if not found:
        raise UserError("the file has no rows of a sweep: ./ladder sweep writes one")
    return found


def stages(data, size, recorded):
    rows = [r for r in sweep_rows(data) if set(r[0]) == {"NUM_STAGES"}]
    if not rows:
        raise UserError("the file has no sweep over NUM_STAGES alone: ./ladder sweep 12 "
                        "NUM_STAGES=2..6")
    plt = pyplot()
    rows.sort(key=lambda r: r[0]["NUM_STAGES"])
    size, step, gpu = size_in(data, size), known_steps().get(rows[0][1]), gpu_of(data)
    figure, axis = plt.subplots(figsize=(7.5, 4.3), layout="constrained")
    for regime, colour in (("burst", BURST), ("sustained", SUSTAINED)):
        points = [(r[0]["NUM_STAGES"], data.value(r[2], size, regime)) for r in rows]
        points = [(x, y) for x, y in points if y]
        if points:
            axis.plot(*zip(*points), "o-", color=colour, label=f"{regime}, measured")
        predicted = []
        for x, _ in points:
            try:
                predicted.append((x, model.predict(step, gpu, size, regime,
                                                   {"NUM_STAGES": x}).tflops))
            except (UserError, AttributeError):
                continue
        if predicted:
            axis.plot(*zip(*predicted), "--", color=colour, alpha=0.7, label=f"{regime}, predicted")
    axis.set_ylim(0, 1.1 * axis.get_ylim()[1])
    axis.set_xticks([r[0]["NUM_STAGES"] for r in rows])
    axis.set_xlabel("NUM_STAGES: tiles in the ring")
    axis.set_ylabel("TFLOPS")
    axis.grid(axis="y", color=GRID, linewidth=0.7)
    axis.legend(frameon=False)
    headline(figure, f"{rows[0][1]}, {sizes.text(size)}: how many stages? {data.context['gpu']}",
             data, recorded)
    return figure


def tile(several, size, recorded):
    """A panel for each file; in each, one line per constant that was swept."""
    plt = pyplot()
    figure, axes = plt.subplots(1, len(several), figsize=(6.2 * len(several) + 0.8, 4.4),
                                squeeze=False, sharey=True, layout="constrained")
    for axis, data in zip(axes[0], several):
        rows = [r for r in sweep_rows(data)
                if all(name.startswith(("BLOCK_", "WARP_", "THREAD_")) for name in r[0])]
        if not rows:
            raise UserError("the file has no sweep over sizes of tiles: ./ladder sweep 12 "
                            "BLOCK_K=32,64")
        here = size_in(data, size)
        names = list(dict.fromkeys(name for values, _, _ in rows for name in values))
        labels = [" × ".join(str(v[n]) for n in names if n in v) for v, _, _ in rows]
        for regime, colour in (("burst", BURST), ("sustained", SUSTAINED)):
            ys = [data.value(subject, here, regime) for _, _, subject in rows]
            order = sorted(range(len(rows)), key=lambda i: list(rows[i][0].values()))
            points = [(x, ys[i]) for x, i in enumerate(order) if ys[i]]
            if points:
                axis.plot(*zip(*points), "o-", color=colour, label=regime)
                axis.set_xticks(range(len(order)))
                axis.set_xticklabels([labels[i] for i in order], rotation=25, ha="right",
                                     rotation_mode="anchor", fontsize=8)
        axis.set_xlabel(" × ".join(names))
        only_k = names == ["BLOCK_K"]
        words = ("BLOCK_K changes barriers and lead, not traffic" if only_k else
                 "larger tiles: fewer bytes per FLOP")
        axis.set_title(f"{rows[0][1]}: {words}", loc="left", fontsize=9.5)
        axis.grid(axis="y", color=GRID, linewidth=0.7)
        axis.legend(frameon=False)
        axis.set_ylim(0, 1.05 * max(axis.get_ylim()[1], axes[0][0].get_ylim()[1]))
    axes[0][0].set_ylabel("TFLOPS")
    headline(figure, "Double the tile: memory-bound or compute-bound? "
             f"{several[0].context['gpu']}", several[0], recorded)
    return figure


# ---- utilisation ---------------------------------------------------------------------------------

def utilisation(data, size, recorded):
    plt = pyplot()
    size = size_in(data, size)
    regime = "sustained" if any(data.value(s, size, "sustained", "gpu_util_nvml_pct") is not None
                                for s in data.subjects()) else "burst"
    chosen = [s for s in data.subjects() if data.value(s, size, regime, "pct_peak") is not None]
    kinds = [("gpu_util_nvml_pct", "#c9c9c9", "GPU utilisation, NVML (nvidia-smi)"),
             ("memory_util_nvml_pct", "#e3cfa8", "memory utilisation, NVML (dmon)"),
             ("pct_peak", BURST, "of the Tensor Core peak: what is really used")]
    if not any(data.value(s, size, regime, kinds[0][0]) is not None for s in chosen):
        raise UserError("the file has no utilisation figures (NVML was not there)")
    figure, axis = plt.subplots(figsize=(max(8, 0.5 * len(chosen) + 2), 4.4), layout="constrained")
    for i, (counter, colour, words) in enumerate(kinds):
        values = [data.value(s, size, regime, counter) or 0 for s in chosen]
        axis.bar([x + (i - 1) * 0.28 for x in range(len(chosen))], values, width=0.27, color=colour,
                 label=words)
    axis.set_ylim(0, 118)
    axis.set_yticks(range(0, 101, 20))
    axis.set_ylabel("%")
    axis.set_xticks(range(len(chosen)))
    axis.set_xticklabels([s.replace("_", " ", 1) for s in chosen], rotation=60 if len(chosen) > 8
                         else 25, ha="right", rotation_mode="anchor", fontsize=8)
    axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=3)
    axis.grid(axis="y", color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    headline(figure, f"Utilisation says busy, not useful: {data.context['gpu']}, "
             f"{sizes.text(size)}, {regime}", data, recorded)
    return figure


# ---- banks ---------------------------------------------------------------------------------------

def draw_banks(step):
    plt = pyplot()
    accesses = banks.read(step)[:3]
    figure, axes = plt.subplots(1, len(accesses), figsize=(6.4 * len(accesses), 7.6), squeeze=False,
                                layout="constrained")
    colours = ["#1f5fa8", "#e08b2c", "#5b8a3c", "#b3261e", "#7a3b9a", "#3c9a9a", "#c9a227",
               "#8a5a44"]
    for axis, access in zip(axes[0], accesses):
        for lane in range(32):
            matrix, row = divmod(lane, 8)
            y = 35 - lane - matrix
            for bank in access.banks(lane):
                axis.add_patch(plt.Rectangle((bank, y), 1, 1, facecolor=colours[row], linewidth=0))
            axis.text(-0.6, y + 0.5, str(lane), fontsize=6.5, ha="right", va="center", color=INK)
        for matrix in range(4):
            times = access.wavefronts(matrix)
            axis.text(32.6, 35 - matrix * 9 - 3.5, f"{times} wavefront" + "s" * (times > 1),
                      fontsize=8, rotation=90, va="center",
                      color="#b3261e" if times > 1 else "#1a7f37",
                      fontweight="bold")
            axis.add_patch(plt.Rectangle((0, 28 - matrix * 9), 32, 8, fill=False,
                                         edgecolor="#b0b0b0", linewidth=0.8))
        axis.set_xlim(-2, 34.5)
        axis.set_ylim(0, 36.5)
        axis.set_yticks([])
        axis.set_xticks([i + 0.5 for i in range(0, 32, 4)])
        axis.set_xticklabels(range(0, 32, 4), fontsize=8)
        axis.set_xlabel("bank of shared memory (4 bytes each)")
        axis.set_ylabel("lane; 8 lanes give the rows of one 8x8 matrix")
        for side in ("left", "bottom"):
            axis.spines[side].set_visible(False)
        axis.set_title(f"{access.what}\n{access.expression}", loc="left",
                       fontsize=8.5)
    title(figure, f"{step.id}: banks that the lanes touch",
          "by the index functions of its kernel.cu; rows of a matrix in one column of banks must "
          "be served one after the other")
    return figure


# ---- command line --------------------------------------------------------------------------------

def profiles_of(path):
    import json
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        if data["format"] != profiling.FORMAT:
            raise ValueError
        return data["profiles"], data["gpu"]
    except OSError as error:
        raise UserError(f"cannot read {paths.shown(path)}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{paths.shown(path)} is not a file of profiles: ./ladder profile STEP "
                        "--record writes one") from None


def recorded_profiles(gpu_name):
    file = paths.RECORDED / "profiles" / results.file_of(gpu_name)
    return profiles_of(file)[0] if file.is_file() else None


def make(kind, words, size):
    """(figure, name of the picture)."""
    recorded = bool(words) and paths.RECORDED in Path(words[0]).resolve().parents
    if kind == "banks":
        if len(words) != 1:
            raise UserError("banks takes one step: ./ladder plot --kind banks 11")
        step = steps.one(words[0])
        return draw_banks(step), f"banks-{step.id}"
    if kind == "bytes":
        data = results.load(words[0]) if words else None
        gpu = gpu_of(data) if data else occupancy.gpu("h200")
        name = str(data.context["gpu"]) if data else gpu["name"]
        return bytes_moved(data, size, recorded, gpu, recorded_profiles(name)), "bytes"
    if not words:
        raise UserError(f"{kind} takes a file: see ./ladder plot --help")
    if kind == "waits":
        return waits(*profiles_of(words[0])), "waits"
    loaded = [results.load(word) for word in words]
    if kind == "tile":
        return tile(loaded, size, recorded), "tile"
    function = {"roofline": roofline, "stages": stages, "utilisation": utilisation}[kind]
    name = kind if kind != "stages" else f"stages-{sweep_rows(loaded[0])[0][1]}"
    return function(loaded[0], size, recorded), name


KINDS = ("roofline", "waits", "bytes", "stages", "tile", "banks", "utilisation")


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("what", nargs="*")
    parser.add_argument("-o", "--out", type=Path, default=Path("out"))
    parser.add_argument("--name")
    parser.add_argument("--fingerprint", default="", help="kept in the SVG, to tell if it is stale")
    parser.add_argument("--svg", action="store_true", help="no PNG")
    parser.add_argument("--sizes")
    args = parser.parse_args(argv)
    size = sizes.parse(args.sizes)[0] if args.sizes else None
    figure, name = make(args.kind, args.what, size)
    save(figure, args.out, args.name or name, args.fingerprint and f"input {args.fingerprint}",
         ("svg",) if args.svg else ("png", "svg"))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.code)
