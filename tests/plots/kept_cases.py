"""The figure of which samples are kept."""

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory, change, comparisons_below

from plots.kept_figure import kept_figure, shares_of
from plots.plan import kinds_of
from plots.style import line_styles


def kept(by_length, by_class):
    """Of ten samples each."""
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
            # Those of a class stand beside each other, and nearer to it than to the next one.
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
