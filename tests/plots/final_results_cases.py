"""Final results of methods at one point or at several points side by side: bars, rankings, Pareto fronts,
distributions."""

import gzip

from matplotlib.colors import to_rgb
import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import WithDirectory, change, comparisons_below, write_run

from plots.claims import Published
from plots.comparison import Comparison, described
from plots.figures import looks_of, plan_figures, regimes_figure, variant_beside
from plots.final_results import (bars_figure, beyond_the_axis, chains, front, pareto_figure, pareto_panels, ranking_figure,
                                 side)
from plots.numbers import mean_and_half, quantile
from plots.plot import KINDS
from plots.rounds import distributions_figure, draw_distributions
from plots.sheet import shared_out
from plots.style import line_styles
from plots.sweeps import find_sweeps, looks_of_sweeps, sweeps_figure
from plots.timeline import ACTIVITIES, HATCHES, accounts_figure


class Ends(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write(self, label, values, **summary):
        """Writes a run per accuracy."""
        for seed, accuracy in enumerate(values, 1):
            run = write_run(self.directory / label, label, seed)
            change(run / "summary.json", final_test_accuracy=accuracy, **summary)

    def draw(self, figure, *more):
        comparison, = comparisons_below(self.directory)
        looks = line_styles({method.label: method.algorithm for method in comparison.methods})
        drawn = figure(comparison.methods, looks, "heading", "subtitle", *more)
        return drawn and {panel.get_title(loc="left"): panel for panel in drawn.axes}

    def test_intervals_are_those_of_students_t(self):
        # Tables of the t distribution: 12.706 for 1 degree of freedom, 2.571 for 5, 1.984 for 100.
        for degrees, expected in ((1, 12.7062), (5, 2.5706), (100, 1.9840)):
            self.assertAlmostEqual(quantile(degrees), expected, places=4)
        mean, half = mean_and_half([1.0, 2.0, 3.0])
        self.assertAlmostEqual(mean, 2.0)
        self.assertAlmostEqual(half, 4.3027 / np.sqrt(3), places=4)
        self.assertEqual(mean_and_half([2.0]), (2.0, None))

    def test_bars_have_what_formulas_say_beside_them(self):
        self.write("a", (0.8,), predicted=[{"formula": "coarse", "step_time_s": 9, "kept": 1},
                                           {"formula": "law", "step_time_s": 0.09, "kept": 1}])
        self.write("b", (0.7,))
        panel = self.draw(bars_figure)["Time per optimizer step (ms)"]
        mark, = [line for line in panel.lines if line.get_gid() == "formula"]
        np.testing.assert_allclose(mark.get_xydata(), [[90, 0]])
        self.assertIn("by the method's formula", [text.get_text() for legend in panel.figure.legends for text in legend.get_texts()])

    def test_bars_show_means_with_intervals_in_the_order_of_the_methods(self):
        self.write("a", (0.80, 0.81, 0.82))
        self.write("b", (0.7, 0.7, 0.7))
        panels = self.draw(bars_figure)
        panel = panels["Final test accuracy (%)"]
        points = [line.get_xydata()[0].tolist() for line in panel.lines if line.get_gid() == "mean"]
        np.testing.assert_allclose(points, [[81, 0], [70, 1]])
        ends = [line.get_xdata().tolist() for line in panel.lines if line.get_gid() == "interval"]
        np.testing.assert_allclose(ends[0], [81 - 4.3027 / np.sqrt(3), 81 + 4.3027 / np.sqrt(3)], rtol=1e-5)
        self.assertEqual([text.get_text() for text in panel.get_yticklabels()], ["a", "b"])
        times = panels["Time per optimizer step (ms)"]
        widths = [bar.get_width() for bar in times.patches if bar.get_gid() == "mean"]
        np.testing.assert_allclose(widths, [100 * 1.04] * 2)  # 0.1 s per step, longer by 2, 4 and 6 % in the seeds
        self.assertEqual(times.get_xlim()[0], 0)

    def test_a_time_that_a_seed_never_reached_is_no_bar(self):
        self.write("a", (0.8, 0.8))
        self.write("b", (0.8, 0.8))
        change(next((self.directory / "b").glob("seed=2-*")) / "summary.json",
               time_to_target={"time_s": None, "step": None, "samples": None})
        panel = self.draw(bars_figure)["Time to target (s)"]
        self.assertEqual(len([bar for bar in panel.patches if bar.get_gid() == "mean"]), 1)
        self.assertEqual([text.get_text() for text in panel.texts], ["not by all seeds"])

    def test_a_target_that_no_seed_of_a_method_reached_says_so(self):
        self.write("a", (0.8, 0.8))
        self.write("b", (0.8, 0.8))
        for summary in (self.directory / "b").glob("seed=*/summary.json"):
            change(summary, time_to_target={"time_s": None, "step": None, "samples": None})
        panel = self.draw(bars_figure)["Time to target (s)"]
        self.assertEqual([text.get_text() for text in panel.texts], ["by no seed"])

    def test_a_papers_figure_stands_in_the_row_of_its_method(self):
        self.write("a", (0.8, 0.8))
        self.write("b", (0.7, 0.7))
        panel = self.draw(bars_figure, [Published("b", "final_test_accuracy", "", {}, 0.75, "Table 2")])["Final test accuracy (%)"]
        self.assertEqual([line.get_xydata()[0].tolist() for line in panel.lines if line.get_gid() == "paper"], [[75, 1]])

    def test_the_front_holds_what_no_other_beats_in_both(self):
        points = {"cheap": (1, 50), "worse": (2, 40), "middle": (2, 60), "as good, dearer": (3, 60), "best": (9, 90),
                  "twin": (9, 90), "worst": (10, 10)}
        results = {name: ({1: cost}, {1: gain}) for name, (cost, gain) in points.items()}
        self.assertEqual(front(results), ["cheap", "middle", "best", "twin"])
        self.assertEqual(chains(results), [["cheap", "middle", "best"], ["twin"]])
        self.assertEqual(front({"one": ({1: 1}, {1: 1})}), ["one"])

    def test_the_front_is_what_intervals_over_the_seeds_tell_apart(self):
        # Gains of 1, 0 and 2 points: mean 1, standard error 1 / sqrt(3). Times t(0.975; 2) = 4.303: [-1.5, 3.5].
        cheap, dear = ({1: 50, 2: 50, 3: 50}, {1: 80, 2: 81, 3: 82}), ({1: 60, 2: 60, 3: 60}, {1: 81, 2: 81, 3: 84})
        self.assertEqual(side(dear[1], cheap[1]), 0)
        self.assertEqual(chains({"cheap": cheap, "dear": dear}), [["cheap"]], "it costs more, and nothing says that it is better")
        better = (dear[0], {1: 81, 2: 82.1, 3: 82.9})  # gains of 1, 1.1 and 0.9 points
        self.assertEqual(side(better[1], cheap[1]), 1)
        self.assertEqual(chains({"better": better, "cheap": cheap}), [["cheap", "better"]])
        # Costs differ only by chance, so neither method beats the other, and no line joins them.
        alike = ({1: 45, 2: 52, 3: 49}, {1: 81, 2: 80, 3: 82.5})
        self.assertEqual(chains({"cheap": cheap, "alike": alike}), [["alike"], ["cheap"]])

    def test_the_figure_joins_only_what_intervals_tell_apart(self):
        for label, accuracies, time_s in (("cheap", (0.80, 0.81, 0.82), 50.0), ("dear", (0.81, 0.81, 0.84), 60.0),
                                          ("best", (0.90, 0.911, 0.919), 100.0)):
            self.write(label, accuracies, end_time_s=time_s, communicated_bytes=1)
        panel, = self.draw(pareto_figure).values()
        line, = [line for line in panel.lines if line.get_gid() == "front"]
        np.testing.assert_allclose(line.get_xdata(), [50, 100])
        rings, = [line for line in panel.lines if line.get_gid() == "on the front"]
        np.testing.assert_allclose(rings.get_xdata(), [50, 100])

    def test_the_line_is_explained_only_if_there_is_one(self):
        self.write("cheap", (0.80, 0.81, 0.82), end_time_s=50.0, communicated_bytes=1)
        self.write("dear", (0.81, 0.81, 0.84), end_time_s=60.0, communicated_bytes=1)
        panel, = self.draw(pareto_figure).values()
        self.assertFalse([text for text in panel.figure.texts if "grey line" in text.get_text()])
        self.write("best", (0.90, 0.911, 0.919), end_time_s=100.0, communicated_bytes=1)
        panel, = self.draw(pareto_figure).values()
        self.assertTrue([text for text in panel.figure.texts if "grey line" in text.get_text()])

    def test_the_front_is_drawn_through_its_methods(self):
        for label, accuracy, time_s, sent in (("a", 0.9, 100.0, 9e9), ("b", 0.8, 50.0, 1e9), ("c", 0.7, 80.0, 2e9),
                                              ("d", 0.85, 60.0, 10e9)):
            self.write(label, (accuracy, accuracy), end_time_s=time_s, communicated_bytes=sent)
        panels = self.draw(pareto_figure)
        for name, expected in (("time", [[50, 80], [60, 85], [100, 90]]), ("bytes", [[1, 80], [9, 90]])):
            panel = panels[f"Final test accuracy (%) against {name}"]
            line, = [line for line in panel.lines if line.get_gid() == "front"]
            np.testing.assert_allclose(line.get_xydata(), expected)
            self.assertEqual(len([line for line in panel.lines if line.get_gid() == "method"]), 4)

    def crowd(self, **of_last):
        """Seven methods within seven points, and one far behind."""
        for place in range(7):
            self.write(f"m{place}", (0.80 + 0.01 * place,) * 2, end_time_s=50.0 + place, communicated_bytes=1)
        self.write("last", (0.30, 0.30), **{"end_time_s": 55.0, "communicated_bytes": 1, **of_last})

    def test_a_method_far_behind_stands_at_the_edge_with_its_value(self):
        self.crowd()
        panel, = self.draw(pareto_figure).values()
        bottom, top = panel.get_ylim()
        self.assertGreater(bottom, 75)
        self.assertGreater((86 - 80) / (top - bottom), 0.6, "the others fill the panel")
        low = [line for line in panel.lines if line.get_gid() == "method" and line.get_ydata()[0] < 80]
        self.assertEqual(len(low), 1)
        self.assertEqual(low[0].get_xdata()[0], 55)
        self.assertTrue(bottom < low[0].get_ydata()[0])
        self.assertEqual([text.get_text() for text in panel.texts if text.get_text() in ("30", "80")], ["30"])
        self.assertEqual(len([text for text in panel.texts if text.get_gid() == "beyond"]), 1)
        self.assertIn("arrows: beyond the axis", str([text.get_text() for text in panel.figure.texts]))

    def test_two_far_behind_that_cost_alike_stand_one_above_the_other(self):
        self.crowd()
        self.write("last but one", (0.40, 0.40), end_time_s=55.1, communicated_bytes=1)
        panel, = self.draw(pareto_figure).values()
        heights = {round(line.get_xdata()[0], 1): line.get_ydata()[0] for line in panel.lines
                   if line.get_gid() == "method" and line.get_ydata()[0] < 80}
        self.assertLess(heights[55.0], heights[55.1], "the last one is further down")

    def test_methods_that_are_spread_out_all_stand_on_the_axis(self):
        for place, accuracy in enumerate((0.3, 0.5, 0.7, 0.9)):
            self.write(f"m{place}", (accuracy,) * 2, end_time_s=50.0 + place, communicated_bytes=1)
        panel, = self.draw(pareto_figure).values()
        self.assertEqual(sorted(line.get_ydata()[0] for line in panel.lines if line.get_gid() == "method"), [30, 50, 70, 90])
        self.assertFalse([text for text in panel.texts if text.get_gid() == "beyond"])
        self.assertNotIn("arrows", str([text.get_text() for text in panel.figure.texts]))

    def test_a_loss_far_above_the_others_stands_at_the_upper_edge(self):
        for place, loss in enumerate((0.30, 0.31, 0.32, 0.33, 2.5)):
            self.write(f"m{place}", (None, None), end_time_s=50.0 + place, communicated_bytes=1, final_test_loss=loss,
                       best_test_accuracy=None)
        panel, = self.draw(pareto_figure).values()
        bottom, top = panel.get_ylim()
        self.assertLess(top, 0.5)
        high, = [line.get_ydata()[0] for line in panel.lines if line.get_gid() == "method" and line.get_ydata()[0] > 0.33]
        self.assertLess(high, top)
        self.assertIn("2.5", [text.get_text() for text in panel.texts])

    def test_no_more_than_a_quarter_of_the_methods_are_left_behind(self):
        crowd = {f"m{place}": 0.9 - 0.01 * place for place in range(6)}
        self.assertEqual(beyond_the_axis({**crowd, "x": 0.2, "y": 0.3}, True), {"x", "y"})
        self.assertEqual(beyond_the_axis({**crowd, "x": 0.2, "y": 0.3, "z": 0.25}, True), set())
        self.assertEqual(beyond_the_axis({"m0": 0.9, "m1": 0.89, "x": 0.1}, True), set(), "two are no crowd")
        self.assertEqual(beyond_the_axis({**crowd, "x": 0.2}, True, {"m0": 0.5}), set(), "an interval goes as far")
        self.assertEqual(beyond_the_axis({name: -value for name, value in crowd.items()} | {"x": 1.0}, False), {"x"})

    def test_marks_that_would_hide_each_other_are_outlines(self):
        for label, accuracy, end_s in (("a", 0.80, 100), ("b", 0.801, 101), ("c", 0.90, 200)):
            self.write(label, (accuracy,), end_time_s=end_s)
        panel = self.draw(pareto_figure, ("time",))["Final test accuracy (%) against time"]
        faces = [line.get_markerfacecolor() for line in panel.lines if line.get_gid() == "method"]
        self.assertEqual([face == "none" for face in faces], [True, True, False])

    def test_what_costs_the_same_has_no_front(self):
        self.write("a", (0.9,), end_time_s=5.0, communicated_bytes=1)
        self.write("b", (0.8,), end_time_s=5.0, communicated_bytes=1)
        self.assertIsNone(self.draw(pareto_figure))

    def test_costs_that_the_axis_cannot_tell_apart_are_the_same(self):
        for label, accuracy, time_s, sent in (("a", 0.9, 5.0, 19_050_000_000), ("b", 0.8, 6.0, 19_050_000_004)):
            self.write(label, (accuracy, accuracy), end_time_s=time_s, communicated_bytes=sent)
        self.assertEqual(list(self.draw(pareto_figure)), ["Final test accuracy (%) against time"])

    def test_accounts_are_stacked_and_add_up(self):
        seconds = {"compute": 60.0, "discarded": 10.0, "wait": 20.0, "communicate": 10.0, "down": 0.0, "total": 100.0}
        self.write("a", (0.8, 0.8), worker_seconds={"summed": seconds})
        self.write("b", (0.8,), worker_seconds={"summed": {**seconds, "compute": 160.0, "total": 200.0}})
        panels = self.draw(accounts_figure)
        shares = {row: [(bar.get_gid(), bar.get_x(), bar.get_width()) for bar in panels["Shares (%)"].patches
                        if round(bar.get_y() + bar.get_height() / 2) == row] for row in (0, 1)}
        self.assertEqual(shares[0], [("compute", 0, 60), ("discarded", 60, 10), ("wait", 70, 20), ("communicate", 90, 10)])
        self.assertEqual([width for _, _, width in shares[1]], [80, 5, 10, 5])
        whole = [bar.get_x() + bar.get_width() for bar in panels["Time of all workers together (min)"].patches if bar.get_gid() == "communicate"]
        np.testing.assert_allclose(whole, [100 / 60, 200 / 60])
        self.assertNotIn("down", {bar.get_gid() for panel in panels.values() for bar in panel.patches})

    def test_activities_that_are_as_dark_on_grey_pages_have_other_hatches(self):
        def grey(colour):
            return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))

        names = list(ACTIVITIES)
        for number, one in enumerate(names):
            for other in names[number + 1:]:
                alike = abs(grey(ACTIVITIES[one]) - grey(ACTIVITIES[other])) < 0.12
                self.assertFalse(alike and HATCHES.get(one) == HATCHES.get(other), (one, other))

    def test_distributions_are_shares_in_equal_intervals(self):
        for label in ("a", "b"):
            write_run(self.directory / label, label, 1)
        panels = self.draw(distributions_figure)
        self.assertEqual(list(panels), ["Iterations: time per optimizer step"])
        panel, = panels.values()
        lines = [line for line in panel.lines if line.get_gid() == "method"]
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertGreater(sum(line.get_ydata()), 98)  # up to the 99.5th percentile
            self.assertLessEqual(sum(line.get_ydata()), 100 + 1e-9)

    def test_lines_that_leave_the_panel_say_how_far(self):
        lines = {"alike": np.full(500, 1.0), "wide": np.linspace(1, 3, 500)}
        figure, panel = plt.subplots()
        draw_distributions(panel, lines, line_styles({label: "" for label in lines}), {})
        self.assertLess(panel.get_ylim()[1], 50)
        self.assertEqual([text.get_text() for text in panel.texts], ["100 %"])
        plt.close(figure)
        lines |= {f"alike at {place}": np.full(500, 1.0 + place / 4) for place in range(5)}
        figure, panel = plt.subplots()
        draw_distributions(panel, lines, line_styles({label: "" for label in lines}), {})
        self.assertEqual([text.get_text() for text in panel.texts], ["beyond: up to 100 %"])
        plt.close(figure)

    def test_a_second_variant_is_dashed_on_the_same_axes(self):
        for variant in ("noisy", "normal"):
            run = write_run(self.directory / variant, "a", 1)
            config = run / "config.toml"
            config.write_text(config.read_text() + f"\n[network]\nname = \"{variant}\"\n")
            change(run / "summary.json", sweep=[["variant", variant]])
        comparisons = comparisons_below(self.directory)
        self.assertEqual([one.point["variant"] for one in comparisons], ["noisy", "normal"])
        figures = [planned for planned in plan_figures(comparisons, ["distributions"], asked=True)]
        self.assertEqual(len(figures), 1)
        first, other = comparisons
        figure = distributions_figure(first.methods, line_styles({"a": ""}), "h", "s", variant_beside(first, comparisons))
        self.assertIs(variant_beside(first, comparisons), other)
        kinds = [line.get_gid() for line in figure.axes[0].lines]
        self.assertEqual((kinds.count("method"), kinds.count("other")), (1, 1))
        self.assertIn("dashed: normal", [text.get_text() for legend in figure.legends for text in legend.get_texts()])

    def test_recorded_micro_batches_are_summed_up_by_worker_and_step(self):
        run = write_run(self.directory / "a", "a", 1)
        with gzip.open(run / "durations.csv.gz", "wt") as file:
            file.write("worker,step,micro_batch,duration_s,added_s\n")
            for step in range(50):
                for micro_batch in range(2):
                    file.write(f"0,{step},{micro_batch},0.25,0\n1,{step},{micro_batch},0.5,0\n")
        panel = self.draw(distributions_figure)["Workers: a step's computation"]
        line, = [line for line in panel.lines if line.get_gid() == "method"]
        there = line.get_xydata()[line.get_ydata() > 0]
        np.testing.assert_allclose(there[:, 1], [50, 50])
        np.testing.assert_allclose(there[:, 0], [0.5, 1], rtol=0.02)  # in seconds
        mean, = [line for line in panel.lines if line.get_gid() == "mean"]
        self.assertAlmostEqual(mean.get_xdata()[0], 0.75)


