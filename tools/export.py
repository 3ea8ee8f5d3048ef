"""Write a step as one self-contained .cu file.

  ./ladder export 06                 writes 06_warp_tile.cu here
  ./ladder export 23 -o my.cu        another name; -o - prints it
  ./ladder export 23 --arch 90       for this compute capability (default: this machine's GPU,
                                     else the oldest that runs the step)
  ./ladder export 23 --shared        a library with C functions, and a Python file that calls it
                                     for tensors of torch or cupy

The file needs nothing but nvcc; its first lines hold the command that builds it.
"""
import re
import sys
from pathlib import Path

from .lib import build, child, device, files, inline, paths, source, steps, term

HERE = Path(__file__).resolve().parent
MAIN_HEADERS = ["<algorithm>", "<chrono>", "<cstdint>", "<cstdio>", "<exception>", "<memory>",
                "<string>", "<thread>", "<vector>"]


def arguments(parser):
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("-o", "--out", metavar="FILE")
    parser.add_argument("--arch", metavar="SM", help="75, 80, 86, 89, 90, 100, 120 ...")
    parser.add_argument("--shared", action="store_true", help="a library and its ctypes file")


def main(args):
    step = steps.one(args.step)
    if args.shared:
        return export_shared(step, args.out or f"gemm_{step.id}.cu", _arch(step, args.arch))
    text = export(step, args.out or f"{step.id}.cu", _arch(step, args.arch))
    if args.out == "-":
        sys.stdout.write(text)
        return 0
    target = Path(args.out or f"{step.id}.cu")
    files.write_text(target, text)
    term.say(f"{paths.shown(target)}: {build_line(text)}")
    return 0


def export_shared(step, out, sm):
    """FILE.cu, FILE.py and, where there is nvcc, libFILE.so."""
    target = Path(out)
    if not re.fullmatch(r"[A-Za-z_]\w*\.cu", target.name):
        raise term.UserError(f"-o {out}: a name like gemm.cu, letters, digits and _, since Python "
                             "imports it; the library goes beside it")
    text = export(step, out, sm, shared=True)
    files.write_text(target, text)
    caller = (HERE / "lib" / "export_ctypes.py").read_text()
    files.write_text(target.with_suffix(".py"), caller.replace("@STEP@", step.id))
    made = [target, target.with_suffix(".py")]
    tool, why = device.toolkit()
    if tool:
        done = child.run([tool.nvcc, *build_line(text).split()[1:]], limit=300,
                         cwd=target.resolve().parent)
        if not done.ok:
            raise term.UserError(build.first_error(done.out + done.err), 3)
        made.append(target.with_name(f"lib{target.stem}.so"))
    else:
        term.note(f"not built here ({why}): {build_line(text)}")
    term.say(", ".join(paths.shown(p) for p in made))
    return 0


def _arch(step, asked):
    if asked:
        if not re.fullmatch(r"\d{2,3}a?", asked):
            raise term.UserError(f"--arch takes a compute capability like 80 or 90, not '{asked}'")
        sm = int(asked.rstrip("a"))
        if not step.runs_on(sm):
            raise term.UserError(f"{step.id} {step.why_not(sm)}, not {asked}")
        return sm
    found, _ = device.gpus()
    if found and step.runs_on(found[0].sm):
        return found[0].sm
    return int(step.arch[:2])


def build_line(text):
    return re.search(r"^//   (nvcc .*)$", text, re.M)[1]


def export(step, name, sm, shared=False):
    """The text of the file."""
    system, (headers, kernel) = inline.flatten(paths.ROOT / "common" / "step.h", step.kernel)
    main_text = (HERE / "lib" / f"export_{'shared' if shared else 'main'}.cu").read_text()
    headers = inline.drop_unused(headers, kernel + main_text)  # instructions, then host helpers
    headers = inline.drop_unused(headers, kernel + main_text, r"inline\b")
    arch = "90a" if sm == 90 else str(sm)
    name = Path(name).name if name != "-" else f"{step.id}.cu"
    commit, dirty = source.state()
    stem, use = Path(name).stem, "Build" if shared else "Build and run"
    how = f"-shared -Xcompiler -fPIC {name} -o lib{stem}.so" if shared else f"{name} -o {stem}"
    includes = "\n".join(f"#include {h}" for h in sorted(set(system) | set(MAIN_HEADERS)))
    return f"""\
// {step.id}: {step.idea}
// One file out of the GEMM ladder (commit {commit}{' with changes' if dirty else ''}), MIT licence.
// C[M][N] = A[M][K] * B[K][N], row-major, FP16 in, FP32 accumulate, FP16 out. {use}:
//   nvcc -std=c++17 -O3 -gencode arch=compute_{arch},code=sm_{arch} {how}
{includes}

#define STEP_ID "{step.id}"

// ---- what the ladder's headers give a step ------------------------------------------------------

{headers}
// ---- the step -----------------------------------------------------------------------------------

{kernel}
{main_text}"""

