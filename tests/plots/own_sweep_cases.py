"""Sweeps of a method's own numbers, names of points, the best point, and what papers say of points."""

import json

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory, change, comparisons_below

from plots.published import claims_of, published_in, value_of
from plots.style import line_styles
from plots.sweep_figure import sweep_figure
from plots.sweep_lines import along_axis, is_spaced_by_factors, key_label
from plots.sweeps import find_sweeps

COEFFICIENTS = {0.01: 0.85, 0.02: 0.88, 0.04: 0.86}


class OwnSweeps(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write(self, label, coefficient=None, name=None, seed=1, algorithm="local-sgd", **summary):
        """A run of the method with such a coefficient, which the sweep calls so."""
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
        self.assertEqual((accuracy.get_xlabel(), accuracy.get_xscale()), ("period: coefficient", "log"))

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
        for key, label in {"period.coefficient": "period: coefficient", "training.learning_rate.peak": "learning rate: peak",
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
            json.dumps({"schema_version": 2, "claims": [{**claim, "paper": paper} for paper in papers]}))
        panel = self.draw()[1]["Final test accuracy (%)"]
        self.assertEqual(self.lines(panel, "paper"), [[[0.04, 91.5]]])
        self.assertIn("Table 1", [text.get_text() for legend in panel.figure.legends for text in legend.get_texts()])

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
