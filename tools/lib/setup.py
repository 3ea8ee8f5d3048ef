"""Set-up of a fresh Debian or Ubuntu machine: says what is missing, installs what it may.

What was found is kept in build/setup.json, so that a second start asks for nothing again.
A driver is never installed. With LADDER_NO_INSTALL set, nothing is.
"""
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import child, device, files, paths, term
from .term import UserError

STAMP = paths.BUILD / "setup.json"
VERSION = 1  # of the stamp
RETRY_AFTER = 3600  # seconds before something optional that could not be had is tried again

# What is needed, the Debian package that has it, and what goes without it. A header is looked
# for with the compiler, so that CPATH and the like count.
PROGRAMS = {"cmake": "cmake", "ninja": "ninja-build", "g++": "g++"}
HEADERS = {  # (one of these headers, package, what needs it)
    "Catch2": (("catch2/catch.hpp", "catch2/catch_test_macros.hpp"), "catch2", "the C++ tests"),
    "Google Benchmark": (("benchmark/benchmark.h",), "libbenchmark-dev", "measuring on a GPU"),
    "Boost.Context": (("boost/context/fiber.hpp",), "libboost-context-dev",
                      "the emulated device"),
}
LIBRARIES = {"Boost.Context": "boost_context"}  # of those: what must be there to link
# NVIDIA's compiler as Python packages; the CUDA 12 ones have no nvcc in them.
WHEELS = ["nvidia-cuda-nvcc>=13,<14", "nvidia-cuda-crt>=13,<14", "nvidia-nvvm>=13,<14",
          "nvidia-cuda-runtime>=13,<14", "nvidia-cuda-cccl>=13,<14", "nvidia-cublas>=13,<14"]


@dataclass
class Setup:
    gpu: device.Gpu | None = None
    nvcc: str = ""
    cuda: tuple = ()
    why_no_nvcc: str = ""
    plot_python: str = ""  # an interpreter that has matplotlib, or ""
    missing: dict = field(default_factory=dict)  # {what: what goes without it}

    def require(self, *needs):
        """Ends with one line when one of these is missing."""
        gone = [n for n in needs if n in self.missing]
        if gone:
            packages = " ".join(package_of(n) for n in gone)
            raise UserError(f"{', '.join(gone)} missing and could not be installed; as root: "
                            f"apt-get install {packages}")


def package_of(what):
    return PROGRAMS.get(what) or HEADERS.get(what, ((), ""))[1] or {
        "matplotlib": "python3-matplotlib"}.get(what, what)


def ready():
    """Sets up what can be set up and returns what there is."""
    found, _ = device.gpus()
    gpu = found[0] if found else None
    stamp = _read_stamp()
    key = _key(gpu)
    fresh = stamp and stamp["key"] == key and all(
        not p or Path(p).is_file() for p in (stamp["nvcc"], stamp["plot_python"]))
    if fresh and (not stamp["missing"] or time.time() - stamp["time"] < RETRY_AFTER):
        setup = Setup(gpu, stamp["nvcc"], tuple(stamp["cuda"]), stamp["why_no_nvcc"],
                      stamp["plot_python"], stamp["missing"])
        if not any(shutil.which(p) is None for p in PROGRAMS if p not in setup.missing):
            _tell_left_out(setup)
            return setup
    setup = _install(gpu)
    _tell_left_out(setup)
    files.write_json(STAMP, {"version": VERSION, "key": key, "time": time.time(),
                             "nvcc": setup.nvcc, "cuda": list(setup.cuda),
                             "why_no_nvcc": setup.why_no_nvcc, "plot_python": setup.plot_python,
                             "missing": setup.missing})
    return setup


def _key(gpu):
    """What the findings depend on: when this changes, look again."""
    return [platform.node(), gpu.uuid if gpu else "", gpu.driver if gpu else "", sys.executable,
            os.environ.get("CUDA_HOME", ""), shutil.which("nvcc") or ""]


def _read_stamp():
    try:
        stamp = json.loads(STAMP.read_text())
        return stamp if stamp.get("version") == VERSION else None
    except (OSError, ValueError):
        return None


def _tell_left_out(setup):
    for what, without in setup.missing.items():
        term.note(f"left out: {without} ({what} is missing: apt-get install {package_of(what)})")


def _install(gpu):
    missing = missing_things()
    may_install = not os.environ.get("LADDER_NO_INSTALL")
    if missing:
        term.note("missing: " + ", ".join(missing))
    if missing and may_install:
        _apt([package_of(what) for what in missing])
        missing = missing_things()
    if "matplotlib" in missing and may_install and _venv_install(["matplotlib"], "matplotlib"):
        missing = missing_things()
    setup = Setup(gpu, missing=missing)
    setup.plot_python = plot_python()
    tool, setup.why_no_nvcc = device.toolkit()
    if not tool and gpu and may_install:
        tool = _compiler_wheels()
    if tool:
        setup.nvcc, setup.cuda, setup.why_no_nvcc = tool.nvcc, tool.version, ""
    return setup


