"""The figure of an experiment's claims."""

import json
import re

import matplotlib.pyplot as plt
from synthetic_results import WithDirectory, comparisons_below, write_run

from plots.claims import claims_figure
from plots.figures import plan_figures
from plots.plot import KINDS
from plots.sheet import save
from plots.style import use_page

CLAIM = {"sentence": "B is more accurate.", "measure": "final_test_accuracy", "method": "b", "against": "a", "as": "difference",
         "criterion": {"above": 0.005}, "shown": {"times": 100, "unit": "points"}, "verdict": "reproduced", "reason": "",
         "paper": {"figure": "two points", "source": "Table 1", "certainty": "stated", "value": 0.02},
         "points": [{"label": "", "n": 3, "mean": 0.01, "interval": [0.008, 0.012], "verdict": "reproduced"}]}


class Claims(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def panel_of(self, **changes):
        return claims_figure([CLAIM | changes], "h", "s").axes[0]

    @staticmethod
    def marks(panel, kind):
        return [list(line.get_xdata()) for line in panel.lines if line.get_gid() == kind]

    @staticmethod
    def wanted_region(panel):
        shape, = (patch for patch in panel.patches if patch.get_gid() == "wanted")
        return shape.get_extents().transformed(panel.transData.inverted()).intervalx

    def test_ours_stands_beside_what_was_wanted_and_the_paper(self):
        panel = self.panel_of()
        self.assertEqual(self.marks(panel, "mean"), [[1]])
        self.assertEqual([[round(end, 9) for end in line] for line in self.marks(panel, "interval")], [[0.8, 1.2]])
        self.assertEqual(self.marks(panel, "paper"), [[2]])
        self.assertAlmostEqual(self.wanted_region(panel)[0], 0.5)
        self.assertAlmostEqual(self.wanted_region(panel)[1], panel.get_xlim()[1])
        self.assertEqual(panel.get_xlabel(), "final test accuracy, difference (points)")

    def test_a_margin_lies_about_no_effect(self):
        ratio = {"as": "ratio", "shown": {"times": 1, "unit": ""}, "criterion": {"margin": 0.1}}
        for changes, expected in ((ratio, (0.9, 1.1)), ({"criterion": {"margin": 0.01}}, (-1, 1)),
                                  ({"criterion": {"within": [0.01, 0.03]}}, (1, 3))):
            for ours, wanted in zip(self.wanted_region(self.panel_of(**changes)), expected):
                self.assertAlmostEqual(ours, wanted)

    def test_a_figure_that_the_paper_does_not_state_is_hollow(self):
        def face(certainty):
            line, = (line for line in self.panel_of(paper=CLAIM["paper"] | {"certainty": certainty}).lines
                     if line.get_gid() == "paper")
            return line.get_markerfacecolor()
        self.assertEqual(face("derived"), "white")
        self.assertNotEqual(face("stated"), "white")
        self.assertEqual(self.marks(self.panel_of(paper={"figure": "rises", "source": "x", "certainty": "stated"}), "paper"), [])

    def test_claims_about_hours_are_shown_in_hours(self):  # a case of tests/results/verdict_test.cpp
        panel = self.panel_of(measure="end_time_s", shown={"times": 1, "unit": "s"}, criterion={"within": [86_400, 108_000]},
                              points=[CLAIM["points"][0] | {"mean": 90_000, "interval": [79_200, 93_600]}],
                              paper=CLAIM["paper"] | {"value": 96_120}, **{"as": "value"})
        self.assertEqual(self.marks(panel, "mean"), [[25]])
        self.assertEqual([[round(end, 9) for end in line] for line in self.marks(panel, "interval")], [[22, 26]])
        self.assertEqual(self.marks(panel, "paper"), [[26.7]])
        self.assertEqual(panel.get_xlabel(), "end time (h)")
        for criterion, unit in (({"above": 7199}, "s"), ({"above": 7200}, "h")):
            panel = self.panel_of(measure="end_time_s", shown={"times": 1, "unit": "s"}, criterion=criterion)
            self.assertEqual(panel.get_xlabel(), f"end time, difference ({unit})")

    def test_verdicts_differ_without_colours(self):
        looks = set()
        for verdict in ("reproduced", "not reproduced", "inconclusive"):
            panel = self.panel_of(points=[CLAIM["points"][0] | {"verdict": verdict}])
            line, = (line for line in panel.lines if line.get_gid() == "mean")
            looks.add((line.get_marker(), line.get_markerfacecolor()))
        self.assertEqual(len(looks), 3)

    def test_the_legend_lies_within_the_figure(self):
        self.addCleanup(use_page, "screen")
        claim = CLAIM | {"points": [CLAIM["points"][0] | {"verdict": verdict, "label": "DropCompute, threshold_s = 0.05, delays = heavy"}
                                    for verdict in ("reproduced", "not reproduced", "inconclusive")]}
        for name in ("screen", "single", "double"):
            use_page(name)
            for claims in ([claim], [claim, claim | {"paper": claim["paper"] | {"certainty": "derived"}}]):
                figure = claims_figure(claims, "h", "s")
                figure.canvas.draw()
                texts = [text for legend in figure.legends for text in legend.get_texts()]
                self.assertEqual(len(texts), 4 + len(claims))
                for box in (text.get_window_extent() for text in texts):
                    self.assertTrue(0 < box.x0 and box.x1 < figure.bbox.width and box.y0 > -0.5, (name, box))

    def test_names_of_points_stand_in_a_column_too(self):
        self.addCleanup(use_page, "screen")
        use_page("single")
        points = [CLAIM["points"][0] | {"label": f"workers = {workers}"} for workers in (8, 16)]
        panel = self.panel_of(points=points)
        panel.figure.canvas.draw()
        names = [text for text in panel.texts if text.get_gid() == "name"]
        self.assertEqual([text.get_text() for text in names], ["workers = 8", "workers = 16"])
        marks = [line.get_window_extent() for line in panel.lines if line.get_gid() == "mean"]
        for text, mark in zip(names, marks):
            self.assertGreater(text.get_window_extent().y0, (mark.y0 + mark.y1) / 2)

    def test_many_claims_in_a_column_are_several_files(self):
        self.addCleanup(use_page, "screen")
        use_page("single")
        points = [CLAIM["points"][0] | {"label": f"workers = {workers}"} for workers in range(10)]
        figure = claims_figure([CLAIM | {"points": points}] * 8, "h", "s")
        written = save(figure, self.directory, "claims", ("svg",))
        self.assertEqual([path.name for path in written], [f"claims-page-{number}.svg" for number in (1, 2, 3, 4)])
        texts = [path.read_text() for path in written]
        self.assertEqual(sum(text.count("B is more accurate.") for text in texts), 8)
        for text in texts:
            self.assertEqual(text.count("ours: reproduced"), 1)  # every page has the legend
            self.assertLessEqual(float(re.search(r'height="([\d.]+)pt"', text)[1]), 9 * 72 + 1)

    def test_there_is_none_of_what_could_not_be_judged(self):
        self.assertIsNone(claims_figure([CLAIM | {"points": []}], "h", "s"))

    def test_each_experiment_has_one(self):
        run = write_run(self.directory / "m", "m", 1)
        self.assertNotIn("claims", [planned.kind for planned in plan_figures(comparisons_below(self.directory), KINDS)])
        (run.parent.parent / "claims.json").write_text(json.dumps({"schema_version": 3, "claims": [CLAIM]}))
        self.assertIn("claims", [planned.kind for planned in plan_figures(comparisons_below(self.directory), KINDS)])
        status, message = self.status_and_message(self.directory, "--only", "claims", "--format", "svg")
        self.assertEqual(status, 0, message)
        self.assertIn("B is more accurate.", (self.directory / "plots" / "claims.svg").read_text())

    def test_claims_that_cannot_be_read_are_told_once(self):
        run = write_run(self.directory / "m", "m", 1)
        (run.parent.parent / "claims.json").write_text("{")
        status, message = self.status_and_message(self.directory)
        self.assertEqual((status, message.count("it is not JSON")), (0, 1))
