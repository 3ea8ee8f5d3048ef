"""One file out of a kernel.cu and the headers it includes, for the CUDA device only."""
import re

from . import paths
from .term import UserError


def flatten(*files):
    """(the system headers, the text of each file without any #include): each of our headers once,
    where it is first included; CUDA's branch of `#if defined(LADDER_...)`; no #pragma once."""
    system, seen, texts = [], set(), []
    for file in files:
        lines = []
        _flatten(file, system, seen, lines)
        texts.append(_squeeze(lines))
    return sorted(dict.fromkeys(system)), texts


def _flatten(file, system, seen, lines):
    if file.resolve() in seen:
        return
    seen.add(file.resolve())
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {paths.shown(file)}: {error.strerror}") from None
    for line in _cuda_branch(text.splitlines()):
        if found := re.match(r'\s*#include "([^"]+)"', line):
            beside = file.parent / found[1]
            _flatten(beside if beside.is_file() else paths.ROOT / found[1], system, seen, lines)
        elif found := re.match(r"\s*#include (<[^>]+>)", line):
            system.append(found[1])
        elif line.strip() != "#pragma once":
            lines.append(line)


def _cuda_branch(lines):
    """Without the backends of other devices: of `#if defined(LADDER_X) ... #else ... #endif` the
    first branch that asks for no LADDER_X. Other conditionals stay as they are."""
    stack = []  # for each open #if: None (not ours), or whether its present branch is kept
    ours = re.compile(r"#(el)?if defined\(LADDER_\w+\)$")
    for line in lines:
        word = line.strip()
        if word.startswith("#if"):
            stack.append(False if ours.match(word) else None)
            if stack[-1] is not None:
                continue
        elif word.startswith(("#elif", "#else", "#endif")) and stack and stack[-1] is not None:
            if word.startswith("#endif"):
                stack.pop()
            else:
                stack[-1] = not stack[-1] and not ours.match(word)
            continue
        elif word.startswith("#endif"):
            stack.pop()
        if all(kept is not False for kept in stack):
            yield line


def _squeeze(lines):
    """No two empty lines in a row."""
    kept = []
    for line in lines:
        if line.strip() or (kept and kept[-1].strip()):
            kept.append(line)
    return "\n".join(kept).strip() + "\n"


# ---- leaving out what is not called ------------------------------------------------------------

def drop_unused(text, roots, start=r"PTX_FN\b"):
    """Without the functions marked `start` that neither `roots` (text) nor a kept one names."""
    blocks = list(_blocks(text.splitlines(), re.compile(start)))
    functions = {}
    for name, lines in blocks:
        if name:
            functions.setdefault(name, []).append("\n".join(lines))
    rest = "\n".join(line for name, lines in blocks if not name for line in lines)
    used, todo = set(), [roots, rest]
    while todo:
        code = re.sub(r"//.*", "", todo.pop())
        words = set(re.findall(r"\w+", code))
        for name in functions.keys() & words - used:
            used.add(name)
            todo += functions[name]
    kept = []
    for name, lines in blocks:
        if not name or name in used:
            kept += lines
    # A heading over nothing goes too.
    result, pending = [], []
    for line in kept:
        if re.match(r"// ---- .* -+$", line):
            pending = [line]
        elif pending and (not line.strip() or line.startswith("//") and len(pending) < 4):
            pending.append(line)
        else:
            if not line.startswith("}"):  # the end of a namespace: nothing came under it
                result += pending
            pending = []
            result.append(line)
    return _squeeze(result)


def _blocks(lines, start):
    """(name of the function or None, its lines with the comment and template line above it)."""
    above, i = [], 0
    while i < len(lines):
        line = lines[i]
        if re.match(r"(///|template <)", line):
            above.append(line)
            i += 1
        elif start.match(line):
            body, depth = [], 0
            while True:
                body.append(lines[i])
                code = re.sub(r'"(\\.|[^"\\])*"', "", lines[i])
                depth += code.count("{") - code.count("}")
                i += 1
                if depth == 0 and ("}" in code or code.rstrip().endswith(";")):
                    break
            signature = " ".join(body).split("(")[0]
            yield signature.split()[-1].lstrip("*&"), above + body
            above = []
        else:
            yield None, above + [line]
            above = []
            i += 1
    if above:
        yield None, above
