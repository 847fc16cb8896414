"""Tables, figures and pages write numbers by the same rule: the cases of tests/workers/terminal_text_test.cpp, and the
forms in pages and figures."""

import unittest
from math import inf, nan

import matplotlib.pyplot as plt
from synthetic_results import TABLE_HEAD, WithDirectory, change, comparisons_below, write_run

from plots.claims import point_text
from plots.final_results import bars_figure
from plots.numbers import SamePlace, shown_number, typeset, typeset_number, with_decimals
from plots.report.provenance import mean_text
from plots.report.results import results_table, rows_of
from plots.style import SHORT, decade, line_styles, short_number


class Rule(unittest.TestCase):
    def test_four_digits_and_all_before_the_point(self):
        for value, text in ((0, "0"), (0.5, "0.5"), (88.1234, "88.12"), (12345.6, "12346"), (9999999, "9999999"),
                            (0.00012345, "0.0001234"), (-3.14159, "-3.142"), (inf, "inf"), (-nan, "nan")):
            self.assertEqual(shown_number(value), text)
        self.assertEqual(shown_number(88.1234, 6), "88.1234")

    def test_scientific_at_the_extremes(self):
        for value, text in ((1e-7, "1e-07"), (1.23456e-7, "1.235e-07"), (8e29, "8e+29"), (1e7, "1e+07"), (-2.5e-5, "-2.5e-05")):
            self.assertEqual(shown_number(value), text)

    def test_decimals_stay_where_they_show_two_digits(self):
        for value, text in ((0.5, "0.50"), (0, "0.00"), (0.1, "0.10"), (1234567, "1234567.00"), (0.0012, "0.0012"),
                            (0.004, "0.004"), (1.5e-7, "1.5e-07"), (8e29, "8e+29"), (3e8, "3e+08"), (inf, "inf")):
            self.assertEqual(with_decimals(value, 2), text)

    def test_numbers_that_are_read_together_end_at_one_place(self):
        for mean, deviation, texts in ((88.1234, 0.1034, "88.12 0.10"), (1234.5, 23.4, "1234 23"),
                                       (1.2345e-7, 3.21e-9, "1.235e-07 3.2e-09"), (8.0123e29, 4.5e28, "8.01e+29 4.5e+28"),
                                       (1e-8, 3e-7, "1e-08 3.0e-07"), (0, 2e-7, "0 2.0e-07"), (0.5, 1.26e-9, "0.500000 1.3e-09"),
                                       (0.001, 5.0, "0.0 5.0"), (3e7, 0.5, "3.000000e+07 0.50")):
            text = SamePlace.of(mean, deviation)
            self.assertEqual(f"{text(mean)} {text(deviation)}", texts)
        for value, text in ((1e-7, "1.000e-07"), (8e29, "8.000e+29"), (0.33123, "0.3312"), (0.000123456, "0.000123"), (0, "0"), (9.999999999999998, "10.00"),
                            (inf, "inf"), (1234567, "1234567")):
            self.assertEqual(SamePlace.of(value, None)(value), text)

    def test_pages_and_figures_have_raised_powers(self):
        for text, expected in (("1.235e-07", "1.235×10⁻⁷"), ("8e+29", "8×10²⁹"), ("1e-07", "10⁻⁷"), ("-1e-07", "−10⁻⁷"),
                               ("-0.5", "−0.5"), ("2.1e-05", "2.1×10⁻⁵"), ("11e+08", "11×10⁸")):
            self.assertEqual(typeset(text), expected)
        self.assertEqual(typeset_number(1.25e-7), "1.25×10⁻⁷")


class Pages(unittest.TestCase):
    def cells(self, *lines):
        return results_table(rows_of(TABLE_HEAD + "".join(lines), "e"), {})

    def test_small_and_large_losses_are_neither_zeros_nor_long(self):
        table = self.cells("e,a,a,final_test_loss,3,1.2345e-07,3.21e-09,,,,,,,\n", "e,b,b,final_test_loss,3,0.5,0.01,,,,,,,\n",
                           "e,c,c,final_test_loss,1,8e29,0,,,,,,,\n")
        for text in ('1.235×10⁻⁷<small class="std">±3.2×10⁻⁹</small>', ">8×10²⁹<", "0.5000"):
            self.assertIn(text, table)
        self.assertNotIn("0.0000", table)
        self.assertNotIn("000\u202f000", table)

    def test_so_are_their_differences(self):
        table = self.cells("e,a,a,final_test_loss,3,3e-07,1e-08,,,,,,,\n",
                           "e,b,b,final_test_loss,3,1e-07,1e-08,a,3,-2e-07,-2.5e-07,-1.5e-07,0.01,0.25\n",
                           "e,c,c,final_test_loss,3,8e29,1e29,a,3,8e29,7e29,9e29,0.01,0.25\n")
        for text in ("−2.00×10⁻⁷", "[−2.50×10⁻⁷, −1.50×10⁻⁷]", "+8.0×10²⁹", "[+7.0×10²⁹, +9.0×10²⁹]"):
            self.assertIn(text, table)
        self.assertIn("significant", table)

    def test_claims_and_trials_have_the_same_rule(self):
        point = {"mean": 1.2345e-7, "interval": [1.1345e-7, 1.3345e-7], "n": 3, "label": ""}
        self.assertIn("1.23×10⁻⁷<small>[1.13×10⁻⁷, 1.33×10⁻⁷]", point_text(point))
        self.assertIn("8.000×10²⁹", point_text({"mean": 8e29, "interval": None, "n": 1, "label": ""}))
        self.assertEqual([mean_text(value) for value in (1e-7, 8e29, 12345.6, 0.9, None)], ["10⁻⁷", "8×10²⁹", "12346", "0.9", "–"])


class Figures(WithDirectory):
    def test_ticks_have_the_same_powers(self):
        self.assertEqual([decade(value) for value in (1e-12, 1e-4, 0.01, 0.1, 1, 10, 1e4, 1e29)],
                         ["10⁻¹²", "10⁻⁴", "0.01", "0.1", "1", "10", "10k", "10²⁹"])
        self.assertEqual([short_number(value) for value in (8e29, 2e12, 2e9, 1.5e-7)], ["8×10²⁹", "2×10¹²", "2G", "1.5×10⁻⁷"])
        self.assertEqual(SHORT.format_ticks([1e-7, 2e-7]), ["10⁻⁷", "2×10⁻⁷"])

    def test_a_tiny_loss_has_ticks_of_its_size(self):
        self.addCleanup(plt.close, "all")
        for label, loss in (("a", 1e-7), ("b", 2e-7)):
            change(write_run(self.directory / label, label, 1) / "summary.json", final_test_loss=loss)
        comparison, = comparisons_below(self.directory)
        figure = bars_figure(comparison.methods, line_styles({label: "" for label in "ab"}), "h", "s")
        panel = next(one for one in figure.axes if one.get_title(loc="left") == "Final test loss")
        figure.canvas.draw()
        ticks = [text.get_text() for text in panel.get_xticklabels()]
        self.assertTrue(all("10⁻" in tick for tick in ticks), ticks)
