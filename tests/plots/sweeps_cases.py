"""Figures of one or two swept numbers (of the file or of a method), with numbers from papers and best points."""

import json
import shutil

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import WithDirectory, change, comparisons_below, write_run, write_sweep

from plots.claims import claims_of, published_in, value_of
from plots.comparison import key_label
from plots.heat import find_grids, heat_figure
from plots.style import line_styles
from plots.sweeps import THIN, along_axis, find_sweeps, is_spaced_by_factors, shown_quantities, sweep_figure

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
        """Writes runs with micro-batches of 4 samples, 2 per worker and step; workers wait half of the time."""
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
        self.assertEqual(self.legend(speed), ["by formula: sampled E[T] or law", "linear scaling: no worker waits"])

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
        # Among 8 workers, each waits for one tenth of the time.
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


COEFFICIENTS = {0.01: 0.85, 0.02: 0.88, 0.04: 0.86}


class OwnSweeps(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write(self, label, coefficient=None, name=None, seed=1, algorithm="local-sgd", **summary):
        """Writes a run of the method with this coefficient. `name`: the coefficient's name in the sweep."""
        run = write_run(self.directory / "e" / f"{label}{coefficient}", label, seed, algorithm=algorithm)
        config = run / "config.toml"
        if coefficient is not None:
            config.write_text(config.read_text() + f"period = {{ coefficient = {coefficient}, power = 2 }}\n")
            summary["sweep"] = [[f"methods.{label}.period.coefficient", name or str(coefficient)]]
        change(run / "summary.json", **summary)
        return run

    def write_coefficients(self, names=None):
        for coefficient, accuracy in COEFFICIENTS.items():
            for seed in (1, 2):
                self.write("QSR", coefficient, (names or {}).get(coefficient), seed,
                           final_test_accuracy=accuracy + 0.01 * seed, samples_per_virtual_s=100 * (1 + coefficient))
        for seed in (1, 2):
            self.write("sync", algorithm="sync-sgd", seed=seed, final_test_accuracy=0.8, samples_per_virtual_s=100)

    def draw(self):
        comparisons = comparisons_below(self.directory)
        sweep, = find_sweeps(comparisons)
        looks = line_styles({line.label: "x" for line in sweep.lines})
        figure = sweep_figure(sweep, looks, published=published_in(claims_of(comparisons))[sweep.experiment])
        return sweep, {panel.get_title(loc="left"): panel for panel in figure.axes}

    @staticmethod
    def lines(panel, gid):
        return [line.get_xydata().tolist() for line in panel.lines if line.get_gid() == gid]

    def test_a_methods_own_number_is_one_line_beside_what_it_does_not_concern(self):
        self.write_coefficients()
        sweep, panels = self.draw()
        self.assertEqual((sweep.key, [line.label for line in sweep.lines]), ("period.coefficient", ["sync", "QSR"]))
        accuracy = panels["Final test accuracy (%)"]
        np.testing.assert_allclose(self.lines(accuracy, "method"), [[[x, 100 * y + 1.5] for x, y in COEFFICIENTS.items()]])
        np.testing.assert_allclose(self.lines(accuracy, "everywhere"), [[[x, 80] for x in COEFFICIENTS]])
        self.assertEqual((accuracy.get_xlabel(), accuracy.get_xscale()), ("coefficient of the period", "log"))

    def test_the_best_point_has_a_ring(self):
        self.write_coefficients()
        np.testing.assert_allclose(self.lines(self.draw()[1]["Final test accuracy (%)"], "best"), [[[0.02, 89.5]]])

    def test_s_eff_is_speed_divided_by_that_of_synchronous_sgd(self):
        self.write_coefficients()
        panel = self.draw()[1]["S_eff: samples per second, against synchronous SGD"]
        np.testing.assert_allclose(self.lines(panel, "method"), [[[x, 1 + x] for x in COEFFICIENTS]])

    def test_values_have_the_names_that_the_sweep_gives_them(self):
        self.write_coefficients({0.01: "low", 0.02: "middle", 0.04: "high"})
        sweep, panels = self.draw()
        self.assertEqual(sweep.names, {0.01: "low", 0.02: "middle", 0.04: "high"})
        ticks = [text.get_text() for text in panels["Final test accuracy (%)"].get_xticklabels()]
        self.assertEqual(ticks, ["low", "middle", "high"])

    def test_axes_say_of_which_table_a_key_is(self):
        for key, label in {"period.coefficient": "coefficient of the period",
                           "training.learning_rate.peak": "peak learning rate", "delays.0.minimum": "minimum",
                           "threshold_s": "threshold (s)", "cluster.workers": "workers", "minimum": "minimum"}.items():
            self.assertEqual(key_label(key), label)

    def test_bandwidths_are_in_bits_along_an_axis(self):
        key = "network.bandwidth_bytes_per_s"
        named = {12.5e6: "0.1 Gbit/s", 1.25e9: "10 Gbit/s"}
        self.assertEqual(along_axis(key, named), ("bandwidth (Gbit/s)", {12.5e6: "0.1", 1.25e9: "10"}))
        self.assertEqual(along_axis(key, {12.5e6: "100 Mbit/s"}), ("bandwidth (Mbit/s)", {12.5e6: "100"}))
        words = {12.5e6: "slow", 1.25e9: "fast"}
        self.assertEqual(along_axis(key, words), ("bandwidth", words))

    def test_what_papers_state_of_a_point_stands_there(self):
        self.write_coefficients()
        claim = {"sentence": "s", "measure": "final_test_accuracy", "method": "QSR", "as": "value", "criterion": {"above": 0},
                 "where": {"methods.QSR.period.coefficient": "0.04"}, "verdict": "inconclusive", "reason": "", "points": []}
        papers = [{"figure": "91.5 %", "source": "Table 1", "certainty": "stated"},
                  {"figure": "77 %", "source": "guess", "certainty": "derived"}]
        (self.directory / "e" / "claims.json").write_text(
            json.dumps({"schema_version": 3, "claims": [{**claim, "paper": paper} for paper in papers]}))
        panel = self.draw()[1]["Final test accuracy (%)"]
        self.assertEqual(self.lines(panel, "paper"), [[[0.04, 91.5]]])
        self.assertIn("Table 1", [text.get_text() for legend in panel.figure.legends for text in legend.get_texts()])

    def test_a_measure_asked_for_is_alone_and_marks_what_theory_expects_of_it(self):
        self.write_coefficients()
        claim = {"sentence": "s", "measure": "final_test_accuracy", "method": "QSR", "as": "value", "class": "theory",
                 "criterion": {"within": [0.9, 0.94]}, "where": {"methods.QSR.period.coefficient": "0.04"},
                 "shown": {"times": 100, "unit": "%"}, "verdict": "inconclusive", "reason": "", "points": []}
        others = [{**claim, "class": "paper"}, {**claim, "criterion": {"above": 0.5}}, {**claim, "method": "another"},
                  {**claim, "as": "ratio", "against": "sync"}]
        sweep, = find_sweeps(comparisons_below(self.directory))
        looks = line_styles({line.label: "x" for line in sweep.lines})
        panel, = sweep_figure(sweep, looks, claims=[claim, *others], measures=("final_test_accuracy",)).axes
        self.assertEqual((panel.get_ylabel(), panel.get_title(loc="left")), ("Final test accuracy (%)", ""))
        place, = self.lines(panel, "theory")
        np.testing.assert_allclose(place, [[0.04, 92]])
        self.assertTrue([text for legend in panel.figure.legends for text in legend.get_texts() if "by theory" in text.get_text()])
        self.assertIsNone(sweep_figure(sweep, looks, measures=("rounds_of_nobody",)))
        panels = sweep_figure(sweep, looks, measures=("samples_per_s", "final_test_accuracy")).axes
        self.assertEqual([panel.get_title(loc="left") for panel in panels], ["Samples per second", "Final test accuracy (%)"])

    def test_figures_of_papers_are_read_where_they_can_mean_one_thing(self):
        self.assertEqual([value_of(figure, effect) for figure, effect in
                          (("91.5 %", "value"), ("1.18", "ratio"), ("1.18x", "ratio"), ("18 %", "ratio"), ("18 %", "difference"),
                           ("about 5", "value"), ("80 to 90 %", "value"))],
                         [0.915, 1.18, 1.18, None, None, None, None])

    def test_points_have_the_names_of_their_variants_and_not_all_that_these_change(self):
        for variant, extra in (("none", ""), ("clipped", "clip_norm = 2.0\n"), ("slow", "peak = 1.0\n")):
            run = write_run(self.directory / "e" / variant, "m", 1)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"[training]\n{extra}"))
            change(run / "summary.json", sweep=[["variant", variant]])
        everywhere = write_run(self.directory / "e" / "unconcerned", "other", 1)
        with open(everywhere / "config.toml", "a", encoding="utf-8") as config:
            config.write("[methods.training]\nclip_norm = 3.0\npeak = 5.0\n")
        found = {comparison.point["variant"]: [method.label for method in comparison.methods]
                 for comparison in comparisons_below(self.directory)}
        self.assertEqual(set(found), {"none", "clipped", "slow"})
        self.assertTrue(all(sorted(labels) == ["m", "other"] for labels in found.values()), (found, everywhere))

    def test_keys_that_go_together_are_one_axis(self):
        for workers, micro_batches in ((8, 4), (16, 2), (32, 1)):
            run = write_run(self.directory / "e" / str(workers), "m", 1, workers=workers)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[cluster]", f"[cluster]\nmicro_batches = {micro_batches}"))
            change(run / "summary.json", sweep=[["cluster.workers", str(workers)], ["cluster.micro_batches", str(micro_batches)]])
        sweep, = find_sweeps(comparisons_below(self.directory))
        self.assertEqual((sweep.xs, sweep.others), ([8, 16, 32], {}))

    def test_values_that_grow_by_a_factor_are_spaced_so(self):
        self.assertTrue(is_spaced_by_factors([1, 2, 4]))
        self.assertFalse(is_spaced_by_factors([1, 2, 3]))
        self.assertTrue(is_spaced_by_factors([1, 5, 20]))  # more than a decade
        self.assertFalse(is_spaced_by_factors([0, 1, 2, 4]))


