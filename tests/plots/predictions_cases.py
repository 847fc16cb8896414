"""Figures of the JSON output of commands, of recorded runs compared with simulations, and of an estimate from kept
tables."""

import contextlib
import io
import json
import re
import unittest
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import WithDirectory, write_run

from plots.backup_estimate import (ESTIMATED, MEASURED, estimate_figure, estimated_times, kept_times, mean_arrival,
                                   measured_times, steps_by_gradients)
from plots.numbers import mean_and_half
from plots.predictions import checked_thresholds, looks_of_lines, predictions_figure, read_json, read_lines, thresholds_figure
from plots.recorded_steps import as_logged, main, own_sleeps
from plots.runs import read_run
from plots.style import ALGORITHMS


def prediction(method, sweep, simulated, formula):
    """A prediction; `simulated` and `formula` are (S_eff, time per step) or None."""
    said = [dict(zip(("effective_speedup", "step_time_s"), one)) if one else None for one in (simulated, formula)]
    return {"method": method, "sweep": sweep, "simulated": said[0], "formulas": [said[1]] if said[1] else [],
            "against": '"synchronous SGD"'}


def report(key="cluster.micro_batches"):
    """Predictions of a method that is best at the middle value, of one without a formula, and of one to which the key
    does not apply."""
    predictions = [prediction("synchronous SGD", [], (1, 0.5), (1, 0.4))]
    for value, a, b in ((2, 1.1, 1.3), (4, 1.4, 1.2), (8, 1.2, 1.0)):
        predictions.append(prediction("a", [[key, str(value)]], (a, 0.1 * value), (a - 0.05, 0.2)))
        predictions.append(prediction("b", [[key, str(value)]], (b, 0.3), None))
    return {"experiment": "scale", "predictions": predictions}


