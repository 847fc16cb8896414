"""Curves: interpolation over seeds, figures of curves and of steps, and the files of figures."""

import unittest

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import WithDirectory, change, comparisons_below, write_experiment, write_run, write_sweep

from plots.curves import (HORIZONTALS, Curve, best_order, common_grid, curves_figure, mean_curve, shown_range,
                          without_repetition)
from plots.figures import file_name
from plots.final_results import pareto_figure
from plots.plot import numbered
from plots.rounds import distributions_figure, rounds_figure, step_times
from plots.style import ALGORITHMS, SHORT, TWINS, line_styles, spread, time_unit, use_page


class Interpolation(unittest.TestCase):
    def test_grid_of_equal_sequences_is_the_sequence(self):
        x = np.array([0.0, 10.0, 25.0])
        np.testing.assert_array_equal(common_grid([x, x.copy()]), x)

    def test_grid_lies_between_the_latest_beginning_and_the_earliest_end(self):
        grid = common_grid([np.array([0.0, 5.0, 10.0]), np.array([1.0, 6.0, 12.0])])
        np.testing.assert_array_equal(grid, [1, 5, 6, 10])  # only points of the sequences, where they overlap

    def test_sequences_that_do_not_overlap_have_no_grid(self):
        self.assertEqual(len(common_grid([np.array([0.0, 1.0]), np.array([2.0, 3.0])])), 0)

    def test_mean_of_two_straight_lines_is_the_line_between_them(self):
        # y = x and y = 3 x, on different points
        curve = mean_curve([np.array([0.0, 4.0, 8.0]), np.array([0.0, 5.0, 10.0])],
                           [np.array([0.0, 4.0, 8.0]), np.array([0.0, 15.0, 30.0])])
        self.assertEqual(curve.x[-1], 8.0)  # the end of the shorter sequence
        np.testing.assert_allclose(curve.mean, 2 * curve.x)
        np.testing.assert_allclose(curve.low, curve.x)
        np.testing.assert_allclose(curve.high, 3 * curve.x)

    def test_between_points_the_mean_is_exact(self):
        curve = mean_curve([np.array([0.0, 2.0, 4.0]), np.array([0.0, 3.0, 4.0])],
                           [np.array([0.0, 2.0, 0.0]), np.array([0.0, 3.0, 0.0])])
        np.testing.assert_array_equal(curve.x, [0, 2, 3, 4])
        np.testing.assert_array_equal(curve.mean, [0, 2, 2, 0])

    def test_values_that_are_not_finite_are_left_out(self):
        x = np.array([0.0, 1.0, 2.0])
        curve = mean_curve([x, x], [np.array([1.0, np.inf, np.nan]), np.array([np.nan] * 3)])
        np.testing.assert_array_equal(curve.x, [0.0])
        np.testing.assert_array_equal(curve.mean, [1.0])
        self.assertIsNone(mean_curve([x], [np.array([np.nan] * 3)]))

    def test_sequences_that_touch_share_a_point(self):
        np.testing.assert_array_equal(common_grid([np.array([0.0]), np.array([0.0, 3.0])]), [0.0])

    def test_steep_beginning_does_not_set_the_range(self):
        y = np.array([0.1, 0.80, 0.85, 0.87, 0.88, 0.89])
        low, high = shown_range([Curve(np.linspace(0, 100, 6), y, y - 0.01, y + 0.01)])
        self.assertAlmostEqual(low, 0.79)
        self.assertAlmostEqual(high, 0.90)

    def test_a_method_far_off_does_not_set_the_range(self):
        x = np.linspace(0, 100, 11)
        crowd = [Curve(x, y, y, y) for y in (np.full(11, 0.80 + 0.01 * place) for place in range(5))]
        fallen = np.array([0.8, 0.8, 0.3, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.8])
        np.testing.assert_allclose(shown_range([*crowd, Curve(x, fallen, fallen, fallen)]), (0.80, 0.84))
        np.testing.assert_allclose(shown_range([*crowd, Curve(x, x, x, x)]), (0.80, 0.84))
        np.testing.assert_allclose(shown_range([crowd[0], Curve(x, fallen, fallen, fallen)]), (0.3, 0.8))

    def test_labels_are_moved_apart_and_stay_inside(self):
        heights = spread([0.97, 0.98, 0.98, 0.99], 0.05)
        self.assertTrue(all(b - a >= 0.0499 for a, b in zip(heights, heights[1:])))
        self.assertLessEqual(heights[-1], 1.0 + 1e-6)

    def test_time_unit_suits_the_length(self):
        self.assertEqual([time_unit(seconds)[1] for seconds in (0.5, 1.6, 90, 400, 20000)], ["ms", "s", "s", "min", "h"])

    def test_ticks_have_the_digits_of_their_steps(self):
        for ticks, texts in (([42.25e9, 42.275e9, 42.3e9], ["42.25G", "42.275G", "42.3G"]),
                             ([-500, 0, 500, 1000], ["-500", "0", "500", "1k"]), ([0.1, 0.2, 0.30000000000000004], ["0.1", "0.2", "0.3"]),
                             ([1e3, 1e4, 1e5], ["1k", "10k", "100k"]), ([7], ["7"]),
                             ([24791, 24792, 24793], ["24,791", "24,792", "24,793"]), ([9710.8, 9711], ["9,710.8", "9,711"])):
            self.assertEqual(SHORT.format_ticks(ticks), texts)


