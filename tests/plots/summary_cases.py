"""What a report says first: sentences and bars, from rows of the program's table."""

import re
import unittest

from plots.report.measures import rows_of
from plots.report.summary import Outcome, bars_table, sentences, target_text

HEAD = "experiment,row,method,measure,n,mean,std,against,pairs,difference,low,high,t_p,sign_flip_p\n"
TIME, ACCURACY, SPEED = "time_to_target_s", "final_test_accuracy", "samples_per_s"


def rows(*lines):
    """Of (row, measure, n, mean, std, and, if there is any, difference, low, high from "a")."""
    text = HEAD
    for label, measure, n, mean, std, *compared in lines:
        difference = f"a,{n},{','.join(map(str, compared))}" if compared else ",,,,"
        text += f'e,"{label}",{label.split(",")[0]},{measure},{n},{mean},{std},{difference},,\n'
    return rows_of(text, "e")


def said(*lines, **more):
    return re.sub("</?b>", "", " ".join(sentences(Outcome(rows(*lines), "a", **more))))


class Sentences(unittest.TestCase):
    def test_the_first_at_the_target_is_named_with_its_interval(self):
        text = said(("a", TIME, 3, 100, 1), ("b", TIME, 3, 75, 2, -25, -30, -20), target="88 % test accuracy", clock="virtual time")
        self.assertEqual(text, "The first to reach 88 % test accuracy was b, after 75.0 ± 2.0 s of virtual time, 25 % sooner than a "
                               "(difference −25.0 s, 95 % interval −30.0 to −20.0).")

    def test_what_seeds_do_not_tell_apart_is_said(self):
        text = said(("a", TIME, 2, 100, 1), ("b", TIME, 2, 75, 2, -25, -74, 24), target="88 %")
        self.assertIn("(difference −25 s, 95 % interval −74 to +24, so that 2 seeds do not tell the two apart)", text)

    def test_who_missed_the_target_is_named(self):
        text = said(("a", TIME, 3, 100, 1), ("b", TIME, 2, 50, 1), ("b", "target_missed_until_s", 1, 200, 0),
                    ("c", "target_missed_until_s", 3, 200, 0), target="88 %")
        self.assertEqual(text, "No method reached 88 % sooner than a, which did after 100.0 ± 1.0 s of time; b and c did not with every seed.")
        text = said(("a", "target_missed_until_s", 3, 200, 0), ("b", "target_missed_until_s", 3, 200, 0), target="88 %")
        self.assertEqual(text, "No method reached 88 %.")

    def test_accuracies_that_are_told_apart_are_named(self):
        text = said(("a", ACCURACY, 3, 0.8, 0.01), ("b", ACCURACY, 3, 0.83, 0.01, 0.03, 0.01, 0.05),
                    ("c", ACCURACY, 3, 0.81, 0.01, 0.01, -0.01, 0.03))
        self.assertEqual(text, "After the whole runs the test accuracy is higher with b (+3.0 points, 95 % interval +1.0 to +5.0) than "
                               "with a (80.0 ± 1.0 %); the 95 % intervals do not separate c from a.")

    def test_one_seed_claims_no_certainty(self):
        text = said(("a", ACCURACY, 1, 0.8, 0), ("b", ACCURACY, 1, 0.83, 0, 0.03, "", ""))
        self.assertEqual(text, "The last model of b has the highest test accuracy, 83.00 % (one seed each: nothing says how certain that is).")

    def test_without_a_model_speed_counts(self):
        text = said(("a", SPEED, 3, 100, 1), ("b", SPEED, 3, 125, 1, 25, 20, 30))
        self.assertEqual(text, "The most samples per second of time are those of b, 125.0 ± 1.0, 25 % more than with a "
                               "(difference +25.0, 95 % interval +20.0 to +30.0).")

    def test_of_several_points_the_range_of_ratios(self):
        text = said(("a, w = 2", SPEED, 3, 100, 1), ("b, w = 2", SPEED, 3, 125, 1, 25, 20, 30),
                    ("a, w = 4", SPEED, 3, 200, 1), ("b, w = 4", SPEED, 3, 300, 1, 100, 90, 110), points=2)
        self.assertEqual(text, "Samples per second, as a multiple of that of a at the same point: b 1.25 to 1.5.")

    def test_targets_have_words(self):
        self.assertEqual(target_text({"target_accuracy": 0.88}), "88 % test accuracy")
        self.assertEqual(target_text({"target_loss": 1e-7, "target_of": "validation"}), "a validation loss of 10⁻⁷")
        self.assertEqual(target_text({}), "")


class Bars(unittest.TestCase):
    def test_widths_are_those_of_the_numbers(self):
        table = bars_table(Outcome(rows(("a", SPEED, 1, 100, 0), ("b", SPEED, 1, 25, 0)), "a"), {}, {})
        self.assertEqual(re.findall(r'class="fill" style="width:([\d.]+)%', table), ["100.00", "25.00"])

    def test_what_is_far_above_the_others_leaves_them_their_bars(self):
        table = bars_table(Outcome(rows(("a", SPEED, 1, 1e9, 0), ("b", SPEED, 1, 25, 0), ("c", SPEED, 1, 50, 0), ("d", SPEED, 1, 0, 0)),
                                   "a"), {}, {})
        self.assertEqual(re.findall(r'class="fill" style="width:([\d.]+)%', table), ["50.00", "100.00", "0.00"])
        self.assertEqual(table.count("beyond right"), 1)
        self.assertIn("10⁹", table)

    def test_one_row_has_no_bars(self):
        self.assertEqual(bars_table(Outcome(rows(("a", SPEED, 1, 100, 0)), "a"), {}, {}), "")


if __name__ == "__main__":
    unittest.main()
