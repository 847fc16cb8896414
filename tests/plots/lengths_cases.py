"""The figure of losses by length."""

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory, change, comparisons_below

from plots.lengths_figure import lengths_figure
from plots.plan import kinds_of
from plots.style import line_styles


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
