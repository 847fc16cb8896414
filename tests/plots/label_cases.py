"""Text that users have written, in figures: as it is, but for what commands a terminal or what no font has."""

import unittest
from unittest import mock

import matplotlib
from matplotlib.font_manager import fontManager
from synthetic_results import write_run
from with_results import WithDirectory, change

from plots.fonts import OWN, glyphs
from plots.printable import printable
from plots.style import decade, label_inches


class Printable(unittest.TestCase):
    """The cases of tests/experiments/printable_test.cpp: tables and figures agree."""

    def test_escapes_what_a_terminal_obeys(self):
        for text, escaped in (("\x1b[31mred\x1b[0m", r"\u001B[31mred\u001B[0m"),
                              ("a\nb\tc\rd\a\x7f", r"a\nb\tc\u000Dd\u0007\u007F"), ("\0", r"\u0000"),
                              ("\x9b1m", r"\u009B1m"), ("\u202eabc", r"\u202Eabc")):
            self.assertEqual(printable(text), escaped)
            self.assertEqual(printable(escaped), escaped)  # of what is escaped already nothing changes

    def test_leaves_all_other_text_as_it_is(self):
        for text in ("", "plain", "Größe", "学习率", "emoji 🙂", 'a "quote" and \\', "\xa0"):
            self.assertEqual(printable(text), text)

    def test_shows_bytes_that_are_no_text(self):
        self.assertEqual(printable(b"\xc3(\xff".decode(errors="surrogateescape")), r"\xC3(\xFF")


class Labels(WithDirectory):
    def draw(self, label, description="d", fonts=(OWN,)):
        """What is said, and all drawings in one text; `fonts`: those that are installed."""
        for workers in (4, 8, 16):
            run = write_run(self.directory / f"{workers}", "m", 1, workers=workers)
            change(run / "summary.json", method=label)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("Four methods under the same stragglers", description))
        installed = [font for font in fontManager.ttflist if font.name in fonts]
        with mock.patch.object(fontManager, "ttflist", installed):
            status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 0, message)
        return message, [path.read_text(encoding="utf-8") for path in sorted(self.directory.rglob("plots/*.svg"))]

    def test_control_characters_are_escaped_as_in_tables(self):
        message, drawings = self.draw("s\x1b[31mync\a")
        self.assertEqual(message, "")
        self.assertEqual(len(drawings), 7)
        for drawing in drawings:
            self.assertIn(r">s\u001B[31mync\u0007<", drawing)

    def test_dollars_are_no_formulas(self):
        message, drawings = self.draw(r"$\foo$", r"costs $5, \\not $6")
        self.assertEqual(message, "")
        for drawing in drawings:
            self.assertIn(r">$\foo$<", drawing)
            self.assertIn(r">costs $5, \not $6<", drawing)

    def test_a_description_of_several_lines_is_one_heading(self):
        for drawing in self.draw("m", r"first line\n  and second")[1]:
            self.assertIn(">first line and second<", drawing)

    def test_characters_that_no_font_has_are_named_once(self):
        message, drawings = self.draw("日本", "日")
        self.assertEqual(message, "plot: no installed font has 日 (U+65E5), 本 (U+672C): PNG files show boxes, SVG files "
                                  "whatever their viewer has\n")
        for drawing in drawings:
            self.assertIn(">日本<", drawing)

    def test_of_many_such_characters_some_are_named(self):
        message, _ = self.draw("".join(map(chr, range(0x4e00, 0x4e00 + 30))))
        self.assertIn("and 22 more", message)
        self.assertEqual(message.count("\n"), 1)

    def test_a_font_that_has_a_character_is_taken(self):
        lacking = min(glyphs("STIXGeneral") - glyphs(OWN))
        self.assertEqual(self.draw(f"m{lacking}", fonts=(OWN, "STIXGeneral"))[0], "")
        self.assertEqual(matplotlib.rcParams["font.family"], [OWN, "STIXGeneral"])

    def test_wide_characters_have_the_room_of_two(self):
        self.assertEqual(label_inches(["同期"]), label_inches(["sync"]))

    def test_powers_of_ten_are_short_texts(self):
        self.assertEqual([decade(value) for value in (1e-12, 1e-4, 0.01, 0.1, 1, 10, 1e4)],
                         ["10⁻¹²", "10⁻⁴", "0.01", "0.1", "1", "10", "10k"])
