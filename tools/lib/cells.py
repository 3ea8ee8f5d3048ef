"""Tables of notes whose cells are recorded numbers, or arithmetic on them. The note says which:

    <!-- cells:begin µs
    a launch | 30_streams/events/launch:host_us
    saved | 1 - 31_graph/batch1/graph:time_us / 31_graph/batch1/launches:time_us
    -->
    (the table, generated)
    <!-- cells:end -->

A line is what it is | row:counter, numbers, + - * / and brackets. The first line names the unit.
"""
import re

from .term import UserError

BLOCK = re.compile(r"(<!-- cells:begin ([^\n]+)\n(.*?)-->\n)(.*?)(<!-- cells:end -->)", re.S)
OPERAND = re.compile(r"(\d\d_[\w.]+/[\w./]+):(\w+)")
ARITHMETIC = re.compile(r"[-+*/(). 0-9e]+")


def fill(text, rows):
    """The text with its tables made anew from {name: Row}."""
    return BLOCK.sub(lambda m: m[1] + table(m[2], m[3], rows) + "\n" + m[5], text)


def table(unit, spec, rows):
    lines = [f"| | {unit} | of |", "|---|---|---|"]
    for line in spec.strip().splitlines():
        words, _, expression = (part.strip() for part in line.partition("|"))
        value = evaluate(expression, rows)
        cell = "not recorded yet" if value is None else number(value)
        lines.append(f"| {words} | {cell} | `{expression}` |")
    return "\n".join(lines)


def evaluate(expression, rows):
    """The value, or None where a row or its counter is missing."""
    missing = []

    def operand(found):
        row = rows.get(found[1])
        value = row.get(found[2]) if row else None
        missing.extend([found[0]] * (value is None))
        return repr(float(value or 0))

    plain = OPERAND.sub(operand, expression)
    if not ARITHMETIC.fullmatch(plain) or "**" in plain or "//" in plain:
        raise UserError(f"a note: '{expression}' is no arithmetic on row:counter")
    try:
        code = compile(plain, expression, "eval")
        return None if missing else eval(code, {"__builtins__": {}})  # digits and operators alone
    except (SyntaxError, TypeError, ZeroDivisionError):
        raise UserError(f"a note: '{expression}' is no arithmetic on row:counter") from None


def number(value):
    """Three digits that matter."""
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f}".replace("-", "−")
