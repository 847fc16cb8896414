"""Reading results, interpolating over seeds, and what the user is told when something is wrong."""

import contextlib
import os
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import numpy as np
from synthetic_results import STEPS, write_experiment, write_run
from with_results import WithDirectory

from plots.comparison import compare, subtitle
from plots.curves import Curve, common_grid, mean_curve, method_curve, shown_range
from plots.plan import file_name
from plots.rounds_figure import windowed_drop_rate
from plots.runs import ResultsFault, find_run_directories, read_run
from plots.style import SHORT, spread, time_unit
from plots.variation import as_label, as_words, in_words


class Interpolation(unittest.TestCase):
    def test_grid_of_equal_sequences_is_the_sequence(self):
        x = np.array([0.0, 10.0, 25.0])
        np.testing.assert_array_equal(common_grid([x, x.copy()]), x)

    def test_grid_lies_between_the_latest_beginning_and_the_earliest_end(self):
        grid = common_grid([np.array([0.0, 5.0, 10.0]), np.array([1.0, 6.0, 12.0])])
        np.testing.assert_array_equal(grid, [1, 5, 6, 10])  # where one of them has a point, and nowhere else

    def test_sequences_that_do_not_overlap_have_no_grid(self):
        self.assertEqual(len(common_grid([np.array([0.0, 1.0]), np.array([2.0, 3.0])])), 0)

    def test_mean_of_two_straight_lines_is_the_line_between_them(self):
        # y = x and y = 3 x, on different points
        curve = mean_curve([np.array([0.0, 4.0, 8.0]), np.array([0.0, 5.0, 10.0])],
                           [np.array([0.0, 4.0, 8.0]), np.array([0.0, 15.0, 30.0])])
        self.assertEqual(curve.x[-1], 8.0)  # the shorter one's end
        np.testing.assert_allclose(curve.mean, 2 * curve.x)
        np.testing.assert_allclose(curve.low, curve.x)
        np.testing.assert_allclose(curve.high, 3 * curve.x)

    def test_between_points_the_mean_is_exact(self):
        curve = mean_curve([np.array([0.0, 2.0, 4.0]), np.array([0.0, 3.0, 4.0])],
                           [np.array([0.0, 2.0, 0.0]), np.array([0.0, 3.0, 0.0])])
        np.testing.assert_array_equal(curve.x, [0, 2, 3, 4])
        np.testing.assert_array_equal(curve.mean, [0, 2, 2, 0])

    def test_values_that_are_not_finite_are_left_out(self):
        x = np.array([0.0, 1.0, 2.0])
        curve = mean_curve([x, x], [np.array([1.0, np.inf, np.nan]), np.array([np.nan] * 3)])
        np.testing.assert_array_equal(curve.x, [0.0])
        np.testing.assert_array_equal(curve.mean, [1.0])
        self.assertIsNone(mean_curve([x], [np.array([np.nan] * 3)]))

    def test_sequences_that_touch_share_a_point(self):
        np.testing.assert_array_equal(common_grid([np.array([0.0]), np.array([0.0, 3.0])]), [0.0])

    def test_steep_beginning_does_not_set_the_range(self):
        y = np.array([0.1, 0.80, 0.85, 0.87, 0.88, 0.89])
        low, high = shown_range([Curve(np.linspace(0, 100, 6), y, y - 0.01, y + 0.01)])
        self.assertAlmostEqual(low, 0.79)
        self.assertAlmostEqual(high, 0.90)

    def test_a_method_far_off_does_not_set_the_range(self):
        x = np.linspace(0, 100, 11)
        crowd = [Curve(x, y, y, y) for y in (np.full(11, 0.80 + 0.01 * place) for place in range(5))]
        fallen = np.array([0.8, 0.8, 0.3, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.8])
        np.testing.assert_allclose(shown_range([*crowd, Curve(x, fallen, fallen, fallen)]), (0.80, 0.84))
        np.testing.assert_allclose(shown_range([*crowd, Curve(x, x, x, x)]), (0.80, 0.84))
        np.testing.assert_allclose(shown_range([crowd[0], Curve(x, fallen, fallen, fallen)]), (0.3, 0.8))

    def test_labels_are_moved_apart_and_stay_inside(self):
        heights = spread([0.97, 0.98, 0.98, 0.99], 0.05)
        self.assertTrue(all(b - a >= 0.0499 for a, b in zip(heights, heights[1:])))
        self.assertLessEqual(heights[-1], 1.0 + 1e-6)

    def test_time_unit_suits_the_length(self):
        self.assertEqual([time_unit(seconds)[1] for seconds in (0.5, 1.6, 90, 400, 20000)], ["ms", "s", "s", "min", "h"])

    def test_ticks_have_the_digits_of_their_steps(self):
        for ticks, texts in (([42.25e9, 42.275e9, 42.3e9], ["42.25G", "42.275G", "42.3G"]),
                             ([-500, 0, 500, 1000], ["-500", "0", "500", "1k"]), ([0.1, 0.2, 0.30000000000000004], ["0.1", "0.2", "0.3"]),
                             ([1e3, 1e4, 1e5], ["1k", "10k", "100k"]), ([7], ["7"]),
                             ([24791, 24792, 24793], ["24,791", "24,792", "24,793"]), ([9710.8, 9711], ["9,710.8", "9,711"])):
            self.assertEqual(SHORT.format_ticks(ticks), texts)


