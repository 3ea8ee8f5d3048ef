"""Traps: pairs of programs, wrong and right, in traps/NAME/: trap.cu and text.md.

text.md: front matter, then the text. `detect:` (`emulated:` for the emulated device) is a rule on a
number that the program prints: it must hold for the wrong variant and not for the right one.
`variants:` are the program's arguments, the right one last. The programs are built by the lines in
the head of trap.cu: `// nvcc ...`, and `// VARIANT: nvcc ...` where a variant is built otherwise.
"""
import difflib
import json
import re
import shlex
from dataclasses import dataclass, field

from . import build, child, files, learn, paths
from .term import UserError

FOLDER = paths.ROOT / "traps"
BUILD = paths.BUILD / "traps"
RECORDED = paths.RECORDED / "traps"
LIMIT = 120  # seconds for a program


@dataclass
class Trap:
    name: str
    title: str
    text: str
    detect: learn.Rule
    emulated: learn.Rule | None
    variants: list

    @property
    def source(self):
        return FOLDER / self.name / "trap.cu"

    @property
    def page(self):
        return FOLDER / self.name / "text.md"

    def line(self, variant, arch="native"):
        """The command that builds it, as words without `-o PROGRAM`."""
        head = re.findall(r"^// (?:(\w+): )?nvcc (.*)$", self.source.read_text(encoding="utf-8"),
                          re.M)
        lines = {name: words for name, words in head}
        words = shlex.split(lines.get(variant, lines.get("", "")))
        if not words:
            raise UserError(f"{paths.shown(self.source)}: its head has no line '// nvcc ...'")
        at = words.index("-o")
        return [w.replace("-arch=native", f"-arch={arch}") for w in words[:at] + words[at + 2:]]


@dataclass
class Ran:
    """What the variants of a trap came to on one device."""
    device: str
    numbers: dict = field(default_factory=dict)  # {variant: {name: [value, unit]}}
    reason: str = ""                             # why there are no numbers

    def detected(self, trap):
        """{variant: whether the rule holds}; the wrong ones must be True, the right one False."""
        rule = trap.emulated if self.device == "emulated" else trap.detect
        return {v: rule.judge({k: n[0] for k, n in found.items()}, {})[0]
                for v, found in self.numbers.items()}

    def problem(self, trap):
        """"" if the wrong variants are detected and the right one is not."""
        if self.reason:
            return self.reason
        told = self.detected(trap)
        missed = [v for v in trap.variants[:-1] if not told[v]]
        if missed:
            return f"{missed[0]} was not detected"
        return f"{trap.variants[-1]} was taken for wrong" if told[trap.variants[-1]] else ""


def everything():
    return [read(file.parent) for file in sorted(FOLDER.glob("*/trap.cu"))]


def one(name):
    known = {trap.name: trap for trap in everything()}
    word = name.rstrip("/").rsplit("/", 1)[-1].replace("-", "_")
    if word in known:
        return known[word]
    close = difflib.get_close_matches(word, known, 1, 0.5)
    raise UserError(f"there is no trap '{name}': "
                    + (f"did you mean {close[0]}? " if close else "")
                    + "./ladder learn trap lists them")


def read(folder):
    page = folder / "text.md"
    where = paths.shown(page)
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {where}: {error.strerror}") from None
    found = re.fullmatch(r"---\n(.*?)\n---\n(# (.+?)\n.*)", text, re.S)
    if not found:
        raise UserError(f"{where}: must begin with lines between --- and ---, then '# TITLE'")
    fields = dict(re.findall(r"^(\w+): *(.*)$", found[1], re.M))
    if strange := set(fields) - {"detect", "emulated", "variants"}:
        raise UserError(f"{where}: '{sorted(strange)[0]}': detect, emulated or variants")
    if "detect" not in fields:
        raise UserError(f"{where}: needs a line 'detect: NUMBER > LIMIT  # meaning'")
    emulated = learn.rule(fields["emulated"], where) if "emulated" in fields else None
    return Trap(folder.name, found[3].strip(), found[2], learn.rule(fields["detect"], where),
                emulated, fields.get("variants", "wrong right").split())


def compile_all(trap, nvcc, arch="native"):
    """{variant: program}; a variant that is built as another is the same program."""
    made, programs = {}, {}
    for variant in trap.variants:
        line = trap.line(variant, arch)
        key = tuple(line)
        if key not in made:
            program = BUILD / f"{trap.name}-{len(made)}"
            BUILD.mkdir(parents=True, exist_ok=True)
            done = child.run([nvcc, *line, "-o", program], limit=300, cwd=paths.ROOT)
            if not done.ok:
                raise UserError(f"{trap.name} does not build: "
                                + build.first_error(done.out + done.err), 1)
            made[key] = program
        programs[variant] = made[key]
    return programs


def run(trap, programs, device):
    """Runs every variant; `programs` is {variant: program}."""
    ran = Ran(device)
    for variant in trap.variants:
        done = child.run([programs[variant], variant], limit=LIMIT, cwd=paths.ROOT,
                         env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
        if not done.ok:
            ran.reason = f"{variant}: {child.why(done, LIMIT)}"
            return ran
        ran.numbers[variant] = {name: [float(value), unit] for name, value, unit in re.findall(
            r"^(\w+): (\S+) ?(.*)$", done.out, re.M)}
    return ran


def run_emulated(trap, setup):
    name = f"trap_{trap.name}"
    if why := build.build(setup, "emulated", [name], quiet=True).get(name):
        raise UserError(why)
    program = build.program("emulated", name)
    return run(trap, dict.fromkeys(trap.variants, program), "emulated")


# ---- recorded numbers ----------------------------------------------------------------------------

def save(file, context, found):
    """Adds the numbers of `found`, {name: Ran}, to a recorded file of the same GPU and driver."""
    data = load(file) if file.exists() else {"context": context, "traps": {}}
    for key in ("gpu", "driver", "cuda"):
        if data["context"].get(key) != context[key]:
            data = {"context": context, "traps": {}}  # numbers of two machines never mix
    data["context"] = context
    for name, ran in found.items():
        data["traps"][name] = {"commit": context["commit"], "variants": ran.numbers}
    files.write_json(file, data)


def load(file):
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        data["context"]["gpu"], data["traps"].items()
        return data
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{paths.shown(file)} is no record of traps; "
                        "./ladder learn trap all --record writes one") from None


def recorded_table(trap):
    """What the text shows of the recorded runs, as Markdown."""
    tables = []
    for file in sorted(RECORDED.glob("*.json")):
        data = load(file)
        kept = data["traps"].get(trap.name)
        if not kept:
            continue
        c = data["context"]
        lines = [f"{c['gpu']}, driver {c['driver']}, CUDA {c['cuda']}, {c['date']}, commit "
                 f"{kept['commit']}:", "", "| | " + " | ".join(kept["variants"]) + " | |",
                 "|---" * (len(kept["variants"]) + 2) + "|"]
        for name, (_, unit) in next(iter(kept["variants"].values())).items():
            lines.append(f"| {name} | " + " | ".join(cells(kept["variants"], name))
                         + f" | {unit} |")
        tables.append("\n".join(lines))
    return "\n\n".join(tables) or (f"Not recorded yet: `./ladder learn trap {trap.name} "
                                   "--record` does it.")


def cells(numbers, name):
    """Number `name` of each variant, as text."""
    return [short(found[name][0]) if name in found else "–" for found in numbers.values()]


def short(value):
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