WORKERS, THRESHOLDS = (8, 16, 32), (0.1, 0.2, 0.3, 0.4)


class Heat(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")
        for workers in WORKERS:
            for threshold_s in THRESHOLDS:
                for seed in (1, 2):
                    run = write_run(self.directory / "e" / f"{workers} {threshold_s}", "DropCompute", seed, workers=workers,
                                    accuracy=False)
                    config = run / "config.toml"
                    config.write_text(config.read_text() + f"threshold_s = {threshold_s}\n")
                    change(run / "summary.json", samples_per_virtual_s=self.speed(workers, threshold_s) + seed)
            write_run(self.directory / "e" / f"other{workers}", "other", 1, workers=workers, accuracy=False)

    @staticmethod
    def speed(workers, threshold_s):
        """A function with its maximum at 16 workers and 0.3 s."""
        return 1000 - abs(workers - 16) - 100 * abs(threshold_s - 0.3)

    def test_a_map_holds_the_means_at_all_places_and_frames_the_best(self):
        grid, = find_grids(comparisons_below(self.directory))
        self.assertEqual((grid.x_key, grid.y_key, grid.labels), ("method.threshold_s", "cluster.workers", ["DropCompute"]))
        expected = [[self.speed(workers, threshold_s) + 1.5 for threshold_s in THRESHOLDS] for workers in WORKERS]
        np.testing.assert_allclose(grid.values("DropCompute"), expected)
        panel, = heat_figure(grid).axes
        self.assertEqual((panel.get_title(loc="left"), panel.get_xlabel(), panel.get_ylabel()),
                         ("DropCompute: Samples per second", "threshold (s)", "workers"))
        self.assertEqual([text.get_text() for text in panel.get_xticklabels()], [str(one) for one in THRESHOLDS])
        np.testing.assert_allclose(panel.images[0].get_array(), expected)
        self.assertEqual(len(panel.texts), 12)
        frame, = [patch for patch in panel.patches if patch.get_gid() == "best"]
        self.assertEqual((round(frame.get_x() + 0.46), round(frame.get_y() + 0.46)), (2, 1))

    def test_beside_synchronous_sgd_a_map_is_of_s_eff_seed_by_seed(self):
        for workers in WORKERS:
            for seed in (1, 2):
                run = write_run(self.directory / "e" / f"sync{workers}", "sync", seed, workers=workers, accuracy=False,
                                algorithm="sync-sgd")
                change(run / "summary.json", samples_per_virtual_s=100.0 * workers * seed)
        grid, = find_grids(comparisons_below(self.directory))
        expected = [[np.mean([(self.speed(workers, threshold_s) + seed) / (100 * workers * seed) for seed in (1, 2)])
                     for threshold_s in THRESHOLDS] for workers in WORKERS]
        self.assertEqual(grid.labels, ["DropCompute"])
        np.testing.assert_allclose(grid.values("DropCompute"), expected)

    def test_a_title_that_is_wider_than_its_map_is_broken(self):
        for workers in WORKERS:
            write_run(self.directory / "e" / f"sync{workers}", "sync", 1, workers=workers, accuracy=False, algorithm="sync-sgd")
            for threshold_s in THRESHOLDS:
                run = write_run(self.directory / "e" / f"second {workers} {threshold_s}", "another method with a long name", 1,
                                workers=workers, accuracy=False)
                with open(run / "config.toml", "a", encoding="utf-8") as config:
                    config.write(f"threshold_s = {threshold_s}\n")
        grid, = find_grids(comparisons_below(self.directory))
        figure = heat_figure(grid)
        figure.canvas.draw()
        boxes = [panel._left_title.get_window_extent() for panel in figure.axes]
        self.assertIn("against synchronous SGD", figure.axes[1].get_title(loc="left").replace("\n", " "))
        self.assertLess(boxes[0].x1, boxes[1].x0)
        self.assertLess(boxes[1].x1, figure.bbox.width)

    def test_three_values_by_two_are_a_map(self):
        comparisons = [one for one in comparisons_below(self.directory) if one.point.get("cluster.workers") != "32"]
        grid, = find_grids(comparisons)
        self.assertEqual(grid.values("DropCompute").shape, (2, 4))

    def test_bytes_have_a_map_beside_accuracy_where_they_differ(self):
        for run in (self.directory / "e").glob("*/seed=*"):
            place = run.parent.name.split()
            change(run / "summary.json", final_test_accuracy=0.5,
                   communicated_bytes=int(1000 * float(place[1])) if len(place) == 2 else 1)
        grid, = find_grids(comparisons_below(self.directory))
        titles = [panel.get_title(loc="left") for panel in heat_figure(grid).axes]
        self.assertEqual(titles, ["DropCompute: Final test accuracy (%)", "DropCompute: Data sent in total (bytes)"])
        np.testing.assert_allclose(heat_figure(grid).axes[1].images[0].get_array()[0], [100, 200, 300, 400])

    def test_the_message_says_what_a_map_needs(self):
        for run in (self.directory / "e").glob("* 0.[234]"):
            shutil.rmtree(run)
        status, message = self.status_and_message(self.directory, "--only", "heat")
        self.assertEqual(status, 2)
        self.assertIn("heat: two swept numbers, with at least three and two values", message)

    def test_it_is_among_the_figures(self):
        self.assertEqual(self.status_and_message(self.directory, "--only", "heat"), (0, ""))
        self.assertEqual(sorted(path.name for path in (self.directory / "plots").iterdir()), ["heat.png", "heat.svg"])
        drawing = (self.directory / "plots" / "heat.svg").read_text()
        self.assertIn("threshold = 0.1 to 0.4 s, workers = 8 to 32", drawing)
        self.assertNotIn("8 workers", drawing)
