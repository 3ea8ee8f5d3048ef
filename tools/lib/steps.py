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

    @property
    def number(self):
        return int(self.id[:2])

    @property
    def kernel(self):
        return self.folder / "kernel.cu"

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


def read(folder):
    """A Step from its folder. A missing line is an error that names the file."""
    kernel = folder / "kernel.cu"
    head = []
    for line in kernel.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith("//"):
            break
        head.append(line[2:].strip())
    fields = {}
    for line in head:
        if found := re.match(r"(base|arch|unit):\s*(\S+)", line):
            fields[found[1]] = found[2]
    name = paths.shown(kernel)
    for field, legal in (("arch", r"\d\d(\+|a)"), ("unit", r"ffma|mma_sync|wgmma"), ("base", r".+")):
        if not re.fullmatch(legal, fields.get(field, "")):
            raise UserError(f"{name}: its first lines need '// {field}: ...' "
                            f"({'75+, 80+, 90+ or 90a' if field == 'arch' else legal})")
    idea = head[0].split(":", 1)[1].strip() if ":" in head[0] else head[0]
    base = "" if fields["base"] == "none" else fields["base"]
    return Step(folder.name, folder, idea, base, fields["arch"], fields["unit"])


def everything(folder=None):
    """All steps, in order of their ids."""
    folder = Path(folder or paths.STEPS)
    found = [p for p in folder.glob("[0-9][0-9]_*") if (p / "kernel.cu").is_file()]
    return [read(p) for p in sorted(found, key=lambda p: p.name)]


def select(words, known=None):
    """Steps by number (10), range (07-12), id (06_warp_tile), path, or 'all'; order of ids."""
    known = everything() if known is None else known
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
        raise UserError(f"'{word}' names {len(found)} steps, this takes one: "
                        + ", ".join(step.id for step in found))
    return found[0]


def _matching(word, known):
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
    close = difflib.get_close_matches(name, [s.id for s in known] + [s.id[3:] for s in known], 1, .5)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UserError(f"there is no step '{word}': {hint}./ladder list shows them "
                    f"({known[0].id[:2]} to {known[-1].id[:2]})")
