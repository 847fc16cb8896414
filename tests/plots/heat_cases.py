"""Maps of two swept numbers."""

import shutil

import matplotlib.pyplot as plt
import numpy as np
from synthetic_results import write_run
from with_results import WithDirectory, change, comparisons_below

from plots.grids import find_grids
from plots.heat_figure import heat_figure

WORKERS, THRESHOLDS = (8, 16, 32), (0.1, 0.2, 0.3, 0.4)


class Heat(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")
        for workers in WORKERS:
            for threshold_s in THRESHOLDS:
                for seed in (1, 2):
                    run = write_run(self.directory / "e" / f"{workers} {threshold_s}", "DropCompute", seed, workers=workers,
                                    accuracy=False)
                    config = run / "config.toml"
                    config.write_text(config.read_text() + f"threshold_s = {threshold_s}\n")
                    change(run / "summary.json", samples_per_virtual_s=self.speed(workers, threshold_s) + seed)
            write_run(self.directory / "e" / f"other{workers}", "other", 1, workers=workers, accuracy=False)

    @staticmethod
    def speed(workers, threshold_s):
        """The most at 16 workers and 0.3 s."""
        return 1000 - abs(workers - 16) - 100 * abs(threshold_s - 0.3)

    def test_a_map_holds_the_means_at_all_places_and_frames_the_best(self):
        grid, = find_grids(comparisons_below(self.directory))
        self.assertEqual((grid.x_key, grid.y_key, grid.labels), ("method.threshold_s", "cluster.workers", ["DropCompute"]))
        expected = [[self.speed(workers, threshold_s) + 1.5 for threshold_s in THRESHOLDS] for workers in WORKERS]
        np.testing.assert_allclose(grid.values("DropCompute"), expected)
        panel, = heat_figure(grid).axes
        self.assertEqual((panel.get_title(loc="left"), panel.get_xlabel(), panel.get_ylabel()),
                         ("DropCompute: Samples per second", "threshold (s)", "workers"))
        self.assertEqual([text.get_text() for text in panel.get_xticklabels()], [str(one) for one in THRESHOLDS])
        np.testing.assert_allclose(panel.images[0].get_array(), expected)
        self.assertEqual(len(panel.texts), 12)
        frame, = [patch for patch in panel.patches if patch.get_gid() == "best"]
        self.assertEqual((round(frame.get_x() + 0.46), round(frame.get_y() + 0.46)), (2, 1))

    def test_beside_synchronous_sgd_a_map_is_of_s_eff_seed_by_seed(self):
        for workers in WORKERS:
            for seed in (1, 2):
                run = write_run(self.directory / "e" / f"sync{workers}", "sync", seed, workers=workers, accuracy=False,
                                algorithm="sync-sgd")
                change(run / "summary.json", samples_per_virtual_s=100.0 * workers * seed)
        grid, = find_grids(comparisons_below(self.directory))
        expected = [[np.mean([(self.speed(workers, threshold_s) + seed) / (100 * workers * seed) for seed in (1, 2)])
                     for threshold_s in THRESHOLDS] for workers in WORKERS]
        self.assertEqual(grid.labels, ["DropCompute"])
        np.testing.assert_allclose(grid.values("DropCompute"), expected)

    def test_a_title_that_is_wider_than_its_map_is_broken(self):
        for workers in WORKERS:
            write_run(self.directory / "e" / f"sync{workers}", "sync", 1, workers=workers, accuracy=False, algorithm="sync-sgd")
            for threshold_s in THRESHOLDS:
                run = write_run(self.directory / "e" / f"second {workers} {threshold_s}", "another method with a long name", 1,
                                workers=workers, accuracy=False)
                with open(run / "config.toml", "a", encoding="utf-8") as config:
                    config.write(f"threshold_s = {threshold_s}\n")
        grid, = find_grids(comparisons_below(self.directory))
        figure = heat_figure(grid)
        figure.canvas.draw()
        boxes = [panel._left_title.get_window_extent() for panel in figure.axes]
        self.assertIn("against synchronous SGD", figure.axes[1].get_title(loc="left").replace("\n", " "))
        self.assertLess(boxes[0].x1, boxes[1].x0)
        self.assertLess(boxes[1].x1, figure.bbox.width)

    def test_three_values_by_two_are_a_map(self):
        comparisons = [one for one in comparisons_below(self.directory) if one.point.get("cluster.workers") != "32"]
        grid, = find_grids(comparisons)
        self.assertEqual(grid.values("DropCompute").shape, (2, 4))

    def test_bytes_have_a_map_beside_accuracy_where_they_differ(self):
        for run in (self.directory / "e").glob("*/seed=*"):
            place = run.parent.name.split()
            change(run / "summary.json", final_test_accuracy=0.5,
                   communicated_bytes=int(1000 * float(place[1])) if len(place) == 2 else 1)
        grid, = find_grids(comparisons_below(self.directory))
        titles = [panel.get_title(loc="left") for panel in heat_figure(grid).axes]
        self.assertEqual(titles, ["DropCompute: Final test accuracy (%)", "DropCompute: Sent by all (bytes)"])
        np.testing.assert_allclose(heat_figure(grid).axes[1].images[0].get_array()[0], [100, 200, 300, 400])

    def test_the_message_says_what_a_map_needs(self):
        for run in (self.directory / "e").glob("* 0.[234]"):
            shutil.rmtree(run)
        status, message = self.status_and_message(self.directory, "--only", "heat")
        self.assertEqual(status, 2)
        self.assertIn("heat: two swept numbers, with three and two values at least", message)

    def test_it_is_among_the_figures(self):
        self.assertEqual(self.status_and_message(self.directory, "--only", "heat"), (0, ""))
        self.assertEqual(sorted(path.name for path in (self.directory / "plots").iterdir()), ["heat.png", "heat.svg"])
        drawing = (self.directory / "plots" / "heat.svg").read_text()
        self.assertIn("threshold = 0.1 to 0.4 s, workers = 8 to 32", drawing)
        self.assertNotIn("8 workers", drawing)
