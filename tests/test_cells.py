"""Tables of notes that are made from recorded rows."""
import unittest

from support import Sandbox

from tools.lib import cells, results  # noqa: E402
from tools.lib.term import UserError  # noqa: E402

NOTE = """x
<!-- cells:begin µs
a launch | 30_s/events/launch:host_us
saved | 1 - 31_g/batch1/graph:time_us / 31_g/batch1/launches:time_us
twelve | (31_g/batch1/graph:time_us - 30_s/events/launch:host_us) / 12
-->
old
<!-- cells:end -->
y
"""


def rows(**times):
    return {name: results.Row(name, None, counters) for name, counters in {
        "30_s/events/launch": {"host_us": 4.0},
        "31_g/batch1/graph": {"time_us": times.get("graph", 40.0)},
        "31_g/batch1/launches": {"time_us": 50.0}}.items()}


class Cells(Sandbox):
    def test_arithmetic_on_rows(self):
        text = cells.fill(NOTE, rows())
        self.assertIn("| a launch | 4.00 | `30_s/events/launch:host_us` |", text)
        self.assertIn("| saved | 0.20 | `1 - ", text)
        self.assertIn("| twelve | 3.00 | `(", text)
        self.assertNotIn("old", text)
        self.assertTrue(text.startswith("x\n<!-- cells:begin") and text.endswith("y\n"))
        self.assertEqual(cells.fill(text, rows()), text)
        self.assertIn("| saved | −0.20 |", cells.fill(text, rows(graph=60.0)))

    def test_what_is_not_recorded_has_no_number(self):
        text = cells.fill(NOTE, {})
        self.assertEqual(text.count("not recorded yet"), 3)
        self.assertIn("not recorded yet", cells.fill(NOTE.replace("host_us", "other_us"), rows()))
        self.assertIsNone(cells.evaluate("1 / (30_s/a/b:x - 30_s/a/c:x)", {}))

    def test_nonsense_is_refused(self):
        for bad in ("__import__('os')", "1 +", "30_s/events/launch", "2 ** 9"):
            with self.subTest(bad), self.assertRaises(UserError):
                cells.evaluate(bad, rows())

    def test_the_front_door_fills_notes(self):
        (self.root / "notes").mkdir()
        note = self.root / "notes" / "a.md"
        note.write_text(NOTE)
        self.assertEqual(self.ladder("readme", "--check").returncode, 1)
        self.assertEqual(self.ladder("readme").returncode, 0)
        self.assertIn("not recorded yet", note.read_text())
        self.assertEqual(self.ladder("readme", "--check").returncode, 0)
        note.write_text(NOTE.replace("1 - ", "1 ? "))
        self.assert_one_line_error(self.ladder("readme"), "no arithmetic")


if __name__ == "__main__":
    unittest.main()