VARIANTS = {"none": 1.0, "heavy tail": 0.5, "one slow worker": 0.8, "bursts": 0.9}


class Regimes(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write_variants(self, accuracy=True):
        for number, (variant, speed) in enumerate(VARIANTS.items()):
            for label in ("sync", "DropCompute"):
                run = write_run(self.directory / "e" / variant / label, label, 1, speed=speed, accuracy=accuracy)
                config = run / "config.toml"
                config.write_text(config.read_text().replace("[training]", f"slowness = {speed}\n[training]"))
                change(run / "summary.json", sweep=[["variant", variant]])
                change(run / "metadata.json", end=f"2026-01-01T00:0{number}:00Z")

    def test_each_variant_has_a_panel_in_the_order_in_which_they_were_run(self):
        self.write_variants()
        comparisons = comparisons_below(self.directory)
        figure = regimes_figure(comparisons, looks_of(comparisons), "heading", ("time",))
        self.assertEqual([panel.get_title(loc="left") for panel in figure.axes], list(VARIANTS))
        for panel, speed in zip(figure.axes, VARIANTS.values()):
            ends = [line.get_xdata()[-1] for line in panel.lines if line.get_gid() == "method"]
            self.assertEqual(len(ends), 2)
            self.assertAlmostEqual(ends[0] * (60 if "min" in panel.get_xlabel() else 1), 120 * 1.02 / speed, places=6)

    def test_a_number_of_workers_that_variants_do_not_share_is_not_said_of_all(self):
        for other, said in ((8, True), (64, False)):
            for variant, workers in (("few", 8), ("many", other)):
                run = write_run(self.directory / f"{other}" / variant, "sync", 1, workers=workers)
                change(run / "summary.json", sweep=[["variant", variant]])
            comparisons = comparisons_below(self.directory / f"{other}")
            figure = regimes_figure(comparisons, looks_of(comparisons), "heading", ("time",))
            self.assertEqual("8 workers" in [text.get_text() for text in figure.texts][1], said)

    def test_a_name_that_speaks_of_workers_is_said(self):
        self.write_variants()
        comparisons = [Comparison("natural-workers", one.point, one.methods) for one in comparisons_below(self.directory)]
        self.assertTrue(described(comparisons, "cluster.workers").startswith("natural-workers  ·  mlp"))

    def test_each_axis_asked_for_has_its_panels(self):
        self.write_variants()
        comparisons = comparisons_below(self.directory)
        figure = regimes_figure(comparisons, looks_of(comparisons), "heading", ("time", "bytes"))
        self.assertEqual([panel.get_xlabel().split(" (")[0] for panel in figure.axes], ["time"] * 4 + ["data sent in total"] * 4)

    def test_variants_at_each_value_of_another_key_have_a_figure_of_their_own(self):
        for variant in VARIANTS:
            for network in ("fast", "slow"):
                for label in ("sync", "DropCompute"):
                    run = write_run(self.directory / "e" / f"{variant}-{network}" / label, label, 1, speed=VARIANTS[variant])
                    config = run / "config.toml"
                    config.write_text(config.read_text().replace(
                        "[training]", f'slowness = {VARIANTS[variant]}\nlink = "{network}"\n[training]'))
                    change(run / "summary.json", sweep=[["cluster.link", network], ["variant", variant]])
        comparisons = comparisons_below(self.directory)
        planned = {planned.name: planned.shown for planned in plan_figures(comparisons, KINDS)
                   if planned.kind in ("regimes", "paretos", "rankings")}
        self.assertEqual(sorted(planned), [f"{kind}-link={link}" for kind in ("paretos", "rankings", "regimes")
                                           for link in ("fast", "slow")])
        shown = planned["paretos-link=fast"]
        figure = regimes_figure(shown, looks_of(shown), "heading", ("time",))
        self.assertEqual(sorted(panel.get_title(loc="left") for panel in figure.axes), sorted(VARIANTS))

    def test_each_point_has_its_front(self):
        self.write_variants()
        for number, run in enumerate(sorted(self.directory.rglob("summary.json"))):
            change(run, communicated_bytes=1_000_000 * (1 + number % 2), final_test_accuracy=0.8 + 0.01 * (number % 2))
        comparisons = comparisons_below(self.directory)
        figure = pareto_panels(comparisons, looks_of(comparisons), "heading", ("bytes",))
        self.assertEqual([panel.get_title(loc="left") for panel in figure.axes], list(VARIANTS))
        for panel in figure.axes:
            front, = [line.get_xydata() for line in panel.lines if line.get_gid() == "front"]
            np.testing.assert_allclose(front, [[1, 80], [2, 81]])
            ringed, = [line.get_xydata() for line in panel.lines if line.get_gid() == "on the front"]
            np.testing.assert_allclose(ringed, front)

    def test_methods_are_ranked_at_each_point(self):
        accuracies = {"few": {"a": (0.80, 0.82), "b": (0.70, 0.70), "c": (0.90, 0.94)},
                      "many": {"a": (0.60, 0.64), "b": (0.70, 0.70), "c": (0.50, 0.52)}}
        for number, (variant, of_methods) in enumerate(accuracies.items()):
            for label, of_seeds in of_methods.items():
                for seed, accuracy in enumerate(of_seeds, 1):
                    run = write_run(self.directory / "e" / variant / label, label, seed)
                    config = run / "config.toml"
                    config.write_text(config.read_text().replace("[training]", f"slowness = {number}\n[training]"))
                    change(run / "summary.json", sweep=[["variant", variant]], final_test_accuracy=accuracy)
                    change(run / "metadata.json", end=f"2026-01-01T00:0{number}:00Z")
        comparisons = comparisons_below(self.directory)
        figure = ranking_figure(comparisons, looks_of(comparisons), "heading")
        for panel, wanted in zip(figure.axes, (["c", "a", "b"], ["b", "a", "c"]), strict=True):
            self.assertEqual([tick.get_text() for tick in panel.get_yticklabels()], wanted)
            means = [line.get_xdata()[0] for line in panel.lines if line.get_gid() == "mean"]
            of_methods = accuracies[panel.get_title(loc="left")]
            np.testing.assert_allclose(means, [50 * sum(of_methods[label]) for label in wanted])
            low, high = next(line.get_xdata() for line in panel.lines if line.get_gid() == "interval")
            first, second = of_methods[wanted[0]]
            self.assertAlmostEqual(high - low, 12.7062 * 100 * abs(first - second), places=3)  # t of one degree of freedom

    def test_two_methods_are_not_ranked(self):
        self.write_variants()
        comparisons = comparisons_below(self.directory)
        self.assertIsNone(ranking_figure(comparisons, looks_of(comparisons), "heading"))

    def test_between_the_first_and_the_last_evaluation_alone_there_is_no_curve(self):
        self.write_variants()
        comparisons = comparisons_below(self.directory)
        for rows, is_there in (([0, 12, -1], True), ([0, -1], False)):
            for run in (run for comparison in comparisons for run in comparison.runs):
                run.metrics = run.metrics.iloc[rows]
            self.assertEqual(regimes_figure(comparisons, looks_of(comparisons), "heading", ("time",)) is not None, is_there)

    def test_without_a_model_they_show_speed(self):
        self.write_variants(accuracy=False)
        comparisons = comparisons_below(self.directory)
        for run in (run for comparison in comparisons for run in comparison.runs):
            run.metrics["test_loss"] = float("nan")
        figure = regimes_figure(comparisons, looks_of(comparisons), "heading", ("time",))
        for panel, comparison in zip(figure.axes, comparisons):
            widths = [bar.get_width() for bar in panel.patches]
            self.assertEqual(widths, [method.runs[0].summary["samples_per_virtual_s"] for method in comparison.methods])

    def test_without_a_model_they_show_periods_that_change(self):
        for variant, period in (("short", 2), ("long", 8)):
            run = write_run(self.directory / "e" / variant, "QSR", 1, period=period, accuracy=False)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"shortest = {period}\n[training]"))
            change(run / "summary.json", sweep=[["variant", variant]])
            change(run / "metadata.json", end=f"2026-01-01T00:00:0{period}Z")
        comparisons = comparisons_below(self.directory)
        for run in (run for comparison in comparisons for run in comparison.runs):
            run.metrics["test_loss"] = float("nan")
        figure = regimes_figure(comparisons, looks_of(comparisons), "heading", ("time",))
        self.assertEqual([panel.get_title(loc="left") for panel in figure.axes], ["short", "long"])
        self.assertEqual([min(panel.lines[0].get_ydata()) for panel in figure.axes], [2, 8])
        self.assertEqual([panel.get_ylabel() for panel in figure.axes], ["period H (steps)"] * 2)

    def test_several_experiments_are_one_figure_too(self):
        for name in ("one", "two"):
            config = write_run(self.directory / name / "m", "m", 1) / "config.toml"
            config.write_text(config.read_text().replace('"synthetic"', f'"{name}"'))
        self.assertEqual(self.status_and_message(self.directory, "--only", "regimes"), (0, ""))
        drawing = (self.directory / "plots" / "regimes.svg").read_text()
        for text in (">one<", ">two<", "2 experiments"):
            self.assertIn(text, drawing)

    def test_sweeps_along_one_key_are_one_figure_in_the_order_of_what_else_varies(self):
        for peak in (2, 10, 1):
            for workers in (8, 16, 32, 64):
                run = write_run(self.directory / f"{workers} {peak}", "m", 1, workers=workers)
                config = run / "config.toml"
                config.write_text(config.read_text().replace("[training]", f"[training]\npeak = {peak}"))
                change(run / "summary.json", sweep=[["training.peak", str(peak)], ["cluster.workers", str(workers)]],
                       final_test_accuracy=0.5 + 0.01 * peak * workers / 8)
        comparisons = comparisons_below(self.directory)
        sweeps = find_sweeps(comparisons)
        figure = sweeps_figure(sweeps, looks_of_sweeps(sweeps), {"synthetic": []})
        self.assertEqual([panel.get_title(loc="left") for panel in figure.axes], ["peak = 1", "peak = 2", "peak = 10"])
        for panel, peak in zip(figure.axes, (1, 2, 10)):
            line, = [line for line in panel.lines if line.get_gid() == "method"]
            np.testing.assert_allclose(line.get_xydata(), [(n, 50 + peak * n / 8) for n in (8, 16, 32, 64)])
        self.assertEqual(len({panel.get_ylim() for panel in figure.axes}), 1, "effects are compared by their size")
        self.assertIn("sweeps", [planned.name for planned in plan_figures(comparisons, KINDS)])
        self.assertEqual([panel.get_ylabel() for panel in figure.axes], ["Final test accuracy (%)", "", ""])
        self.assertNotIn("workers", [text.get_text() for text in figure.texts][1])

    def test_rows_are_as_equal_as_may_be(self):
        self.assertEqual([[len(row) for row in shared_out(list(range(count)), 3)] for count in (1, 3, 4, 5, 7)],
                         [[1], [3], [2, 2], [3, 2], [3, 3, 1]])
