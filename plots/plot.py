#!/usr/bin/env python3
"""Pictures of result files: percent of peak for each step, TFLOPS over size, a sweep.

  plot.py ladder plots/results/nvidia-h200.json -o out --sizes 4096
  plot.py sizes  out/results.json
  plot.py sweep  out/sweep.json
  plot.py suite  out/suite.json

Writes PNG and SVG and prints their names. Needs matplotlib; ./ladder plot sets that up.
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True

from tools.lib import files, paths, results, sizes  # noqa: E402
from tools.lib.term import UserError  # noqa: E402

BURST, SUSTAINED = "#1f5fa8", "#d9730d"
INK, SOFT, GRID = "#1c1c1c", "#6a6a6a", "#e4e4e4"
# Lines to compare with: subject, what the label says, colour.
REFERENCES = [("ceiling_wgmma", "wgmma ceiling", "#7a3b9a"),
              ("cublas_best", "cuBLAS best", "#1a7f37"),
              ("cublas_default", "cuBLAS default", "#5aa469"),
              ("ceiling_mma_sync", "mma.sync ceiling", "#a0528f"),
              ("ceiling_ffma", "FP32 FFMA ceiling", "#b08ab8")]


def pyplot():
    try:
        import matplotlib
    except ImportError:
        raise UserError("plots need matplotlib: apt-get install python3-matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    plt.rcParams.update({
        "font.size": 9, "font.family": "DejaVu Sans", "svg.fonttype": "none",
        "svg.hashsalt": "gemm-ladder",  # the same input gives the same file
        "axes.edgecolor": "#b0b0b0", "axes.labelcolor": INK, "text.color": INK,
        "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
        "axes.spines.right": False,
        # A white card of its own: the same on a light and on a dark page.
        "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white"})
    return plt


def subtitle(data, recorded):
    context = data.context
    limit = str(context.get("power_limit_w", ""))
    parts = [f"driver {context['driver']}" if context.get("driver") else "",
             f"CUDA {context['cuda']}" if context.get("cuda") else "",
             f"{limit} W limit" if limit.isdigit() else "",
             ("recorded " if recorded else "measured ") + str(context.get("date", "?"))[:10]]
    return "  ·  ".join(p for p in parts if p)


def spread_out(values, gap, low, high):
    """Positions near `values`, in the same order, at least `gap` apart."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    placed = [values[i] for i in order]
    for _ in range(5000):
        moved = False
        for i in range(1, len(placed)):
            overlap = placed[i - 1] + gap - placed[i]
            if overlap > 1e-9:
                placed[i - 1] -= overlap / 2
                placed[i] += overlap / 2
                moved = True
        if placed and placed[-1] > high:
            placed[-1] = high
        if placed and placed[0] < low:
            placed[0] = low
        if not moved:
            break
    result = [0.0] * len(values)
    for position, i in zip(placed, order):
        result[i] = position
    return result


def headline(figure, title, data, recorded):
    """Title and the line about the machine, in a strip of their own above the panels."""
    height = figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.58 / height))
    figure.text(0.012, 1 - 0.10 / height, title, fontsize=12, fontweight="bold", va="top")
    figure.text(0.012, 1 - 0.36 / height, subtitle(data, recorded), color=SOFT, fontsize=8.5,
                va="top")


# ---- percent of peak, step by step -------------------------------------------------------------

def ladder(data, size_list, regimes, recorded):
    plt = pyplot()
    steps = [s for s in data.subjects() if any(
        data.value(s, z, r, "pct_peak") is not None for z in size_list for r in regimes)]
    if not steps:
        raise UserError("the file has no measured steps to draw")
    height = 4.3 if len(steps) <= 12 else 5.3  # of a panel; many names stand steeper
    width = min(11.5, max(8.0, 4.2 + 0.27 * len(steps)))
    figure, axes = plt.subplots(len(size_list), 1, figsize=(width, 0.9 + height * len(size_list)),
                                squeeze=False, layout="constrained")
    for axis, size in zip(axes[:, 0], size_list):
        _ladder_panel(axis, data, size, regimes, steps)
    title = f"GEMM ladder, % of the Tensor Core peak: {data.context['gpu']}"
    headline(figure, title, data, recorded)
    return figure


