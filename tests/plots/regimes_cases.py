"""Points that no number tells apart, and several experiments, in one figure."""

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory, change, comparisons_below

from plots.comparison import Comparison
from plots.drawing import looks_of, looks_of_all
from plots.pareto_figure import pareto_panels
from plots.plan import KINDS, plan_figures
from plots.ranking_figure import ranking_figure
from plots.regimes_figure import described, regimes_figure
from plots.sheet import shared_out
from plots.sweeps import find_sweeps
from plots.sweeps_figure import sweeps_figure

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
        self.assertEqual([panel.get_xlabel().split(" (")[0] for panel in figure.axes], ["time"] * 4 + ["sent by all"] * 4)

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
        figure = sweeps_figure(sweeps, looks_of_all(sweeps), {"synthetic": []})
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
