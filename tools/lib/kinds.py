"""Kinds of problem as the user writes them, after a size: 4096/NT-bf16, 64x7168x2048/TN-f16-f32.

Two letters for the layouts, A's and then B's: N is row-major, as everywhere in the ladder, T is
column-major (stored as its transpose), so that x W^T is NT; cuBLAS, which is column-major and takes
B first, calls that TN. Then the type of A and B and, where it is another, of C. Then words: batch8,
alpha0.5, beta-1 and others (common/harness/kind.h). FP16, row-major, one matrix is the default.
"""
import re

from .term import UserError

HOW = ("write a kind as NT, NT-bf16 or TN-f16-f32-batch4: A's and B's layout (N row-major, T "
       "column-major), type of A and B, of C")
NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
# In the order in which the programs write them, with what each is worth when it is left out.
WORDS = [("alpha", NUMBER, 1.0), ("beta", NUMBER, 0.0), ("bias", "", None), ("relu", "", None),
         ("gelu", "", None), ("sharedb", "", None),
         ("batch", r"\d+", 1.0), ("pada", r"\d+", 0.0), ("padb", r"\d+", 0.0),
         ("padc", r"\d+", 0.0), ("gap", r"\d+", 0.0), ("off", r"\d+", 0.0)]
KIND = re.compile("([NT][NT])(?:-(f16|bf16)(?:-(f16|bf16|f32))?)?((?:-(?:"
                  + "|".join(f"{name}{value}" for name, value, _ in WORDS) + "))*)")


def parse(text):
    """The kind as the programs write it; "" for the default."""
    found = KIND.fullmatch(text.strip())
    if not found:
        raise UserError(f"'{text}' is not a kind of problem: {HOW}")
    layouts, type_ab, type_c, rest = found.groups()
    type_ab = type_ab or "f16"
    type_c = type_c or type_ab
    words = [layouts]
    if (type_ab, type_c) != ("f16", "f16"):
        words.append(type_ab)
    if type_c != type_ab:
        words.append(type_c)
    for name, value, usual in WORDS:
        if given := re.search(f"-{name}({value})(?=-|$)", rest):
            if usual is None:
                words.append(name)
            elif float(given[1]) != usual:  # whole numbers whole: %g would round a large one
                words.append(name + (f"{float(given[1]):g}" if value == NUMBER
                                     else str(int(given[1]))))
    kind = "-".join(words)
    return "" if kind == "NN" else kind


def split(text):
    """Kinds separated by commas."""
    return list(dict.fromkeys(parse(part) for part in text.split(",")))


def is_kind(text):
    return KIND.fullmatch(text) is not None


def batch(kind):
    found = re.search(r"-batch(\d+)", kind)
    return int(found[1]) if found else 1


def types(kind):
    """(of A and B, of C)."""
    found = KIND.fullmatch(kind or "NN")
    type_ab = found[2] or "f16"
    return type_ab, found[3] or type_ab


def words(kind):
    """For a headline: 'FP16 in, FP32 accumulate, FP16 out' and what else differs."""
    names = {"f16": "FP16", "bf16": "BF16", "f32": "FP32"}
    layouts = {"N": "", "T": "column-major"}
    type_ab, type_c = types(kind)
    said = f"{names[type_ab]} in, FP32 accumulate, {names[type_c]} out"
    a, b = layouts[(kind or "NN")[0]], layouts[(kind or "NN")[1]]
    if a or b:
        said += ", column-major " + " and ".join(n for n, there in (("A", a), ("B", b)) if there)
    if batch(kind) > 1:
        said += f", batch of {batch(kind)}"
    return said
