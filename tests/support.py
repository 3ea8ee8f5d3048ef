"""A ladder of its own for a test: a root with small steps, stand-ins for the programs, for nvcc and
for nvidia-smi, so that every path of the front door runs on a machine without a GPU."""
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

KERNEL = """// {id}: the idea of {id}.
// base: {base}
// arch: {arch}
// unit: {unit}
#include "common/step.h"
namespace {{
constexpr int BLOCK_M = 64;
constexpr int BLOCK_K = 16;  // K of a tile
}}
"""
STEPS = [("01_naive", "none", "75+", "ffma"), ("02_coalesced", "01_naive", "75+", "ffma"),
         ("03_smem_tile", "02_coalesced", "75+", "ffma"),
         ("10_double_buffer", "03_smem_tile", "80+", "mma_sync"),
         ("17_wgmma", "10_double_buffer", "90a", "wgmma")]
GPU = "0, Fake GPU, GPU-fake-{uuid}, {cap}, 580.00, 24000"


class Sandbox(unittest.TestCase):
    """`self.ladder("run", "06")` runs the front door in a temporary root."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="ladder-test-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.env = {**os.environ, "LADDER_ROOT": str(self.root), "LADDER_NO_INSTALL": "1",
                    "PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
        for name in ("CUDA_VISIBLE_DEVICES", "LADDER_BIN", "LADDER_NVIDIA_SMI"):
            self.env.pop(name, None)
        for step, base, arch, unit in STEPS:
            self.add_step(step, base, arch, unit)
        (self.root / "plots" / "results").mkdir(parents=True)
        self.no_gpu()

    def add_step(self, step, base="none", arch="75+", unit="ffma"):
        folder = self.root / "steps" / step
        folder.mkdir(parents=True)
        (folder / "kernel.cu").write_text(KERNEL.format(id=step, base=base, arch=arch, unit=unit))

    def script(self, name, text):
        path = self.root / "fake" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def no_gpu(self):
        self.env["LADDER_NVIDIA_SMI"] = str(self.script(
            "nvidia-smi", "#!/bin/sh\necho 'No devices were found'; exit 6\n"))

    def fake_gpu(self, cap="9.0"):
        """A machine with a GPU, a toolkit and programs that answer like real ones."""
        line = GPU.format(uuid=self.root.name, cap=cap)
        self.env["LADDER_NVIDIA_SMI"] = str(self.script(
            "nvidia-smi", f"#!/bin/sh\ncase \"$1\" in --query*) echo '{line}';; "
            "*) echo '| CUDA Version: 13.0 |';; esac\n"))
        self.script("nvcc",
                    "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.1'\n")
        home = self.root / "cuda" / "bin"
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.root / "fake" / "nvcc", home / "nvcc")
        self.env["CUDA_HOME"] = str(self.root / "cuda")
        self.fake_programs()

    def fake_programs(self):
        programs = self.root / "bin"
        programs.mkdir(exist_ok=True)
        for folder in (self.root / "steps").iterdir():
            program = programs / folder.name
            program.write_text(f"#!/bin/sh\nexec {sys.executable} "
                               f"{ROOT / 'tests' / 'fake_program.py'} {folder.name} \"$@\"\n")
            program.chmod(0o755)
        self.env["LADDER_BIN"] = str(programs)

    def behave(self, step, how):
        self.env[f"FAKE_{step}"] = how

    def command(self, *arguments):
        return [sys.executable, str(ROOT / "ladder"), *map(str, arguments)]

    def ladder(self, *arguments, timeout=60):
        return subprocess.run(self.command(*arguments), cwd=self.root, env=self.env, text=True,
                              capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL)

    def assert_one_line_error(self, done, *words):
        """Exit code not 0, one line on stderr that holds the words, nothing of Python."""
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("error: "), done.stderr)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertNotIn("Traceback", done.stdout + done.stderr)
