"""The command `./dev plot`: its arguments, its messages, interruption, and the files it writes."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import unittest
from pathlib import Path
from time import monotonic, sleep
from unittest import mock

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import numpy as np
from PIL import Image
from synthetic_results import WithDirectory, change, comparisons_below, write_experiment, write_run, write_sweep

from plots.style import line_styles
from plots.sweeps import find_sweeps, sweep_figure
from plots.terminal import CLEAR, followed


class LostOutput(WithDirectory):
    def plot_to(self, output):
        write_run(self.directory / "m", "m", 1)
        return subprocess.run([sys.executable, "-B", "-m", "plots", self.directory], cwd=Path(__file__).parents[2],
                              stdout=output, stderr=subprocess.PIPE, text=True)

    def assert_said(self, process, reason):
        self.assertEqual(process.stderr, f"plot: the figures are in {self.directory / 'plots'}, but standard output "
                                         f"cannot be written: {reason}\n")
        self.assertEqual(process.returncode, 1)
        self.assertTrue((self.directory / "plots" / "curves.png").exists())

    def test_figures_are_drawn_where_messages_are_lost(self):
        write_run(self.directory / "m", "m", 1)
        failed = write_run(self.directory / "m", "m", 2) / "summary.json"
        failed.write_text(failed.read_text().replace("finished", "failed"))
        with open("/dev/full", "w") as full:
            process = subprocess.run([sys.executable, "-B", "-m", "plots", self.directory],
                                     cwd=Path(__file__).parents[2], stdout=subprocess.DEVNULL, stderr=full)
        self.assertEqual(process.returncode, 1)
        self.assertTrue((self.directory / "plots" / "curves.png").exists())

    def test_names_on_a_full_device_are_a_failure(self):
        with open("/dev/full", "w") as full:
            self.assert_said(self.plot_to(full), "No space left on device")

    def test_names_without_standard_output_are_a_failure(self):
        write_run(self.directory / "m", "m", 1)
        process = subprocess.run(["sh", "-c", 'exec "$0" -B -m plots "$1" >&-', sys.executable, self.directory],
                                 cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.stderr, f"plot: the figures are in {self.directory / 'plots'}, but standard output is "
                                         "closed\n")
        self.assertEqual(process.returncode, 1)

    def test_names_that_nobody_reads_are_a_failure(self):
        reader, writer = os.pipe()
        os.close(reader)
        self.assert_said(self.plot_to(writer), "Broken pipe")
        os.close(writer)


class Faults(WithDirectory):
    def assert_fault(self, argument, *fragments):
        status, message = self.status_and_message(argument)
        self.assertEqual(status, 2, message)
        self.assertEqual(message.count("\n"), 1, message)
        for fragment in fragments:
            self.assertIn(str(fragment), message)
        self.assertEqual(list(self.directory.rglob("plots")), [])

    def test_missing_directory(self):
        self.assert_fault(self.directory / "nowhere", self.directory / "nowhere", "no such directory", "expected")

    def test_file_instead_of_directory(self):
        path = self.directory / "file"
        path.write_text("x")
        self.assert_fault(path, path, "not a directory")

    def test_directory_without_runs(self):
        self.assert_fault(self.directory, self.directory, "contains no runs", "seed=")

    def test_directory_that_may_not_be_read(self):
        # The fault is simulated, because root may read everything.
        write_run(self.directory / "open", "m", 1)
        (self.directory / "closed").mkdir()
        scandir = os.scandir

        def refuse(place):
            if Path(place).name == "closed":
                raise PermissionError(13, "Permission denied", str(place))
            return scandir(place)

        with mock.patch("os.scandir", refuse):
            self.assert_fault(self.directory, self.directory / "closed", "Permission denied", "expected")

    def test_missing_table_names_the_columns(self):
        run = write_run(self.directory / "m", "m", 1)
        (run / "metrics.csv").unlink()
        self.assert_fault(self.directory, run / "metrics.csv", "not there", "test_accuracy")

    def test_empty_table(self):
        run = write_run(self.directory / "m", "m", 1)
        (run / "steps.csv").write_text("")
        self.assert_fault(self.directory, run / "steps.csv", "duration_s")

    def test_missing_column(self):
        run = write_run(self.directory / "m", "m", 1)
        text = (run / "metrics.csv").read_text()
        (run / "metrics.csv").write_text(text.replace("test_loss", "loss"))
        self.assert_fault(self.directory, run / "metrics.csv", "no column test_loss")

    def test_word_instead_of_number_names_the_row(self):
        run = write_run(self.directory / "m", "m", 1)
        lines = (run / "metrics.csv").read_text().splitlines()
        lines[3] = lines[3].replace(",", ",oops", 1)
        (run / "metrics.csv").write_text("\n".join(lines))
        self.assert_fault(self.directory, run / "metrics.csv", "row 3", "oops", "expected a number")

    def test_truncated_binary_table(self):
        run = write_run(self.directory / "m", "m", 1)
        (run / "metrics.csv").write_bytes(b"\x1f\x8b\x08\x00\xff\xfe")
        self.assert_fault(self.directory, run / "metrics.csv", "expected")

    def test_broken_configuration(self):
        run = write_run(self.directory / "m", "m", 1)
        (run / "config.toml").write_text("a = [")
        self.assert_fault(self.directory, run / "config.toml", "configuration")

    def test_wrong_usage(self):
        self.assertEqual(self.status_and_message()[0], 2)
        self.assertEqual(self.status_and_message("a", "b")[0], 2)
        self.assertEqual(self.status_and_message("--every-formula")[0], 2)
        self.assertEqual(self.status_and_message("--every-formulas", self.directory)[0], 2)

    def test_an_empty_name_is_not_the_working_directory(self):
        write_run(self.directory / "m", "m", 1)
        with contextlib.chdir(self.directory):
            self.assert_fault("", "the name of the directory is empty", "expected", ". for the working directory")
            self.assertEqual(self.status_and_message(".")[0], 0)


PNG_DOTS_PER_INCH = 300


class Requests(WithDirectory):
    def setUp(self):
        super().setUp()
        write_experiment(self.directory, seeds=1)

    def written(self):
        return sorted(path.name for path in (self.directory / "plots").iterdir())

    def assert_refused(self, arguments, *parts):
        status, message = self.status_and_message(self.directory, *arguments)
        self.assertEqual((status, message.count("\n")), (2, 1), message)
        for part in parts:
            self.assertIn(part, message)
        self.assertFalse((self.directory / "plots").exists())

    def drawing(self, name):
        return (self.directory / "plots" / name).read_text()

    def test_only_the_formats_asked_for_are_written(self):
        self.assertEqual(self.status_and_message(self.directory, "--format", "pdf,svg", "--only", "curves"), (0, ""))
        self.assertEqual(self.written(), ["curves.pdf", "curves.svg"])
        self.assertEqual((self.directory / "plots" / "curves.pdf").read_bytes()[:5], b"%PDF-")

    def test_unknown_formats_and_axes_are_named_with_the_nearest(self):
        self.assert_refused(["--format", "png,pfd"], "--format", "found pfd", "pdf,svg,png", "did you mean pdf?")
        self.assert_refused(["--axis", "byte"], "--axis", "found byte", "steps,samples,time,bytes", "did you mean bytes?")
        self.assert_refused(["--axis", "time,"], "--axis", "found nothing")

    def test_curves_stand_against_the_axes_asked_for(self):
        self.assertEqual(self.status_and_message(self.directory, "--axis=bytes", "--only=curves"), (0, ""))
        drawing = self.drawing("curves.svg")
        self.assertIn(">data sent in total (GB)<", drawing)
        self.assertNotIn(">optimizer steps<", drawing)

    def test_only_the_methods_asked_for_are_drawn(self):
        for given in (["--methods", "DropCompute, backup workers"], ["--methods", "DropCompute", "--methods", "backup workers"]):
            self.assertEqual(self.status_and_message(self.directory, *given), (0, ""))
            drawing = self.drawing("curves.svg")
            for text in (">DropCompute<", ">backup workers<"):
                self.assertIn(text, drawing)
            self.assertNotIn(">synchronous SGD<", drawing)

    def test_a_method_keeps_its_label_with_a_comma(self):
        write_run(self.directory / "synthetic" / "five", "Local SGD, H = 5", 1)
        self.assertEqual(self.status_and_message(self.directory, "--methods", "Local SGD\\, H = 5", "--only=curves"), (0, ""))
        self.assertIn(">Local SGD, H = 5<", self.drawing("curves.svg"))

    def test_unknown_methods_are_named_with_the_nearest_and_those_there_are(self):
        self.assert_refused(["--methods", "dropcomptue"], "--methods dropcomptue: no run has that method",
                            "did you mean DropCompute?", "synchronous SGD")
        self.assert_refused(["--methods", "DropCompute,,"], "--methods", "empty name")

    def test_only_the_measures_asked_for_are_drawn(self):
        self.assertEqual(self.status_and_message(self.directory, "--only", "curves", "--only", "bars", "--measure",
                                                "final_test_loss,step_time_s"), (0, ""))
        for name, shown in (("curves.svg", ">test loss<"), ("bars.svg", ">Time per optimizer step (")):
            self.assertIn(shown, self.drawing(name))
            self.assertNotIn("accuracy", self.drawing(name))

    def test_unknown_measures_are_named_with_the_nearest(self):
        self.assert_refused(["--measure", "final_test_los"], "--measure final_test_los: no run has that measure",
                            "did you mean final_test_loss?")

    def test_pictures_have_a_palette_and_the_dots_of_their_page(self):
        self.assertEqual(self.status_and_message(self.directory, "--column", "single", "--format", "png", "--only", "bars"), (0, ""))
        with Image.open(self.directory / "plots" / "bars.png") as picture:
            self.assertEqual(picture.mode, "P")
            self.assertEqual(round(picture.info["dpi"][0]), PNG_DOTS_PER_INCH)
            self.assertIn("Four methods under the same stragglers", picture.info["Description"])
            colours = set(picture.convert("RGB").getdata())
        for colour in ((255, 255, 255), (0x33, 0x33, 0x33)):  # large areas and letters keep their colours
            self.assertIn(colour, colours)

    def test_unknown_columns_are_refused(self):
        self.assert_refused(["--column", "triple"], "--column", "single", "double")

    def test_figures_for_columns_have_their_width_and_no_heading(self):
        for column, inches in (("single", 3.4), ("double", 7.0)):
            self.assertEqual(self.status_and_message(self.directory, "--column", column, "--format", "png,svg"), (0, ""))
            for path in (self.directory / "plots").glob("*.png"):
                width = int.from_bytes(path.read_bytes()[16:20], "big")
                self.assertEqual(width, round(inches * PNG_DOTS_PER_INCH), path.name)
            drawing = self.drawing("curves.svg")
            self.assertNotIn(">Four methods under the same stragglers<", drawing)
            self.assertIn("Four methods under the same stragglers", drawing)  # in the file's description
            for label in ("synchronous SGD", "DropCompute", "backup workers", "Local SGD (QSR)"):
                self.assertEqual(drawing.count(f">{label}<"), 1)  # in the one legend

    def test_no_figure_for_a_column_is_longer_than_a_page(self):
        for axes in ("time", "steps,samples,time,bytes"):
            self.assertEqual(self.status_and_message(self.directory, "--column", "single", "--axis", axes), (0, ""))
            for path in (self.directory / "plots").glob("*.png"):
                height = int.from_bytes(path.read_bytes()[20:24], "big")
                self.assertLessEqual(height, 9 * PNG_DOTS_PER_INCH + 1, path.name)


class Amount(WithDirectory):
    def written(self):
        return sorted(path.name for path in (self.directory / "plots").glob("*.png"))

    def write_two_axes(self):
        """Writes runs whose speed is the number of workers times the peak."""
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


SOON_S = 20  # enough on a busy machine
# A single instruction that never ends, during which Python does not handle signals.
ENDLESS = "print('begun', flush=True)\nfrom itertools import repeat\nsum(repeat(0))\n"
DRAWS_WITHOUT_END = f"""
import sys
from pathlib import Path
from plots import plot
from plots.terminal import run_interruptibly
def draw_figures(*_):
    exec({ENDLESS!r})
    yield
