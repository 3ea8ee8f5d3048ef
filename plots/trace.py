#!/usr/bin/env python3
"""Pictures of traces: what the warps of a block did, cycle by cycle.

  trace.py one trace-12_multistage.json -o out              one block
  trace.py compare trace-09*.json trace-23*.json -o out     several steps at one time scale
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from plot import GRID, INK, SOFT, pyplot, save  # noqa: E402
from tools.lib import occupancy, tracing  # noqa: E402
from tools.lib.term import UserError  # noqa: E402

COLOURS = {"math": "#1f5fa8", "flight": "#9dbbe0", "copy": "#e08b2c", "both": "#5b8a3c",
           "data": "#c9c9c9",
           "slot": "#e3e3e3", "sync": "#9a9a9a", "epilogue": "#7a3b9a", "store": "#d5bfe0",
           "other": "#f3efe6"}
MARKS = {"tma_load": ("v", "#a85b00"), "copy_commit": ("|", "#a85b00"),
         "tma_store": ("^", "#7a3b9a")}
ROW, LEGEND = 0.30, 0.62  # inches


def rows_of(trace, cta, most=12):
    """The warps to draw, the copying ones first; of many that do the same, some."""
    warps = trace.of(cta)
    producers = [w for w in warps if w.role == "producer"]
    others = [w for w in warps if w.role != "producer"]
    if trace.unit == "wgmma":
        others = [w for w in others if w.warp % 4 == 0] or others
    return producers[:2] + others[:most]


def name_of(warp, trace):
    if trace.unit == "wgmma" and warp.role != "producer":
        return f"warpgroup {warp.warp // 4}" + (" (consumer)" if warp.role else "")
    return f"warp {warp.warp}" + (f" ({warp.role})" if warp.role else "")


def middle(trace, warps, cycles):
    """A window in the steady state: half-way through the first multiplying warp's main loop, where
    the others have events too."""
    chosen = [w for w in warps if w.role != "producer"] or warps
    begin = max(w.begin for w in warps if w.begin < chosen[0].end)
    end = chosen[0].end
    waits = [e for e in chosen[0].events if e.kind == "wgmma_wait"]
    if any(e.n for e in waits):  # of a persistent kernel, its first tile
        end = next((e.end for e in waits if e.n == 0), end)
    start = max(begin, begin + (end - begin) * 0.5 - cycles / 2)
    return start, start + min(cycles, end - begin)


def draw(axis, trace, warps, window):
    start, end = window
    for row, warp in enumerate(warps):
        y = len(warps) - 1 - row
        by_activity = {}
        for s in warp.spans:
            a, b = max(s.begin, start), min(s.end, end)
            if b > a:
                by_activity.setdefault(s.activity, []).append((a - start, b - a))
                waits = s.activity in ("data", "slot", "flight")
                label = s.stage if s.stage >= 0 and waits else None
                if label is not None and b - a > (end - start) * 0.012:
                    axis.text((a + b) / 2 - start, y, str(label), ha="center", va="center",
                              fontsize=6.5, color=INK, clip_on=True)
        for activity, bars in by_activity.items():
            axis.broken_barh(bars, (y - 0.38, 0.76), facecolors=COLOURS[activity], linewidth=0)
        seen = {}
        commits = [e.begin - start for e in warp.events if e.kind == "wgmma_wait" and
                   start <= e.begin <= end]
        axis.vlines(commits, y - 0.38, y + 0.38, color="white", linewidth=0.8)
        for e in warp.events:
            if e.kind not in MARKS or not start <= e.end <= end:
                continue
            if e.kind == "copy_commit" and e.end > e.begin:  # the copies of a group
                a = max(e.begin, start) - start
                axis.plot([a, e.end - start], [y + 0.44] * 2, color=MARKS[e.kind][1], linewidth=2,
                          solid_capstyle="butt", clip_on=True)
            else:
                seen.setdefault(e.kind, []).append(e.end - start)
        for kind, xs in seen.items():
            marker, colour = MARKS[kind]
            axis.plot(xs, [y + 0.40] * len(xs), linestyle="none", marker=marker, markersize=3.5,
                      color=colour, clip_on=True)
    axis.set_ylim(-0.6, len(warps) - 0.35)
    axis.set_xlim(0, end - start)
    axis.set_yticks(range(len(warps)))
    axis.set_yticklabels([name_of(w, trace) for w in reversed(warps)], fontsize=8)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)


def legend(figure, traces):
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    used = {s.activity for t in traces for w in t.warps for s in w.spans}
    handles = [Patch(color=COLOURS[a], label=words) for a, words in tracing.ACTIVITIES.items()
               if a in used]
    kinds = {e.kind for t in traces for w in t.warps for e in w.events}
    if "tma_load" in kinds:
        handles.append(Line2D([], [], linestyle="none", marker="v", markersize=4,
                              color=MARKS["tma_load"][1], label="TMA load issued"))
    if "copy_commit" in kinds:
        handles.append(Line2D([], [], color=MARKS["copy_commit"][1], linewidth=2,
                              label="cp.async of a group, to its commit"))
    if "wgmma_wait" in kinds:
        handles.append(Line2D([], [], linestyle="none", marker="|", markersize=8, color="#9db8d8",
                              label="white line: a group of wgmma committed"))
    if "tma_store" in kinds:
        handles.append(Line2D([], [], linestyle="none", marker="^", markersize=4,
                              color=MARKS["tma_store"][1], label="TMA store issued"))
    figure.legend(handles=handles, loc="lower left", ncols=4, frameon=False, fontsize=7.5,
                  bbox_to_anchor=(0.0, 0.0))


def head(figure, title, lines):
    height = figure.get_figheight()
    below = LEGEND / height  # room for the legend
    figure.get_layout_engine().set(
        rect=(0, below, 1, 1 - below - (0.40 + 0.19 * len(lines)) / height))
    figure.text(0.012, 1 - 0.10 / height, title, fontsize=12, fontweight="bold", va="top")
    for i, line in enumerate(lines):
        figure.text(0.012, 1 - (0.36 + 0.19 * i) / height, line, color=SOFT, fontsize=8.5, va="top")


def size_of(trace):
    return " × ".join(map(str, trace.size))


def shares(trace):
    try:
        rate = occupancy.gpu(trace.gpu)["flop_clk_sm"][trace.unit]
        needed = f" (the products need {100 * tracing.active(trace, rate):.0f} %)"
    except (UserError, KeyError):
        needed = ""
    return (f"tensor pipe fed {100 * tracing.fed(trace):.0f} %{needed}, warps wait "
            f"{100 * tracing.waiting(trace):.0f} % of the main loop")


def overhead(trace):
    return (f"time stamps cost {trace.overhead:.1f} %"
            + (" (more than 10 %: gaps and waits are longer than without)" if trace.overhead > 10
               else ""))


def one(trace, cta=None, cycles=None, whole=False):
    plt = pyplot()
    ctas = trace.ctas()
    if cta is None:
        cta = ctas[min(1, len(ctas) - 1)] if len(trace.of(ctas[0])) == 0 else ctas[0]
    if cta not in ctas:
        raise UserError(f"block {cta} was not on the traced SM; it ran "
                        f"{', '.join(map(str, ctas[:12]))}{' ...' if len(ctas) > 12 else ''}")
    warps = rows_of(trace, cta)
    if whole:
        window = min(w.begin for w in warps), max(w.end for w in warps)
    else:
        window = middle(trace, warps, cycles or 8000)
    figure, axis = plt.subplots(figsize=(10.5, 2.1 + ROW * len(warps) + 0.5), layout="constrained")
    draw(axis, trace, warps, window)
    axis.set_xlabel(f"cycles, from {window[0]:,.0f} after the SM's first event"
                    + (f"; 1,000 cycles are {1e3 / trace.mhz:.2f} µs" if trace.mhz else "")
                    + "; numbers are stages", fontsize=8.5)
    head(figure, f"{trace.step}: block {cta} on SM {trace.sm}",
         [f"{trace.gpu}, {size_of(trace)}  ·  {shares(trace)}", overhead(trace)])
    legend(figure, [trace])
    return figure


def compare(traces, cycles=None):
    plt = pyplot()
    cycles = cycles or 6000
    chosen = []
    for trace in traces:
        warps = rows_of(trace, trace.ctas()[0], most=2)
        chosen.append((trace, warps))
    heights = [max(2, len(w)) for _, w in chosen]
    figure, axes = plt.subplots(len(chosen), 1, figsize=(10.5, 1.9 + sum(
        ROW * h + 0.42 for h in heights)), height_ratios=heights, squeeze=False,
        layout="constrained")
    for axis, (trace, warps) in zip(axes[:, 0], chosen):
        window = middle(trace, warps, cycles)
        draw(axis, trace, warps, window)
        axis.set_xlim(0, cycles)
        axis.set_title(f"{trace.step}   {shares(trace)}   (stamps cost {trace.overhead:.0f} %)",
                       loc="left", fontsize=8.5)
        if axis is not axes[-1, 0]:
            axis.set_xticklabels([])
    axes[-1, 0].set_xlabel("cycles of the SM, the same scale everywhere; numbers are stages",
                           fontsize=8.5)
    same = len({(t.gpu, t.size) for t in traces}) == 1
    head(figure, "The same product, step by step: waiting in grey",
         [f"{traces[0].gpu}, {size_of(traces[0])}; half-way through a block" if same else
          "; ".join(f"{t.step[:2]}: {t.gpu}, {size_of(t)}" for t in traces)])
    legend(figure, traces)
    return figure


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("one", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("out"))
    parser.add_argument("--name")
    parser.add_argument("--fingerprint", default="", help="kept in the SVG, to tell if it is stale")
    parser.add_argument("--svg", action="store_true", help="no PNG")
    parser.add_argument("--block", type=int)
    parser.add_argument("--cycles", type=int)
    parser.add_argument("--whole", action="store_true")
    args = parser.parse_args(argv)
    traces = [tracing.load(file) for file in args.files]
    figure = (one(traces[0], args.block, args.cycles, args.whole) if args.kind == "one"
              else compare(traces, args.cycles))
    name = args.name or (f"trace-{traces[0].step}" if args.kind == "one" else "trace-compare")
    save(figure, args.out, name, args.fingerprint and f"input {args.fingerprint}",
         ("svg",) if args.svg else ("png", "svg"))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.code)
