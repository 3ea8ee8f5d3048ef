"""Every PTX wrapper exists on both devices and is called by a test of the emulated one."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PTX = ROOT / "common" / "ptx"


def names(*headers):
    """Functions of namespace ptx, those made by the wgmma macro included."""
    text = "".join((PTX / header).read_text() for header in headers)
    text = re.sub(r"//.*", "", text)
    made = set()
    for macro, body in re.findall(r"#define (\w+)\(N\)((?:.*\\\n)*.*\n)", text):
        for pattern in re.findall(r"\b(\w+##N##\w+)\(", body):
            made |= {pattern.replace("##N##", n) for n in re.findall(macro + r"\((\d+)\)", text)}
    plain = re.findall(r"(?:PTX_FN|inline|void|bool|int|uint32_t)[\s\w*]*?\b(\w+)\(", text)
    keywords = {"if", "while", "asm", "volatile"}
    return made | {n for n in plain if not n.isupper() and n not in keywords}


class Wrappers(unittest.TestCase):
    def setUp(self):
        self.cuda = {n for n in names("cuda.h", "cuda_wgmma.h")
                     if re.search(r"PTX_FN[^;{}]*\b" + n + r"\(", (PTX / "cuda.h").read_text() +
                                  (PTX / "cuda_wgmma.h").read_text())}
        self.assertGreater(len(self.cuda), 45)

    def test_both_devices_have_them(self):
        emulated = names("emulated.h", "emulated_wgmma.h")
        self.assertEqual(sorted(self.cuda - emulated), [])

    def test_each_is_called_by_a_test(self):
        tests = "".join(f.read_text() for f in (ROOT / "tests").glob("emulator_*.cpp"))
        tests += (ROOT / "tests" / "agreement.cu").read_text()
        tests = re.sub(r"//.*", "", tests)  # a name in a comment is no call
        missing = [n for n in sorted(self.cuda) if not re.search(r"\b" + n + r"\b", tests)]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
