"""What a step's kernel changes against another's. A line that only moves to the right (into a loop,
into a role) is a change to diff, but not to a reader: `indent=False` takes it for the same."""
import difflib


def lines_of(step):
    return step.kernel.read_text(encoding="utf-8").splitlines()


def _matcher(base, step, indent):
    def keys(lines):
        return lines if indent else [line.strip() for line in lines]
    return difflib.SequenceMatcher(None, keys(lines_of(base)), keys(lines_of(step)),
                                   autojunk=False)


def count(base, step, indent=True):
    """(lines added, lines removed)."""
    changed = [c for c in _matcher(base, step, indent).get_opcodes() if c[0] != "equal"]
    return sum(b1 - b0 for *_, b0, b1 in changed), sum(a1 - a0 for _, a0, a1, *_ in changed)


def moved(base, step):
    """How many of the added and removed lines differ in nothing but their indentation."""
    return sum(count(base, step)) - sum(count(base, step, indent=False))


def unified(base, step, context=3, indent=True):
    if indent:
        yield from difflib.unified_diff(lines_of(base), lines_of(step), f"{base.id}/kernel.cu",
                                        f"{step.id}/kernel.cu", lineterm="", n=context)
        return
    yield f"--- {base.id}/kernel.cu"
    yield f"+++ {step.id}/kernel.cu"
    old, new = lines_of(base), lines_of(step)  # compared without indentation, shown with it
    for group in _matcher(base, step, indent).get_grouped_opcodes(context):
        (_, a0, _, b0, _), (_, _, a1, _, b1) = group[0], group[-1]
        yield f"@@ -{a0 + 1},{a1 - a0} +{b0 + 1},{b1 - b0} @@"
        for kind, a0, a1, b0, b1 in group:
            if kind == "equal":
                yield from (" " + line for line in new[b0:b1])
            else:
                yield from ("-" + line for line in old[a0:a1])
                yield from ("+" + line for line in new[b0:b1])
