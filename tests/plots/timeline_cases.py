"""Figures of workers' activities, and of how runs spend their time."""

from matplotlib.colors import to_hex
import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import CLAIM, WithDirectory, change, comparisons_below, write_run, write_trace

from plots.claims import Published
from plots.figures import looks_of, regimes_figure
from plots.style import line_styles
from plots.timeline import ACTIVITIES, three_digits, timeline_figure


class Timelines(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def draw(self):
        comparison, = comparisons_below(self.directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        return timeline_figure(comparison.methods, styles, "heading", "subtitle")

    def bars(self, panel, activity):
        """(row, begin, end) of each bar."""
        found = set()
        for bars in panel.collections:
            if to_hex(bars.get_facecolor()[0]).upper() != ACTIVITIES[activity]:
                continue
            for path in bars.get_paths():
                (begin, low), (end, high) = path.vertices.min(0), path.vertices.max(0)
                found.add((round((low + high) / 2), round(float(begin), 6), round(float(end), 6)))
        return sorted(found)

    def test_bars_stand_where_the_spans_are(self):
        write_trace(write_run(self.directory / "a", "a", 1), workers=2, servers=1)
        panel, = self.draw().axes  # the figure shows four rounds of about 0.1 s, in ms
        self.assertEqual(self.bars(panel, "compute"), [(row, 0, 300) for row in range(3)])
        begin, end = self.bars(panel, "discarded")[0][1:]
        self.assertEqual(begin, 300)
        self.assertEqual(end, min(400, round(panel.get_xlim()[1], 6)))
        self.assertEqual([text.get_text() for text in panel.get_yticklabels()], ["worker 0", "worker 1", "server 0"])

    def test_panels_share_a_scale_with_four_rounds_of_one_method_and_one_of_each(self):
        for label, period in (("a", 1), ("b", 16)):
            write_trace(write_run(self.directory / label, label, 1, period=period), until_s=60)
        figure = self.draw()
        self.assertEqual(len(figure.axes), 2)
        scale = 1000 if "ms" in figure.axes[1].get_xlabel() else 1
        limits = {panel.get_xlim() for panel in figure.axes}
        self.assertEqual(len(limits), 1)
        comparison, = comparisons_below(self.directory)
        ends = {method.label: method.runs[0].steps["time_s"].to_numpy() for method in comparison.methods}
        self.assertGreater(ends["b"][0], ends["a"][3])
        np.testing.assert_allclose(limits.pop()[1] / scale, 1.02 * ends["b"][0])

    def test_methods_without_a_trace_have_no_panel(self):
        write_trace(write_run(self.directory / "a", "a", 1))
        write_run(self.directory / "b", "b", 1)
        self.assertEqual([panel.get_title(loc="left") for panel in self.draw().axes], ["a"])

    def test_of_many_workers_the_first_and_the_last_are_shown_with_the_servers_and_it_says_so(self):
        write_trace(write_run(self.directory / "a", "a", 1, workers=100), workers=100, servers=2)
        figure = self.draw()
        rows = self.bars(figure.axes[0], "compute")
        self.assertEqual(len(rows), 32)
        labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
        workers = [f"worker {rank}" for rank in (0, 4, 8, 12, 86, 90, 94, 98)]
        self.assertEqual(labels, [*workers, "server 0", "server 1"])
        self.assertTrue(any("32 of 102 rows" in text.get_text() for text in figure.texts))

    def test_of_many_servers_the_first_are_shown_whole_with_both_ways_of_their_links(self):
        write_trace(write_run(self.directory / "a", "a", 1, workers=100), workers=100, servers=12, links=True)
        figure = self.draw()
        labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
        rows = len(self.bars(figure.axes[0], "compute"))
        self.assertEqual(rows, 32)
        # Eight rows are for servers' links: two whole servers, without a part of a third one.
        self.assertEqual([label for label in labels if label.startswith("server")][-1], "server 1, out")

    def test_where_the_trace_was_cut_nothing_is_drawn(self):
        write_trace(write_run(self.directory / "a", "a", 1), until_s=0.5)
        write_trace(write_run(self.directory / "b", "b", 1, period=16), until_s=60)
        for until_s, capped, text in ((0.5, True, "not recorded"), (0.5, False, "the run has ended")):
            run = next(self.directory.glob("a/seed=1-*"))
            write_trace(run, until_s=until_s, capped=capped)
            self.assertIn(text, [found.get_text() for found in self.draw().axes[0].texts])

    def test_shares_of_the_whole_run_stand_beside_the_name(self):
        run = write_run(self.directory / "a", "a", 1)
        write_trace(run)
        change(run / "summary.json", worker_seconds={"summed": {"compute": 5.0, "discarded": 0.02, "wait": 4.98,
                                                                "communicate": 0.0, "down": 0.0, "total": 10.0}})
        self.assertEqual(self.draw().axes[0].get_title(loc="right"),
                         "whole run: compute 50 %, discarded 0.2 %, wait 50 %")

    def test_it_is_among_the_figures(self):
        write_trace(write_run(self.directory / "a", "a", 1))
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        names = {path.name for path in (self.directory / "plots").iterdir()}
        self.assertLessEqual({"timeline.png", "timeline.svg"}, names)

    def test_a_trace_that_cannot_be_read_is_named(self):
        run = write_run(self.directory / "a", "a", 1)
        write_trace(run)
        whole = (run / "trace.json.gz").read_bytes()
        for contents in (whole[:-20], b"{}", whole[:10] + b"\0" * 20):
            (run / "trace.json.gz").write_bytes(contents)
            status, message = self.status_and_message(self.directory)
            self.assertEqual(status, 2, message)
            self.assertIn(str(run / "trace.json.gz"), message)


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
