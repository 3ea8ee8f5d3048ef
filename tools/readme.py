"""Fill in what READMEs show of recorded runs.

  ./ladder readme            writes; the figures need matplotlib
  ./ladder readme --check    only says what is stale (exit code 1), as the tests do

Text between <!-- NAME:begin --> and <!-- NAME:end --> is replaced, in README.md (ladder-figure,
ladder-table), in steps/*/README.md (measured, sweep, suite, diff), in traps/*/text.md (trap) and in
notes (without; cells, where the note says what it wants). The numbers come from plots/results/ and
from nowhere else.
"""
import hashlib
import re

from . import without
from .lib import (cells, changes, experiments, files, paths, plots, results, setup, sizes, steps,
                  suite, term, traps)

HEADLINE = (4096, 4096, 4096)
MANY = 4  # workloads of an experiment that share a table


def arguments(parser):
    parser.add_argument("--check", action="store_true", help="write nothing")


def main(args):
    known = steps.everything()
    recorded = load_recorded()
    stale = {path: text for path, text in pages(known, recorded)
             if path.read_text(encoding="utf-8") != text}
    old_figures = [file for file in recorded if not figure_is_fresh(file)]
    if args.check:
        for path in [*stale, *map(figure_of, old_figures)]:
            term.say(f"stale: {paths.shown(path)}")
        if stale or old_figures:
            raise term.UserError("READMEs do not show what is recorded: run ./ladder readme", 1)
        return 0
    for path, text in stale.items():
        files.write_text(path, text)
        term.say(f"{paths.shown(path)}: filled in")
    for file in old_figures:
        for picture in draw_figure(file):
            term.say(f"{paths.shown(picture)}: drawn")
    return 0


def load_recorded():
    """{file: Results}, the GPU with the most steps first."""
    found = {file: results.load(file) for file in sorted(paths.RECORDED.glob("*.json"))}
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1].subjects())))


def pages(known, recorded):
    """(file, what it should hold) for every README that has a marker."""
    by_id = {step.id: step for step in known}
    main_page = paths.ROOT / "README.md"
    if main_page.is_file():
        text = main_page.read_text(encoding="utf-8")
        text = fill(text, "ladder-figure", figure_links(recorded))
        yield main_page, fill(text, "ladder-table", ladder_table(known, recorded))
    for step in known:
        page = step.folder / "README.md"
        if page.is_file():
            text = page.read_text(encoding="utf-8")
            text = fill(text, "measured", measured_tables(step, recorded))
            text = fill(text, "sweep", sweep_tables(step))
            text = fill(text, "suite", suite_tables(step))
            yield page, fill(text, "diff", diff_line(step, by_id.get(step.base)))
    left_out = without_tables(known)
    rows = {name: row for data in reversed(recorded.values()) for name, row in data.rows.items()}
    for note in sorted((paths.ROOT / "notes").glob("*.md")):
        text = fill(note.read_text(encoding="utf-8"), "without", left_out)
        yield note, cells.fill(text, rows)
    for one in experiments.everything():
        page = one.folder / "README.md"
        if page.is_file():
            text = page.read_text(encoding="utf-8")
            yield page, fill(text, "measured", experiment_tables(one, recorded))
    for trap in traps.everything():
        text = trap.page.read_text(encoding="utf-8")
        yield trap.page, fill(text, "trap", traps.recorded_table(trap))


def fill(text, name, inside):
    pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.S)
    return pattern.sub(lambda m: m[1] + (inside + "\n" if inside else "") + m[2], text)


# ---- the pieces ----------------------------------------------------------------------------------

def source_line(data):
    context = data.context
    dates = sorted({row.words["date"] for row in data.rows.values() if row.words.get("date")})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "?"
    return f"{context['gpu']}, driver {context.get('driver')}, CUDA {context.get('cuda')}, {when}"


def diff_line(step, base):
    if not base:
        return ""
    added, removed = changes.count(base, step)
    diff = f"./ladder diff {step.id[:2]}"
    shown = f"`{diff}` shows them."
    if changes.moved(base, step) >= 10:
        less = changes.count(base, step, indent=False)
        shown = (f"Many only move to the right: `{diff} -w` shows the {less[0]} added and "
                 f"{less[1]} removed apart from those.")
    return (f"`kernel.cu` against [{base.id}](../{base.id}/kernel.cu): {added} lines added, "
            f"{removed} removed. {shown}")


