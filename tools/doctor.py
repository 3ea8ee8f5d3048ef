"""Look at the machine: what works, what does not, the remedy.

  ./ladder doctor

One line each: state, what it means, the remedy. Driver and toolkit, the GPU and the steps it runs,
a small kernel compiled and run, permission to profile, MIG, ECC, power and clocks, other processes,
WSL and containers; where the driver does not load, kernel headers, DKMS and Secure Boot; compiler,
Python, disk. Exit code 1 when something stands in the way of a run.
"""
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .lib import device, options, paths, setup, steps, term

OK, NOTE, BAD = "ok", "note", "BAD"
COLOURS = {OK: term.GREEN, NOTE: term.YELLOW, BAD: term.RED}

KERNEL = """
#include <cstdio>
__global__ void answer(int* x) { *x = 42; }
int main() {
  int *x, host = 0;
  cudaError_t e = cudaMalloc(&x, sizeof(int));
  if (e == cudaSuccess) answer<<<1, 1>>>(x), e = cudaGetLastError();
  if (e == cudaSuccess) e = cudaMemcpy(&host, x, sizeof(int), cudaMemcpyDeviceToHost);
  if (e != cudaSuccess) { puts(cudaGetErrorString(e)); return 1; }
  return host == 42 ? 0 : 1;
}
"""


