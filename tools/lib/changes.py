"""What a step's kernel changes against another's. A line that only moves to the right (into a loop,
into a role) is a change to diff, but not to a reader: `indent=False` takes it for the same."""
import difflib


def lines_of(step):
    return step.kernel.read_text(encoding="utf-8").splitlines()


def matcher(old, new, indent):
    keys = [[line if indent else line.strip() for line in lines] for lines in (old, new)]
    return difflib.SequenceMatcher(None, *keys, autojunk=False)


def count(base, step, indent=True):
    """(lines added, lines removed)."""
    added = removed = 0
    for kind, a0, a1, b0, b1 in matcher(lines_of(base), lines_of(step), indent).get_opcodes():
        if kind != "equal":
            removed += a1 - a0
            added += b1 - b0
    return added, removed


def moved(base, step):
    """How many of the added and removed lines differ in nothing but their indentation."""
    return sum(count(base, step)) - sum(count(base, step, indent=False))


def unified(base, step, context=3, indent=True):
    old, new = lines_of(base), lines_of(step)
    yield f"--- {base.id}/kernel.cu"
    yield f"+++ {step.id}/kernel.cu"
    for group in matcher(old, new, indent).get_grouped_opcodes(context):
        (_, a0, _, b0, _), (_, _, a1, _, b1) = group[0], group[-1]
        yield f"@@ -{a0 + 1},{a1 - a0} +{b0 + 1},{b1 - b0} @@"
        for kind, a0, a1, b0, b1 in group:
            if kind == "equal":
                yield from (" " + line for line in new[b0:b1])
                continue
            yield from ("-" + line for line in old[a0:a1])
            yield from ("+" + line for line in new[b0:b1])