def _ladder_panel(axis, data, size, regimes, steps):
    styles = {"burst": dict(color=BURST, marker="o", markersize=6.5),
              "sustained": dict(color=SUSTAINED, marker="D", markersize=4.5,
                                markerfacecolor="white")}
    many = len(steps) > 12
    # Square root: 0.05 % and 80 % are both to be seen; said at the axis.
    axis.set_yscale("function", functions=(lambda y: abs(y) ** 0.5, lambda y: y ** 2))
    axis.set_ylim(0, 107)
    axis.set_yticks([0, 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100])
    axis.set_ylabel("% of peak (square-root scale)")
    axis.grid(axis="y", color=GRID, linewidth=0.7)
    axis.set_axisbelow(True)
    axis.set_xlim(-0.6, len(steps) - 0.4)
    axis.set_xticks(range(len(steps)))
    axis.set_title(f"{sizes.text(size).replace('x', ' × ')}  (M × N × K), FP16 in, FP32 accumulate",
                   loc="left", fontsize=9.5)

    for regime in regimes:
        points = [(x, data.value(s, size, regime, "pct_peak")) for x, s in enumerate(steps)]
        points = [(x, y) for x, y in points if y is not None]
        axis.plot([x for x, _ in points], [y for _, y in points], linestyle="-", linewidth=0.8,
                  alpha=0.35, color=styles[regime]["color"], zorder=3)
        axis.plot([x for x, _ in points], [y for _, y in points], linestyle="none", label=regime,
                  zorder=4, **styles[regime])
    _times_before(axis, data, size, regimes, steps, many)
    _reference_lines(axis, data, size, regimes)
    axis.legend(loc="lower right" if many else "center left", frameon=True, framealpha=0.9,
                edgecolor="none", fontsize=8.5, ncols=2, title_fontsize=8, alignment="left",
                title="× = as fast as the step before\nlines: burst solid, sustained dashed")


def _times_before(axis, data, size, regimes, steps, many):
    """Names under the axis, and how much faster each is than the one before: above its point, or,
    where many points stand close, behind the name."""
    names, colours = [], []
    for x, step in enumerate(steps):
        tops = [v for r in regimes if (v := data.value(step, size, r, "pct_peak")) is not None]
        ratio = next((v for r in regimes
                      if (v := data.value(step, size, r, "vs_previous")) is not None), None)
        times = "" if ratio is None else f"×{ratio:.2f}" if ratio < 9.95 else f"×{ratio:.0f}"
        colours.append("#b3261e" if ratio is not None and ratio < 0.995 else INK)
        names.append(step.replace("_", " ", 1) + (f"  {times}" if many and times else ""))
        if tops and not many:
            axis.annotate(times or f"{max(tops):.2g} %", (x, max(tops)), xytext=(0, 7),
                          textcoords="offset points", ha="center", va="bottom", fontsize=9,
                          zorder=6, color=colours[-1], fontweight="bold",
                          bbox=dict(boxstyle="square,pad=0.05", facecolor="white",
                                    edgecolor="none", alpha=0.8))
    axis.set_xticklabels(names, rotation=60 if many else 25, ha="right", rotation_mode="anchor",
                         fontsize=8 if many else 9)
    for label, colour in zip(axis.get_xticklabels(), colours):
        label.set_color(colour)


def _reference_lines(axis, data, size, regimes):
    """Solid in burst, dashed in sustained; the label at the right margin gives both numbers."""
    peak = data.peak()
    labels = [(100.0, f"datasheet {peak:.0f} TFLOPS" if peak else "datasheet peak", INK)]
    axis.axhline(100, color=INK, linewidth=1.2, zorder=2)
    for subject, words, colour in REFERENCES:
        values = {}
        for regime in regimes:
            value = data.value(subject, size, regime, "pct_peak")
            tflops = data.value(subject, size, regime)
            if value is None and tflops and peak:
                value = tflops / peak * 100
            if value is not None:
                values[regime] = value
                axis.axhline(value, color=colour, linewidth=1.0, zorder=2, alpha=0.8,
                             linestyle="-" if regime == "burst" else (0, (4, 3)))
        if values:
            numbers = " / ".join(f"{v:.1f}" if v < 10 else f"{v:.0f}" for v in values.values())
            labels.append((max(values.values()), f"{words} {numbers} %", colour))
    # Placed on the square-root axis, so spread there too.
    spots = spread_out([y ** 0.5 for y, _, _ in labels], 0.44, 0.2, 107 ** 0.5)
    right = axis.get_xlim()[1]
    for (y, words, colour), spot in zip(labels, spots):
        axis.annotate(words, xy=(right, y), xytext=(1.025, spot ** 2), annotation_clip=False,
                      textcoords=axis.get_yaxis_transform(), fontsize=8, color=colour, va="center",
                      arrowprops=dict(arrowstyle="-", color=colour, linewidth=0.7, shrinkA=0,
                                      shrinkB=0, relpos=(0, 0.5)))


