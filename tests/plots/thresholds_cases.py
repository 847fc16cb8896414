"""The figure of what thresholds would have done."""

import json

import matplotlib.pyplot as plt
import numpy as np
from with_results import WithDirectory

from plots.json_figure import read_json
from plots.thresholds_figure import checked_thresholds, thresholds_figure


def report(best=True):
    """Three thresholds, of which the second one serves best."""
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
        panel, = thresholds_figure(read_thresholds(self.write(report()))).axes
        lines = [line for line in panel.lines if len(line.get_xdata()) == 3 and line.get_xdata()[0] == 5]
        for line, expected in zip(lines, ([1.25, 1.2, 1], [1.3, 1.21, 1], [2.5, 4 / 3, 1], [0.5, 0.9, 1]), strict=True):
            np.testing.assert_allclose(line.get_xdata(), [5, 10, 20])
            np.testing.assert_allclose(line.get_ydata(), expected)
        self.assertIn("10 s: 1.200, 10.0 % dropped", [text.get_text() for text in panel.texts])

    def test_without_a_best_one_none_is_marked(self):
        panel, = thresholds_figure(read_thresholds(self.write(report(best=False)))).axes
        self.assertFalse(any("dropped" in text.get_text() for text in panel.texts))

    def test_the_command_writes_it_beside_the_report(self):
        path = self.write(report())
        self.assertEqual(self.status_and_message(path), (0, ""))
        self.assertGreater(path.with_suffix(".png").stat().st_size, 10_000)
        self.assertTrue(path.with_suffix(".svg").exists())

    def test_another_file_is_one_message(self):
        for content in ({"by": {}}, [], report() | {"by": {"throughput": {"thresholds": [{"threshold_s": "x"}]}}}):
            status, message = self.status_and_message(self.write(content))
            self.assertEqual(status, 2)
            self.assertIn("expected what `syncopate thresholds", message)
        status, message = self.status_and_message(self.directory / "nowhere.json")
        self.assertEqual(status, 2)
        self.assertIn("nowhere.json", message)
