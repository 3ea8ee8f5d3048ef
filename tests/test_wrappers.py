"""Every PTX wrapper exists on both devices and is called by a test of the emulated one."""
import re
import unittest

from support import ROOT
from tools.lib import sass

PTX = ROOT / "common" / "ptx"


class Wrappers(unittest.TestCase):
    def setUp(self):
        self.cuda = set(sass.wrappers())
        self.assertGreater(len(self.cuda), 45)

    def test_those_that_macros_make(self):
        made = {n for n in self.cuda if n.startswith("wgmma_m64n")}
        self.assertIn("wgmma_m64n256k16_f16", made)
        self.assertEqual({n.replace("_f16", "_bf16") for n in made if n.endswith("_f16")},
                         {n for n in made if n.endswith("_bf16")})

    def test_both_devices_have_them(self):
        text = re.sub(r"//.*", "", (PTX / "emulated.h").read_text())
        text += sass.expanded(PTX / "emulated_wgmma.h")
        emulated = set(re.findall(r"(?:inline|void|bool|int|uint32_t)[\s\w*]*?\b(\w+)\(", text))
        self.assertEqual(sorted(self.cuda - emulated), [])

    def test_each_is_called_by_a_test(self):
        tests = "".join(f.read_text() for f in (ROOT / "tests").glob("emulator_*.cpp"))
        tests += (ROOT / "tests" / "agreement.cu").read_text()
        tests = re.sub(r"//.*", "", tests)  # a name in a comment is no call
        missing = [n for n in sorted(self.cuda) if not re.search(r"\b" + n + r"\b", tests)]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