# ---- TFLOPS over size ----------------------------------------------------------------------------

def over_sizes(data, size_list, regimes, recorded):
    if len(size_list) < 2:
        return None  # one size is no curve
    plt = pyplot()
    steps = data.subjects()
    figure, axes = plt.subplots(1, len(regimes), squeeze=False, sharey=True, layout="constrained",
                                figsize=(5.2 * len(regimes) + 0.8, 4.4 if len(steps) < 13 else 6.4))
    colours = plt.get_cmap("viridis")
    for axis, regime in zip(axes[0], regimes):
        ends = []
        lines = [(s, dict(color=colours(0.8 * i / max(1, len(steps) - 1)), linewidth=1.4))
                 for i, s in enumerate(steps)]
        lines.append(("cublas_best", dict(color=INK, linewidth=1.6, linestyle=(0, (4, 2)))))
        for subject, style in lines:
            points = [(x, data.value(subject, z, regime)) for x, z in enumerate(size_list)]
            points = [(x, y) for x, y in points if y]
            if not points:
                continue
            axis.plot(*zip(*points), marker="o", markersize=3.5, **style)
            name = "cuBLAS best" if subject == "cublas_best" else subject
            x, y = points[-1]
            ends.append((y, f"{name} {y:.3g}", style["color"], x))
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        axis.set_xticks(range(len(size_list)))
        axis.set_xticklabels([sizes.short(z) for z in size_list], rotation=25, ha="right",
                             rotation_mode="anchor")
        axis.set_xlim(-0.2, len(size_list) - 0.8)
        axis.grid(axis="y", which="major", color=GRID, linewidth=0.7)
        axis.set_title(regime, loc="left", fontsize=10)
        axis.set_xlabel("size: M = N = K, or M × N × K")
        _end_labels(axis, ends)
    axes[0][0].set_ylabel("TFLOPS (log scale)")
    headline(figure, f"TFLOPS over size: {data.context['gpu']}", data, recorded)
    return figure


def _end_labels(axis, ends):
    """A name at the end of each line, spread so that none covers another."""
    from math import log10
    low, high = (log10(v) for v in axis.get_ylim())
    small = len(ends) > 14
    points = axis.figure.get_figheight() * 72 * 0.72  # about the height of the axis
    gap = (high - low) * (8.2 if small else 10.5) / points
    spots = spread_out([log10(y) for y, *_ in ends], gap, low, high)
    for (y, words, colour, x), spot in zip(ends, spots):
        axis.annotate(words, xy=(x, y), xytext=(1.04, 10 ** spot),
                      textcoords=axis.get_yaxis_transform(), annotation_clip=False, va="center",
                      fontsize=7 if small else 8.5, color=colour,
                      arrowprops=dict(arrowstyle="-", color=colour, linewidth=0.5, alpha=0.6,
                                      shrinkA=0, shrinkB=2, relpos=(0, 0.5)))


# ---- a sweep -------------------------------------------------------------------------------------

