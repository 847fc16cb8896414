"""How many figures are drawn, of which runs, and what a user sees meanwhile."""

import contextlib
import io

import numpy as np
from synthetic_results import write_run, write_sweep
from with_results import WithDirectory, change, comparisons_below

from plots.progress import CLEAR, followed
from plots.style import line_styles
from plots.sweep_figure import sweep_figure
from plots.sweeps import find_sweeps


class Amount(WithDirectory):
    def written(self):
        return sorted(path.name for path in (self.directory / "plots").glob("*.png"))

    def write_two_axes(self):
        """Speed: workers times the peak."""
        for workers in (8, 16, 4):
            for peak in (2, 1):
                run = write_run(self.directory / f"{workers} {peak}", "m", 1, workers=workers, accuracy=False)
                config = run / "config.toml"
                config.write_text(config.read_text().replace("[training]", f"[training]\npeak = {peak}"))
                change(run / "summary.json", samples_per_virtual_s=100 * workers * peak)

    def test_more_figures_than_the_limit_are_refused_without_reading_tables(self):
        write_sweep(self.directory)
        for table in self.directory.rglob("steps.csv"):
            table.unlink()
        status, message = self.status_and_message(self.directory, "--limit", 6)
        self.assertEqual(status, 2)
        self.assertEqual(message.count("\n"), 1, message)
        for part in (str(self.directory), "7 figures (1 sweep, 3 curves, 3 rounds)", "at most 6", "--limit",
                     "--only sweep", "cluster.workers=8"):
            self.assertIn(part, message)
        self.assertFalse((self.directory / "plots").exists())

    def test_as_many_figures_as_the_limit_are_drawn(self):
        write_sweep(self.directory)
        self.assertEqual(self.status_and_message(self.directory, "--limit", 7), (0, ""))
        self.assertEqual(len(self.written()), 7)

    def test_without_a_limit_of_ones_own_it_is_a_hundred(self):
        for workers in range(1, 51):
            write_run(self.directory / f"{workers}", "m", 1, workers=workers)
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2)
        self.assertIn("101 figures (1 sweep, 50 curves, 50 rounds); must be at most 100", message)

    def test_limits_that_are_no_numbers_from_one_on_are_refused(self):
        write_sweep(self.directory)
        for limit in ("0", "-1", "many", "1.5", "²"):
            status, message = self.status_and_message(self.directory, f"--limit={limit}")
            self.assertEqual((status, message.count("\n")), (2, 1), message)
            self.assertIn("--limit", message)

    def test_only_the_kinds_asked_for_are_drawn(self):
        write_sweep(self.directory)
        self.assertEqual(self.status_and_message("--only", "sweep", self.directory), (0, ""))
        self.assertEqual(self.written(), ["sweep.png"])
        status, message = self.status_and_message("--only", "timeline", self.directory)
        self.assertEqual(status, 2)
        self.assertIn("timeline", message)

    def test_only_points_with_the_value_asked_for_are_drawn(self):
        write_sweep(self.directory)
        self.assertEqual(self.status_and_message(self.directory, "cluster.workers=16.0"), (0, ""))
        self.assertEqual(self.written(), ["bars-workers=16.png", "curves-workers=16.png",
                                          "distributions-workers=16.png", "rounds-workers=16.png"])

    def test_keys_and_values_that_no_run_has_are_named_with_what_there_is(self):
        write_sweep(self.directory)
        for wanted, parts in (("cluster.wrokers=8", ["no key cluster.wrokers", "did you mean cluster.workers?"]),
                              ("cluster.workers=9", ["no run has that value", "8", "16", "32"])):
            status, message = self.status_and_message(self.directory, wanted)
            self.assertEqual((status, message.count("\n")), (2, 1), message)
            for part in parts:
                self.assertIn(part, message)

    def test_of_two_axes_each_value_of_the_shorter_one_has_a_sweep_along_the_other(self):
        self.write_two_axes()
        sweeps = find_sweeps(comparisons_below(self.directory))
        self.assertEqual([(sweep.key, sweep.others) for sweep in sorted(sweeps, key=lambda sweep: str(sweep.others))],
                         [("cluster.workers", {"training.peak": peak}) for peak in ("1", "2")])
        for sweep in sweeps:
            speed = sweep_figure(sweep, line_styles({"m": "x"})).axes[0]
            line, = [line for line in speed.lines if line.get_gid() == "method"]
            np.testing.assert_allclose(line.get_xydata(),
                                       [(n, 100 * n * int(sweep.others["training.peak"])) for n in (4, 8, 16)])

    def test_figures_of_two_axes_say_at_which_value_of_the_shorter_one_they_are(self):
        self.write_two_axes()
        self.assertEqual(self.status_and_message(self.directory, "--only=sweep"), (0, ""))
        self.assertEqual(self.written(), ["sweep-peak=1.png", "sweep-peak=2.png"])
        self.assertIn("workers = 4 to 16, peak = 2", (self.directory / "plots" / "sweep-peak=2.svg").read_text())

    def test_texts_along_a_long_axis_do_not_overlap(self):
        for workers in range(1, 61):
            write_run(self.directory / f"{workers}", "m", 1, workers=workers)
        sweep, = find_sweeps(comparisons_below(self.directory))
        figure = sweep_figure(sweep, line_styles({"m": "x"}))
        figure.canvas.draw()
        for panel in figure.axes:
            boxes = [text.get_window_extent() for text in panel.get_xticklabels()]
            boxes.sort(key=lambda box: box.x0)
            self.assertGreater(len(boxes), 5)
            self.assertTrue(all(left.x1 < right.x0 for left, right in zip(boxes, boxes[1:])))


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Progress(WithDirectory):
    def said(self, items, every, stream):
        with contextlib.redirect_stderr(stream):
            self.assertEqual(list(followed(items, "figures", every)), items)
        return stream.getvalue()

    def test_beside_a_terminal_there_is_a_line_at_the_beginning_and_now_and_then(self):
        self.assertEqual(self.said(list(range(60)), 25, io.StringIO()),
                         "plot: 0 of 60 figures\nplot: 25 of 60 figures\nplot: 50 of 60 figures\n")

    def test_of_few_items_nothing_is_said_beside_a_terminal(self):
        self.assertEqual(self.said(list(range(25)), 25, io.StringIO()), "")

    def test_a_terminal_has_one_line_that_is_cleared_in_the_end(self):
        said = self.said(list(range(3)), 25, Terminal())
        self.assertTrue(said.startswith(f"{CLEAR}plot: 0 of 3 figures"), said)
        self.assertTrue(said.endswith(CLEAR))
        self.assertNotIn("\n", said)
