"""doctor on machines of all kinds, faked: each state has its line and its remedy."""
import unittest

from support import Sandbox
from tools import doctor
from tools.lib.device import Gpu, Toolkit


class Fake(doctor.Machine):
    """A sound machine; a test changes what it is about."""

    def __init__(self, **changes):
        self.files = {"/proc/version": "Linux version 6.1", "/proc/1/cgroup": "0::/",
                      "/proc/driver/nvidia/version": "NVRM", "/proc/driver/nvidia/params":
                      "RmProfilingAdminOnly: 0"}
        self.answers = {"g++": (0, "12.2.0"), "nvcc": (0, ""), "answer": (0, ""),
                        "lspci": (0, "01:00.0 3D controller: NVIDIA H200"), "dkms": (127, ""),
                        "mokutil": (0, "SecureBoot disabled")}
        self.present = {"/lib/modules/6.1.0/build"}
        self.gpu = Gpu(0, "NVIDIA H200", "GPU-1", 90, "580.1", 143771)
        self.problem = ""
        self.settings = "Disabled, Enabled, 700.00, 700.00, 1980, 1980, 35, Enabled"
        self.apps, self.cuda, self.kit = "", (13, 0), Toolkit("/usr/local/cuda/bin/nvcc", (13, 0))
        self.why, self.gone, self.free = "", {}, 100 << 30
        for name, value in changes.items():
            setattr(self, name, value)

    def run(self, *command, limit=60):
        return self.answers.get(command[0].rsplit("/", 1)[-1], (127, ""))

    def smi(self, *arguments):
        return (self.apps if "compute-apps" in arguments[1] else self.settings), ""

    def read(self, path):
        return self.files.get(path)

    def exists(self, path):
        return path in self.present or path in self.files

    def kernel(self):
        return "6.1.0"

    def gpus(self):
        return ([self.gpu], "") if self.gpu else ([], self.problem)

    def toolkits(self):
        return [self.kit] if self.kit else []

    def toolkit(self):
        return (None, self.why) if self.why else (self.kit, "")

    def driver_cuda(self):
        return self.cuda

    def missing(self):
        return self.gone

    def free_bytes(self):
        return self.free


class States(unittest.TestCase):
    def examine(self, **changes):
        return list(doctor.examine(Fake(**changes)))

    def line(self, subject, **changes):
        found = [(state, words) for state, name, words in self.examine(**changes)
                 if name == subject]
        self.assertEqual(len(found), 1, f"{subject}: {self.examine(**changes)}")
        return found[0]

    def test_sound_machine(self):
        self.assertEqual({state for state, _, _ in self.examine()}, {doctor.OK})
        self.assertIn("runs 01-", self.line("GPU 0")[1])
        self.assertEqual(self.line("small kernel"), (doctor.OK, "compiles and runs"))

    def test_every_line_is_one_line(self):
        for _, subject, words in self.examine():
            self.assertNotIn("\n", subject + words)

    def test_no_gpu(self):
        state, words = self.line("GPU", gpu=None, problem="nvidia-smi is not there", files={},
                                 answers={"g++": (0, "12.2.0")})
        self.assertEqual(state, doctor.NOTE)
        self.assertIn("emulated", words)

    def test_driver_that_does_not_load(self):
        states = dict(gpu=None, problem="nvidia-smi says: couldn't communicate", files={},
                      present=set())
        self.assertIn("reboot", self.line("driver", **states)[1])
        self.assertIn("linux-headers-6.1.0", self.line("kernel headers", **states)[1])
        answers = {**Fake().answers, "dkms": (0, "nvidia/580.1, 6.0.0, x86_64: installed"),
                   "mokutil": (0, "SecureBoot enabled")}
        self.assertIn("dkms autoinstall", self.line("DKMS", answers=answers, **states)[1])
        self.assertIn("mokutil --import", self.line("Secure Boot", answers=answers, **states)[1])

    def test_driver_mismatch(self):
        state, words = self.line("driver", gpu=None, problem="nvidia-smi says: Failed to "
                                 "initialize NVML: Driver/library version mismatch")
        self.assertEqual(state, doctor.BAD)
        self.assertIn("reboot", words)

    def test_toolkit(self):
        self.assertEqual(self.line("CUDA toolkit", why="needs a CUDA toolkit 12.3 or newer, none "
                                   "was found", kit=None)[0], doctor.BAD)
        state, words = self.line("CUDA toolkit", cuda=(12, 4),
                                 why="the driver runs CUDA 12.x at most")
        self.assertEqual(state, doctor.BAD)
        self.assertIn("12.4", words)

    def test_small_kernel(self):
        for answers, words in (({"nvcc": (1, "nvcc fatal: Unsupported gpu architecture 'sm_120'")},
                                "newer toolkit"),
                               ({"nvcc": (1, "unsupported GNU version")}, "g++"),
                               ({"answer": (1, "CUDA driver version is insufficient")}, "driver")):
            state, line = self.line("small kernel", answers={**Fake().answers, **answers})
            self.assertEqual(state, doctor.BAD)
            self.assertIn(words, line)

    def test_settings(self):
        settings = "Enabled, Enabled, 400.00, 700.00, 1980, 1980, 85, Disabled"
        self.assertIn("slice", self.line("MIG", settings=settings)[1])
        self.assertIn("400", self.line("power limit", settings=settings)[1])
        self.assertIn("cooling", self.line("temperature", settings=settings)[1])
        self.assertIn("-pm 1", self.line("persistence", settings=settings)[1])
        consumer = "[N/A], [N/A], [N/A], [N/A], 2100, [N/A], 40, Enabled"
        self.assertEqual({s for s, _, _ in self.examine(settings=consumer)}, {doctor.OK})

    def test_other_work_on_the_gpu(self):
        state, words = self.line("other work", apps="123, python\n456, python")
        self.assertEqual(state, doctor.NOTE)
        self.assertIn("2 other processes", words)

    def test_wsl_container_disk_tools(self):
        files = {**Fake().files, "/proc/version": "Linux 5.15-microsoft-standard-WSL2"}
        self.assertIn("Windows", self.line("WSL", files=files)[1])
        self.assertIn("--gpus all", self.line("container", present={"/.dockerenv"})[1])
        self.assertEqual(self.line("disk", free=100)[0], doctor.BAD)
        self.assertIn("ninja-build", self.line("ninja", gone={"ninja": "building anything"})[1])
        old = {**Fake().answers, "g++": (0, "9.4.0")}
        self.assertIn("g++-12", self.line("g++", answers=old)[1])

    def test_older_gpu(self):
        words = self.line("GPU 0", gpu=Gpu(0, "Tesla T4", "GPU-2", 75, "580.1", 15360))[1]
        self.assertIn("emulated only: 07-", words)


class Command(Sandbox):
    def test_on_this_machine(self):
        done = self.ladder("doctor")
        self.assertNotIn("Traceback", done.stderr)
        self.assertIn("Python:", done.stdout)


if __name__ == "__main__":
    unittest.main()