class Machine:
    """All that is asked of the machine goes through here, so that tests can be any machine."""

    def run(self, *command, limit=60):
        """(exit code, output); 127 where there is no such program."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit,
                                  stdin=subprocess.DEVNULL, errors="replace")
        except FileNotFoundError:
            return 127, ""
        except (OSError, subprocess.TimeoutExpired) as error:
            return 126, str(error)
        return done.returncode, (done.stdout + done.stderr).strip()

    def smi(self, *arguments):
        out, problem = device.smi(*arguments)
        return out.strip(), problem

    def read(self, path):
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return None

    def exists(self, path):
        return Path(path).exists()

    def kernel(self):
        return platform.release()

    def gpus(self):
        return device.gpus()

    def toolkits(self):
        return device.toolkits()

    def toolkit(self):
        return device.toolkit()

    def driver_cuda(self):
        return device.driver_cuda()

    def missing(self):
        return setup.missing_things()

    def free_bytes(self):
        return shutil.disk_usage(paths.ROOT).free


def arguments(parser):
    pass


def main(args):
    bad = False
    for state, subject, words in examine(Machine()):
        bad |= state == BAD
        term.say(f"{term.paint(state.ljust(4), COLOURS[state])} {subject + ':':<16} {words}")
    return 1 if bad else 0


def examine(machine):
    """(state, subject, words) for each thing looked at."""
    yield from system(machine)
    yield from tools(machine)
    gpus, problem = machine.gpus()
    if not gpus:
        yield from no_gpu(machine, problem)
        return
    yield from toolkit(machine)
    for gpu in gpus:
        yield from one_gpu(machine, gpu)
    yield from profiling(machine)


def system(machine):
    version = machine.read("/proc/version") or ""
    if "microsoft" in version.lower():
        yield (NOTE, "WSL", "the driver is the one of Windows: install none in here; clocks and "
               "power can't all be read, and times scatter more")
    inside = machine.exists("/.dockerenv") or machine.exists("/run/.containerenv") or re.search(
        r"docker|containerd|kubepods|lxc", machine.read("/proc/1/cgroup") or "")
    if inside:
        yield (NOTE, "container", "it sees a GPU only when started with it (--gpus all); driver "
               "and profiling permission are the host's")
    free = machine.free_bytes() / 2**30
    yield ((OK if free > 5 else NOTE if free > 1 else BAD), "disk", f"{free:.0f} GiB free" + (
        "" if free > 5 else "; a full build takes 1 GiB, NVIDIA's compiler wheels 3: make room"))


def tools(machine):
    missing = machine.missing()
    yield OK, "Python", sys.version.split()[0]
    for what, without in missing.items():
        needed = without == "building anything"
        yield (BAD if needed else NOTE, what, f"missing, so no {without}: apt-get install "
               f"{setup.package_of(what)}")
    if "g++" not in missing:
        major = int((re.findall(r"\d+", machine.run("g++", "-dumpfullversion")[1]) or ["0"])[0])
        yield ((OK, "g++", str(major)) if 11 <= major <= 14 else
               (NOTE, "g++", f"{major} was not tried; 11 to 13 were: apt-get install g++-12, and "
                "CXX=g++-12"))


def no_gpu(machine, problem):
    if "mismatch" in problem:
        yield (BAD, "driver", f"{problem}: the loaded kernel module is older than the driver's "
               "files; reboot")
        return
    present = re.search(r"NVIDIA", machine.run("lspci")[1])
    loaded = machine.exists("/proc/driver/nvidia/version")
    if machine.exists("/dev/dxg"):
        yield NOTE, "GPU", f"{problem}; under WSL the driver comes from Windows: update it there"
        return
    if not present and not loaded:
        yield (NOTE, "GPU", f"none: {problem}. Everything runs on the emulated device: "
               "./ladder run")
        return
    if loaded:
        yield (BAD, "driver", f"loaded, but {problem}; try as root, or reboot; in a container, "
               "start it with --gpus all")
        return
    yield (BAD, "driver", f"there is an NVIDIA GPU and no driver at work ({problem}): install your "
           "distribution's nvidia-driver package, then reboot")
    if not machine.exists(f"/lib/modules/{machine.kernel()}/build"):
        yield (BAD, "kernel headers", f"not there for {machine.kernel()}, so no module can be "
               f"built: apt-get install linux-headers-{machine.kernel()}")
    code, dkms = machine.run("dkms", "status")
    if code == 0 and "nvidia" in dkms and not re.search(
            rf"nvidia.*{re.escape(machine.kernel())}.*installed", dkms):
        yield (BAD, "DKMS", f"has nvidia, but not for the running kernel {machine.kernel()}: "
               "dkms autoinstall, and read its log when that fails")
    if "enabled" in machine.run("mokutil", "--sb-state")[1]:
        yield (NOTE, "Secure Boot", "is on: the kernel refuses modules that are not signed; enrol "
               "the key (mokutil --import, then reboot) or switch it off in the firmware")


def toolkit(machine):
    limit = machine.driver_cuda()
    best, why = machine.toolkit()
    found = ", ".join(t.text for t in machine.toolkits()) or "none"
    runs = f"the driver runs CUDA up to {limit[0]}.{limit[1]}" if limit else "the driver's CUDA " \
        "version can't be read"
    if best:
        yield OK, "CUDA toolkit", f"{best.text} at {best.nvcc}; {runs}"
    else:
        yield (BAD, "CUDA toolkit", f"{why} (found: {found}; {runs}): install one of 12.3 or "
               "newer, or let ./ladder run fetch NVIDIA's compiler from PyPI (CUDA 13 drivers)")


def one_gpu(machine, gpu):
    known = steps.everything()
    runs = [s for s in known if s.runs_on(gpu.sm)]
    rest = [s for s in known if not s.runs_on(gpu.sm)]
    yield (OK, f"GPU {gpu.index}", f"{gpu.name}, compute capability {steps.dotted(gpu.sm)}, "
           f"{gpu.memory_mib / 1024:.0f} GiB, driver {gpu.driver}; runs "
           f"{options.ranges(runs) or 'none'}"
           + (f", emulated only: {options.ranges(rest)}" if rest else ""))
    best, _ = machine.toolkit()
    if best:
        yield small_kernel(machine, best, gpu)
    fields = "mig.mode.current,ecc.mode.current,power.limit,power.default_limit,clocks.max.sm," \
             "clocks.applications.graphics,temperature.gpu,persistence_mode"
    out, problem = machine.smi(f"--id={gpu.uuid}", f"--query-gpu={fields}",
                               "--format=csv,noheader,nounits")
    if problem:
        yield NOTE, "settings", problem
        return
    cells = [cell.strip() for cell in out.split(",")] + [""] * 8
    mig, ecc, limit, default, _, _, heat, persistence = cells[:8]
    if mig == "Enabled":
        yield (NOTE, "MIG", "is on: a slice of the GPU is measured, percent of peak are of the "
               "whole")
    if ecc == "Enabled":
        yield OK, "ECC", "on, as data-centre GPUs come; costs a little bandwidth on GDDR cards"
    if _number(limit) and _number(default) and _number(limit) < _number(default):
        yield (NOTE, "power limit", f"{limit} W, the card's own is {default} W: sustained numbers "
               "will be lower than others'")
    elif _number(limit):
        yield OK, "power limit", f"{limit} W"
    if _number(heat) and _number(heat) > 80:
        yield NOTE, "temperature", f"{heat} C before any work: clocks may fall; look at the cooling"
    if persistence == "Disabled":
        yield (NOTE, "persistence", "off: the driver loads anew for each process, about a second "
               "each; as root: nvidia-smi -pm 1")
    out, problem = machine.smi(f"--id={gpu.uuid}", "--query-compute-apps=pid,process_name",
                               "--format=csv,noheader")
    others = [line for line in out.splitlines() if line.strip()] if not problem else []
    if others:
        yield (NOTE, "other work", f"{len(others)} other processes on this GPU ({others[0]}"
               f"{' ...' if len(others) > 1 else ''}): times will be wrong while they compute")
    else:
        yield OK, "other work", "none on this GPU"


def small_kernel(machine, best, gpu):
    arch = "90a" if gpu.sm == 90 else str(gpu.sm)
    with tempfile.TemporaryDirectory(prefix="ladder-doctor-") as folder:
        source = Path(folder) / "answer.cu"
        source.write_text(KERNEL)
        code, words = machine.run(best.nvcc, f"-arch=sm_{arch}", str(source), "-o",
                                  str(source.with_suffix("")), limit=120)
        if code:
            last = term.clip(words.splitlines()[0] if words else "no word why", 200)
            unknown = re.search("Unsupported gpu arch|is not defined for option", words)
            remedy = "a newer toolkit knows this GPU" if unknown else \
                "see whether this g++ suits this nvcc"
            return BAD, "small kernel", f"does not compile: {last}; {remedy}"
        code, words = machine.run(str(source.with_suffix("")), limit=60)
    if code:
        return (BAD, "small kernel", f"compiles but does not run: {term.clip(words, 200)}; "
                "a toolkit newer than the driver, or a GPU in a bad state (nvidia-smi -q)")
    return OK, "small kernel", "compiles and runs"


def profiling(machine):
    params = machine.read("/proc/driver/nvidia/params")
    if params and re.search(r"RmProfilingAdminOnly: 1", params) and os.geteuid() != 0:
        yield (NOTE, "profiling", "ncu needs root here (ERR_NVGPUCTRPERM): sudo, or the option "
               "NVreg_RestrictProfilingToAdminUsers=0 for the nvidia module; ./ladder needs none")
    elif params:
        yield OK, "profiling", "allowed"
    else:
        yield NOTE, "profiling", "can't be told here; ncu will say ERR_NVGPUCTRPERM where it is not"


def _number(text):
    try:
        return float(text)
    except ValueError:
        return None
