"""One process per GPU, without a GPU: start, messages, and what happens when a rank dies."""
import os
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from support import ROOT

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
PREFIXES = ("OMPI_", "PMI_", "SLURM_", "LADDER_", "MPI_", "TORCHELASTIC_")


def clean():
    return {k: v for k, v in os.environ.items() if k not in NAMES and not k.startswith(PREFIXES)}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Ranks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="ladder-ranks-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.program = Path(cls.folder.name) / "ranks"
        subprocess.run(["g++", "-std=c++17", "-O1", "-I", ROOT, "-o", cls.program,
                        ROOT / "tests/ranks_program.cpp", ROOT / "common/harness/ranks.cpp",
                        ROOT / "common/harness/text.cpp", *EXTRA, "-pthread"], check=True)

    def launch(self, *words, ranks=3, limit=30, patience=20):
        started = time.monotonic()
        done = subprocess.run([self.program, f"ranks={ranks}", f"limit={limit}",
                               f"patience={patience}", *words], text=True, capture_output=True,
                              timeout=60, env=clean(), stdin=subprocess.DEVNULL)
        self.seconds = time.monotonic() - started
        return done

    def assert_ended(self, done, code, *words, within=5):
        self.assertEqual(done.returncode, code, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("error: test: "), lines[0])
        for word in words:
            self.assertIn(word, lines[0])
        self.assertLess(self.seconds, within)

    def test_all_is_well(self):
        for ranks in (1, 2, 5):
            for late in ("late=0", "late=1"):  # who leaves last is not missed
                with self.subTest(ranks=ranks, late=late):
                    done = self.launch(late, ranks=ranks)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    most = "7.5" if ranks > 1 else "0"
                    self.assertEqual(done.stdout, f"sum {ranks * (ranks + 1) // 2} max {most}\n")
                    self.assertEqual(done.stderr, "")

    def test_a_rank_dies(self):
        for rank in (0, 1, 2):
            with self.subTest(rank):
                self.assert_ended(self.launch(f"dies={rank}"), 137,
                                  f"rank {rank} died (Killed), the other ranks were ended")

    def test_others_are_stuck_in_the_driver(self):
        for rank in (0, 2):
            with self.subTest(rank):
                self.assert_ended(self.launch(f"dies={rank}", "stuck=1"), 137, f"rank {rank} died")

    def test_a_rank_crashes(self):
        self.assert_ended(self.launch("crashes=2"), 139, "rank 2 died (Segmentation fault)")

    def test_a_rank_fails(self):
        self.assert_ended(self.launch("fails=1", "stuck=1"), 3, "out of memory")

    def test_dies_before_it_connects(self):
        for rank in (0, 1):
            with self.subTest(rank):
                self.assert_ended(self.launch(f"dies_before={rank}"), 137, f"rank {rank} died")

    def test_a_rank_hangs(self):
        self.assert_ended(self.launch("hangs=1", patience=2), 3,
                          "rank 0: rank 1 lives but has not answered for 2 s", within=8)

    def test_all_hang(self):
        self.assert_ended(self.launch("stuck=1", patience=600, limit=2), 3,
                          "no end after 2 s: 3 ranks were ended", within=6)

    def test_nothing_comes_to_an_end(self):
        self.assert_ended(self.launch("stuck=1", patience=2), 3,
                          "rank 0: nothing has come to an end for 4 s", within=10)

    def test_trouble(self):
        self.assert_ended(self.launch("trouble=1", "stuck=1"), 3, "rank 1: the network is down")

    def test_elsewhere(self):
        self.assert_ended(self.launch("elsewhere=1", ranks=2), 4, "lost another rank")

    def test_all_wrong(self):
        done = self.launch("wrong=1")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "")

    def test_launcher_killed(self):
        started = subprocess.Popen([self.program, "ranks=2", "limit=99", "patience=99", "stuck=1"],
                                   env=clean(), stdout=subprocess.PIPE, text=True)
        self.assertEqual(started.stdout.readline(), "sum 3 max 7.5\n")
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()
        self.assertEqual(len(children), 2)
        started.kill()
        started.wait()
        started.stdout.read()  # ends when the last rank that holds it has ended
        started.stdout.close()
        for child in children:
            self.assertFalse(Path(f"/proc/{child}/cmdline").exists()
                             and Path(f"/proc/{child}/cmdline").read_bytes())

    # ---- started by others -----------------------------------------------------------------------

    def start(self, variables, *words, patience=20):
        return subprocess.Popen([self.program, f"patience={patience}", *words], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**clean(), **{k: str(v) for k, v in variables.items()}})

    def ends(self, processes):
        return [(p.returncode, out, err) for p, (out, err) in
                [(p, p.communicate(timeout=40)) for p in processes]]

    def test_torchrun_mpirun_and_others(self):
        kinds = [lambda r: {"RANK": r, "WORLD_SIZE": 2, "LOCAL_RANK": r},
                 lambda r: {"OMPI_COMM_WORLD_RANK": r, "OMPI_COMM_WORLD_SIZE": 2,
                            "OMPI_COMM_WORLD_LOCAL_RANK": r, "OMPI_COMM_WORLD_LOCAL_SIZE": 2},
                 lambda r: {"PMI_RANK": r, "PMI_SIZE": 2},
                 lambda r: {"SLURM_PROCID": r, "SLURM_NTASKS": 2, "SLURM_LOCALID": 0}]
        for i, kind in enumerate(kinds):
            with self.subTest(i):
                at = {"MASTER_ADDR": "localhost", "MASTER_PORT": free_port()}
                found = self.ends([self.start({**kind(r), **at}) for r in (1, 0)])
                self.assertEqual([f[0] for f in found], [0, 0], found)
                self.assertEqual(found[1][1], "sum 3 max 7.5\n")

    def test_torchrun_listens_on_its_own_port(self):
        with socket.socket() as agent:
            agent.bind(("127.0.0.1", 0))
            agent.listen()
            at = {"WORLD_SIZE": 2, "MASTER_PORT": agent.getsockname()[1],
                  "TORCHELASTIC_USE_AGENT_STORE": "True"}
            found = self.ends([self.start({**at, "RANK": r}) for r in range(2)])
        self.assertEqual([f[0] for f in found], [0, 0], found)

    def test_without_our_launcher_survivors_say_so(self):
        at = {"WORLD_SIZE": 3, "MASTER_PORT": free_port()}
        found = self.ends([self.start({**at, "RANK": r}, "dies=2", "stuck=1") for r in range(3)])
        self.assertEqual([f[0] for f in found], [4, 4, -9])
        self.assertIn("rank 0: rank 2 is gone", found[0][2])
        self.assertIn("rank 1: rank 0 is gone", found[1][2])

    def test_one_never_comes(self):
        at = {"WORLD_SIZE": 3, "MASTER_PORT": free_port()}
        found = self.ends([self.start({**at, "RANK": r}, patience=2) for r in (0, 2)])
        self.assertIn("1 of 3 ranks did not come within 2 s, first rank 1", found[0][2])
        self.assertEqual(found[0][0], 3)
        self.assertNotEqual(found[1][0], 0)
        alone = self.ends([self.start({**at, "RANK": 1}, patience=1)])
        self.assertIn("no rank 0 at 127.0.0.1:", alone[0][2])

    def test_a_stranger_on_the_port(self):
        port = free_port()
        at = {"WORLD_SIZE": 2, "MASTER_PORT": port}
        first = self.start({**at, "RANK": 0})
        for _ in range(50):
            try:
                stranger = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.1)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        found = self.ends([first, self.start({**at, "RANK": 1})])
        stranger.close()
        self.assertEqual([f[0] for f in found], [0, 0], found)

    def test_variables_that_contradict(self):
        for variables, words in [
                ({"RANK": 1}, "RANK without WORLD_SIZE"),
                ({"WORLD_SIZE": 2}, "WORLD_SIZE without RANK"),
                ({"RANK": 2, "WORLD_SIZE": 2}, "ranks count from 0"),
                ({"RANK": "x", "WORLD_SIZE": 2}, "'x'"),
                ({"RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": "no"}, "MASTER_PORT is 'no'"),
                ({"OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 4,
                  "OMPI_COMM_WORLD_LOCAL_RANK": 0, "OMPI_COMM_WORLD_LOCAL_SIZE": 2},
                 "need MASTER_ADDR"),
                ({"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1}, "need MASTER_ADDR")]:
            with self.subTest(words):
                code, _, err = self.ends([self.start(variables)])[0]
                self.assertEqual(code, 2)
                self.assertEqual(len(err.splitlines()), 1)
                self.assertIn(words, err)

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("0.0.0.0", 0))
            taken.listen()
            at = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_PORT": taken.getsockname()[1]}
            code, _, err = self.ends([self.start(at)])[0]
        self.assertEqual(code, 2)
        self.assertIn("set MASTER_PORT to a free one", err)


EXTRA = [ROOT / "common/harness/kind.cpp"] if (ROOT / "common/harness/kind.cpp").exists() else []

if __name__ == "__main__":
    unittest.main()
