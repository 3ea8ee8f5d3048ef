"""Words for a person: errors in one line, colour on a terminal only, tables, progress."""
import os
import sys
import textwrap

GREEN, RED, YELLOW, DIM, BOLD = "32", "31", "33", "2", "1"


class UserError(Exception):
    """Something the user can mend: shown as one line, the run ends with `code`."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


def is_terminal(stream=None):
    stream = stream or sys.stdout
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text, code, stream=None):
    """`text` in a colour where the stream is a terminal and NO_COLOR is not set."""
    if not code or os.environ.get("NO_COLOR") or not is_terminal(stream):
        return text
    return f"\033[{code}m{text}\033[0m"


def say(text="", colour=None):
    print(paint(text, colour), flush=True)


def note(text):
    """Progress and remarks go to stderr, so that stdout can be piped."""
    print(paint(text, DIM, sys.stderr), file=sys.stderr, flush=True)


def error(text):
    print(paint("error: ", RED, sys.stderr) + one_line(text), file=sys.stderr, flush=True)


def one_line(text):
    return " ".join(str(text).split())


def clip(text, width):
    text = one_line(text)
    return text if len(text) <= width else text[: width - 1] + "…"


class Progress:
    """One line that overwrites itself on a terminal; elsewhere nothing (the rows tell)."""

    def __init__(self):
        self.live = is_terminal(sys.stderr)
        self.shown = False

    def show(self, text):
        if self.live:
            print("\r\033[K" + paint(clip(text, 78), DIM, sys.stderr), end="", file=sys.stderr,
                  flush=True)
            self.shown = True

    def clear(self):
        if self.shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self.shown = False


class Table:
    """Columns are (title, width); the first is left-aligned. Rows can be printed as they come."""

    def __init__(self, columns):
        self.columns = columns

    def _line(self, cells):
        parts = []
        for i, (cell, (_, width)) in enumerate(zip(cells, self.columns)):
            cell = clip(cell, width) if i == 0 else str(cell)
            parts.append(cell.ljust(width) if i == 0 else cell.rjust(width))
        return " ".join(parts).rstrip()

    def header(self):
        say(self._line([title for title, _ in self.columns]), BOLD)

    def row(self, cells, colour=None):
        say(self._line(cells), colour)

    def failed(self, name, reason, colour=RED):
        """A row that has no numbers, only the reason."""
        width = self.columns[0][1]
        lines = textwrap.wrap(one_line(reason), 79 - width) or [""]
        say(f"{clip(name, width).ljust(width)} {lines[0]}", colour)
        for line in lines[1:]:
            say(" " * (width + 1) + line, colour)


def number(value, digits=1):
    """A number for a cell, or a dash for one that was not measured."""
    return "-" if value is None else f"{value:.{digits}f}"


def tflops(value):
    return number(value, 2 if value is not None and value < 10 else 1)


def duration(seconds):
    """A time in the unit that reads best: 123 us, 4.56 ms, 1.23 s."""
    if seconds is None:
        return "-"
    for factor, unit in ((1e6, "us"), (1e3, "ms"), (1, "s")):
        scaled = seconds * factor
        if scaled < 1000 or unit == "s":
            return f"{scaled:.3g} {unit}" if scaled < 100 else f"{scaled:.0f} {unit}"