def cell(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


def tflops(value):
    return cell(value, 2 if value is not None and value < 10 else 1)


def times_before(row):
    ratio, spread = row.get("vs_previous"), row.half_range("vs_previous")
    if ratio is None:
        return "–"
    return f"{ratio:.2f}" + (f" ± {spread:.2f}" if spread is not None else "")


def measured_tables(step, recorded):
    units = {"ffma": "FFMA", "mma_sync": "mma.sync", "wgmma": "wgmma"}
    tables = []
    for data in recorded.values():
        rows = [row for name in sorted(data.rows, key=results.order)
                if (row := data.rows[name]).subject.split(".")[0] == step.id and row.size]
        if not rows:
            continue
        commits = sorted({row.words.get("commit", "?") for row in rows})
        lines = [f"{source_line(data)}, commit {', '.join(commits)}:", "",
                 f"| size | regime | time | TFLOPS | % of peak | % of {units[step.unit]} ceiling | "
                 "× step before | % of cuBLAS best | NVML MHz | W |",
                 "|---|---|---|---|---|---|---|---|---|---|"]
        for row in rows:
            best = row.get("vs_cublas_best")
            variant = row.subject.partition(".")[2]
            lines.append("| " + " | ".join([
                (f"{variant}: " if variant else "") + sizes.text(row.size), row.regime,
                term.duration(row.seconds), tflops(row.get("tflops")),
                cell(row.get("pct_peak"), 2), cell(row.get("pct_ceiling")),
                times_before(row), cell(best * 100 if best is not None else None),
                cell(row.get("sm_clock_nvml_mhz"), 0), cell(row.get("power_w"), 0)]) + " |")
        left_out = [line.partition(": ")[2] for line in data.context.get("left_out") or []
                    if line.startswith(f"{step.id}:")]
        if left_out:
            lines += ["", "Left out: " + "; ".join(left_out) + "."]
        tables.append("\n".join(lines))
    return "\n\n".join(tables) or f"Not recorded yet: `./ladder record {step.id[:2]}` does it."


def suite_tables(step):
    """The recorded suite of a step, on every GPU."""
    tables = []
    for file in sorted(suite.KEPT.glob("*.json")):
        data = results.load(file)
        if rows := [row for row in data.rows.values() if row.subject == step.id]:
            commits = sorted({row.words.get("commit", "?") for row in rows})
            tables.append(f"{source_line(data)}, commit {', '.join(commits)}:\n\n"
                          + suite.markdown(data, step.id))
    return "\n\n".join(tables)


def sweep_tables(step):
    """Every recorded sweep of a step: TFLOPS, and the ratio to the step as it is."""
    tables = []
    for file in sorted((paths.RECORDED / "sweeps").glob(f"*/{step.id}-*.json")):
        data = results.load(file)
        rows = [row for row in data.rows.values() if row.subject.startswith(step.id + "-")]
        names = file.stem.split("-")[1:]
        values = {row.subject: list(map(int, row.subject.split("-")[2::2])) for row in rows}
        commits = sorted({row.words.get("commit", "?") for row in rows})
        lines = [f"{source_line(data)}, commit {', '.join(commits)}:", "",
                 "| " + " | ".join([f"`{name}`" for name in names] + ["size", "regime", "TFLOPS",
                                                                       "× as it is"]) + " |",
                 "|" + "---|" * (len(names) + 4)]
        for row in sorted(rows, key=lambda r: (r.size, r.regime, values[r.subject])):
            lines.append("| " + " | ".join([*map(str, values[row.subject]), sizes.text(row.size),
                                            row.regime, tflops(row.get("tflops")),
                                            times_before(row)]) + " |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables) or "Not recorded yet."


def experiment_tables(experiment, recorded):
    """A table for each workload: what every experiment has, then counters of its own. Many in a row
    that have the same variants share one, with the first of them in full before it."""
    tables = []
    for data in recorded.values():
        found = experiments.workloads(data, experiment.id)
        rows = [row for group in found.values() for row in group]
        if not rows:
            continue
        commits = sorted({row.words.get("commit", "?") for row in rows})
        tables.append(f"{source_line(data)}, commit {', '.join(commits)}. Times of one iteration; "
                      "× first: times as fast as the first row.")
        for group in alike(found):
            tables.append(workload_table(group[0], found[group[0]]))
            if len(group) >= MANY:
                tables.append(shared_table(group, found))
            else:
                tables += [workload_table(name, found[name]) for name in group[1:]]
        left_out = [line.partition(": ")[2] for line in data.context.get("left_out") or []
                    if line.startswith(f"{experiment.id}:")]
        if left_out:
            tables.append("Left out: " + "; ".join(left_out) + ".")
    number = experiment.id[:2]
    return "\n\n".join(tables) or f"Not recorded yet: `./ladder record {number}` does it."


def alike(found):
    """Names of workloads, those with the same variants that follow each other together."""
    groups, before = [], None
    for name, rows in found.items():
        variants = [row.variant for row in rows]
        if variants != before:
            groups.append([])
        groups[-1].append(name)
        before = variants
    return groups


def workload_table(name, rows):
    shared, own = experiments.columns(rows)
    titles = [experiments.COLUMNS[c] for c in shared] + [c.replace("_", " ") for c in own]
    lines = [f"**{name}**", "", "| " + " | ".join(["variant", "time", "× first", *titles]) + " |",
             "|" + "---|" * (3 + len(titles))]
    for row in rows:
        lines.append("| " + " | ".join([
            row.variant, duration(row.seconds),
            experiments.times_first(row).replace("±", "± ").replace("-", "–"),
            *(experiments.short(row.get(c)).replace("-", "–") if row.get(c) is None else
              experiments.short(row.get(c)) for c in shared + own)]) + " |")
    return "\n".join(lines)


def shared_table(group, found):
    """Workloads down, variants across: time, and × first."""
    variants = [row.variant for row in found[group[0]]]
    lines = ["| " + " | ".join(["time, × first", *variants]) + " |",
             "|" + "---|" * (1 + len(variants))]
    for name in group:
        cells = [duration(row.seconds) + ("" if i == 0 or row.get("vs_first") is None else
                                          f", {row.get('vs_first'):.2f}")
                 for i, row in enumerate(found[name])]
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)


def duration(seconds):
    return term.duration(seconds).replace("us", "µs")


def without_tables(known):
    """Every recorded run of ./ladder without."""
    tables = [f"{step.id} without one part, {source_line(data)}, commit {commit_of(data)}:\n\n"
              + without.table(step, data)
              for step in known for file in sorted(without.KEPT.glob(f"*/{step.id}.json"))
              for data in [results.load(file)]]
    return "\n\n".join(tables) or "Not recorded yet: `./ladder without 26 --record` does it."


def commit_of(data):
    return ", ".join(sorted({row.words.get("commit", "?") for row in data.rows.values()
                             if row.is_step}))


def ladder_table(known, recorded):
    data = next(iter(recorded.values()), None)
    lines = []
    if data:
        lines += [f"{source_line(data)}, {sizes.text(HEADLINE).replace('x', ' × ')}:", ""]
    lines += ["| step | idea | needs | TFLOPS burst | × step before | % of peak | "
              "TFLOPS sustained | % of cuBLAS best, burst / sustained |",
              "|---|---|---|---|---|---|---|---|"]
    empty = results.Row("")
    for step in known:
        burst = (data and data.find(step.id, HEADLINE, "burst")) or empty
        sustained = (data and data.find(step.id, HEADLINE, "sustained")) or empty
        best = [cell(v * 100) if (v := row.get("vs_cublas_best")) is not None else "–"
                for row in (burst, sustained)]
        lines.append("| " + " | ".join([
            f"[{step.id}](steps/{step.id}/README.md)", step.idea.rstrip(".").replace("|", "\\|"),
            step.arch, tflops(burst.get("tflops")), times_before(burst),
            cell(burst.get("pct_peak")), tflops(sustained.get("tflops")), " / ".join(best)]) + " |")
    for subject, words in (("cublas_default", "cuBLAS, default"),
                           ("cublas_best", "cuBLAS, best of 16"),
                           ("ceiling_ffma", "ceiling: FP32 FFMA"),
                           ("ceiling_mma_sync", "ceiling: mma.sync"),
                           ("ceiling_wgmma", "ceiling: wgmma")):
        found = {r: data.find(subject, HEADLINE, r) if data else None for r in results.REGIMES}
        if any(found.values()):
            burst, sustained = (row or empty for row in found.values())
            lines.append(f"| *{words}* | | | {tflops(burst.get('tflops'))} | | "
                         f"{cell(burst.get('pct_peak'))} | {tflops(sustained.get('tflops'))} | |")
    return "\n".join(lines)


# ---- figures -------------------------------------------------------------------------------------

def figure_of(file):
    return paths.ROOT / "plots" / f"ladder-{file.stem}.svg"


def figure_links(recorded):
    return "\n\n".join(
        f"![Percent of the Tensor Core peak for each step, recorded on {data.context['gpu']}]"
        f"(plots/ladder-{file.stem}.svg)" for file, data in list(recorded.items())[:1])


def fingerprint(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def figure_is_fresh(file):
    """plot.py writes the fingerprint of its input into the picture."""
    figure = figure_of(file)
    return figure.is_file() and fingerprint(file) in figure.read_text(encoding="utf-8",
                                                                      errors="replace")


def draw_figure(file):
    ready = setup.ready()
    if not ready.plot_python:
        raise term.UserError("figures need matplotlib: apt-get install python3-matplotlib")
    return plots.draw(ready, file, paths.ROOT / "plots", ["ladder"], recorded=True,
                      extra=["--sizes", sizes.text(HEADLINE), "--name", f"ladder-{file.stem}",
                             "--fingerprint", fingerprint(file)])
