"""The figure of the best number of backups, estimated and measured."""

import re
import unittest
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from plots.backup_estimate import (ESTIMATED, MEASURED, estimate_figure, estimated_times, kept_times, mean_arrival,
                                   measured_times, steps_by_gradients)
from plots.intervals import mean_and_half

KEPT = Path(__file__).parents[2] / "results" / "paper"
PLAN = {"description": "d", "cluster": {"workers": 4, "micro_batch_s": 0.5},
        "training": {"model": "mlp", "dataset": "x"}, "delays": [{"minimum": 1.0, "shape": 2.0}], "sweep": {"methods.backup workers.backups": [0, 1, 3]}}


class Estimate(unittest.TestCase):
    def setUp(self):
        self.addCleanup(plt.close, "all")

    def test_an_arrival_is_the_mean_of_the_order_statistic(self):
        """Of one worker that of the law; the least of many follows a law with as many times the shape."""
        self.assertAlmostEqual(mean_arrival(1, 1, 1.2, 8.4), 1.2 * 8.4 / 7.4)
        self.assertAlmostEqual(mean_arrival(1, 32, 1.2, 8.4), 1.2 * 32 * 8.4 / (32 * 8.4 - 1))
        drawn = np.sort(1.2 * np.random.default_rng(1).random((20000, 32)) ** (-1 / 8.4), axis=1).mean(0)
        np.testing.assert_allclose([mean_arrival(k, 32, 1.2, 8.4) for k in range(1, 33)], drawn, rtol=0.01)

    def test_steps_are_read_off_a_line_and_multiplied_with_the_arrival(self):
        times = estimated_times({"1": {2: 100.0, 4: 60.0}, "2": {2: 200.0, 4: 100.0}}, PLAN)
        self.assertEqual(list(times), [0, 1], "and not beyond what was measured: of one gradient nothing is known")
        np.testing.assert_allclose(times[1], np.array([80, 150]) * (mean_arrival(3, 4, 1, 2) + 0.5))
        np.testing.assert_allclose(times[0], np.array([60, 100]) * (mean_arrival(4, 4, 1, 2) + 0.5))

    def test_rows_are_those_of_the_tidy_tables(self):
        steps = [{"seed": "1", "cluster.workers": "34", "steps_to_target": "60"},
                 {"seed": "1", "cluster.workers": "6", "steps_to_target": ""}]
        self.assertEqual(steps_by_gradients(steps), {"1": {32: 60.0}})
        times = [{"method.backups": b, "time_to_target_s": time_s} for b, time_s in (("2", "5"), ("0", "7"), ("4", ""))]
        self.assertEqual(measured_times(times), {0: [7.0], 2: [5.0]})

    def test_both_best_are_marked_and_what_was_measured_has_error_bars(self):
        measured = {0: [10.0, 12.0], 1: [7.0, 9.0], 3: [8.0, 10.0]}
        panel = estimate_figure(measured, {0: [9.0, 9.0], 1: [8.0, 8.2], 3: [6.0, 6.2]}, PLAN).axes[0]
        lines = {line.get_gid(): line.get_xydata() for line in panel.lines if line.get_gid() in (MEASURED, ESTIMATED)}
        np.testing.assert_allclose(lines[MEASURED], [(0, 11), (1, 8), (3, 9)])
        best = sorted(tuple(line.get_xydata()[0]) for line in panel.lines if line.get_gid() == "best")
        np.testing.assert_allclose(best, [(1, 8), (3, 6.1)])
        bars, = panel.containers
        half = mean_and_half(measured[1])[1]
        np.testing.assert_allclose(bars.lines[2][0].get_segments()[1], [(1, 8 - half), (1, 8 + half)])

    def test_what_is_kept_is_what_its_page_says(self):
        measured, estimated, _ = kept_times(KEPT)
        lines = [line for line in (KEPT / "README.md").read_text().splitlines() if re.match(r"\| (b|\w+ \(s\)) \|", line)]
        table = {cells[1]: cells[2:-1] for cells in (re.split(r"\s*\|\s*", line) for line in lines)}
        for name, times in (("estimated (s)", estimated), ("measured (s)", measured)):
            self.assertEqual(["{:.0f} +- {:.0f}".format(*mean_and_half(times[int(b)])) for b in table["b"]], table[name])
