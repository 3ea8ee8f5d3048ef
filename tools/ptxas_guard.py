"""Compiler launcher: runs nvcc, shows what ptxas says, and fails on what makes a kernel slow.

CMake calls it as `ptxas_guard.py nvcc ...`. A spill, a wgmma that ptxas serialises or a setmaxnreg
that it ignores is no error for nvcc, only a line of information; here it ends the build.
"""
import re
import subprocess
import sys

# (pattern, what it means). The first match of a line counts.
BAD = [
    (re.compile(r"\b(?!0\b)(\d+) bytes spill (?:stores|loads)"), "registers spill to local memory"),
    (re.compile(r"[Rr]egisters are spilled"), "registers spill to local memory"),
    (re.compile(r"C75\d\d\b"), "wgmma is not pipelined as written"),
    (re.compile(r"serializ", re.I), "wgmma is serialised"),
    (re.compile(r"setmaxnreg.*ignored", re.I), "setmaxnreg has no effect"),
]


def complaints(text):
    """What ptxas' words hold against the kernels, one line each: 'kernel: meaning: its words'."""
    found, kernel = [], ""
    for line in text.splitlines():
        if named := re.search(r"(?:Compiling entry function|Function properties for) '?([\w$.]+)",
                              line):
            kernel = named[1]
        for pattern, meaning in BAD:
            if pattern.search(line):
                words = re.sub(r"^ptxas\s*(info|warning|error)?\s*:?\s*", "", line.strip())
                found.append(f"{short(kernel)}: {meaning}: {words}" if kernel
                             else f"{meaning}: {words}")
                break
    return list(dict.fromkeys(found))


def short(mangled):
    """gemm_kernel of _ZN37_INTERNAL_...11gemm_kernelEPK6__half: the last part of the name."""
    rest, name = re.sub(r"^_ZN?", "", mangled), mangled
    while found := re.match(r"\d+", rest):
        length = int(found[0])
        name, rest = rest[found.end():found.end() + length], rest[found.end() + length:]
    return name


def main(command):
    if not command:
        print("error: usage: ptxas_guard.py nvcc ...", file=sys.stderr)
        return 2
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              errors="replace")
    except OSError as error:
        print(f"error: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    if done.returncode:
        return done.returncode
    found = complaints(done.stdout + done.stderr)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        print(f"error: ptxas: {found[0]}{more}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
