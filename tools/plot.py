"""Draw plots of measured or recorded results.

  ./ladder plot                                   out/results.json of the last run, else recorded
  ./ladder plot plots/results/nvidia-h200.json    a recorded run
  ./ladder plot FILE --kind sizes                 TFLOPS over size
  ./ladder plot FILE --kind suite                 a heat map of what bench --suite wrote
  ./ladder plot 30                                an experiment: bars and timelines

  ./ladder plot --kind banks 11                   which bank each lane touches, of a step
  ./ladder plot --kind bytes                      bytes per FLOP of every step

Kinds: ladder (percent of peak for each step, with cuBLAS, the measured ceilings and the datasheet)
and sizes; roofline, bytes and utilisation of a result file; waits of a file of profiles; stages and
tile of files that sweep wrote; banks of a step. PNG and SVG, into out/.
"""
from pathlib import Path

from .lib import experiments, files, paths, plots, results, seeing, setup, sizes, term


def arguments(parser):
    parser.add_argument("file", nargs="*", type=Path)
    parser.add_argument("--kind", choices=("ladder", "sizes", "suite", *seeing.KINDS),
                        help="default: ladder and sizes")
    parser.add_argument("--sizes", "--size", help="of the file's sizes, only these")
    parser.add_argument("-o", "--out", default="out", metavar="FOLDER")


def main(args):
    if args.kind in seeing.KINDS:
        return seeing.plot(args.kind, args.file, args.sizes, args.out)
    known = experiments.everything()
    around = [e for word in args.file if not word.exists()
              for e in experiments.matching(str(word), known)]
    if around and len(args.file) > len({str(w) for w in args.file if not w.exists()}):
        raise term.UserError("name either result files or experiments")
    if around:
        return _experiments(around, args.out)
    chosen = args.file or _default()
    loaded = {file: results.load(file) for file in chosen}  # every complaint before any picture
    size_list = sizes.parse(args.sizes) if args.sizes else None
    for file, found in loaded.items():
        for size in size_list or []:
            if size not in found.sizes():
                raise term.UserError(f"{paths.shown(file)} has no rows at {sizes.text(size)}, only "
                                     f"at {', '.join(map(sizes.short, found.sizes()))}")
    files.writable_folder(args.out)
    ready = setup.ready()
    if not ready.plot_python:
        raise term.UserError("plots need matplotlib: apt-get install python3-matplotlib")
    for file in chosen:
        recorded = paths.RECORDED in file.resolve().parents
        extra = ["--sizes", args.sizes] if args.sizes else []
        made = plots.draw(ready, file, args.out, [args.kind] if args.kind else ("ladder", "sizes"),
                          recorded, extra)
        for picture in made:
            term.say(paths.shown(picture))
    return 0


def _experiments(around, out):
    """What was measured last, else what is recorded."""
    sources = [paths.OUT / "results.json", *sorted(paths.RECORDED.glob("*.json"))]
    found = []
    for e in around:
        file = next((f for f in sources if f.is_file()
                     and experiments.workloads(results.load(f), e.id)), None)
        if not file:
            raise term.UserError(f"{e.id} was not measured or recorded yet: "
                                 f"./ladder run {e.id[:2]}")
        found.append((e, file))
    files.writable_folder(out)
    ready = setup.ready()
    if not ready.plot_python:
        raise term.UserError("plots need matplotlib: apt-get install python3-matplotlib")
    for e, file in found:
        recorded = paths.RECORDED in file.resolve().parents
        timelines = (experiments.recorded_timelines(file, e.id) if recorded
                     else experiments.timelines_file(file.parent, e.id))
        for picture in plots.experiment(ready, e.id, file, timelines, out, recorded):
            term.say(paths.shown(picture))
    return 0


def _default():
    last = paths.OUT / "results.json"
    found = [last] if last.is_file() else sorted(paths.RECORDED.glob("*.json"))
    if not found:
        raise term.UserError("nothing to plot yet: ./ladder run measures, or name a result file")
    return found