class Names(unittest.TestCase):
    def test_large_numbers_are_short_as_in_tables(self):  # tests/results/paired_table_test.cpp
        for value, shown in {"1250000000.0": "1.25G", "1.25e+08": "125M", "10000": "10k", "9999.0": "9999.0", "0.05": "0.05",
                             "-20000": "-20k", "1234567891": "1234567891", "10 Gbit/s": "10 Gbit/s"}.items():
            self.assertEqual(as_label("A", {"training.parameters": value}), f"A, parameters = {shown}")

    def test_rates_say_no_key_as_in_tables(self):  # tests/results/result_table_test.cpp
        for value, label in {"10 Gbit/s": "A, 10 Gbit/s", "1250000000.0": "A, 10 Gbit/s", "12.5e6": "A, 100 Mbit/s",
                             "1234567891": "A, bandwidth_bytes_per_s = 1234567891",
                             "10 fast links": "A, bandwidth_bytes_per_s = 10 fast links"}.items():
            self.assertEqual(as_label("A", {"network.bandwidth_bytes_per_s": value}), label)
        self.assertEqual(as_label("A", {"rate": "10 Gbit/s"}), "A, rate = 10 Gbit/s")
        self.assertEqual(file_name("regimes", as_words({"network.bandwidth_bytes_per_s": "10 Gbit/s"})), "regimes-10-Gbit-s")

    def test_titles_have_keys_in_words(self):
        for point, shown in (({"methods.DropCompute.threshold_s": "0.05"}, "threshold = 0.05 s"),
                             ({"x.threshold_s": "12 to 26", "y.backups": "2"}, "threshold = 12 to 26 s, backups = 2"),
                             ({"network.bandwidth_bytes_per_s": "1250000000.0"}, "10 Gbit/s"),
                             ({"network.bandwidth_bytes_per_s": "1 Gbit/s to 100 Gbit/s"}, "bandwidth = 1 Gbit/s to 100 Gbit/s"),
                             ({"network.bandwidth_bytes_per_s": "10 Gbit/s"}, "10 Gbit/s"),
                             ({"network.bandwidth_bytes_per_s": "1234567891"}, "bandwidth = 1234567891 bytes/s"),
                             ({"variant": "heavy tail", "seeds": "3"}, "heavy tail, seeds = 3")):
            self.assertEqual(in_words(point), shown)


class Reading(WithDirectory):
    def test_experiment_has_its_methods_with_all_seeds(self):
        runs = [read_run(path) for path in find_run_directories(write_experiment(self.directory, seeds=2))]
        comparison, = compare(runs)
        self.assertEqual({method.label: sorted(run.seed for run in method.runs) for method in comparison.methods},
                         {label: [1, 2] for label in ("synchronous SGD", "DropCompute", "backup workers",
                                                      "Local SGD (QSR)")})
        self.assertIn("16 workers", subtitle(comparison, ""))

    def test_time_curve_ends_with_the_fastest_seed(self):
        write_experiment(self.directory, seeds=3)
        runs = [read_run(path) for path in find_run_directories(self.directory / "synthetic" / "DropCompute")]
        comparison, = compare(runs)
        curve = method_curve(comparison.methods[0], "time_s", "test_accuracy")
        self.assertAlmostEqual(curve.x[-1], min(run.metrics["time_s"].max() for run in runs))
        self.assertEqual(method_curve(comparison.methods[0], "step", "test_accuracy").x[-1], STEPS)

    def test_runs_under_mpi_are_methods_of_their_own(self):
        simulated = write_run(self.directory / "e" / "m", "m", 1)
        simulated.rename(simulated.with_name(simulated.name + "-mpi"))
        write_run(self.directory / "e" / "m", "m", 1)
        comparison, = compare([read_run(path) for path in find_run_directories(self.directory)])
        self.assertEqual(sorted(method.label for method in comparison.methods), ["m", "m (MPI)"])

    def test_runs_of_another_configuration_are_not_averaged_with_the_others(self):
        for seed, model in ((1, "mlp"), (2, "mlp"), (3, "cnn")):
            config = write_run(self.directory / "e" / "m", "m", seed) / "config.toml"
            config.write_text(config.read_text().replace("mlp", model))
        comparisons = compare([read_run(path) for path in find_run_directories(self.directory)])
        self.assertEqual([(comparison.point, len(comparison.runs)) for comparison in comparisons],
                         [({"training.model": "mlp"}, 2), ({"training.model": "cnn"}, 1)])

    def test_a_method_with_two_settings_is_two_methods(self):
        for seed, threshold_s in ((1, 0.5), (2, 0.5), (3, 0.75)):
            config = write_run(self.directory / "e" / "m", "m", seed) / "config.toml"
            config.write_text(config.read_text() + f"threshold_s = {threshold_s}\n")
        comparison, = compare([read_run(path) for path in find_run_directories(self.directory)])
        self.assertEqual([(method.label, len(method.runs)) for method in comparison.methods],
                         [("m, threshold_s = 0.5", 2), ("m, threshold_s = 0.75", 1)])

    def test_drop_rate_is_dropped_over_planned(self):
        run = read_run(write_run(self.directory / "m", "m", 1, drop=0.25))
        run.steps["kept_micro_batches"], run.steps["dropped_micro_batches"] = 3, 1
        np.testing.assert_allclose(windowed_drop_rate(run.steps)[1], 0.25)

    def test_drop_rates_are_those_of_equal_windows(self):
        run = read_run(write_run(self.directory / "m", "m", 1))
        rows = run.steps.iloc[[0] * 60].assign(step=range(1, 61))
        np.testing.assert_allclose(np.diff(windowed_drop_rate(rows)[0]), 2)

    def test_half_written_runs_are_not_seen(self):
        run = write_run(self.directory / "m", "m", 1)
        run.rename(run.with_name("." + run.name + ".part"))
        with self.assertRaises(ResultsFault):
            find_run_directories(self.directory)


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
        self.assert_fault(self.directory, self.directory, "holds no runs", "seed=")

    def test_directory_that_may_not_be_read(self):
        # Simulated, because root may read everything.
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


if __name__ == "__main__":
    unittest.main()
