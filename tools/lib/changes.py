"""What a step's kernel changes against another's."""
import difflib


def lines_of(step):
    return step.kernel.read_text(encoding="utf-8").splitlines()


def count(base, step):
    """(lines added, lines removed)."""
    added = removed = 0
    matcher = difflib.SequenceMatcher(None, lines_of(base), lines_of(step), autojunk=False)
    for kind, a0, a1, b0, b1 in matcher.get_opcodes():
        if kind != "equal":
            removed += a1 - a0
            added += b1 - b0
    return added, removed


def unified(base, step, context=3):
    return difflib.unified_diff(lines_of(base), lines_of(step), f"{base.id}/kernel.cu",
                                f"{step.id}/kernel.cu", lineterm="", n=context)