plot.draw_figures = draw_figures
sys.exit(run_interruptibly(lambda: plot.main(sys.argv[1:]), [Path(sys.argv[1])]))
"""
# Reading never ends, as on a disk that does not answer.
READS_WITHOUT_END = f"""
import sys
from pathlib import Path
from plots import plot, runs
from plots.terminal import run_interruptibly
def own_bytes(_):
    exec({ENDLESS!r})
runs.own_bytes = own_bytes
sys.exit(run_interruptibly(lambda: plot.main(sys.argv[1:]), [Path(sys.argv[1])]))
"""


class Interruption(WithDirectory):
    def start(self, *program, stderr=subprocess.PIPE, **options):
        def block():  # as `dev` does: a signal that comes while Python starts is handled later
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])

        return subprocess.Popen([sys.executable, "-B", *program, self.directory], cwd=Path(__file__).parents[2],
                                stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=block,
                                start_new_session=True, **options)

    def assert_interrupted(self, process):
        self.addCleanup(process.kill)
        message = process.communicate(timeout=SOON_S)[1]
        self.assertEqual(message, "plot: interrupted\n")
        self.assertEqual(process.returncode, 130)
        self.assertEqual(list(self.directory.rglob("*plots*")), [])
        self.assert_nobody_is_left(process.pid)

    def assert_nobody_is_left(self, group):
        """Waits for short processes that an import has started, such as one that lists fonts."""
        end = monotonic() + SOON_S
        with self.assertRaises(ProcessLookupError):
            while monotonic() < end:
                os.killpg(group, 0)
                sleep(0.02)

    def test_while_it_begins_and_imports(self):
        write_run(self.directory / "m", "m", 1)
        for delay_s in (0, 0.05, 0.1, 0.2, 0.4):
            process = self.start("-m", "plots")
            sleep(delay_s)
            process.send_signal(signal.SIGINT)
            self.assert_interrupted(process)

    def test_in_an_import_that_takes_long(self):
        (self.directory / "pandas.py").write_text(ENDLESS)
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("-m", "plots", env=os.environ | {"PYTHONPATH": str(self.directory)})
            self.assertEqual(process.stdout.readline(), "begun\n")
            process.send_signal(number)
            self.assert_interrupted(process)

    def test_in_a_drawing_that_takes_long(self):
        write_run(self.directory / "m", "m", 1)
        for send in (os.kill, os.killpg):  # a signal to the started process, and one from a terminal
            process = self.start("-c", DRAWS_WITHOUT_END)
            self.assertEqual(process.stdout.readline(), "begun\n")
            self.assertEqual(len(list(self.directory.glob(".plots-*"))), 1)
            send(process.pid, signal.SIGINT)
            self.assert_interrupted(process)

    def test_on_a_terminal_in_place_of_the_line_of_progress(self):
        for workers in (1, 2):
            write_run(self.directory / f"{workers}", "m", 1, workers=workers)
        terminal, program_side = os.openpty()
        process = self.start("-c", READS_WITHOUT_END, stderr=program_side)
        os.close(program_side)
        self.assertEqual(process.stdout.readline(), "begun\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(SOON_S), 130)
        said = os.read(terminal, 10000).decode()
        os.close(terminal)
        process.stdout.close()
        self.assertEqual(said, "\r\x1b[Kplot: 0 of 2 summaries read\r\x1b[Kplot: interrupted\r\n")

    def test_while_results_are_read(self):
        write_run(self.directory / "m", "m", 1)
        process = self.start("-c", READS_WITHOUT_END)
        self.assertEqual(process.stdout.readline(), "begun\n")
        process.send_signal(signal.SIGINT)
        self.assert_interrupted(process)

    def test_other_signals_are_named(self):
        (self.directory / "pandas.py").write_text("import os\nos.abort()\n")
        process = self.start("-m", "plots", env=os.environ | {"PYTHONPATH": str(self.directory)})
        self.assertEqual(process.communicate(timeout=SOON_S)[1], "plot: ended by signal 6 (Aborted)\n")
        self.assertEqual(process.returncode, 1)


if __name__ == "__main__":
    unittest.main()
