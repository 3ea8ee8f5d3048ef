"""What this machine has: GPUs and their driver, CUDA toolkits."""
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .term import UserError

MIN_TOOLKIT = (12, 3)


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    uuid: str
    sm: int  # 90 for compute capability 9.0
    driver: str
    memory_mib: int


@dataclass(frozen=True)
class Toolkit:
    nvcc: str
    version: tuple

    @property
    def text(self):
        return ".".join(map(str, self.version))


def smi(*arguments):
    """(output, "") of nvidia-smi, or ("", why not)."""
    program = os.environ.get("LADDER_NVIDIA_SMI") or shutil.which("nvidia-smi")
    if not program:
        return "", "nvidia-smi is not there, so no NVIDIA driver is installed"
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=30,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"nvidia-smi: {error}"
    lines = (done.stdout + done.stderr).strip().splitlines()
    if done.returncode or not lines or "No devices" in lines[0]:
        return "", "nvidia-smi says: " + (lines[0] if lines else "nothing")
    return done.stdout, ""


_gpus = None


def gpus():
    """(the GPUs that may be used, why there are none). CUDA_VISIBLE_DEVICES is heeded."""
    global _gpus
    if _gpus is None:
        _gpus = _find_gpus()
    return _gpus


def _find_gpus():
    fields = "index,name,uuid,compute_cap,driver_version,memory.total"
    out, problem = smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    if problem:
        return [], problem
    found = []
    for line in out.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 6 and re.fullmatch(r"\d+\.\d+", cells[3]):
            memory = int(cells[5]) if cells[5].isdigit() else 0
            found.append(Gpu(int(cells[0]), cells[1], cells[2], int(cells[3].replace(".", "")),
                             cells[4], memory))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        wanted = []
        for word in visible.split(","):
            hit = [g for g in found if word in (str(g.index), g.uuid) or
                   (word.startswith("GPU-") and g.uuid.startswith(word))]
            if not hit:
                break  # as CUDA does: what follows an unknown one does not count
            wanted += hit
        if found and not wanted and not visible.startswith("MIG-"):
            return [], f"CUDA_VISIBLE_DEVICES is '{visible}', which hides every GPU"
        found = wanted or found
    return found, "" if found else "nvidia-smi lists no GPU"


def driver_cuda():
    """The newest CUDA the driver can run, (13, 0), or None."""
    out, _ = smi()
    found = re.search(r"CUDA Version:\s*(\d+)\.(\d+)", out)
    return (int(found[1]), int(found[2])) if found else None


def toolkits():
    """Every CUDA toolkit found, in the order of preference."""
    candidates = []
    for variable in ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"):
        if os.environ.get(variable):
            candidates.append(Path(os.environ[variable]) / "bin" / "nvcc")
    if on_path := shutil.which("nvcc"):
        candidates.append(Path(on_path))
    local = Path(os.environ.get("LADDER_USR_LOCAL", "/usr/local"))  # another place in tests
    candidates.append(local / "cuda/bin/nvcc")
    versioned = local.glob("cuda-*/bin/nvcc")
    candidates += sorted(versioned, key=lambda p: [int(x) for x in re.findall(r"\d+", str(p))],
                         reverse=True)
    candidates += sorted(paths.VENV.glob("lib/python3*/site-packages/nvidia/cu*/bin/nvcc"))
    found, seen = [], set()
    for nvcc in candidates:
        if nvcc.is_file() and nvcc.resolve() not in seen:
            seen.add(nvcc.resolve())
            if version := _nvcc_version(nvcc):
                found.append(Toolkit(str(nvcc), version))
    return found


def _nvcc_version(nvcc):
    try:
        out = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"release (\d+)\.(\d+)", out)
    return (int(found[1]), int(found[2])) if found else None


def toolkit():
    """(the toolkit to use or None, one line about it)."""
    found = toolkits()
    fit = [t for t in found if t.version >= MIN_TOOLKIT]
    if not fit:
        have = f"the newest found is {max(t.version for t in found)}" if found else "none was found"
        return None, f"needs a CUDA toolkit 12.3 or newer, {have}"
    if limit := driver_cuda():
        # Within a major version any toolkit works with any driver; across majors none does.
        runs = [t for t in fit if t.version[0] <= limit[0]]
        if not runs:
            return None, (f"the driver runs CUDA {limit[0]}.x at most, the toolkit is "
                          f"{fit[0].text}: install a CUDA {limit[0]} toolkit or a newer driver")
        fit = runs
    return fit[0], ""


def no_gpu_error(problem):
    return UserError(f"no GPU can be used here ({problem}); "
                     "./ladder run --device emulated needs none")
