"""export: one file, CUDA's branch only, nothing of the ladder left to include."""
import re
import unittest

from support import ROOT, Sandbox
from tools import export
from tools.lib import inline, steps

BACKENDS = """\
#pragma once
#if defined(LADDER_EMULATED)
#include "common/emulated.h"
#elif defined(LADDER_TRACE)
int trace;
#elif defined(__CUDACC__)
int cuda;
#else
int none;
#endif
#if __CUDA_ARCH__ >= 900
int hopper;
#else
int before;
#endif
"""
WRAPPERS = """\
namespace ptx {
// ---- used ------------
/// Used.
template <int N>
PTX_FN void used(int x) {
  if (x) { helper(); }
}
PTX_FN int helper() { return 1; }
// ---- unused ----------
/// Not used "{".
PTX_FN void unused() { asm volatile("{ .reg .b32 x;" ::); }
}  // namespace ptx
"""


class Inline(Sandbox):
    def test_branches(self):
        file = self.root / "a.h"
        file.write_text(BACKENDS)
        _, (text,) = inline.flatten(file)
        self.assertEqual(text, "int cuda;\n#if __CUDA_ARCH__ >= 900\nint hopper;\n#else\n"
                               "int before;\n#endif\n")

    def test_each_header_once(self):
        (self.root / "tile.h").write_text("#pragma once\n#include <vector>\nint tile;\n")
        kernel = self.root / "kernel.cu"
        kernel.write_text('#include "tile.h"\n#include "tile.h"\nint kernel;\n')
        system, (text,) = inline.flatten(kernel)
        self.assertEqual((system, text), (["<vector>"], "int tile;\nint kernel;\n"))

    def test_unused_functions_go(self):
        text = inline.drop_unused(WRAPPERS, "ptx::used<3>(1);")
        self.assertIn("/// Used.\ntemplate <int N>\nPTX_FN void used", text)
        self.assertIn("helper", text)
        self.assertNotIn("unused", text)
        self.assertIn("}  // namespace ptx", text)


class RealExports(unittest.TestCase):
    def test_self_contained(self):
        for step in steps.everything(ROOT / "steps", variants=True):
            with self.subTest(step.id):
                text = export.export(step, "x.cu", int(step.arch[:2]))
                self.assertEqual(re.findall(r'#include "', text), [])
                self.assertNotRegex(text, "LADDER_(?!GEMM_)")  # but for what a user may set
                self.assertNotIn("#pragma once", text)
                self.assertRegex(export.build_line(text),
                                 r"^nvcc -std=c\+\+17 -O3 "
                                 r"-gencode arch=compute_\d+a?,code=sm_\d+a? x\.cu -o x$")
                # Its headers come before what is its own.
                own = re.split(r'#include ".*"\n', step.kernel.read_text())
                self.assertIn(own[-1].strip(), text)


class Command(Sandbox):
    def test_wrong_arch(self):
        self.assert_one_line_error(self.ladder("export", "17", "--arch", "80"), "9.0")
        self.assert_one_line_error(self.ladder("export", "17", "--arch", "x"), "--arch")
        self.assert_one_line_error(self.ladder("export", "01-03"), "3 steps")


if __name__ == "__main__":
    unittest.main()
