#!/usr/bin/env python3
"""Pictures of experiments: how long each variant takes, and what happened when.

  experiment.py bars plots/results/nvidia-h200.json 30_streams_split_k -o out
  experiment.py timeline plots/results/timelines/nvidia-h200/32_copy_overlap.json -o out
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from plot import BURST, GRID, INK, SOFT, headline, pyplot, save  # noqa: E402
from tools.lib import experiments, results, term  # noqa: E402
from tools.lib.term import UserError  # noqa: E402

FIRST, PART = "#8a8a8a", "#c9d6e8"
LANES = {"host": "#9a9a9a", "copy in": "#e08b2c", "multiply": "#1f5fa8", "copy out": "#7a3b9a"}
OTHERS = ["#1f5fa8", "#e08b2c", "#7a3b9a", "#5b8a3c", "#b23a48", "#3a8fa3"]
MOST_SPANS = 20  # of a lane before only the beginning is shown


def bars(data, experiment_id, recorded):
    """A panel for each workload, a bar for each variant."""
    found = experiments.workloads(data, experiment_id)
    if not found:
        raise UserError(f"the file has no rows of {experiment_id}")
    plt = pyplot()
    heights = [len(rows) for rows in found.values()]
    figure, axes = plt.subplots(len(found), 1, figsize=(8.2, 0.8 + sum(
        0.22 * h + 0.62 for h in heights)), height_ratios=heights, squeeze=False,
        layout="constrained")
    for axis, (workload, rows) in zip(axes[:, 0], found.items()):
        _panel(axis, workload, rows)
    headline(figure, f"{experiment_id}: {data.context['gpu']}", data, recorded)
    return figure


def _panel(axis, workload, rows):
    milliseconds = max(row.seconds for row in rows) >= 2e-3
    scale = 1e3 if milliseconds else 1e6
    longest = max(max(row.seconds, row.spread.get("seconds", {}).get("max") or 0)
                  for row in rows) * scale
    for y, row in enumerate(rows):
        value = row.seconds * scale
        part = row.get("pct_floor") is None and any(r.get("pct_floor") for r in rows)
        axis.barh(y, value, height=0.66, linewidth=0,
                  color=PART if part else FIRST if y == 0 else BURST)
        spread = row.spread.get("seconds", {})
        if "min" in spread and "max" in spread:
            axis.plot([spread["min"] * scale, spread["max"] * scale], [y, y], color=INK,
                      linewidth=1, solid_capstyle="butt")
        words = f"{experiments.short(value)}"
        if y and not part and row.get("vs_first") is not None:
            words += f"  ({experiments.short(row.get('vs_first'))}×)"
        if row.get("pct_floor") is not None:
            words += f"  {row.get('pct_floor'):.0f} % of the floor"
        axis.text(max(value, spread.get("max", 0) * scale) + longest * 0.01, y, words,
                  va="center", fontsize=7.5, color=INK)
    axis.set_yticks(range(len(rows)))
    axis.set_yticklabels([row.variant for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(0, longest * 1.30)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.set_title(f"{workload}: {'ms' if milliseconds else 'µs'} of an iteration"
                   + ("; pale: a part of the work alone" if any(r.get("pct_floor") for r in rows)
                      else ""), loc="left", fontsize=9)


def date_of(file, experiment_id):
    """When the rows were recorded that belong to plots/results/timelines/GPU/ID.json; or ""."""
    rows = file.resolve().parents[2] / f"{file.resolve().parent.name}.json"
    if not rows.is_file():
        return ""
    found = experiments.workloads(results.load(rows), experiment_id)
    return max((r.words.get("date", "") for group in found.values() for r in group), default="")


def window(lines):
    """How many microseconds of these iterations are drawn: all of those that end within three times
    the shortest, or the beginning where a lane has too many spans to tell apart."""
    ends = [max(s["end_us"] for s in line["spans"]) for line in lines]
    longest = limit = max(e for e in ends if e <= 3 * min(ends))
    for line, end in zip(lines, ends):
        for lane in experiments.lanes(line):
            count = sum(s["lane"] == lane and s["name"] != "waits" for s in line["spans"])
            if lane != "host" and count > MOST_SPANS and end <= longest:
                limit = min(limit, end * MOST_SPANS / count)
    return limit


def timeline(data, recorded):
    """A panel for each iteration, those of a workload at one scale."""
    drawn = [line for line in data["timelines"] if line["spans"]]
    if not drawn:
        raise UserError("the file has no iterations to draw")
    plt = pyplot()
    rows = [len(experiments.lanes(line)) for line in drawn]
    unit = 0.24 if max(rows) <= 6 else 0.15
    figure, axes = plt.subplots(len(drawn), 1, figsize=(10.5, 0.9 + sum(
        unit * r + 0.55 for r in rows)), height_ratios=[r + 0.5 for r in rows], squeeze=False,
        layout="constrained")
    limits = {w: window([x for x in drawn if x["workload"] == w])
              for w in dict.fromkeys(line["workload"] for line in drawn)}
    for i, (axis, line) in enumerate(zip(axes[:, 0], drawn)):
        _iteration(axis, line, limits[line["workload"]])
        if i + 1 < len(drawn) and drawn[i + 1]["workload"] == line["workload"]:
            axis.set_xlabel("")  # the next panel has the same scale
            axis.set_xticklabels([])
    headline(figure, f"{data.get('experiment', '')}: one iteration, {data['context']['gpu']}",
             results.Results(data["context"]), recorded)
    return figure


def _iteration(axis, line, limit):
    lanes = experiments.lanes(line)
    scale = 1e-3 if limit >= 2000 else 1
    width = limit * scale
    for row, lane in enumerate(lanes):
        y = len(lanes) - 1 - row
        for s in line["spans"]:
            begin, end = s["begin_us"] * scale, min(s["end_us"] * scale, width)
            if s["lane"] != lane or begin >= width:
                continue
            waits = s["name"] == "waits"
            axis.broken_barh([(begin, end - begin)], (y - 0.4, 0.8), linewidth=0.4,
                             edgecolor="white", facecolor="#ececec" if waits else
                             _colour(lane, s["name"], row))
            if end - begin > width * 0.006 * (len(s["name"]) + 1):
                axis.text((begin + end) / 2, y, s["name"], ha="center", va="center",
                          fontsize=6.5, color=SOFT if waits else "white", clip_on=True)
    end = max(s["end_us"] for s in line["spans"])
    more = "" if end <= limit * 1.001 else f"; its beginning, it ends at {_time(end)}"
    axis.set_title(f"{line['workload']}, {line['variant']}: {_time(line['time_us'])} as timed"
                   + more, loc="left", fontsize=8.5)
    axis.set_xlim(0, width)
    axis.set_ylim(-0.6, len(lanes) - 0.4)
    axis.set_yticks(range(len(lanes)))
    axis.set_yticklabels(list(reversed(lanes)), fontsize=8 if len(lanes) <= 8 else 6.5)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.set_xlabel("ms" if scale < 1 else "µs", fontsize=8)


def _colour(lane, name, row):
    if lane in LANES:
        return LANES[lane]
    if lane.startswith("stream"):  # chunks of a kind in one colour, what joins them in another
        return OTHERS[2] if name == "join" else OTHERS[0]
    return OTHERS[(row - 1) % len(OTHERS)]


def _time(us):
    return term.duration(us * 1e-6).replace("us", "µs")


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("bars", "timeline"))
    parser.add_argument("file", type=Path)
    parser.add_argument("experiment", nargs="?", help="its id, for bars")
    parser.add_argument("-o", "--out", type=Path, default=Path("out"))
    parser.add_argument("--name", help="of the picture, without ending")
    parser.add_argument("--recorded", action="store_true", help="say 'recorded'")
    parser.add_argument("--fingerprint", default="", help="kept in the SVG, to tell if it is stale")
    parser.add_argument("--svg", action="store_true", help="no PNG")
    args = parser.parse_args(argv)
    if args.kind == "bars":
        if not args.experiment:
            raise UserError("bars of which experiment? give its id")
        figure = bars(results.load(args.file), args.experiment, args.recorded)
        name = args.experiment
    else:
        data = experiments.load_timelines(args.file)
        data["context"].setdefault("date", date_of(args.file, data.get("experiment", "")))
        figure = timeline(data, args.recorded)
        name = f"timeline-{data.get('experiment') or args.file.stem}"
    save(figure, args.out, args.name or name, args.fingerprint and f"input {args.fingerprint}",
         ("svg",) if args.svg else ("png", "svg"))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.code)
