"""Copies of a step with a changed kernel, for sweep and without: whole steps whose base is the
step as it is, so that each is measured beside it."""
import re
import shutil

from . import files, steps


def write(folder, step, kernels):
    """Writes {name of the copy: text of its kernel} into `folder`, which then holds nothing else.
    The copies as steps, in that order."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in kernels.items():
        (folder / name).mkdir(parents=True)
        for header in step.folder.glob("*.h"):
            shutil.copy(header, folder / name)
        files.write_text(folder / name / "kernel.cu", re.sub(
            r"^// base:.*$", f"// base: {step.id}", text, count=1, flags=re.M))
    return sorted(steps.everything(folder), key=lambda copy: list(kernels).index(copy.id))
