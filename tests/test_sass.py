"""The comparison of machine code with source can fail: dumps doctored in every way it must see."""
import re
import unittest

import support  # noqa: F401  (makes tools importable)
from tools.lib import sass, steps


def dump(patterns):
    """A dump of cuobjdump -sass that holds one instruction for each pattern, and a few others."""
    words = [re.sub(r"\(\?![^)]*\)|\\b|(?<=G)\?", "", p).replace("\\", "") for p in patterns]
    return "\n".join(f"        /*{16 * i:04x}*/  {'@P0 ' * (i % 2)}{word} R0, R1 ;"
                     f"  /* 0x{i:016x} */" for i, word in enumerate(["MOV", *words, "EXIT"]))


class Sass(unittest.TestCase):
    def setUp(self):
        self.bodies = sass.wrappers()
        self.known = {s.id: s for s in steps.everything(variants=False)}

    def asked(self, number, sm=90):
        step = next(s for s in self.known.values() if s.number == number)
        return sass.asked_for(sass.source(step.kernel), self.bodies, sm)

    def test_what_the_steps_ask_for(self):
        asked = {n: " ".join(self.asked(n)) for n in (6, 9, 14, 16, 17, 20, 22, 23)}
        self.assertEqual(asked[6], "")
        for number, parts in ((9, "LDGSTS LDGDEPBAR DEPBAR LDSM HMMA"), (14, "HMMA MT88"),
                              (16, "HMMA UTMALDG.2D SYNCS.PHASECHK"), (17, "HGMMA.64x128x16"),
                              (20, "HGMMA.64x256x16 WARPGROUP.DEPBAR"), (22, "MULTICAST UCGABAR"),
                              (23, "UTMASTG.2D UTMACMDFLUSH STSM")):
            for part in parts.split():
                self.assertIn(part, asked[number].replace("\\", ""), f"step {number}")
        self.assertNotIn("SYNCS", " ".join(self.asked(15, sm=80)))  # mbarriers differ before sm_90

    def test_a_whole_dump_passes(self):
        for step in self.known.values():
            asked = self.asked(step.number)
            self.assertEqual(sass.complaints(dump(asked), asked), [], step.id)

    def test_each_instruction_is_missed(self):
        for number in (9, 15, 16, 19, 23, 25):
            asked = self.asked(number)
            for gone in asked:
                rest = [p for p in asked if p != gone]
                found = sass.complaints(dump(rest), asked)
                self.assertEqual(len(found), 1, f"step {number} without {gone}: {found}")
                self.assertIn("left no", found[0])

    def test_a_multicast_is_not_a_plain_load(self):
        asked = self.asked(22)
        text = dump(asked).replace("UTMALDG.2D ", "UTMALDG.2D.MULTICAST ")
        self.assertEqual(len(sass.complaints(text, asked)), 1)

    def test_another_shape_is_missed(self):
        asked = self.asked(20)
        found = sass.complaints(dump(asked).replace("64x256x16", "64x128x16"), asked)
        self.assertEqual(len(found), 1)

    def test_what_nobody_asked_for(self):
        found = sass.complaints(dump([*self.asked(6), "HMMA.16816.F32"]), self.asked(6))
        self.assertEqual(found, ["HMMA.16816.F32, 1 times, without a call that asks for it"])

    def test_cuda_headers_may_add(self):
        text = dump([*self.asked(6), "LDGSTS.E"])
        self.assertEqual(len(sass.complaints(text, self.asked(6))), 1)
        self.assertEqual(sass.complaints(text, self.asked(6), only_ptx=False), [])

    def test_words_in_comments_do_not_count(self):
        asked = self.asked(17)
        text = dump([p for p in asked if "HGMMA" not in p]) + "\n// HGMMA.64x128x16.F32"
        self.assertEqual(len(sass.complaints(text, asked)), 1)

    def test_descriptors_in_vector_registers(self):
        asked = self.asked(20)
        loop = dump(["R2UR", "R2UR", "HGMMA.64x256x16.F32"] * 4)
        found = sass.complaints(dump(asked) + "\nFunction : loop\n" + loop, asked)
        self.assertEqual(found, ["descriptors are kept in vector registers: 6 R2UR between 4 wgmma"])
        once = dump(["R2UR", "R2UR"] + ["HGMMA.64x256x16.F32"] * 4)
        self.assertEqual(sass.complaints(dump(asked) + "\nFunction : loop\n" + once, asked), [])

    def test_nothing_at_all(self):
        self.assertEqual(sass.complaints("", self.asked(23)), ["no machine code in it"])


if __name__ == "__main__":
    unittest.main()
