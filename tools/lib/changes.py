"""What a step's kernel changes against another's: the fewest lines, as `git diff --minimal` has them.
A line that only moves to the right (into a loop, into a role) is a change to diff, but not to a
reader: `indent=False` takes it for the same."""


def lines_of(step):
    return step.kernel.read_text(encoding="utf-8").splitlines()


def edits(old, new, indent=True):
    """[(sign, line)] from old to new; kept lines (" ") read as in new."""
    a, b = [[line if indent else line.strip() for line in lines] for lines in (old, new)]
    kept = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]  # of a[i:] and b[j:], at most
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            kept[i][j] = (kept[i + 1][j + 1] + 1 if a[i] == b[j]
                          else max(kept[i + 1][j], kept[i][j + 1]))
    found, i, j = [], 0, 0
    while i < len(a) or j < len(b):
        if i < len(a) and j < len(b) and a[i] == b[j]:
            found.append((" ", new[j]))
            i, j = i + 1, j + 1
        elif i < len(a) and (j == len(b) or kept[i + 1][j] >= kept[i][j + 1]):
            found.append(("-", old[i]))
            i += 1
        else:
            found.append(("+", new[j]))
            j += 1
    return found


def count(base, step, indent=True):
    """(lines added, lines removed)."""
    signs = [sign for sign, _ in edits(lines_of(base), lines_of(step), indent)]
    return signs.count("+"), signs.count("-")


def moved(base, step):
    """How many of the added and removed lines differ in nothing but their indentation."""
    return sum(count(base, step)) - sum(count(base, step, indent=False))


def unified(base, step, context=3, indent=True):
    yield f"--- {base.id}/kernel.cu"
    yield f"+++ {step.id}/kernel.cu"
    found = edits(lines_of(base), lines_of(step), indent)
    near = {at for k, (sign, _) in enumerate(found) if sign != " "
            for at in range(k - context, k + context + 1)}
    old = new = 1  # line numbers
    for k, (sign, line) in enumerate(found):
        if k in near:
            if k == 0 or k - 1 not in near:
                yield f"@@ -{old} +{new} @@"
            yield sign + line
        old += sign != "+"
        new += sign != "-"
