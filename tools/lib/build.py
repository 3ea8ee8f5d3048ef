"""Builds the steps asked for, and only those; one that does not build is a reason, not an end."""
import hashlib
import json
import os
import re
from pathlib import Path

from . import child, files, paths, term
from .term import UserError


def bin_dir():
    """Tests put stand-ins for the programs here."""
    return os.environ.get("LADDER_BIN")


def folder(device, archs=None):
    """A build for other GPUs than this machine's has a folder of its own."""
    return paths.BUILD / (f"{device}-all" if archs else device)


def program(device, step_id):
    return Path(bin_dir() or folder(device) / "bin") / step_id


def build(setup, device, chosen, archs=None, extra=None, quiet=False):
    """{step id: why it could not be built}, empty when all were. `chosen` are ids of steps;
    `extra` is a second folder of steps (a sweep's copies)."""
    if bin_dir():
        return {}
    setup.require("cmake", "ninja", "g++", *(["Google Benchmark"] if device == "gpu"
                                             else ["Boost.Context"]))
    if device == "gpu" and not setup.nvcc:
        raise UserError(f"nothing can be built for a GPU here: {setup.why_no_nvcc}")
    configure(setup, device, archs, extra)
    return _ninja(folder(device, archs), chosen, quiet)


def configure(setup, device, archs=None, extra=None):
    """cmake, unless everything it was told is as it was."""
    where = folder(device, archs)
    command = ["cmake", "--preset", device, "-B", str(where),
               f"-DLADDER_TESTS={'OFF' if 'Catch2' in setup.missing else 'ON'}",
               "-DLADDER_STEPS=all", f"-DLADDER_EXTRA_STEPS={extra or ''}"]
    if device == "gpu":
        command += [f"-DCMAKE_CUDA_COMPILER={setup.nvcc}",
                    f"-DCUDAToolkit_ROOT={Path(setup.nvcc).parents[1]}"]
        if archs or setup.gpu:
            command.append(f"-DLADDER_ARCHS={';'.join(archs or [str(setup.gpu.sm)])}")
    stamp = where / "ladder-configured"
    told = hashlib.sha256(json.dumps(command).encode())
    for kernel in _sources_of_configuration(extra):
        told.update(str(kernel).encode())
    told = told.hexdigest()
    cached = _cached(where)
    if ((where / "build.ninja").exists() and stamp.exists() and stamp.read_text() == told
            and all(cached.get(name) == value for name, value in _settings(command))):
        return  # ninja itself runs cmake again when CMakeLists.txt or a header line changed
    if cached.get("CMAKE_CUDA_COMPILER", setup.nvcc) != setup.nvcc:
        (where / "CMakeCache.txt").unlink()  # cmake keeps to its first compiler
    progress = term.Progress()
    done = child.run(command, limit=300, cwd=paths.ROOT,
                     tick=lambda s: progress.show(f"configuring {device}, {s:.0f} s"))
    progress.clear()
    if not done.ok:
        log = where.parent / f"{where.name}-cmake.log"
        files.write_text(log, done.out + done.err)
        raise UserError(f"cmake: {_cmake_error(done.err)} (all its words: {paths.shown(log)})", 3)
    files.write_text(stamp, told)


def _settings(command):
    """(name, value) of each -DNAME=VALUE."""
    return [word[2:].split("=", 1) for word in command if word.startswith("-D")]


def _cached(where):
    """What the build folder was configured with, perhaps by someone else's cmake."""
    try:
        text = (where / "CMakeCache.txt").read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r"^(\w+):\w+=(.*)$", text, re.M))


def _sources_of_configuration(extra):
    for root in (paths.STEPS, extra):
        if root:
            yield from sorted(Path(root).glob("[0-9][0-9]_*/*.cu"))


def _cmake_error(text):
    """What cmake says under 'CMake Error', in one line."""
    found = re.search(r"CMake Error[^\n]*\n(.*?)(?:\n\s*\n|\Z)", text, re.S)
    return term.clip(found[1] if found and found[1].strip() else text.strip() or "failed", 300)


def _ninja(where, targets, quiet):
    progress = term.Progress()
    command = ["ninja", "-C", str(where)]
    names = list(dict.fromkeys(targets))
    targets_known = child.run([*command, "-t", "targets", "all"]).out
    listed = set(re.findall(r"^([\w.+-]+): ", targets_known, re.M))
    failed = {name: "has no program for this device" for name in names if name not in listed}
    names = [name for name in names if name in listed]
    if not names:
        return failed

    words = f"building {len(names)} program{'s' * (len(names) > 1)}"

    def tick(seconds):
        nonlocal quiet
        progress.show(f"{words}, {seconds:.0f} s")
        if not progress.live and seconds > 1.5 and not quiet:  # said once in a log, and only
            quiet = True                                       # where there is something to build
            term.note(f"{words} ...")

    done = child.run([*command, "-k", "0", *names], tick=tick)
    progress.clear()
    files.write_text(where / "ladder-build.log", done.out + done.err)
    if done.ok:
        return failed
    # Something failed: ask for each alone to learn which, and why.
    for name in names:
        alone = child.run([*command, name])
        if not alone.ok:
            failed[name] = "does not build: " + first_error(alone.out + alone.err)
    return failed


def first_error(text):
    """The compiler's first complaint without the path before it."""
    if found := re.search(r"static assertion failed(?: with|:)? [\"']?(.*?)[\"']?$", text, re.M):
        return term.clip(found[1], 300)
    for line in text.splitlines():
        if found := re.search(r"(?:^|[ /])([\w.]+\(\d+\)|[\w.]+:\d+(?::\d+)?):\s*"
                              r"(?:fatal )?error:?\s*(?:#[\w-]+: )?(.*)", line):
            return term.clip(f"{found[1]}: {found[2]}", 300)
    if found := re.search(r"undefined reference to .*", text):
        return term.clip(found[0], 300)
    for line in text.splitlines():
        if "error" in line.lower() and not line.startswith(("FAILED", "ninja:", "[")):
            return term.clip(re.sub(r"^.*?error\s*:\s*", "", line), 300)
    return term.clip(text.strip().splitlines()[-1] if text.strip() else "no word why", 300)
