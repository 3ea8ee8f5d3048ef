"""Set-up: says what is missing, installs what it may, and the second time does nothing."""
import json
import os
import resource
import shutil
import unittest

from support import Sandbox


class Setup(Sandbox):
    def tools(self, *without, **scripts):
        """A PATH with just these programs; `scripts` are stand-ins."""
        folder = self.root / "path"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in ("sh", "cmake", "ninja", "g++", "python3", "cat", "env", "as", "ld"):
            if name not in without and (found := shutil.which(name)):
                (folder / name).symlink_to(found)
        for name, text in scripts.items():
            path = self.script(name.replace("_", "-"), "#!/bin/sh\n" + text)
            (folder / path.name).symlink_to(path)
        self.env["PATH"] = str(folder)
        self.env["LADDER_USR_LOCAL"] = str(self.root / "nothing")
        self.env.pop("CUDA_HOME", None)
        self.fake_programs()

    def run_emulated(self):
        return self.ladder("run", "01", "--device", "emulated", "--no-plots")

    def stamp(self):
        return json.loads((self.root / "build" / "setup.json").read_text())

    def test_complete_machine_says_nothing(self):
        self.tools()
        done = self.run_emulated()
        self.assertEqual(done.returncode, 0, done.stderr)
        if not self.stamp()["missing"]:
            self.assertEqual(done.stderr, "")

    def test_second_start_is_quick_and_asks_nothing_again(self):
        self.tools()
        self.run_emulated()
        first = (self.root / "build" / "setup.json").stat().st_mtime_ns
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.run_emulated()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # not wall time: a machine is shared
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)
        self.assertEqual(done.returncode, 0)
        self.assertEqual((self.root / "build" / "setup.json").stat().st_mtime_ns, first)

    def test_missing_and_not_allowed_to_install(self):
        self.tools("ninja")
        done = self.run_emulated()
        self.assertIn("missing: ninja", done.stderr)
        self.assertIn("apt-get install ninja-build", done.stderr)
        self.env.pop("LADDER_BIN")
        done = self.run_emulated()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("error: ninja missing", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_headers_without_their_library_are_missing(self):
        real = shutil.which("g++")
        self.tools("g++", **{"g++": f"""case " $* " in *" -lboost_context "*) exit 1;; esac
exec {real} "$@"
"""})
        done = self.run_emulated()
        self.assertIn("Boost.Context", done.stderr)
        self.assertIn("Boost.Context", self.stamp()["missing"])

    @unittest.skipUnless(os.geteuid() == 0, "apt-get is called as root only")
    def test_installs_with_apt_and_goes_on(self):
        ninja = shutil.which("ninja")
        log = self.root / "apt.log"
        self.tools("ninja", apt_get=f'echo "$@" >> {log}\ncase "$*" in *ninja-build*) '
                   f'/bin/ln -sf {ninja} {self.root}/path/ninja;; esac\n')
        self.env.pop("LADDER_NO_INSTALL")
        done = self.run_emulated()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("installing ninja-build", done.stderr)
        self.assertIn("install --no-install-recommends ninja-build", log.read_text())
        self.assertNotIn("ninja", self.stamp()["missing"])
        lines = len(log.read_text().splitlines())
        self.run_emulated()
        self.assertEqual(len(log.read_text().splitlines()), lines, "installed again")

    @unittest.skipUnless(os.geteuid() == 0, "apt-get is called as root only")
    def test_without_network_it_says_what_is_left_out(self):
        self.tools("ninja", apt_get="exit 100\n")
        self.env.pop("LADDER_NO_INSTALL")
        done = self.run_emulated()
        self.assertIn("left out: building anything (ninja is missing", done.stderr)

    def test_changed_machine_is_looked_at_again(self):
        self.tools()
        self.run_emulated()
        key = self.stamp()["key"]
        self.fake_gpu()
        self.ladder("run", "01", "--no-plots")
        self.assertNotEqual(self.stamp()["key"], key)
        self.assertEqual(self.stamp()["nvcc"], str(self.root / "cuda/bin/nvcc"))

    def test_toolkit_too_new_for_the_driver(self):
        self.fake_gpu()
        self.script("nvidia-smi", (self.root / "fake/nvidia-smi").read_text().replace(
            "CUDA Version: 13.0", "CUDA Version: 12.4"))
        self.env["LADDER_USR_LOCAL"] = str(self.root / "nothing")
        self.env["PATH"] = os.pathsep.join(p for p in self.env["PATH"].split(os.pathsep)
                                           if not os.path.exists(os.path.join(p, "nvcc")))
        self.assert_one_line_error(self.ladder("bench", "01"), "CUDA 12.x at most", "13.0")


if __name__ == "__main__":
    unittest.main()