class Drawing(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def draw(self, figure, directory):
        comparison, = comparisons_below(directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        return figure(comparison.methods, styles, "heading", "subtitle").axes

    def test_dots_lie_at_the_mean_of_the_summaries(self):
        for label, times in (("reached", (30.0, 50.0)), ("reached too", (40.0, 40.0)), ("never", (20.0, None))):
            for seed, time_s in enumerate(times, 1):
                run = write_run(self.directory / label, label, seed)
                change(run / "summary.json", time_to_target={"time_s": time_s, "step": time_s and 10 * time_s,
                                                             "samples": time_s and 5000 * time_s})
        comparison, = comparisons_below(self.directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        panels = curves_figure(comparison.methods, styles, "heading", "subtitle", tuple(HORIZONTALS)).axes
        for panel, expected in zip(panels[:4], (400, 200000, 40, 0.4)):
            dots = [line for line in panel.lines if line.get_gid() == "target"]
            self.assertEqual([(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots], [(expected, 0.85)] * 2)
            self.assertEqual({dot.get_color() for dot in dots}, {"none"})  # otherwise one dot would hide the other
            self.assertEqual(len({dot.get_marker() for dot in dots}), 2)
            target, = [line for line in panel.lines if list(line.get_ydata()) == [0.85, 0.85]]
            panel.figure.canvas.draw()
            heights = {dot.get_transform().transform(dot.get_xydata())[0, 1] for dot in (*dots, target)}
            self.assertEqual(len(heights), 1)
        self.assertFalse([line for panel in panels[4:] for line in panel.lines if line.get_gid() == "target"])

    def test_no_two_of_thirty_methods_share_line_or_marker_in_one_colour(self):
        styles = line_styles({f"method {place}": algorithm for place, algorithm in
                              enumerate(["sync-sgd", "other", "dropcompute", *["other"] * 26, "local-sgd"])})
        for part in ("linestyle", "marker"):
            self.assertEqual(len({(look["color"], look[part]) for look in styles.values()}), 30)

    def test_fourteen_methods_have_a_colour_each(self):
        for algorithms in (["other"] * 14, ["sync-sgd", *["other"] * 5, "dropcompute", "local-sgd", *["other"] * 6]):
            styles = line_styles({f"method {place}": algorithm for place, algorithm in enumerate(algorithms)})
            self.assertEqual(len({look["color"] for look in styles.values()}), 14)

    def test_colours_that_look_alike_to_colour_blind_readers_have_other_lines_and_markers(self):
        for before in range(8):
            styles = line_styles({f"method {place}": "other" if place != before else "local-sgd" for place in range(14)})
            looks = [look for look in styles.values() if look["color"] in TWINS]
            self.assertEqual(len(looks), 2)
            for part in ("linestyle", "marker"):
                self.assertNotEqual(looks[0][part], looks[1][part])

    def test_samples_are_left_out_if_they_repeat_the_steps(self):
        write_experiment(self.directory, seeds=1)
        comparison, = comparisons_below(self.directory)
        shown = [HORIZONTALS["steps"], HORIZONTALS["samples"]]
        self.assertEqual(without_repetition(comparison.methods, shown), shown[:1])
        self.assertEqual(without_repetition(comparison.methods, shown[1:]), shown[1:])  # nothing to repeat
        for method in comparison.methods[:2]:
            for run in method.runs:
                run.metrics["samples"] *= 4
        self.assertEqual(without_repetition(comparison.methods, shown), shown)

    def test_the_last_axis_is_that_along_which_the_lines_end_together(self):
        for label, speed in (("slow", 1), ("fast", 3)):
            write_run(self.directory / label, label, 1, speed)
        comparison, = comparisons_below(self.directory)
        for wanted in ("steps", "time"):
            for method in comparison.methods:
                for run in method.runs:
                    column = HORIZONTALS[wanted].column
                    run.metrics[column] *= 100 / run.metrics[column].max()
                    if wanted == "time":
                        run.metrics["step"] *= 1 if method.label == "slow" else 2
            order = best_order(comparison.methods, [HORIZONTALS["steps"], HORIZONTALS["time"]])
            self.assertIs(order[-1], HORIZONTALS[wanted])

    def test_bytes_that_differ_by_powers_of_ten_have_a_logarithmic_axis(self):
        comparison, = comparisons_below(write_experiment(self.directory, seeds=1))
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})

        def panel():
            return curves_figure(comparison.methods, styles, "heading", "subtitle", ("bytes", "time")).axes[-2]

        self.assertEqual(panel().get_xscale(), "linear")
        for run in comparison.methods[-1].runs:
            run.metrics["communicated_bytes"] /= 1000
        along = panel()
        self.assertEqual((along.get_xscale(), along.get_xlabel()), ("log", "data sent in total (GB), logarithmic"))
        self.assertGreater(along.get_xlim()[0], 0)
        low, high = along.get_xlim()
        self.assertGreaterEqual(len([tick for tick in along.get_xticks() if low <= tick <= high]), 2)
        for line in along.lines:
            if line.get_gid() == "method":
                self.assertGreater(min(line.get_xdata()), 0)

    def test_only_the_measures_asked_for_have_rows(self):
        comparison, = comparisons_below(write_experiment(self.directory, seeds=1))
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        panels = curves_figure(comparison.methods, styles, "h", "s", ("time",), ("final_test_loss",)).axes
        self.assertEqual([panel.get_ylabel() for panel in panels], ["test loss"])
        self.assertIsNone(curves_figure(comparison.methods, styles, "h", "s", ("time",), ("rounds",)))

    def test_curves_stand_against_the_axes_that_are_asked_for_in_their_order(self):
        comparison, = comparisons_below(write_experiment(self.directory, seeds=2))
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        panels = curves_figure(comparison.methods, styles, "heading", "subtitle", ("bytes", "time")).axes
        self.assertEqual([panel.get_xlabel() for panel in panels], ["", "", "data sent in total (GB)", "time (s)"])
        ends = {line.get_color(): line.get_xdata()[-1] for line in panels[0].lines if line.get_gid() == "method"}
        self.assertEqual(len(ends), 4)
        self.assertAlmostEqual(ends[ALGORITHMS["sync-sgd"]], 1.2)  # 1,200 steps of a million bytes
        self.assertAlmostEqual(ends[ALGORITHMS["local-sgd"]], 0.3)

    def test_nothing_stands_against_bytes_where_nobody_sends_any(self):
        run = write_run(self.directory / "m", "m", 1)
        lines = (run / "metrics.csv").read_text().splitlines()
        (run / "metrics.csv").write_text("\n".join([lines[0], *(line.rsplit(",", 1)[0] + ",0" for line in lines[1:])]))
        self.assertEqual(len(self.draw(curves_figure, self.directory)), 4)  # samples would repeat the steps

    def test_a_target_of_other_data_is_no_line_over_test_accuracy(self):
        run = write_run(self.directory / "m", "m", 1)
        config = run / "config.toml"
        config.write_text(config.read_text().replace("[evaluation]", '[evaluation]\ntarget_of = "validation"'))
        self.assertFalse([line for panel in self.draw(curves_figure, self.directory) for line in panel.lines
                          if line.get_gid() == "target" or list(line.get_ydata()) == [0.85, 0.85]])

    def test_names_that_do_not_fit_beside_the_lines_stand_in_one_legend_below(self):
        for number in range(20):
            write_run(self.directory / f"{number:02}", f"method {number:02}", 1)
        panels = self.draw(curves_figure, self.directory)
        legend, = panels[0].figure.legends
        self.assertEqual(len(legend.get_texts()), 20)
        self.assertFalse([text for panel in panels for text in panel.texts if text.get_text().startswith("method")])
        panels[0].figure.canvas.draw()
        self.assertLess(legend.get_window_extent().y1, panels[-1].xaxis.get_tightbbox(panels[0].figure.canvas.get_renderer()).y0)
        self.assertGreaterEqual(legend.get_window_extent().y0, 0)

    def test_periods_are_drawn_of_methods_that_have_any(self):
        *_, panel = self.draw(rounds_figure, write_experiment(self.directory, seeds=2))
        self.assertEqual(panel.get_title(loc="left"), "Synchronisation period (optimizer steps), first seed")
        self.assertEqual(sorted(text.get_text() for text in panel.texts), ["Local SGD (QSR)", "others: 1"])
        stairs = [line for line in panel.lines if line.get_color() == ALGORITHMS["local-sgd"]]
        self.assertGreater(max(stairs[0].get_ydata()), 1)

    def test_without_others_none_are_named(self):
        write_run(self.directory / "m", "m", 1, period=4)
        *_, panel = self.draw(rounds_figure, self.directory)
        self.assertEqual([text.get_text() for text in panel.texts], ["m"])
        self.assertNotIn("seed", panel.get_title(loc="left"))


    def test_what_is_written_beside_an_axis_is_not_cut(self):
        self.addCleanup(use_page, "screen")
        for label, speed in (("a", 1), ("b", 2)):
            run = write_run(self.directory / label, label, 1, speed)
            head, *rows = [line.split(",") for line in (run / "metrics.csv").read_text().splitlines()]
            at = head.index("test_loss")
            rows = [[*row[:at], f"{float(row[at]) / 1000:.9f}", *row[at + 1:]] for row in rows]
            (run / "metrics.csv").write_text("".join(",".join(row) + "\n" for row in (head, *rows)))
        for name in ("screen", "single", "double"):
            use_page(name)
            for panels in (self.draw(curves_figure, self.directory), self.draw(pareto_figure, self.directory)):
                renderer = panels[0].figure.canvas.get_renderer()
                for panel in panels:
                    written, row = panel.yaxis.get_tightbbox(renderer), panel.get_position().y0
                    before = [other.get_window_extent().x1 for other in panels if abs(other.get_position().y0 - row) < 0.01
                              and other.get_position().x0 < panel.get_position().x0]
                    self.assertGreaterEqual(written.x0 if written else 1, max(before, default=0) if written else 0,
                                            (name, panel.get_ylabel()))


class Figures(WithDirectory):
    def written(self):
        return sorted(path.name for path in (self.directory / "plots").iterdir())

    def test_experiment_gives_its_figures_in_two_formats(self):
        write_experiment(self.directory, seeds=2)
        status, message = self.status_and_message(self.directory)
        self.assertEqual((status, message), (0, ""))
        self.assertEqual(self.written(), [f"{kind}.{suffix}" for kind in ("bars", "curves", "distributions", "pareto", "rounds")
                                          for suffix in ("png", "svg")])
        self.assertEqual((self.directory / "plots" / "curves.png").read_bytes()[:4], b"\x89PNG")
        drawing = (self.directory / "plots" / "curves.svg").read_text()
        for text in ("DropCompute", "test accuracy (%)", "test loss", "optimizer steps", "target 85 %"):
            self.assertIn(text, drawing)

    def test_drawing_again_replaces_the_figures(self):
        write_experiment(self.directory, seeds=1)
        self.assertEqual(self.status_and_message(self.directory)[0], 0)
        first = (self.directory / "plots" / "curves.svg").read_bytes()
        self.assertEqual(self.status_and_message(self.directory)[0], 0)
        self.assertEqual((self.directory / "plots" / "curves.svg").read_bytes(), first)

    def test_quadratic_without_accuracy_shows_the_loss_alone(self):
        write_experiment(self.directory, seeds=1, accuracy=False)
        self.assertEqual(self.status_and_message(self.directory)[0], 0)
        drawing = (self.directory / "plots" / "curves.svg").read_text()
        self.assertIn("test loss", drawing)
        self.assertNotIn("test accuracy", drawing)

    def test_sweep_gives_a_figure_of_its_own_beside_those_of_its_points(self):
        write_sweep(self.directory)
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        self.assertIn("sweep.png", self.written())
        self.assertIn("curves-workers=8.png", self.written())
        drawing = (self.directory / "plots" / "sweep.svg").read_text()
        for text in ("Samples per second", "Dropped micro-batches (%)", "workers"):
            self.assertIn(text, drawing)
        self.assertNotIn("accuracy", drawing)

    def test_failed_run_is_left_out_and_named(self):
        kept, failed = (write_run(self.directory / "m", "m", seed) for seed in (1, 2))
        summary = failed / "summary.json"
        summary.write_text(summary.read_text().replace("finished", "failed"))
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 0)
        self.assertIn(str(failed), message)
        self.assertNotIn(str(kept), message)

    def test_points_whose_numbers_differ_in_the_sign_of_an_exponent_have_files_of_their_own(self):
        for seed, peak in ((1, "1e6"), (1, "1e-6")):
            run = write_run(self.directory / peak, "m", seed)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"[training]\npeak = {peak}"))
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        self.assertEqual([name for name in self.written() if name.startswith("curves") and name.endswith("png")],
                         ["curves-peak=1M.png", "curves-peak=1e-06.png"])

    def test_points_whose_names_become_equal_are_numbered(self):
        for model in ("a b", "a/b", "A b"):
            config = write_run(self.directory / str(len(list(self.directory.iterdir()))), "m", 1) / "config.toml"
            config.write_text(config.read_text().replace("mlp", model))
        self.assertEqual(file_name("curves", "", "model=a b"), file_name("curves", "model=a/b"))
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        self.assertEqual([name for name in self.written() if name.startswith("curves") and name.endswith("png")],
                         ["curves-model=A-b-3.png", "curves-model=a-b-2.png", "curves-model=a-b.png"])

    def test_a_number_that_is_taken_is_passed_over(self):
        taken = set()
        self.assertEqual([numbered(name, taken) for name in ("a", "a-2", "a", "a")], ["a", "a-2", "a-3", "a-4"])

    def test_a_run_with_step_zero_alone_is_drawn_without_warnings(self):
        run = write_run(self.directory / "m", "m", 1)
        for table, rows in (("metrics.csv", 2), ("steps.csv", 1)):
            text = (run / table).read_text().splitlines(keepends=True)
            (run / table).write_text("".join(text[:rows]))
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        self.assertEqual(self.written(), ["curves.png", "curves.svg"])

    def test_a_sweep_with_fewer_seeds_of_one_method_says_so(self):
        for workers in (8, 16, 32):
            write_run(self.directory / f"{workers}" / "a", "a", 1, workers=workers)
            write_run(self.directory / f"{workers}" / "a", "a", 2, workers=workers)
            write_run(self.directory / f"{workers}" / "b", "b", 1, workers=workers)
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        drawing = (self.directory / "plots" / "sweep.svg").read_text()
        for text in (">a<", ">b (1 seed)<", "mean of up to 2 seeds"):
            self.assertIn(text, drawing)


