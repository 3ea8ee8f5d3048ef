"""Which banks of shared memory the lanes of a warp touch, by the kernel's own index functions.

The address expressions of its ldmatrix and stmatrix calls, and the functions they use, are taken
from kernel.cu as they stand, compiled by g++ and evaluated for each lane: no second copy of the
swizzle that could differ.
"""
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import kernel_facts
from .term import UserError

ROW = 16  # bytes of a row of an 8x8 matrix: four banks


@dataclass
class Access:
    what: str  # ldmatrix, ldmatrix.trans, stmatrix
    line: int
    expression: str
    bytes: list  # of each lane, from the start of the buffer

    def banks(self, lane):
        """The four banks that the row of this lane takes."""
        first = self.bytes[lane] // 4 % 32
        return [(first + i) % 32 for i in range(4)]

    def wavefronts(self, matrix):
        """How often the banks must be asked for the eight rows of one matrix: 1 is ideal."""
        rows = {}
        for lane in range(8 * matrix, 8 * matrix + 8):
            for bank in self.banks(lane):
                rows.setdefault(bank, set()).add(self.bytes[lane] // 128)
        return max(len(lines) for lines in rows.values())


def read(step):
    """The accesses of a step, one for each call in its kernel."""
    text = step.kernel.read_text(encoding="utf-8")
    plain = re.sub(r"//[^\n]*", lambda m: " " * len(m[0]), text)
    calls = []
    for found in re.finditer(r"ptx::(ldmatrix_x4(?:_trans)?|stmatrix_x4)\(", plain):
        arguments = kernel_facts.split_commas(_inside(plain, found.end() - 1))
        address = arguments[0] if found[1].startswith("st") else arguments[1]
        before = plain[:found.start()].rstrip().splitlines()
        calls.append((found[1], plain.count("\n", 0, found.start()) + 1, _index(address),
                      _declarations(before)))
    if not calls:
        raise UserError(f"{step.id} has no ldmatrix or stmatrix, whose lanes could be drawn; steps "
                        "from 08 on have")
    functions = _functions(plain)
    facts = kernel_facts.read(step)
    return [Access({"ldmatrix_x4": "ldmatrix", "ldmatrix_x4_trans": "ldmatrix.trans",
                    "stmatrix_x4": "stmatrix"}[name], line, " ".join(index.split()),
                   _evaluate(index, declarations, functions, facts, step.id))
            for name, line, index, declarations in calls]


def _inside(text, opening):
    """What stands between the bracket at `opening` and the one that closes it."""
    pairs, depth = {"(": ")", "[": "]", "{": "}"}, 0
    close = pairs[text[opening]]
    for i in range(opening, len(text)):
        depth += (text[i] == text[opening]) - (text[i] == close)
        if depth == 0:
            return text[opening + 1:i]
    return ""


def _index(address):
    """The last index of &smem_a[INDEX] or of base + INDEX, in elements."""
    address = address.strip()
    if address.startswith("&"):
        opening = address.index("[")
        index = _inside(address, opening)
        while (rest := address[opening + len(index) + 2:]).startswith("["):
            opening += len(index) + 2
            index = _inside(address, opening)
        return index
    return address.partition("+")[2] or "0"


def _declarations(before):
    """The `const int` lines right above a call, nearest first; those of the lane first of all."""
    found = []
    for line in reversed(before[-12:]):
        if re.match(r"[^\s#]", line):
            break  # the head of the function
        if match := re.match(r"\s*const int ([^;{}]+);", line):
            found.append(match[1])
    return list(reversed(found))


def _functions(text):
    """The kernel's device functions that only compute an int from ints: at, swizzled."""
    found = []
    for head in re.finditer(r"(?:template <[^>]*>\s*)?__device__ (?:constexpr )?int \w+"
                            r"\((?:int \w+(?:, )?)*\) \{", text):
        found.append(head[0][:-1] + "{" + _inside(text, head.end() - 1) + "}")
    return found


def _evaluate(index, declarations, functions, facts, name):
    constants = "\n".join(f"constexpr int {n} = {v};" for n, v in facts.constants.items())
    declared, body = set(), []
    for line in declarations:
        for item in kernel_facts.split_commas(line):
            variable = item.partition("=")[0].strip()
            if variable != "lane_id" and variable not in declared:
                body.append(f"const int {item.strip()};")
                declared.add(variable)
    used = index + "\n".join(body)
    known = set(facts.constants) | declared | {"lane_id", "threadIdx", "x", "const", "int"}
    known |= {re.search(r"int (\w+)\(", f)[1] for f in functions}
    zeros = "\n".join(f"const int {word} = 0;" for word in sorted(
        set(re.findall(r"(?<![\w.])[A-Za-z_]\w*(?!\w)", used)) - known))
    source = f"""#include <cstdio>
#include <algorithm>
#define __device__
using std::min; using std::max;
struct {{ int x; }} threadIdx;
{constants}
{chr(10).join(functions)}
int main() {{
  for (int lane_id = 0; lane_id < 32; ++lane_id) {{
    threadIdx.x = lane_id;
    {zeros}
    {chr(10).join(body)}
    std::printf("%d\\n", int({index}) * 2);
  }}
}}
"""
    with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
        file, program = Path(folder) / "lanes.cpp", Path(folder) / "lanes"
        file.write_text(source)
        try:
            built = subprocess.run(["g++", "-std=c++17", "-w", file, "-o", program],
                                   capture_output=True, text=True)
        except OSError:
            raise UserError("banks needs g++: apt-get install g++") from None
        if built.returncode:
            raise UserError(f"{name}: its address '{' '.join(index.split())}' could not be taken "
                            "out of the kernel")
        lanes = subprocess.run([program], capture_output=True, text=True, timeout=20)
    found = [int(word) for word in lanes.stdout.split()]
    if len(found) != 32:
        raise UserError(f"{name}: its address '{' '.join(index.split())}' could not be evaluated")
    return found