class Predictions(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write(self, content):
        path = self.directory / "out.json"
        path.write_text(json.dumps(content))
        return path

    def axes(self, content=None):
        path = self.write(content or report())
        return predictions_figure(read_json(path), path).axes

    def lines(self, axis, kind):
        return [(list(line.get_xdata()), list(line.get_ydata())) for line in axis.lines if line.get_gid() == kind]

    def test_each_method_has_a_line_by_simulation_and_one_by_its_formula(self):
        speedup, time = self.axes()
        self.assertEqual(self.lines(speedup, "simulation"),
                         [([2, 8], [1, 1]), ([2, 4, 8], [1.1, 1.4, 1.2]), ([2, 4, 8], [1.3, 1.2, 1.0])])
        formulas = self.lines(speedup, "formula")
        self.assertEqual(formulas[0], ([2, 8], [1, 1]))
        np.testing.assert_allclose(formulas[1][1], [1.05, 1.35, 1.15])
        self.assertEqual(len(formulas), 2)
        np.testing.assert_allclose(self.lines(time, "simulation")[1][1], [0.2, 0.4, 0.8])

    def test_a_method_has_one_colour_whatever_else_is_swept_and_no_other_has_it(self):
        predictions = [prediction(method, [["variant", delays], ["cluster.workers", str(workers)]], (1, 0.1 * workers), None)
                       for method in ("a", "b", "c", "d") for delays in ("none", "heavy") for workers in (2, 4, 8)]
        path = self.write({"experiment": "e", "predictions": predictions})
        looks = looks_of_lines(read_lines(read_json(path), path)[1])
        self.assertEqual(len(looks), 8)
        colours = {name[0]: {look["color"] for other, look in looks.items() if other[0] == name[0]} for name in looks}
        self.assertEqual([len(of_method) for of_method in colours.values()], [1] * 4)
        self.assertEqual(len(set().union(*colours.values())), 4)
        self.assertEqual(len({(look["color"], look["marker"]) for look in looks.values()}), 8)

    def test_the_point_of_the_most_speed_has_a_ring(self):
        speedup, time = self.axes()
        self.assertEqual(self.lines(speedup, "best"), [([4], [1.4]), ([2], [1.3])])
        self.assertEqual(self.lines(time, "best"), [])

    def test_none_has_a_ring_where_all_are_alike_or_more_workers_are_better(self):
        content = report()
        for one in content["predictions"][1:]:
            one["simulated"]["effective_speedup"] = 1.2
        self.assertEqual(self.lines(self.axes(content)[0], "best"), [])
        self.assertEqual(self.lines(self.axes(report("cluster.workers"))[0], "best"), [])

    def test_methods_have_the_colours_of_other_figures(self):
        content = report()
        for one in content["predictions"]:
            one["algorithm"] = {"a": "dropcompute", "b": "local-sgd"}.get(one["method"], "sync-sgd")
        colours = [line.get_color() for line in self.axes(content)[0].lines if line.get_gid() == "simulation"]
        self.assertEqual(colours, [ALGORITHMS["sync-sgd"], ALGORITHMS["dropcompute"], ALGORITHMS["local-sgd"]])

    def test_faults_do_not_speak_python(self):
        for content, said in (({"predictions": [{}]}, "it lacks 'sweep'"), ({"predictions": 3}, "has the wrong type"),
                              ({}, "it lacks")):
            status, message = self.status_and_message(self.write(content))
            self.assertEqual(status, 2)
            self.assertIn(said, message)
            self.assertNotIn("Error", message)
        path = self.directory / "out.json"
        path.write_text("{")
        self.assertIn("it is not JSON: line 1", self.status_and_message(path)[1])

    def test_it_is_drawn_for_a_column_of_a_paper(self):
        path = self.write(report())
        self.assertEqual(self.status_and_message(path, "--column", "single", "--format", "pdf"), (0, ""))
        self.assertTrue(path.with_suffix(".pdf").exists())

    def test_what_else_is_swept_is_part_of_the_name(self):
        content = report()
        for one in content["predictions"]:
            one["sweep"].append(["network.kind", "ring"])
        names = {text.get_text() for text in self.axes(content)[1].texts}
        self.assertIn("a, kind = ring", names)

    def test_a_method_without_any_prediction_is_left_out(self):
        content = report()
        content["predictions"].append(prediction("needs training", [["cluster.micro_batches", "2"]], None, None))
        self.assertEqual(len(self.lines(self.axes(content)[0], "simulation")), 3)

    def test_the_command_writes_it_beside_the_report(self):
        path = self.write(report())
        self.assertEqual(self.status_and_message(path), (0, ""))
        self.assertGreater(path.with_suffix(".png").stat().st_size, 10_000)
        self.assertTrue(path.with_suffix(".svg").exists())

    def test_without_a_sweep_over_a_number_it_is_one_message(self):
        words = report()
        for one in words["predictions"]:
            one["sweep"] = [["network.kind", "ring"]]
        without = {"experiment": "x", "predictions": [prediction("a", [], (1, 1), None)]}
        for content in (words, without, {"experiment": "x", "predictions": []}):
            status, message = self.status_and_message(self.write(content))
            self.assertEqual(status, 2)
            self.assertIn("no number is swept", message)

    def test_what_is_no_prediction_is_one_message(self):
        for content in ({"predictions": 3}, {"predictions": [{"method": "a"}]},
                        {"predictions": [{"method": "a", "sweep": [["k", "1"]], "simulated": 3, "formulas": []},
                                         {"method": "a", "sweep": [["k", "2"]], "simulated": 3, "formulas": []}]}):
            status, message = self.status_and_message(self.write(content))
            self.assertEqual(status, 2)
            self.assertIn("expected the output of `syncopate predict FILE --json`", message)


def found(best=True):
    """Three thresholds, of which the second one is best."""
    def effects(speedups):
        return [{"threshold_s": threshold, "drop_rate": dropped, "time_saved": saved, "effective_speedup": speedup}
                for threshold, dropped, saved, speedup in zip((5, 10, 20), (0.5, 0.1, 0), (0.6, 0.25, 0), speedups)]

    throughput, six = effects([1.25, 1.2, 1]), effects([1.3, 1.21, 1])
    return {"source": "runs/x/run.csv", "workers": 4, "steps": 7, "micro_batches": 12, "serial_s": 0.5,
            "by": {"throughput": {"best": throughput[1] if best else None, "thresholds": throughput},
                   "s-eff": {"best": None, "thresholds": six}}}


def read_thresholds(path):
    return checked_thresholds(read_json(path), path)


class Thresholds(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def write(self, content):
        path = self.directory / "out.json"
        path.write_text(json.dumps(content))
        return path

    def test_lines_are_what_the_report_says(self):
        panel, = thresholds_figure(read_thresholds(self.write(found()))).axes
        lines = [line for line in panel.lines if len(line.get_xdata()) == 3 and line.get_xdata()[0] == 5]
        for line, expected in zip(lines, ([1.25, 1.2, 1], [1.3, 1.21, 1], [2.5, 4 / 3, 1], [0.5, 0.9, 1]), strict=True):
            np.testing.assert_allclose(line.get_xdata(), [5, 10, 20])
            np.testing.assert_allclose(line.get_ydata(), expected)
        self.assertIn("10 s: 1.200, 10.0 % dropped", [text.get_text() for text in panel.texts])

    def test_without_a_best_one_none_is_marked(self):
        panel, = thresholds_figure(read_thresholds(self.write(found(best=False)))).axes
        self.assertFalse(any("dropped" in text.get_text() for text in panel.texts))

    def test_the_command_writes_it_beside_the_report(self):
        path = self.write(found())
        self.assertEqual(self.status_and_message(path), (0, ""))
        self.assertGreater(path.with_suffix(".png").stat().st_size, 10_000)
        self.assertTrue(path.with_suffix(".svg").exists())

    def test_another_file_is_one_message(self):
        for content in ({"by": {}}, [], found() | {"by": {"throughput": {"thresholds": [{"threshold_s": "x"}]}}}):
            status, message = self.status_and_message(self.write(content))
            self.assertEqual(status, 2)
            self.assertIn("expected the output of `syncopate thresholds", message)
        status, message = self.status_and_message(self.directory / "nowhere.json")
        self.assertEqual(status, 2)
        self.assertIn("nowhere.json", message)


KEPT = Path(__file__).parents[2] / "results" / "paper"
PLAN = {"description": "d", "cluster": {"workers": 4, "micro_batch_s": 0.5},
        "training": {"model": "mlp", "dataset": "x"}, "delays": [{"minimum": 1.0, "shape": 2.0}], "sweep": {"methods.backup workers.backups": [0, 1, 3]}}


class Estimate(unittest.TestCase):
    def setUp(self):
        self.addCleanup(plt.close, "all")

    def test_an_arrival_is_the_mean_of_the_order_statistic(self):
        """For one worker, the mean arrival is the mean of the power law. The smallest of n times follows a power law
        with n times the shape."""
        self.assertAlmostEqual(mean_arrival(1, 1, 1.2, 8.4), 1.2 * 8.4 / 7.4)
        self.assertAlmostEqual(mean_arrival(1, 32, 1.2, 8.4), 1.2 * 32 * 8.4 / (32 * 8.4 - 1))
        drawn = np.sort(1.2 * np.random.default_rng(1).random((20000, 32)) ** (-1 / 8.4), axis=1).mean(0)
        np.testing.assert_allclose([mean_arrival(k, 32, 1.2, 8.4) for k in range(1, 33)], drawn, rtol=0.01)

    def test_steps_are_read_off_a_line_and_multiplied_with_the_arrival(self):
        times = estimated_times({"1": {2: 100.0, 4: 60.0}, "2": {2: 200.0, 4: 100.0}}, PLAN)
        self.assertEqual(list(times), [0, 1], "and not beyond what was measured: of one gradient nothing is known")
        np.testing.assert_allclose(times[1], np.array([80, 150]) * (mean_arrival(3, 4, 1, 2) + 0.5))
        np.testing.assert_allclose(times[0], np.array([60, 100]) * (mean_arrival(4, 4, 1, 2) + 0.5))

    def test_rows_are_those_of_the_tidy_tables(self):
        steps = [{"seed": "1", "cluster.workers": "34", "steps_to_target": "60"},
                 {"seed": "1", "cluster.workers": "6", "steps_to_target": ""}]
        self.assertEqual(steps_by_gradients(steps), {"1": {32: 60.0}})
        times = [{"method.backups": b, "time_to_target_s": time_s} for b, time_s in (("2", "5"), ("0", "7"), ("4", ""))]
        self.assertEqual(measured_times(times), {0: [7.0], 2: [5.0]})

    def test_both_best_are_marked_and_what_was_measured_has_error_bars(self):
        measured = {0: [10.0, 12.0], 1: [7.0, 9.0], 3: [8.0, 10.0]}
        panel = estimate_figure(measured, {0: [9.0, 9.0], 1: [8.0, 8.2], 3: [6.0, 6.2]}, PLAN).axes[0]
        lines = {line.get_gid(): line.get_xydata() for line in panel.lines if line.get_gid() in (MEASURED, ESTIMATED)}
        np.testing.assert_allclose(lines[MEASURED], [(0, 11), (1, 8), (3, 9)])
        best = sorted(tuple(line.get_xydata()[0]) for line in panel.lines if line.get_gid() == "best")
        np.testing.assert_allclose(best, [(1, 8), (3, 6.1)])
        bars, = panel.containers
        half = mean_and_half(measured[1])[1]
        np.testing.assert_allclose(bars.lines[2][0].get_segments()[1], [(1, 8 - half), (1, 8 + half)])

    def test_what_is_kept_is_what_its_page_says(self):
        measured, estimated, _ = kept_times(KEPT)
        lines = [line for line in (KEPT / "README.md").read_text().splitlines() if re.match(r"\| (b|\w+ \(s\)) \|", line)]
        table = {cells[1]: cells[2:-1] for cells in (re.split(r"\s*\|\s*", line) for line in lines)}
        for name, times in (("estimated (s)", estimated), ("measured (s)", measured)):
            self.assertEqual(["{:.0f} +- {:.0f}".format(*mean_and_half(times[int(b)])) for b in table["b"]], table[name])


CONFIG = """
[[delays]]
kind = "normal"
[[delays]]
kind = "trace"
scale = 0.5
sleep = true
"""


class RecordedSteps(WithDirectory):
    def setUp(self):
        super().setUp()
        self.noise, self.log = self.directory / "noise.csv", self.directory / "log.csv"
        # Worker 0 draws 10 step + micro_batch; the values of worker 1 are not used.
        self.noise.write_text("# a comment\nworker,step,micro_batch,duration_s\n" + "".join(
            f"{worker},{step},{micro_batch},{10 * step + micro_batch if worker == 0 else 99}\n"
            for worker in range(2) for step in range(1200) for micro_batch in range(2)))
        self.log.write_text("iteration,step_time_s\n" + "".join(f"{i},{330 if i == 1 else 8}\n" for i in range(1, 61)))
        for label in ("two clocks", "one clock"):
            for seed in (1, 2):
                config = write_run(self.directory / label, label, seed) / "config.toml"
                config.write_text(config.read_text() + "[methods.threshold]\nwarmup_steps = 6\ncalibration_steps = 44\n"
                                  + CONFIG)

    def test_times_are_those_of_worker_0_once_it_has_slept(self):
        run = read_run(next((self.directory / "one clock").glob("seed=1-*")))
        sleeps = own_sleeps(self.noise, run)
        np.testing.assert_allclose(sleeps[:3], [0.5, 5.5, 10.5])
        shift = as_logged(run, sleeps, 2) - run.steps["duration_s"].to_numpy()
        np.testing.assert_allclose(shift[:5], [0.5, 5, -5.5, 0, 0], atol=1e-9)  # sleeps count up to step 1 only

    def test_the_picture_is_written_or_the_fault_is_told(self):
        picture = self.directory / "steps.png"
        arguments = [str(path) for path in (self.directory, self.log, self.noise, picture)]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as message:
            self.assertEqual(main(arguments), 0)
            self.assertGreater(picture.stat().st_size, 10_000)
            self.log.write_text("iteration,duration\n1,2\n")
            self.assertEqual(main(arguments), 2)
            self.assertEqual(main(arguments[:2]), 2)
        self.assertIn("has no column step_time_s", message.getvalue())