def sweep(data, size_list, regimes, recorded):
    """Names like 06_warp_tile-BLOCK_K-16: a point for each value, those without a number left out.
    With two constants, a line for each value of the first."""
    plt = pyplot()
    size = size_list[0]
    points = {}  # (regime, values but the last, last value): TFLOPS
    for row in data.rows.values():
        if not row.is_step or row.size != size:
            continue
        step, *parts = row.subject.split("-")
        if not parts or len(parts) % 2:
            raise UserError("the file is not of a sweep")
        if row.get("tflops"):
            names, values = parts[::2], tuple(map(int, parts[1::2]))
            points[row.regime, values[:-1], values[-1]] = row.get("tflops")
    if not points:
        raise UserError(f"the file has no rate at {sizes.text(size)}")
    figure, axis = plt.subplots(figsize=(8, 4.4), layout="constrained")
    columns = sorted({last for _, _, last in points})
    lines = sorted({(regime, first) for regime, first, _ in points})
    for index, (regime, first) in enumerate(lines):
        ys = [points.get((regime, first, x)) for x in columns]
        label = ", ".join([*(f"{n} = {v}" for n, v in zip(names, first)), regime])
        axis.plot([x for x, y in enumerate(ys) if y], [y for y in ys if y], label=label,
                  marker="o" if regime == "burst" else "D",
                  color=BURST if regime == "burst" else SUSTAINED,
                  alpha=1 - 0.7 * index / len(lines) if len(lines) > 2 else 1)
        if len(lines) <= 2:
            for x, y in enumerate(ys):
                if y:
                    axis.annotate(f"{y:.0f}", (x, y), xytext=(0, 7), textcoords="offset points",
                                  ha="center", fontsize=8)
    most = max(points.values())
    least = 0 if len(lines) <= 2 else min(points.values()) - 0.4 * (most - min(points.values()))
    axis.set_ylim(least, most + 0.1 * (most - least))
    axis.set_xticks(range(len(columns)))
    axis.set_xticklabels(columns)
    axis.set_xlabel(names[-1])
    axis.grid(axis="y", color=GRID, linewidth=0.7)
    axis.set_ylabel("TFLOPS" + (" (does not begin at 0)" if least else ""))
    axis.legend(frameon=False, fontsize=8, loc="lower left", ncols=2 if len(lines) > 4 else 1)
    headline(figure, f"{step}, {sizes.text(size)}: {data.context['gpu']}", data, recorded)
    return figure


# ---- the suite -----------------------------------------------------------------------------------

def suite(data, size_list, regimes, recorded):
    """A heat map: a line per problem, how many times as fast as cuBLAS in the cells."""
    from tools.lib import suite as shapes
    plt = pyplot()
    subject = next((s for s in data.subjects() if any(
        shapes.better(row) for row in data.rows.values() if row.subject == s)), None)
    if not subject:
        raise UserError("the file has no step that was measured beside cuBLAS")
    columns = [(regime, words, value) for regime in regimes
               for words, value in (("default", lambda row: row.get("vs_cublas_default")),
                                    ("better", shapes.better))]
    listed = [p for p in shapes.problems() if p.size in size_list]
    known = {p.size for p in listed}
    lines = [(p.group, p.size) for p in listed]
    lines += [("others", size) for size in size_list if size not in known]
    # Two panels, each with a gap and a heading between its groups.
    halves, spots = [[], []], [0, 0]
    for group in dict.fromkeys(group for group, _ in lines):
        sizes_of_it = [size for g, size in lines if g == group]
        side = 0 if spots[0] == 0 or spots[0] + len(sizes_of_it) <= 0.56 * len(lines) + 4 else 1
        halves[side].append((group, spots[side], sizes_of_it))
        spots[side] += len(sizes_of_it) + 1.3
    halves = [half for half in halves if half]
    height = max(spots)
    figure, axes = plt.subplots(1, len(halves), squeeze=False, layout="constrained",
                                figsize=(5.6 * len(halves), 0.9 + 0.235 * (height + 2)))
    colours = plt.get_cmap("RdBu")
    for axis, half in zip(axes[0], halves):
        _suite_panel(axis, data, subject, half, columns, colours, height)
    said = [f"{found.regime} {found.geomean:.3f} (least {found.least:.2f})" for regime in regimes
            if (found := shapes.summary(data, regime, subject))]
    headline(figure, f"{subject}: times as fast as cuBLAS, {data.context['gpu']}", data, recorded)
    figure.text(0.012, 0.004, "better: the better of cuBLAS' default algorithm and the best of 16. "
                "Geometric mean to it: " + ", ".join(said) + ". Blue: faster than cuBLAS.",
                fontsize=8, color=SOFT)
    figure.get_layout_engine().set(rect=(0, 0.025, 1, 1 - 0.58 / figure.get_figheight() - 0.025))
    return figure


