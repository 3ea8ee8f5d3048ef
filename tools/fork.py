"""Start your own kernel from a step.

  ./ladder fork 23 mine          steps/40_mine, measured against 23 and cuBLAS by ./ladder run 40
  ./ladder fork 06 50_wide       a number of your own
"""
import re
import shutil

from .lib import files, paths, steps, term

FIRST_NUMBER = 40  # below are the ladder's own

PAGE = """\
# {title}

Forked from [{base}](../{base}/README.md), its base: `x before` in the table compares the two.

```
./ladder check {number} --device emulated    right? any race, hazard or deadlock?
./ladder run {number}                        checked and measured on the GPU
./ladder diff {number}                       what is changed so far
./ladder sweep {number} BLOCK_K=16,32,64     other values of a constant
./ladder export {number}                     one file to take along
```
"""


def arguments(parser):
    parser.add_argument("step", metavar="STEP")
    parser.add_argument("name", metavar="NAME", help="letters, digits and _, like my_kernel")


def main(args):
    step = steps.one(args.step)
    found = re.fullmatch(r"(?:(\d\d)_)?([a-z][a-z0-9_]*)", args.name)
    if not found:
        raise term.UserError(f"'{args.name}' can't be a step's name: small letters, digits and _, "
                             "like my_kernel or 50_my_kernel")
    taken = {s.number for s in steps.everything()}
    free = [n for n in range(FIRST_NUMBER, 100) if n not in taken]
    if not found[1] and not free:
        raise term.UserError("the numbers 40 to 99 are all taken: name one, like 50_my_kernel")
    number = found[1] or f"{free[0]:02}"
    target = paths.STEPS / f"{number}_{found[2]}"
    if target.exists() or int(number) in taken:
        raise term.UserError(f"there is a step {number} already: choose another number")
    text = step.kernel.read_text(encoding="utf-8")
    text = re.sub(r"^// \S+: ", f"// {target.name}: ", text, count=1)
    text = re.sub(r"^// base:.*$", f"// base: {step.id}", text, count=1, flags=re.M)
    beside = paths.STEPS / f".{target.name}.new"  # whole or not at all: renamed when complete
    shutil.rmtree(beside, ignore_errors=True)
    try:
        files.write_text(beside / "kernel.cu", text)
        for header in step.folder.glob("*.h"):
            shutil.copy(header, beside)
        files.write_text(beside / "README.md",
                         PAGE.format(title=target.name.replace("_", " "), base=step.id,
                                     number=number))
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    term.say(f"{paths.shown(target)}/kernel.cu is yours. Next: ./ladder run {number}")
    return 0