HEADER = "step,time_s,duration_s,kept_micro_batches,dropped_micro_batches,period_steps,bytes\n"


class Rounds(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write_steps(self, label, seed, rows):
        """Writes a run with these rounds, each (duration, period, kept, dropped)."""
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
        # Two seeds together have steps of 1, 4, 9 to 101^2 s. The quantile q is (1 + 100 q)^2, unlike any mean.
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
        # Rounds of 4 steps take as long as 4 single steps. A row with 0 steps counts as one step.
        self.write_steps("rounds", 1, [(8.0, 4, 4, 0)] * 5)
        self.write_steps("steps", 1, [(2.0, 1, 1, 0)] * 5)
        self.write_steps("uncounted", 1, [(2.0, 0, 1, 0)] * 5)
        panel = self.panels()[0]
        dots = [float(line.get_xdata()[0]) for line in panel.lines if line.get_marker() == "o"]
        np.testing.assert_allclose(dots, [2, 2, 2])

    def test_a_round_counts_as_often_as_it_has_steps(self):
        # One step of 9 s, and a round of 3 steps, 1 s each: quantiles of 1, 1, 1 and 9 s, whose mean is 3 s.
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
        line = panel.lines[0]  # the other lines lead to labels
        np.testing.assert_allclose(line.get_ydata(), 30)
        band, = panel.collections
        heights = band.get_paths()[0].vertices[:, 1]
        np.testing.assert_allclose([heights.min(), heights.max()], [10, 60])

    def test_a_windows_drop_rate_is_that_of_all_its_micro_batches(self):
        # Rounds drop 0 of 90 and 5 of 10 micro-batches: together 5 %, not the mean of 0 and 50 %.
        self.write_steps("m", 1, [(1.0, 1, 90, 0), (1.0, 1, 5, 5)] * 80)
        panel, = [panel for panel in self.panels() if panel.get_title(loc="left").startswith("Dropped")]
        line = panel.lines[0]
        np.testing.assert_allclose(line.get_ydata(), 5)
        np.testing.assert_allclose(line.get_xdata(), 2.5 + 4 * np.arange(40))  # middles of steps 1 to 4, 5 to 8, ...

    def test_periods_are_stairs_from_the_end_of_the_round_before_to_that_of_the_round(self):
        self.write_steps("m", 1, [(1.0, 2, 1, 0), (1.0, 8, 1, 0), (1.0, 4, 1, 0)])
        self.write_steps("m", 2, [(1.0, 16, 1, 0)])  # only the first seed is drawn
        *_, panel = self.panels()
        self.assertEqual([tuple(point) for point in panel.lines[0].get_xydata()], [(0, 2), (2, 2), (2, 8), (10, 8)])
        last, = [line for line in panel.lines if line.get_gid() == "last"]  # its period is cut, since training ends
        self.assertEqual([tuple(point) for point in last.get_xydata()], [(10, 8), (10, 4), (14, 4)])