def _suite_panel(axis, data, subject, half, columns, colours, height):
    from math import log
    widest = log(1.25)  # where the colour is deepest
    for group, top, size_list in half:
        axis.text(-0.05, top - 0.15, group.replace("_", " "), fontweight="bold", fontsize=8.5,
                  va="bottom", ha="right")
        for line, size in enumerate(size_list):
            y = top + line
            axis.text(-0.05, y + 0.5, sizes.short(size), fontsize=7.5, va="center", ha="right")
            for x, (regime, _, value) in enumerate(columns):
                row = data.find(subject, size, regime)
                ratio = value(row) if row else None
                if not ratio:
                    continue
                shade = max(-1.0, min(1.0, log(ratio) / widest))
                axis.add_patch(_rectangle(x, y, colours(0.5 + 0.5 * shade)))
                axis.text(x + 0.5, y + 0.5, f"{ratio:.2f}" if ratio < 9.95 else f"{ratio:.0f}",
                          fontsize=7.5, ha="center", va="center",
                          color="white" if abs(shade) > 0.65 else INK)
    axis.set_xlim(-2.9, len(columns))
    axis.set_ylim(height, -1.6)
    axis.axis("off")
    for x, (regime, words, _) in enumerate(columns):
        axis.text(x + 0.5, -0.75, words, fontsize=7.5, ha="center", va="bottom", color=SOFT)
        if x % 2 == 0:
            axis.text(x + 1, -1.45, regime, fontsize=8.5, ha="center", va="bottom",
                      color=BURST if regime == "burst" else SUSTAINED)


def _rectangle(x, y, colour):
    from matplotlib.patches import Rectangle
    return Rectangle((x + 0.02, y + 0.04), 0.96, 0.92, facecolor=colour, edgecolor="none")


KINDS = {"ladder": ladder, "sizes": over_sizes, "sweep": sweep, "suite": suite}


def save(figure, out, name, description="", endings=("png", "svg")):
    """Writes the picture beside its place, then renames it. `description` is kept inside, to tell
    if the picture is stale; no date, so that the same results give the same bytes."""
    out = files.writable_folder(out)
    for ending in endings:
        final, beside = out / f"{name}.{ending}", out / f".{name}.{ending}.new"
        metadata = {"Date": None} if ending == "svg" else {"Software": None}
        if description:
            metadata["Description"] = description
        figure.savefig(beside, format=ending, dpi=160, metadata=metadata)
        beside.replace(final)
        print(final)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("file", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("out"))
    parser.add_argument("--name", help="of the pictures, without ending")
    parser.add_argument("--sizes", help="of the file's sizes, only these")
    parser.add_argument("--regimes", help="of the file's regimes, only these")
    parser.add_argument("--recorded", action="store_true", help="say 'recorded', name the GPU")
    parser.add_argument("--fingerprint", default="",
                        help="kept in the picture, to tell if it is stale")
    parser.add_argument("--svg", action="store_true", help="no PNG")
    args = parser.parse_args(argv)
    data = results.load(args.file)
    size_list = [z for z in data.sizes() if not args.sizes or z in sizes.parse(args.sizes)]
    if args.kind in ("ladder", "sizes") and not args.sizes:
        size_list = [z for z in size_list if not sizes.kind_of(z)]  # of one convention alone
    cubes = [z for z in size_list if len(set(z)) == 1]
    if args.kind == "sizes" and not args.sizes and len(cubes) > 1:
        size_list = cubes  # long and flat shapes stand in no order with them: --sizes names them
    regimes = [r for r in data.regimes() if not args.regimes or r in args.regimes.split(",")]
    if not size_list or not regimes:
        raise UserError(f"{paths.shown(args.file)} has no rows of a step at that size and regime")
    figure = KINDS[args.kind](data, size_list, regimes, args.recorded)
    if figure is None:
        return 0
    gpu = results.name_of(data.context["gpu"])
    name = args.name or (f"{args.kind}-{gpu}" if args.recorded else args.kind)
    save(figure, args.out, name, args.fingerprint and f"input {args.fingerprint}",
         ("svg",) if args.svg else ("png", "svg"))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.code)
