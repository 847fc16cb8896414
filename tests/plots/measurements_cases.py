"""The figure of what measurements.csv shows."""

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory, comparisons_below

from plots.measurements_figure import measurements_figure
from plots.style import line_styles


class Measurements(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write_measured(self, label, seed, rows):
        """A run with rows of (step, quantity, value)."""
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
