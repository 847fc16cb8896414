"""Figures of runs' recordings: arrivals of gradients, kept samples, losses by length, measurements."""

import gzip

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import WithDirectory, change, comparisons_below, write_run

from plots.figures import kinds_of
from plots.recordings import arrivals_figure, kept_figure, lengths_figure, measurements_figure, ordinal, shares_of, ticks_of
from plots.style import line_styles, use_page


def write_arrivals(run, times):
    """Writes arrival times; times[round][k - 1] in seconds."""
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
        np.testing.assert_allclose(line.get_xdata(), [3, 2, 1])  # gradients still to arrive, including the k-th
        np.testing.assert_allclose(line.get_ydata(), [12, 22, 50])
        self.assertEqual([tick.get_text() for tick in means.get_xticklabels()], ["1", "2", "3"])
        self.assertGreater(*means.get_xlim())  # the last gradient is at the right
        # The third gradient has arrived after 40 s in one of three rounds, after 50 s in two, after 60 s in all.
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
        self.assertEqual(shares.get_title(loc="left"), "k = 3: rounds in which the gradient has arrived")
        self.assertGreater(shares.get_xlim()[0], 0.9)  # the axis is not empty up to the first arrival

    def test_methods_that_wait_for_the_same_workers_hide_no_line(self):
        times = np.cumsum(np.full((2, 40), 0.1), axis=1)
        for label, rounds in (("all", times), ("half", times[:, :20]), ("slower", 2 * times[:, :30])):
            write_arrivals(write_run(self.directory / label, label, 1), rounds)
        means, _ = self.draw().axes
        self.assertEqual([len(line.get_xdata()) for line in means.lines if line.get_gid() == "mean"], [40, 30])
        ends = sorted((line.get_xdata()[0], round(line.get_ydata()[0], 6)) for line in means.lines if line.get_gid() == "end")
        self.assertEqual(ends, [(1, 4.0), (11, 6.0), (21, 2.0)])  # in the order all, slower, half
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


def kept(by_length, by_class):
    """Numbers of kept samples, of ten offered samples per bin or class."""
    return {"by_length": {"kept": by_length, "offered": [10] * len(by_length), "longest": [5, 9, 40][:len(by_length)]},
            "by_class": {"kept": by_class, "offered": [10] * len(by_class)}}


