"""The figure of what steps.csv shows: durations, and drop rates over seeds."""

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory, comparisons_below

from plots.distributions_figure import distributions_figure
from plots.rounds_figure import rounds_figure
from plots.step_times import step_times
from plots.style import line_styles

HEADER = "step,time_s,duration_s,kept_micro_batches,dropped_micro_batches,period_steps,bytes\n"


class Rounds(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write_steps(self, label, seed, rows):
        """A run of rounds, each (duration, period, kept, dropped)."""
        run = write_run(self.directory / label, label, seed)
        step, time_s, text = 0, 0.0, HEADER
        for duration_s, period, kept, dropped in rows:
            step, time_s = step + max(period, 1), time_s + duration_s
            text += f"{step},{time_s},{duration_s},{kept},{dropped},{period},1\n"
        (run / "steps.csv").write_text(text)

    def panels(self):
        comparison, = comparisons_below(self.directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        return rounds_figure(comparison.methods, styles, "heading", "subtitle").axes

    def test_dots_are_medians_and_lines_quantiles_of_all_steps_of_all_seeds(self):
        # Steps of 1, 4, 9 to 101^2 s over two seeds: the quantile q lies at (1 + 100 q)^2, and no mean does.
        durations = [number ** 2 for number in range(1, 102)]
        self.write_steps("m", 1, [(duration, 1, 1, 0) for duration in durations[:30]])
        self.write_steps("m", 2, [(duration, 1, 1, 0) for duration in durations[30:]])
        panel = self.panels()[0]
        dot, = [line for line in panel.lines if line.get_marker() == "o"]
        thin, thick = sorted((line for line in panel.lines if line.get_marker() != "o"),
                             key=lambda line: line.get_linewidth())
        unit_s = {"s": 1, "min": 60, "h": 3600}[panel.get_xlabel().split("(")[1].rstrip(")")]
        np.testing.assert_allclose(dot.get_xdata()[0] * unit_s, 51 ** 2)
        np.testing.assert_allclose(thick.get_xdata() * unit_s, [26 ** 2, 76 ** 2])
        np.testing.assert_allclose(thin.get_xdata() * unit_s, [6 ** 2, 96 ** 2])

    def test_a_rounds_duration_is_shared_by_its_steps(self):
        # Rounds of 4 steps take as long as 4 single ones; a row that counts none stands for one.
        self.write_steps("rounds", 1, [(8.0, 4, 4, 0)] * 5)
        self.write_steps("steps", 1, [(2.0, 1, 1, 0)] * 5)
        self.write_steps("uncounted", 1, [(2.0, 0, 1, 0)] * 5)
        panel = self.panels()[0]
        dots = [float(line.get_xdata()[0]) for line in panel.lines if line.get_marker() == "o"]
        np.testing.assert_allclose(dots, [2, 2, 2])

    def test_a_round_counts_as_often_as_it_has_steps(self):
        # One step of 9 s, and a round of 3 steps, 1 s each: the quantiles of 1, 1, 1 and 9 s, and a mean of 3 s.
        self.write_steps("m", 1, [(9.0, 1, 1, 0), (3.0, 3, 3, 0)])
        panel = self.panels()[0]
        dot, = [line for line in panel.lines if line.get_marker() == "o"]
        np.testing.assert_allclose(dot.get_xdata(), [1])
        thick = max((line for line in panel.lines if line.get_marker() != "o"), key=lambda line: line.get_linewidth())
        np.testing.assert_allclose(thick.get_xdata(), [1, 3])
        comparison, = comparisons_below(self.directory)
        method, = comparison.methods
        np.testing.assert_allclose(step_times(method), [9, 1, 1, 1])

    def test_the_mean_time_per_step_is_that_of_the_whole_run_in_every_figure(self):
        rounds = [(0.1 * period * (1 + number % 3), period, 1, 0) for number, period in enumerate([1, 2, 4, 8, 16, 32] * 10)]
        self.write_steps("m", 1, rounds)
        comparison, = comparisons_below(self.directory)
        whole = sum(duration for duration, *_ in rounds) / sum(period for _, period, *_ in rounds)
        looks = line_styles({method.label: method.algorithm for method in comparison.methods})
        panel, = distributions_figure(comparison.methods, looks, "heading", "subtitle").axes
        mean, = [line.get_xdata()[0] for line in panel.lines if line.get_gid() == "mean"]
        unit_s = 1e-3 if "(ms)" in panel.get_xlabel() else 1
        self.assertAlmostEqual(mean * unit_s, whole, places=9)

    def test_bands_of_drop_rates_go_from_the_lowest_to_the_highest_seed(self):
        for seed, dropped in ((1, 10), (2, 20), (3, 60)):
            self.write_steps("m", seed, [(1.0, 1, 100 - dropped, dropped)] * 80)
        panel, = [panel for panel in self.panels() if panel.get_title(loc="left").startswith("Dropped")]
        line = panel.lines[0]  # the others lead to labels
        np.testing.assert_allclose(line.get_ydata(), 30)
        band, = panel.collections
        heights = band.get_paths()[0].vertices[:, 1]
        np.testing.assert_allclose([heights.min(), heights.max()], [10, 60])

    def test_a_windows_drop_rate_is_that_of_all_its_micro_batches(self):
        # Rounds of 90 and 10 micro-batches, of which 0 and 5 are dropped: 5 %, and not the mean of 0 and 50 %.
        self.write_steps("m", 1, [(1.0, 1, 90, 0), (1.0, 1, 5, 5)] * 80)
        panel, = [panel for panel in self.panels() if panel.get_title(loc="left").startswith("Dropped")]
        line = panel.lines[0]
        np.testing.assert_allclose(line.get_ydata(), 5)
        np.testing.assert_allclose(line.get_xdata(), 2.5 + 4 * np.arange(40))  # of steps 1 to 4, 5 to 8 and so on

    def test_periods_are_stairs_from_the_end_of_the_round_before_to_that_of_the_round(self):
        self.write_steps("m", 1, [(1.0, 2, 1, 0), (1.0, 8, 1, 0), (1.0, 4, 1, 0)])
        self.write_steps("m", 2, [(1.0, 16, 1, 0)])  # the first seed alone is drawn
        *_, panel = self.panels()
        self.assertEqual([tuple(point) for point in panel.lines[0].get_xydata()], [(0, 2), (2, 2), (2, 8), (10, 8)])
        last, = [line for line in panel.lines if line.get_gid() == "last"]  # shorter, since training ends
        self.assertEqual([tuple(point) for point in last.get_xydata()], [(10, 8), (10, 4), (14, 4)])
