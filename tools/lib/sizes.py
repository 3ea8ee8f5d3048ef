"""Sizes as the user writes them: 4096, 4096x4096x512, several with commas; a kind of problem may
follow, 4096x14336x4096/NT-bf16 (kinds.py)."""
import re

from . import kinds
from .term import UserError

LIMIT = (1 << 31) - 1024  # of M, N and K each, as common/problem.h has it
MAX_BYTES = 1 << 40  # A, B and C together; more than any one GPU has

HOW = "write a size as 4096 or as MxNxK, 4096x4096x512"


class Size(tuple):
    """(M, N, K) of a problem whose kind is not the default; such a one differs from the bare size.
    A size of the default kind is a plain tuple."""
    kind = ""

    def __eq__(self, other):
        return tuple.__eq__(self, other) and self.kind == kind_of(other)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash((tuple(self), self.kind)) if self.kind else tuple.__hash__(self)


def with_kind(size, kind):
    if not kind:
        return tuple(size)
    sized = Size(size)
    sized.kind = kind
    return sized


def kind_of(size):
    return getattr(size, "kind", "")


def parse_one(text):
    """(M, N, K) of one size, with its kind."""
    text, slash, kind = text.strip().partition("/")
    if slash:
        return with_kind(parse_one(text), kinds.parse(kind))
    parts = text.strip().lower().replace("×", "x").split("x")
    if len(parts) not in (1, 3) or not all(re.fullmatch(r"[+-]?\d+", p) for p in parts):
        raise UserError(f"'{text}' is not a size: {HOW}")
    m, n, k = (int(p) for p in (parts * 3 if len(parts) == 1 else parts))
    if min(m, n, k) < 1:
        raise UserError(f"size '{text}' is not possible: M, N and K must be at least 1")
    if max(m, n, k) > LIMIT or memory_bytes((m, n, k)) > MAX_BYTES:
        need = memory_bytes((m, n, k)) / 2**30
        raise UserError(f"size '{text}' is too large: A, B and C take {need:,.0f} GiB, "
                        "more than any GPU has; 8192 takes 0.4 GiB")
    return m, n, k


def parse(text):
    """Sizes separated by commas, in order, without repeats."""
    return list(dict.fromkeys(parse_one(part) for part in str(text).split(",")))


def text(size):
    return "x".join(str(x) for x in size) + _ending(size)


def short(size):
    """4096 for a cube, MxNxK otherwise."""
    return str(size[0]) + _ending(size) if len(set(size)) == 1 else text(size)


def _ending(size):
    return f"/{kind_of(size)}" if kind_of(size) else ""


def memory_bytes(size):
    m, n, k = size
    return 2 * (m * k + k * n + m * n) * kinds.batch(kind_of(size))


def flops(size):
    m, n, k = size
    return 2 * m * n * k * kinds.batch(kind_of(size))
