"""The figure of what depends on the number that is swept."""

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run, write_sweep
from with_results import WithDirectory, change, comparisons_below

from plots.style import line_styles
from plots.sweep_figure import shown_quantities, sweep_figure
from plots.sweep_lines import THIN
from plots.sweeps import find_sweeps

SIZES = (8, 16, 32)


class Sweeps(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def draw(self, every_formula=False):
        """The figure's panels by title."""
        comparisons = comparisons_below(self.directory)
        labels = {method.label: method.algorithm for comparison in comparisons for method in comparison.methods}
        sweep, = find_sweeps(comparisons)
        figure = sweep_figure(sweep, line_styles(labels), every_formula)
        return {panel.get_title(loc="left"): panel for panel in figure.axes}

    def write_formulas(self, predicted):
        """Micro-batches of 4 samples, 2 per worker and step; in half of the time nobody waits."""
        for run in sorted(write_sweep(self.directory, SIZES).glob("*/seed=*")):
            workers = int(run.parent.name.split("=")[1])
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[cluster]", "[cluster]\nmicro_batches = 2"))
            change(run / "summary.json", samples=4000, kept_micro_batches=1000, samples_per_virtual_s=100 * workers,
                   worker_seconds={"summed": {"wait": 30, "total": 60}}, predicted=predicted(workers))

    @staticmethod
    def thin_lines(panel, kind="formula"):
        return [list(line.get_ydata()) for line in panel.lines if line.get_gid() == kind]

    @staticmethod
    def legend(panel):
        return [text.get_text() for legend in panel.figure.legends for text in legend.get_texts()]

    def test_formulas_that_assume_least_and_linear_scaling_are_thin_lines(self):
        self.write_formulas(lambda workers: [{"formula": "Eq. 4", "step_time_s": 9, "kept": 1, "drop_rate": 0},
                                             {"formula": "law" if workers > 8 else "sampled E[T]", "step_time_s": 0.5,
                                              "kept": 0.75, "drop_rate": 0.25}])
        panels = self.draw()
        speed, of_one = panels["Samples per second"], panels["Samples per second and worker"]
        self.assertEqual(self.thin_lines(speed), [[n * 2 * 4 * 0.75 / 0.5 for n in SIZES]] * 2)
        self.assertEqual(self.thin_lines(speed, "linear"), [[n * 200 for n in SIZES]])
        self.assertEqual(self.thin_lines(of_one), [[12] * 3] * 2)
        self.assertEqual(self.thin_lines(of_one, "linear"), [[200] * 3])
        self.assertEqual(self.thin_lines(panels["Dropped micro-batches (%)"]), [[25] * 3] * 2)
        self.assertEqual(self.legend(speed), ["by formula: sampled E[T] or law", "linear scaling: nobody waits"])

    def test_every_formula_is_drawn_on_request_each_with_its_own_dashes(self):
        self.write_formulas(lambda workers: [{"formula": "Eq. 4", "step_time_s": 2, "kept": 1},
                                             {"formula": "sampled E[T]", "step_time_s": 0.5, "kept": 1}])
        panel = self.draw(every_formula=True)["Samples per second and worker"]
        self.assertEqual(sorted(self.thin_lines(panel)), [[4] * 3] * 2 + [[16] * 3] * 2)
        dashes = {line.get_ydata()[0]: line._unscaled_dash_pattern for line in panel.lines
                  if line.get_gid() == "formula"}
        self.assertEqual(dashes, {16: THIN[0], 4: THIN[1]})
        self.assertEqual(self.legend(self.draw(every_formula=True)["Samples per second"])[:2],
                         ["sampled E[T]", "Eq. 4"])

    def test_a_formula_that_some_points_lack_has_dashes_of_its_own(self):
        shared = [{"formula": name, "step_time_s": step_s, "kept": 1} for name, step_s in (("Eq. 4", 2), ("E[T]", 1))]
        law = {"formula": "law", "step_time_s": 0.5, "kept": 1}
        self.write_formulas(lambda workers: shared + [law] * (workers > 8))
        panel = self.draw(every_formula=True)["Samples per second and worker"]
        dashes = {line.get_ydata()[0]: line._unscaled_dash_pattern for line in panel.lines
                  if line.get_gid() == "formula"}
        self.assertEqual(dashes, {16: THIN[0], 8: THIN[1], 4: THIN[2]})
        self.assertIn([16] * 2, self.thin_lines(panel))  # from 16 workers on

    def test_the_legend_says_whose_formula_is_which(self):
        for run in write_sweep(self.directory, SIZES).glob("*/seed=*"):
            name = "law" if "DropCompute" in (run / "config.toml").read_text() else "Eq. 4"
            change(run / "summary.json", samples=4000, kept_micro_batches=1000,
                   predicted=[{"formula": name, "step_time_s": 1, "kept": 1}])
        text = self.legend(self.draw()["Samples per second"])[0]
        self.assertRegex(text, r"by formula: .*: (law|Eq. 4); .*: (law|Eq. 4)$")

    def test_a_target_that_a_seed_missed_is_marked(self):
        runs = sorted(write_sweep(self.directory, SIZES).glob("*/seed=*"))
        for run in runs:
            reached = "workers=32" not in str(run.parent)
            change(run / "summary.json", time_to_target={"time_s": 2.0} if reached else {})
        panel = self.draw()["Time to target (s)"]
        marks = [list(line.get_xdata()) for line in panel.lines if line.get_gid() == "missed"]
        self.assertEqual(marks, [[32]] * 2)
        self.assertEqual(len({line.get_ydata()[0] for line in panel.lines if line.get_gid() == "missed"}), 2, "both are seen")
        self.assertIn("target not reached by all seeds", self.legend(panel))
        for line in panel.lines:
            if line.get_gid() == "method":
                self.assertEqual(list(line.get_xdata()), [8, 16])

    def test_linear_scaling_starts_from_the_fastest_where_nobody_is_synchronous(self):
        for run in write_sweep(self.directory, SIZES).glob("*/seed=*"):
            config = run / "config.toml"
            config.write_text(config.read_text().replace('"sync-sgd"', '"async-sgd"'))
            is_fast = "DropCompute" in config.read_text()
            change(run / "summary.json", samples_per_virtual_s=800 if is_fast else 400, worker_seconds=None)
        linear, = self.thin_lines(self.draw()["Samples per second"], "linear")
        self.assertEqual(linear[0], 800)

    def test_what_claims_are_about_has_a_panel_of_its_own(self):
        for run in write_sweep(self.directory, SIZES).glob("*/seed=*"):
            change(run / "summary.json", time_to_target={"step": 40, "samples": 800, "time_s": 2.0}, odd_share=0.25)
        sweep, = find_sweeps(comparisons_below(self.directory))
        looks = line_styles({line.label: "" for line in sweep.lines})
        claims = [{"measure": "steps_to_target"}, {"measure": "step_time_s"}, {"measure": "nobody_has_it"},
                  {"measure": "odd_share", "shown": {"times": 100, "unit": "%"}}]
        panels = {panel.get_title(loc="left"): panel for panel in sweep_figure(sweep, looks, claims=claims).axes}
        self.assertEqual(list(panels)[:2], ["Steps to target", "Odd share (%)"])
        self.assertEqual(list(panels["Odd share (%)"].lines[0].get_ydata()), [25] * len(SIZES))
        self.assertNotIn("Nobody has it", panels)

    def test_what_no_value_of_the_key_changes_has_a_panel_only_where_claims_are_about_it(self):
        for peak in (1, 2, 3):
            run = write_run(self.directory / f"{peak}", "m", 1, drop=0.1, speed=1 + 0.1 * peak)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"[training]\npeak = {peak}"))
            change(run / "summary.json", final_test_accuracy=0.8 + peak / 100)
        sweep, = find_sweeps(comparisons_below(self.directory))
        self.assertEqual([quantity.measure for quantity in shown_quantities(sweep)],
                         ["samples_per_s", "step_time_s", "final_test_accuracy", "time_to_target_s"])
        self.assertIn("drop_rate", [quantity.measure for quantity in shown_quantities(sweep, [{"measure": "drop_rate"}])])

    def test_an_axis_does_not_speak_of_late_digits(self):
        for seed, run in enumerate(write_sweep(self.directory, SIZES).glob("*/seed=*")):
            change(run / "summary.json", final_test_accuracy=0.5 * (1 + 1e-7 * seed))
        low, high = self.draw()["Final test accuracy (%)"].get_ylim()
        self.assertAlmostEqual(low, 45, places=2)
        self.assertAlmostEqual(high, 55, places=2)

    def test_the_option_asks_for_every_formula(self):
        self.write_formulas(lambda workers: [{"formula": "first", "step_time_s": 2, "kept": 1},
                                             {"formula": "last", "step_time_s": 0.5, "kept": 1}])
        for arguments, names in (([], [">by formula: last<"]), (["--every-formula"], [">first<", ">last<"])):
            self.assertEqual(self.status_and_message(*arguments, self.directory / "synthetic"), (0, ""))
            drawing = (self.directory / "synthetic" / "plots" / "sweep.svg").read_text()
            self.assertEqual([name for name in (">by formula: last<", ">first<", ">last<") if name in drawing], names)

    def test_lines_are_means_of_the_seeds_and_bands_go_from_the_lowest_to_the_highest(self):
        speeds = {8: (100.0, 130.0, 400.0), 16: (200.0, 210.0, 250.0), 32: (90.0, 300.0, 300.0)}
        for workers, of_seeds in speeds.items():
            for seed, speed in enumerate(of_seeds, 1):
                run = write_run(self.directory / str(workers), "m", seed, workers=workers, accuracy=False)
                change(run / "summary.json", samples_per_virtual_s=speed, drop_rate=speed / 1000)
        panels = self.draw()
        for title, scale in (("Samples per second", lambda n: 1), ("Dropped micro-batches (%)", lambda n: 0.1),
                             ("Samples per second and worker", lambda n: 1 / n)):
            line, = [line for line in panels[title].lines if line.get_gid() == "method"]
            expected = [(n, scale(n) * sum(of_seeds) / 3) for n, of_seeds in speeds.items()]
            np.testing.assert_allclose(line.get_xydata(), expected)
            band, = panels[title].collections
            corners = band.get_paths()[0].vertices
            for n, of_seeds in speeds.items():
                at = corners[corners[:, 0] == n][:, 1]
                np.testing.assert_allclose([at.min(), at.max()],
                                           [scale(n) * of_seeds[0], scale(n) * of_seeds[2]], err_msg=title)

    def test_linear_scaling_is_that_of_the_baseline_on_the_fewest_workers(self):
        for workers in SIZES:
            for label, algorithm, speed in (("other", "x", 50), ("sync", "sync-sgd", 100)):
                run = write_run(self.directory / f"{label}{workers}", label, 1, workers=workers, accuracy=False,
                                algorithm=algorithm)
                change(run / "summary.json", samples_per_virtual_s=speed * workers ** 0.5, method_index=label == "sync",
                       worker_seconds={"summed": {"wait": workers, "total": 80}})
        panels = self.draw()
        # On 8 workers nobody waits in 9 of 10 parts of the time.
        one = 100 * 8 ** 0.5 / 0.9 / 8
        np.testing.assert_allclose(self.thin_lines(panels["Samples per second"], "linear"), [[n * one for n in SIZES]])
        np.testing.assert_allclose(self.thin_lines(panels["Samples per second and worker"], "linear"), [[one] * 3])

    def test_of_other_keys_the_time_of_a_step_is_shown_with_its_formula(self):
        for peak, end_time_s in ((1, 50.0), (2, 60.0), (4, 90.0)):
            run = write_run(self.directory / str(peak), "m", 1)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"[training]\npeak = {peak}"))
            change(run / "summary.json", end_time_s=end_time_s, steps=20, final_test_accuracy=0.5 + 0.125 * peak / 2,
                   samples=4000, kept_micro_batches=1000,
                   predicted=[{"formula": "law", "step_time_s": 2.0 * peak, "kept": 1, "drop_rate": None}])
        panels = self.draw()
        line, = [line for line in panels["Time per optimizer step (s)"].lines if line.get_gid() == "method"]
        np.testing.assert_allclose(line.get_xydata(), [(1, 2.5), (2, 3), (4, 4.5)])
        self.assertEqual(self.thin_lines(panels["Time per optimizer step (s)"]), [[2, 4, 8]])
        line, = [line for line in panels["Final test accuracy (%)"].lines if line.get_gid() == "method"]
        np.testing.assert_allclose(line.get_ydata(), [56.25, 62.5, 75])
        self.assertFalse([line for panel in panels.values() for line in panel.lines if line.get_gid() == "linear"])
