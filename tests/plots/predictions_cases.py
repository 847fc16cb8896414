"""The figure of predictions over a sweep."""

import json

import matplotlib.pyplot as plt
import numpy as np
from with_results import WithDirectory

from plots.json_figure import read_json
from plots.predictions_figure import looks_of_lines, predictions_figure, read_lines
from plots.style import ALGORITHMS


def prediction(method, sweep, simulated, formula):
    """Each of the two: S_eff and time per step, or None."""
    said = [dict(zip(("effective_speedup", "step_time_s"), one)) if one else None for one in (simulated, formula)]
    return {"method": method, "sweep": sweep, "simulated": said[0], "formulas": [said[1]] if said[1] else [],
            "against": '"synchronous SGD"'}


def report(key="cluster.micro_batches"):
    """A method that is best at the middle value, one without a formula, and one that the key does not concern."""
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
        for content, said in (({"predictions": [{}]}, "it lacks 'sweep'"), ({"predictions": 3}, "of another kind"),
                              ({}, "it lacks")):
            status, message = self.status_and_message(self.write(content))
            self.assertEqual(status, 2)
            self.assertIn(said, message)
            self.assertNotIn("Error", message)
        path = self.directory / "out.json"
        path.write_text("{")
        self.assertIn("it is no JSON: line 1", self.status_and_message(path)[1])

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
            self.assertIn("expected what `syncopate predict FILE --json` prints", message)
