"""The figure of how long runs take and what that time goes into."""

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import CLAIM, write_run
from with_results import WithDirectory, change, comparisons_below

from plots.drawing import looks_of
from plots.published import Published
from plots.regimes_figure import regimes_figure
from plots.times_figure import three_digits

SHARES = {"data parallel": {"compute": 0.6, "wait": 0.1, "communicate": 0.3},
          "QSR": {"compute": 0.8, "wait": 0.1, "communicate": 0.1}}
ENDS = {"16 GPUs": {"data parallel": 96_000, "QSR": 72_000}, "64 GPUs": {"data parallel": 30_000, "QSR": 18_000}}
PAPER = Published("QSR", "end_time_s", "", {"variant": "16 GPUs"}, 90_000, "abstract")


class Times(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")
        for number, (variant, ends) in enumerate(ENDS.items(), 1):
            for label, end_s in ends.items():
                workers = 16 * 4**(number - 1)
                run = write_run(self.directory / "e" / variant / label, label, 1, accuracy=False, workers=workers)
                total = end_s * workers
                summed = {"discarded": 0, "down": 0, "total": total}
                summed |= {name: share * total for name, share in SHARES[label].items()}
                change(run / "summary.json", sweep=[["variant", variant]], end_time_s=end_s, steps=1000 // number,
                       worker_seconds={"summed": summed})
                change(run / "metadata.json", end=f"2026-01-01T00:00:0{number}Z")

    def draw(self, measure="end_time_s", published=(PAPER,)):
        comparisons = comparisons_below(self.directory)
        for run in (run for one in comparisons for run in one.runs):
            run.metrics["test_loss"] = float("nan")
        claims = [CLAIM | {"measure": measure}]
        return regimes_figure(comparisons, looks_of(comparisons), "heading", ("time",), claims, published)

    def test_bars_are_the_time_of_the_mean_worker_in_hours(self):
        panels = self.draw().axes
        titles = [panel.get_title(loc="left") for panel in panels]
        self.assertEqual(titles, ["16 GPUs: 1,000 steps", "64 GPUs: 500 steps"])
        self.assertEqual([tick.get_text() for tick in panels[0].get_yticklabels()], list(SHARES))
        for panel, ends in zip(panels, ENDS.values()):
            self.assertEqual(panel.get_xlabel(), "time of the run (h)")
            for row, (label, end_s) in enumerate(ends.items()):
                bars = [bar for bar in panel.patches if bar.get_y() < row < bar.get_y() + bar.get_height()]
                expected = [share * end_s / 3600 for share in SHARES[label].values()]
                np.testing.assert_allclose([bar.get_width() for bar in bars], expected)
                self.assertEqual([bar.get_gid() for bar in bars], ["compute", "wait", "communicate"])
                self.assertAlmostEqual(bars[-1].get_x() + bars[-1].get_width(), end_s / 3600)
                self.assertEqual(len({bar.get_hatch() for bar in bars[1:]}), 2, "which a grey page tells apart")

    def test_the_paper_s_hours_stand_where_they_were_claimed(self):
        figure = self.draw()
        marks = [[tuple(line.get_xydata()[0]) for line in panel.lines if line.get_gid() == "paper"]
                 for panel in figure.axes]
        self.assertEqual(marks, [[(25, 1)], []])
        values = [text.get_text() for panel in figure.axes for text in panel.texts if text.get_gid() == "value"]
        self.assertEqual(values, ["26.7 h", "20.0 h, paper: 25 h", "8.33 h", "5.00 h"])
        legend, = figure.legends
        self.assertEqual([text.get_text() for text in legend.get_texts()],
                         ["computing", "waiting", "communicating", "the paper: abstract"])

    def test_without_claims_about_it_they_show_what_claims_are_about(self):
        for measure, label in (("step_time_s", "time per optimizer step (s)"), ("samples_per_s", "samples per second")):
            self.assertEqual([panel.get_xlabel() for panel in self.draw(measure).axes], [label] * 2)

    def test_values_have_three_digits(self):
        self.assertEqual([three_digits(value) for value in (19.96, 0.56, 154.4)], ["20.0", "0.560", "154"])
