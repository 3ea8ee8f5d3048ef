"""The steps: every folder steps/NN_idea with a kernel.cu; what its first lines say."""
import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .term import UserError

# Compute capabilities a step is built for when no GPU decides; 90 is built as 90a.
DEFAULT_ARCHS = ("75", "80", "90")


@dataclass(frozen=True)
class Step:
    id: str
    folder: Path
    idea: str
    base: str  # "" for the first
    arch: str  # 75+ 80+ 90+ 90a
    unit: str  # ffma mma_sync wgmma
    gpu_only: bool = False

    @property
    def number(self):
        return int(self.id[:2])

    @property
    def variant(self):
        """"padding" for 11_swizzle.padding, "" for a step."""
        return self.id.partition(".")[2]

    @property
    def kernel(self):
        return self.folder / (f"variant_{self.variant}.cu" if self.variant else "kernel.cu")

    def runs_on(self, sm):
        """Whether a GPU of compute capability `sm` (90 for 9.0) can run it."""
        least = int(self.arch[:2])
        return sm == least if self.arch.endswith("a") else sm >= least

    def why_not(self, sm):
        if self.arch.endswith("a"):
            return f"needs compute capability {dotted(int(self.arch[:2]))} exactly (sm_{self.arch})"
        return f"needs compute capability {dotted(int(self.arch[:2]))} or newer"

    def targets(self, archs=DEFAULT_ARCHS):
        """What nvcc builds it for, of `archs`: 75, 80, 90a."""
        return [("90a" if a == "90" else a) for a in archs if self.runs_on(int(a))]


def dotted(sm):
    return f"{sm // 10}.{sm % 10}"


def read(kernel):
    """A Step from its file. A missing line is an error that names the file."""
    folder, head = kernel.parent, []
    for line in kernel.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith("//"):
            break
        head.append(line[2:].strip())
    fields = {}
    for line in head:
        if found := re.match(r"(base|arch|unit):\s*(\S+)", line):
            fields[found[1]] = found[2]
    name = paths.shown(kernel)
    for field, legal, words in (("base", r".+", "the step it builds on, or none"),
                                ("arch", r"\d\d(\+|a)", "75+, 80+, 90+ or 90a"),
                                ("unit", r"ffma|mma_sync|wgmma", "ffma, mma_sync or wgmma")):
        if not re.fullmatch(legal, fields.get(field, "")):
            raise UserError(f"{name}: its first lines need '// {field}: ...' ({words})")
    idea = head[0].split(":", 1)[1].strip() if ":" in head[0] else head[0]
    base = "" if fields["base"] == "none" else fields["base"]
    variant = kernel.stem.partition("variant_")[2]
    return Step(folder.name + (f".{variant}" if variant else ""), folder, idea, base,
                fields["arch"], fields["unit"], any(x.startswith("gpu-only") for x in head))


def everything(folder=None, variants=False):
    """All steps, in order of their ids; with `variants`, their variants too."""
    folder = Path(folder or paths.STEPS)
    found = list(folder.glob("[0-9][0-9]_*/kernel.cu"))
    if variants:
        found += folder.glob("[0-9][0-9]_*/variant_*.cu")
    return sorted(map(read, found), key=lambda step: step.id)


def select(words, known=None):
    """Steps by number (10), range (07-12), id (06_warp_tile), path, or 'all'; order of ids. A
    variant is chosen by its own name only, 11.padding."""
    known = everything(variants=True) if known is None else known
    if not known:
        raise UserError(f"there are no steps in {paths.shown(paths.STEPS)}/")
    if isinstance(words, str):
        words = [words]
    chosen = set()
    for word in [w for group in words for w in group.split(",") if w]:
        chosen |= {step.id for step in _matching(word, known)}
    if not chosen:
        raise UserError("no step named: give numbers (10), ranges (07-12), ids or all")
    return [step for step in known if step.id in chosen]


def one(word, known=None):
    """Exactly one step."""
    found = select(word, known)
    if len(found) > 1:
        words = word if isinstance(word, str) else " ".join(word)
        some = ", ".join(step.id for step in found[:3])
        raise UserError(f"'{words}' names {len(found)} steps, this takes one: {some}"
                        + (" ..." if len(found) > 3 else ""))
    return found[0]


def _matching(word, known):
    if found := re.fullmatch(r"(\d\d)[^.]*\.(\w+)", word):
        if matching := [s for s in known if s.variant == found[2] and s.id[:2] == found[1]]:
            return matching
    known = [s for s in known if not s.variant]
    if word == "all":
        return known
    name = os.path.basename(word.rstrip("/")) if "/" in word else word
    if exact := [s for s in known if s.id == name]:
        return exact
    if found := re.fullmatch(r"(\d{1,2})(?:-(\d{1,2}))?", name):
        first, last = int(found[1]), int(found[2] or found[1])
        if matching := [s for s in known if first <= s.number <= last]:
            return matching
    elif matching := [s for s in known if s.id[3:] == name]:  # warp_tile
        return matching
    from . import experiments  # here, since it imports this file
    if around := experiments.matching(name, experiments.everything()):
        raise UserError(f"{', '.join(e.id for e in around)}: an experiment, not a step: list, run, "
                        "check, bench, record, plot and profile take it")
    names = [s.id for s in known] + [s.id[3:] for s in known]
    close = difflib.get_close_matches(name, names, 1, 0.5)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UserError(f"there is no step '{word}': {hint}./ladder list shows them "
                    f"({known[0].id[:2]} to {known[-1].id[:2]})")