def missing_things():
    """{what: what goes without it}, of all that a full set-up has."""
    gone = {p: "building anything" for p in PROGRAMS if not shutil.which(p)}
    for what, (headers, _, needs) in HEADERS.items():
        if "g++" in gone or not any(_has_header(h) for h in headers) or not _links(what):
            gone[what] = needs
    if not plot_python():
        gone["matplotlib"] = "plots"
    return gone


def _has_header(header):
    done = subprocess.run(["g++", "-std=c++17", "-E", "-x", "c++", "-", "-o", os.devnull],
                          input=f"#if !__has_include(<{header}>)\n#error\n#endif\n", text=True,
                          capture_output=True)
    return done.returncode == 0


def _links(what):
    """False where there are headers of a library and not the library itself."""
    if what not in LIBRARIES:
        return True
    def linked(*words):
        done = subprocess.run(["g++", "-x", "c++", "-", *words, "-o", os.devnull],
                              input="int main() {}\n", text=True, capture_output=True)
        return done.returncode == 0
    return linked(f"-l{LIBRARIES[what]}") or not linked()  # without a linker nothing is known


def plot_python():
    """An interpreter that can draw: this one, the system's, or the virtual environment's."""
    candidates = (sys.executable, "/usr/bin/python3", str(paths.VENV / "bin" / "python"))
    for python in dict.fromkeys(candidates):
        if os.access(python, os.X_OK):
            done = subprocess.run([python, "-c", "import matplotlib"], capture_output=True,
                                  stdin=subprocess.DEVNULL)
            if done.returncode == 0:
                return python
    return ""


def _apt(packages):
    """Installs system packages where that is allowed; otherwise says what to type."""
    if not packages:
        return
    command = ["apt-get", "-y", "-q", "-o", "Acquire::http::Timeout=10", "-o", "Acquire::Retries=0"]
    if not shutil.which("apt-get"):
        term.note("this is no Debian or Ubuntu; install these as your system does: "
                  + " ".join(packages))
        return
    if os.geteuid() != 0:
        sudo = shutil.which("sudo")
        if not sudo or not child.run([sudo, "-n", "true"], limit=10).ok:
            term.note("not root and no sudo without a password; please run: "
                      "sudo apt-get install " + " ".join(packages))
            return
        command = [sudo, "-n", *command]
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    term.note("installing " + " ".join(packages) + " ...")
    progress = term.Progress()
    tick = lambda seconds: progress.show(f"apt-get, {seconds:.0f} s")  # noqa: E731
    install = [*command, "install", "--no-install-recommends"]
    done = child.run([*install, *packages], limit=900, env=env, tick=tick)
    online = done.ok
    if not done.ok:  # most often: the lists were never fetched
        update = child.run([*command, "update"], limit=120, env=env, tick=tick)
        online = update.ok and not re.search(r"^(Err:|[EW]: Failed)", update.out + update.err, re.M)
        if online:
            done = child.run([*install, *packages], limit=900, env=env, tick=tick)
        else:
            term.note("apt-get reaches no network: going on with what is there")
    if online and not done.ok:  # one that is not to be had must not keep the others away
        for package in packages:
            child.run([*install, package], limit=900, env=env, tick=tick)
    progress.clear()


def _venv_install(packages, what):
    """Installs Python packages into .venv; False where that can't be (no network, no venv)."""
    python = paths.VENV / "bin" / "python"
    if not python.exists():
        made = child.run([sys.executable, "-m", "venv", paths.VENV], limit=120)
        if not made.ok:
            shutil.rmtree(paths.VENV, ignore_errors=True)
            term.note(f"no virtual environment for {what}: apt-get install python3-venv")
            return False
    term.note(f"installing {what} into .venv ...")
    progress = term.Progress()
    done = child.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                      "--retries", "0", "--timeout", "10", *packages], limit=900,
                     tick=lambda seconds: progress.show(f"pip, {seconds:.0f} s"))
    progress.clear()
    if not done.ok:
        term.note(f"{what} could not be installed: {term.clip(child.why(done, 900), 120)}")
    return done.ok


def _compiler_wheels():
    """nvcc, headers and cuBLAS into .venv, for a machine with a GPU and no toolkit."""
    limit = device.driver_cuda()
    if limit and limit[0] < 13:
        term.note(f"no CUDA toolkit, and this driver runs CUDA {limit[0]}.x at most: install a "
                  f"CUDA {limit[0]} toolkit (12.3 or newer)")
        return None
    if not _venv_install(WHEELS, "NVIDIA's compiler (about 1 GB)"):
        return None
    for root in paths.VENV.glob("lib/python3*/site-packages/nvidia/cu13"):
        # The packages hold libcublas.so.13 alone; a linker looks for libcublas.so.
        for library in (root / "lib").glob("lib*.so.*"):
            link = library.with_name(library.name.split(".so.")[0] + ".so")
            if not link.exists():
                link.symlink_to(library.name)
        if not (root / "lib64").exists():
            (root / "lib64").symlink_to("lib")
    return device.toolkit()[0]