class KeptSamples(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write(self, label, seed, samples):
        change(write_run(self.directory / label, label, seed) / "summary.json", samples_kept=samples)

    def draw(self):
        comparison, = comparisons_below(self.directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        return kept_figure(comparison.methods, styles, "heading", "subtitle")

    def test_lines_are_the_shares_of_all_seeds_together(self):
        self.write("a", 1, kept([10, 8, 4], [9, 7]))
        self.write("a", 2, kept([10, 6, 2], [7, 7]))
        lengths, classes = self.draw().axes
        self.assertEqual([tick.get_text() for tick in lengths.get_xticklabels()], ["≤5", "6–9", "10–40"])
        np.testing.assert_allclose(lengths.lines[0].get_ydata(), [1, 0.7, 0.3])
        np.testing.assert_allclose(classes.lines[0].get_ydata(), [0.8, 0.7])

    def test_a_method_that_does_not_say_of_what_it_kept_is_left_out(self):
        unknown = {"by_length": {"kept": [12, 8, 4], "longest": [5, 9, 40]}, "by_class": {"kept": [9, 7]}}
        self.write("a", 1, kept([10, 8, 4], [9, 7]))
        self.write("b", 1, unknown)
        comparison, = comparisons_below(self.directory)
        a, b = comparison.methods
        np.testing.assert_allclose(shares_of(a, "by_length")[1], [1, 0.8, 0.4])
        self.assertIsNone(shares_of(b, "by_length"))

    def test_where_no_method_says_of_what_it_kept_there_is_no_figure(self):
        self.write("a", 1, {"by_class": {"kept": [9, 7]}})
        self.assertIsNone(self.draw())
        comparison, = comparisons_below(self.directory)
        self.assertNotIn("kept", kinds_of(comparison))

    def test_what_was_never_offered_is_left_out(self):
        samples = kept([10, 8, 4], [9, 7])
        samples["by_class"] = {"kept": [3, 0], "offered": [4, 0]}
        self.write("a", 1, samples)
        _, classes = self.draw().axes
        np.testing.assert_allclose(classes.lines[0].get_ydata(), [0.75, np.nan])

    def test_classes_have_no_order_and_no_line(self):
        self.write("a", 1, kept([10, 8, 4], [9, 7]))
        self.write("b", 1, kept([10, 8, 4], [9, 7]))
        lengths, classes = self.draw().axes
        self.assertNotEqual(lengths.lines[0].get_linestyle(), "None")
        for number, dots in enumerate(classes.lines[:2]):
            self.assertEqual(dots.get_linestyle(), "None")
            self.assertNotEqual(dots.get_marker(), "None")
            # Dots of a class are beside each other, and nearer to their class than to the next one.
            np.testing.assert_allclose(dots.get_xdata(), np.array([0, 1]) + (0.15 if number else -0.15))

    def test_long_labels_touch_no_other_panel(self):
        long = "DropCompute with a threshold that is found automatically, 40 workers"
        self.write(long, 1, kept([10, 8, 4], [9, 7]))
        figure = self.draw()
        figure.canvas.draw()
        texts = [text.get_window_extent() for axes in figure.axes for text in axes.texts]
        self.assertEqual(len(texts), 1)
        for axes in figure.axes:
            self.assertGreater(texts[0].x0, axes.get_window_extent().x1)
        self.assertLess(texts[0].x1, figure.bbox.x1)

    def test_without_lengths_there_is_one_panel_and_without_either_no_figure(self):
        self.write("a", 1, {"by_class": {"kept": [3, 4], "offered": [4, 4]}})
        self.assertEqual(len(self.draw().axes), 1)
        write_run(self.directory / "b", "b", 1)
        comparison, = comparisons_below(self.directory)
        self.assertIn("kept", kinds_of(comparison))
        self.assertEqual([text.get_text() for text in self.draw().axes[0].texts], ["a"])

    def test_the_command_draws_it(self):
        self.write("a", 1, kept([10, 8, 4], [9, 7]))
        self.assertEqual(self.status_and_message(self.directory, "--only", "kept"), (0, ""))
        self.assertGreater((self.directory / "plots" / "kept.png").stat().st_size, 10_000)


def by_length(loss, accuracy=None):
    kinds = {"kept": [10] * 3, "offered": [10] * 3, "longest": [5, 9, 40], "test_loss": loss}
    return {"by_length": kinds | ({"test_accuracy": accuracy} if accuracy else {})}


class Lengths(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write(self, label, seed, samples):
        change(write_run(self.directory / label, label, seed) / "summary.json", samples_kept=samples)

    def draw(self):
        comparison, = comparisons_below(self.directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        return lengths_figure(comparison.methods, styles, "heading", "subtitle")

    def test_lines_are_the_means_over_the_seeds(self):
        self.write("a", 1, by_length([1.0, 2.0, 3.0], [0.9, 0.8, 0.7]))
        self.write("a", 2, by_length([2.0, 2.0, 5.0], [0.7, 0.8, 0.5]))
        loss, accuracy = self.draw().axes
        self.assertEqual([tick.get_text() for tick in loss.get_xticklabels()], ["≤5", "6–9", "10–40"])
        np.testing.assert_allclose(loss.lines[0].get_ydata(), [1.5, 2, 4])
        np.testing.assert_allclose(accuracy.lines[0].get_ydata(), [0.8, 0.8, 0.6])

    def test_a_length_without_test_samples_is_left_out(self):
        self.write("a", 1, by_length([1.0, 2.0, None]))
        self.write("a", 2, by_length([2.0, None, None]))
        loss, = self.draw().axes
        np.testing.assert_allclose(loss.lines[0].get_ydata(), [1.5, 2, np.nan])
        self.assertEqual([text.get_text() for text in loss.texts], ["a"])

    def test_labels_stand_beside_the_last_panel_alone(self):
        self.write("a method with quite a long label, 40 workers", 1, by_length([1.0, 2.0, 3.0], [0.9, 0.8, 0.7]))
        figure = self.draw()
        figure.canvas.draw()
        loss, accuracy = figure.axes
        self.assertEqual(len(loss.texts), 0)
        label, = accuracy.texts
        self.assertGreater(label.get_window_extent().x0, accuracy.get_window_extent().x1)
        self.assertLess(label.get_window_extent().x1, figure.bbox.x1)

    def test_without_losses_there_is_no_figure(self):
        samples = by_length([1.0, 2.0, 3.0])
        del samples["by_length"]["test_loss"]
        self.write("a", 1, samples)
        comparison, = comparisons_below(self.directory)
        self.assertNotIn("lengths", kinds_of(comparison))
        self.assertIsNone(self.draw())

    def test_the_command_draws_it(self):
        self.write("a", 1, by_length([1.0, 2.0, 3.0], [0.9, 0.8, 0.7]))
        self.assertEqual(self.status_and_message(self.directory, "--only", "lengths"), (0, ""))
        self.assertGreater((self.directory / "plots" / "lengths.png").stat().st_size, 10_000)


class Measurements(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write_measured(self, label, seed, rows):
        """Writes a run with rows of (step, quantity, value)."""
        run = write_run(self.directory / label, label, seed)
        text = "".join(f"{step},{step / 10},{quantity},{value}\n" for step, quantity, value in rows)
        (run / "measurements.csv").write_text("step,time_s,quantity,value\n" + text)
        return run

    def figure(self):
        comparison, = comparisons_below(self.directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        return measurements_figure(comparison.methods, styles, "heading", "subtitle")

    def test_a_panel_per_quantity_has_the_mean_over_seeds(self):
        for seed in (1, 3):
            self.write_measured("m", seed, [(0, "hessian_trace", 10 * seed), (4, "hessian_trace", 20 * seed),
                                            (4, "gradient_norm", seed)])
        norm, trace = self.figure().axes
        self.assertEqual([panel.get_title(loc="left") for panel in (norm, trace)],
                         ["norm of the gradient", "trace of the Hessian"])
        np.testing.assert_allclose(trace.lines[0].get_xydata(), [[0, 20], [4, 40]])

    def test_a_method_without_measurements_has_no_line_and_without_any_there_is_no_figure(self):
        write_run(self.directory / "other", "other", 1)
        self.assertIsNone(self.figure())
        self.write_measured("m", 1, [(0, "gradient_norm", 2.0), (4, "gradient_norm", 1.0)])
        self.assertEqual(len(self.figure().axes), 1)

    def test_one_line_of_many_methods_has_room_for_its_name(self):
        for number in range(18):
            write_run(self.directory / f"m{number}", f"m{number}", 1)
        self.write_measured("a method with a name", 1, [(0, "gradient_norm", 2.0), (4, "gradient_norm", 1.0)])
        figure = self.figure()
        figure.canvas.draw()
        name, = figure.axes[0].texts
        self.assertEqual(name.get_text(), "a method with a name")
        self.assertLess(name.get_window_extent().x1, figure.bbox.x1)

    def test_the_command_draws_it_where_there_are_some(self):
        self.write_measured("m", 1, [(0, "gradient_norm", 2.0), (4, "gradient_norm", 1.0)])
        self.assertEqual(self.status_and_message(self.directory, "--only", "measurements")[0], 0)
        self.assertTrue((self.directory / "plots" / "measurements.png").exists())

    def test_a_word_where_a_number_belongs_is_a_fault(self):
        run = self.write_measured("m", 1, [(0, "gradient_norm", "much")])
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2)
        self.assertIn(f"{run / 'measurements.csv'}: row 1: value = much; expected a number", message)
