"""The figure of when the k-th gradient of a round arrives."""

import gzip

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory, comparisons_below

from plots.arrivals_figure import arrivals_figure, ordinal, ticks_of
from plots.page import use_page
from plots.plan import kinds_of
from plots.style import line_styles


def write_arrivals(run, times):
    """times[round][k - 1], in seconds."""
    with gzip.open(run / "arrivals.csv.gz", "wt", encoding="utf-8") as file:
        file.write("step,k,worker,arrival_s\n")
        for step, of_round in enumerate(times, 1):
            for k, at in enumerate(of_round, 1):
                file.write(f"{step},{k},{k - 1},{at}\n")


class Arrivals(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def draw(self):
        comparison, = comparisons_below(self.directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        return arrivals_figure(comparison.methods, styles, "heading", "subtitle")

    def test_lines_are_the_means_of_the_rounds_of_all_seeds(self):
        write_arrivals(write_run(self.directory / "a", "a", 1), [[10, 20, 40], [12, 24, 50]])
        write_arrivals(write_run(self.directory / "a", "a", 2), [[14, 22, 60]])
        means, shares = self.draw().axes
        line = means.lines[0]
        np.testing.assert_allclose(line.get_xdata(), [3, 2, 1])  # that are still to come, with itself
        np.testing.assert_allclose(line.get_ydata(), [12, 22, 50])
        self.assertEqual([tick.get_text() for tick in means.get_xticklabels()], ["1", "2", "3"])
        self.assertGreater(*means.get_xlim())  # the last one at the right
        # Of the three rounds one has its third gradient after 40 s, two after 50 s, all after 60 s.
        last = shares.lines[-1]
        np.testing.assert_allclose(last.get_xdata()[:3], [40, 50, 60])
        np.testing.assert_allclose(last.get_ydata()[:3], [1 / 3, 2 / 3, 1])
        self.assertEqual([text.get_text() for text in shares.get_legend().get_texts()], ["1st", "2nd", "3rd"])

    def test_of_a_hundred_the_first_the_middle_and_the_last_ones_have_a_line(self):
        write_arrivals(write_run(self.directory / "a", "a", 1), [np.arange(1, 101), np.arange(2, 102)])
        _, shares = self.draw().axes
        self.assertEqual([text.get_text() for text in shares.get_legend().get_texts()],
                         ["1st", "50th", "90th", "97th", "98th", "99th", "100th"])

    def test_the_shares_are_those_of_the_method_with_the_most_gradients(self):
        write_arrivals(write_run(self.directory / "a", "a", 1), [[1, 2]])
        write_arrivals(write_run(self.directory / "b", "b", 1), [[1, 2, 3, 4]])
        _, shares = self.draw().axes
        self.assertEqual([text.get_text() for text in shares.get_legend().get_texts()], ["1st", "2nd", "3rd", "4th"])

    def test_of_methods_with_equally_many_it_is_the_one_that_waits_longest(self):
        write_arrivals(write_run(self.directory / "a", "k = 1", 1), [[1, 1, 1]])
        write_arrivals(write_run(self.directory / "b", "k = 3", 1), [[1, 1, 2]])
        _, shares = self.draw().axes
        self.assertEqual(shares.get_title(loc="left"), "k = 3: rounds in which the gradient has come")
        self.assertGreater(shares.get_xlim()[0], 0.9)  # and not an axis that is empty up to the first one

    def test_methods_that_wait_for_the_same_workers_hide_no_line(self):
        times = np.cumsum(np.full((2, 40), 0.1), axis=1)
        for label, rounds in (("all", times), ("half", times[:, :20]), ("slower", 2 * times[:, :30])):
            write_arrivals(write_run(self.directory / label, label, 1), rounds)
        means, _ = self.draw().axes
        self.assertEqual([len(line.get_xdata()) for line in means.lines if line.get_gid() == "mean"], [40, 30])
        ends = sorted((line.get_xdata()[0], round(line.get_ydata()[0], 6)) for line in means.lines if line.get_gid() == "end")
        self.assertEqual(ends, [(1, 4.0), (11, 6.0), (21, 2.0)])  # of all, slower, half
        self.assertEqual(len(means.collections), 1, "one band")
        self.assertEqual(means.get_xscale(), "log")
        self.assertEqual([tick.get_text() for tick in means.get_xticklabels()], ["1", "21", "31", "36", "39", "40"])

    def test_in_a_paper_s_column_the_numbers_of_gradients_have_room(self):
        self.addCleanup(use_page, "screen")
        use_page("single")
        write_arrivals(write_run(self.directory / "a", "a", 1), np.cumsum(np.full((2, 100), 0.1), axis=1))
        means, _ = self.draw().axes
        means.figure.canvas.draw()
        boxes = sorted((text.get_window_extent() for text in means.get_xticklabels()), key=lambda box: box.x0)
        self.assertGreater(len(boxes), 3)
        for box, following in zip(boxes, boxes[1:]):
            self.assertLess(box.x1, following.x0)

    def test_of_few_gradients_each_has_its_place(self):
        self.assertEqual(ticks_of(4), [1, 2, 3, 4])
        self.assertEqual(ticks_of(100), [1, 51, 81, 91, 96, 99, 100])

    def test_ordinals(self):
        self.assertEqual([ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 101, 111)],
                         ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "111th"])

    def test_runs_that_have_recorded_none_are_left_out(self):
        write_arrivals(write_run(self.directory / "a", "a", 1), [[1, 2]])
        write_run(self.directory / "b", "b", 1)
        comparison, = comparisons_below(self.directory)
        self.assertIn("arrivals", kinds_of(comparison))
        self.assertEqual([text.get_text() for text in self.draw().axes[0].texts], ["a"])

    def test_a_method_in_which_nobody_comes_together_gives_no_figure(self):
        write_arrivals(write_run(self.directory / "a", "a", 1), [])
        self.assertIsNone(self.draw())
        self.assertIn("arrivals", kinds_of(comparisons_below(self.directory)[0]))

    def test_the_command_draws_it_and_tells_of_a_wrong_table(self):
        run = write_run(self.directory / "a", "a", 1)
        write_arrivals(run, [[1, 2], [2, 3]])
        self.assertEqual(self.status_and_message(self.directory, "--only", "arrivals"), (0, ""))
        self.assertGreater((self.directory / "plots" / "arrivals.png").stat().st_size, 10_000)
        with gzip.open(run / "arrivals.csv.gz", "wt", encoding="utf-8") as file:
            file.write("step,k,worker\n1,1,0\n")
        status, message = self.status_and_message(self.directory, "--only", "arrivals")
        self.assertEqual(status, 2)
        self.assertIn("has no column arrival_s", message)
