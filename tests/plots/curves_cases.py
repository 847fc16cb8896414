"""What figures show, and the files they are written to."""

import matplotlib.pyplot as plt
from synthetic_results import write_experiment, write_run, write_sweep
from with_results import WithDirectory, change, comparisons_below

from plots.curves_figure import curves_figure
from plots.page import use_page
from plots.pareto_figure import pareto_figure
from plots.plan import file_name
from plots.plot import numbered
from plots.rounds_figure import rounds_figure
from plots.style import ALGORITHMS, line_styles


class Drawing(WithDirectory):
    def setUp(self):
        super().setUp()
        self.addCleanup(plt.close, "all")

    def draw(self, figure, directory):
        comparison, = comparisons_below(directory)
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        return figure(comparison.methods, styles, "heading", "subtitle").axes

    def test_dots_lie_at_the_mean_of_the_summaries(self):
        for label, times in (("reached", (30.0, 50.0)), ("reached too", (40.0, 40.0)), ("never", (20.0, None))):
            for seed, time_s in enumerate(times, 1):
                run = write_run(self.directory / label, label, seed)
                change(run / "summary.json", time_to_target={"time_s": time_s, "step": time_s and 10 * time_s,
                                                             "samples": time_s and 5000 * time_s})
        panels = self.draw(curves_figure, self.directory)
        for panel, expected in zip(panels[:4], (400, 200000, 40, 0.4)):
            dots = [line for line in panel.lines if line.get_gid() == "target"]
            self.assertEqual([(dot.get_xdata()[0], dot.get_ydata()[0]) for dot in dots], [(expected, 0.85)] * 2)
            self.assertEqual({dot.get_color() for dot in dots}, {"none"})  # else one would hide the other
            self.assertEqual(len({dot.get_marker() for dot in dots}), 2)
            target, = [line for line in panel.lines if list(line.get_ydata()) == [0.85, 0.85]]
            panel.figure.canvas.draw()
            heights = {dot.get_transform().transform(dot.get_xydata())[0, 1] for dot in (*dots, target)}
            self.assertEqual(len(heights), 1)
        self.assertFalse([line for panel in panels[4:] for line in panel.lines if line.get_gid() == "target"])

    def test_no_two_of_thirty_methods_share_line_or_marker_in_one_colour(self):
        styles = line_styles({f"method {place}": algorithm for place, algorithm in
                              enumerate(["sync-sgd", "other", "dropcompute", *["other"] * 26, "local-sgd"])})
        for part in ("linestyle", "marker"):
            self.assertEqual(len({(look["color"], look[part]) for look in styles.values()}), 30)

    def test_eleven_methods_have_a_colour_each(self):
        styles = line_styles({f"method {place}": "other" for place in range(11)})
        self.assertEqual(len({look["color"] for look in styles.values()}), 11)

    def test_curves_stand_against_the_axes_that_are_asked_for_in_their_order(self):
        comparison, = comparisons_below(write_experiment(self.directory, seeds=2))
        styles = line_styles({method.label: method.algorithm for method in comparison.methods})
        panels = curves_figure(comparison.methods, styles, "heading", "subtitle", ("bytes", "time")).axes
        self.assertEqual([panel.get_xlabel() for panel in panels], ["", "", "sent by all (GB)", "time (s)"])
        ends = {line.get_color(): line.get_xdata()[-1] for line in panels[0].lines if line.get_gid() == "method"}
        self.assertEqual(len(ends), 4)
        self.assertAlmostEqual(ends[ALGORITHMS["sync-sgd"]], 1.2)  # 1,200 steps of a million bytes
        self.assertAlmostEqual(ends[ALGORITHMS["local-sgd"]], 0.3)

    def test_nothing_stands_against_bytes_where_nobody_sends_any(self):
        run = write_run(self.directory / "m", "m", 1)
        lines = (run / "metrics.csv").read_text().splitlines()
        (run / "metrics.csv").write_text("\n".join([lines[0], *(line.rsplit(",", 1)[0] + ",0" for line in lines[1:])]))
        self.assertEqual(len(self.draw(curves_figure, self.directory)), 6)

    def test_a_target_of_other_data_is_no_line_over_test_accuracy(self):
        run = write_run(self.directory / "m", "m", 1)
        config = run / "config.toml"
        config.write_text(config.read_text().replace("[evaluation]", '[evaluation]\ntarget_of = "validation"'))
        self.assertFalse([line for panel in self.draw(curves_figure, self.directory) for line in panel.lines
                          if line.get_gid() == "target" or list(line.get_ydata()) == [0.85, 0.85]])

    def test_names_that_do_not_fit_beside_the_lines_stand_in_one_legend_below(self):
        for number in range(20):
            write_run(self.directory / f"{number:02}", f"method {number:02}", 1)
        panels = self.draw(curves_figure, self.directory)
        legend, = panels[0].figure.legends
        self.assertEqual(len(legend.get_texts()), 20)
        self.assertFalse([text for panel in panels for text in panel.texts if text.get_text().startswith("method")])
        panels[0].figure.canvas.draw()
        self.assertLess(legend.get_window_extent().y1, panels[-1].xaxis.get_tightbbox(panels[0].figure.canvas.get_renderer()).y0)
        self.assertGreaterEqual(legend.get_window_extent().y0, 0)

    def test_periods_are_drawn_of_methods_that_have_any(self):
        *_, panel = self.draw(rounds_figure, write_experiment(self.directory, seeds=2))
        self.assertEqual(panel.get_title(loc="left"), "Synchronisation period (optimizer steps), first seed")
        self.assertEqual(sorted(text.get_text() for text in panel.texts), ["Local SGD (QSR)", "others: 1"])
        stairs = [line for line in panel.lines if line.get_color() == ALGORITHMS["local-sgd"]]
        self.assertGreater(max(stairs[0].get_ydata()), 1)

    def test_without_others_none_are_named(self):
        write_run(self.directory / "m", "m", 1, period=4)
        *_, panel = self.draw(rounds_figure, self.directory)
        self.assertEqual([text.get_text() for text in panel.texts], ["m"])
        self.assertNotIn("seed", panel.get_title(loc="left"))


    def test_what_is_written_beside_an_axis_is_not_cut(self):
        self.addCleanup(use_page, "screen")
        for label, speed in (("a", 1), ("b", 2)):
            run = write_run(self.directory / label, label, 1, speed)
            head, *rows = [line.split(",") for line in (run / "metrics.csv").read_text().splitlines()]
            at = head.index("test_loss")
            rows = [[*row[:at], f"{float(row[at]) / 1000:.9f}", *row[at + 1:]] for row in rows]
            (run / "metrics.csv").write_text("".join(",".join(row) + "\n" for row in (head, *rows)))
        for name in ("screen", "single", "double"):
            use_page(name)
            for panels in (self.draw(curves_figure, self.directory), self.draw(pareto_figure, self.directory)):
                renderer = panels[0].figure.canvas.get_renderer()
                for panel in panels:
                    written, row = panel.yaxis.get_tightbbox(renderer), panel.get_position().y0
                    before = [other.get_window_extent().x1 for other in panels if abs(other.get_position().y0 - row) < 0.01
                              and other.get_position().x0 < panel.get_position().x0]
                    self.assertGreaterEqual(written.x0 if written else 1, max(before, default=0) if written else 0,
                                            (name, panel.get_ylabel()))


class Figures(WithDirectory):
    def written(self):
        return sorted(path.name for path in (self.directory / "plots").iterdir())

    def test_experiment_gives_its_figures_in_two_formats(self):
        write_experiment(self.directory, seeds=2)
        status, message = self.status_and_message(self.directory)
        self.assertEqual((status, message), (0, ""))
        self.assertEqual(self.written(), [f"{kind}.{suffix}" for kind in ("bars", "curves", "distributions", "pareto", "rounds")
                                          for suffix in ("png", "svg")])
        self.assertEqual((self.directory / "plots" / "curves.png").read_bytes()[:4], b"\x89PNG")
        drawing = (self.directory / "plots" / "curves.svg").read_text()
        for text in ("DropCompute", "test accuracy (%)", "test loss", "optimizer steps", "target 85 %"):
            self.assertIn(text, drawing)

    def test_drawing_again_replaces_the_figures(self):
        write_experiment(self.directory, seeds=1)
        self.assertEqual(self.status_and_message(self.directory)[0], 0)
        first = (self.directory / "plots" / "curves.svg").read_bytes()
        self.assertEqual(self.status_and_message(self.directory)[0], 0)
        self.assertEqual((self.directory / "plots" / "curves.svg").read_bytes(), first)

    def test_quadratic_without_accuracy_shows_the_loss_alone(self):
        write_experiment(self.directory, seeds=1, accuracy=False)
        self.assertEqual(self.status_and_message(self.directory)[0], 0)
        drawing = (self.directory / "plots" / "curves.svg").read_text()
        self.assertIn("test loss", drawing)
        self.assertNotIn("test accuracy", drawing)

    def test_sweep_gives_a_figure_of_its_own_beside_those_of_its_points(self):
        write_sweep(self.directory)
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        self.assertIn("sweep.png", self.written())
        self.assertIn("curves-workers=8.png", self.written())
        drawing = (self.directory / "plots" / "sweep.svg").read_text()
        for text in ("Samples per second", "Dropped micro-batches (%)", "workers"):
            self.assertIn(text, drawing)
        self.assertNotIn("accuracy", drawing)

    def test_failed_run_is_left_out_and_named(self):
        kept, failed = (write_run(self.directory / "m", "m", seed) for seed in (1, 2))
        summary = failed / "summary.json"
        summary.write_text(summary.read_text().replace("finished", "failed"))
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 0)
        self.assertIn(str(failed), message)
        self.assertNotIn(str(kept), message)

    def test_points_whose_numbers_differ_in_the_sign_of_an_exponent_have_files_of_their_own(self):
        for seed, peak in ((1, "1e6"), (1, "1e-6")):
            run = write_run(self.directory / peak, "m", seed)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"[training]\npeak = {peak}"))
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        self.assertEqual([name for name in self.written() if name.startswith("curves") and name.endswith("png")],
                         ["curves-peak=1M.png", "curves-peak=1e-06.png"])

    def test_points_whose_names_become_equal_are_numbered(self):
        for model in ("a b", "a/b", "A b"):
            config = write_run(self.directory / str(len(list(self.directory.iterdir()))), "m", 1) / "config.toml"
            config.write_text(config.read_text().replace("mlp", model))
        self.assertEqual(file_name("curves", "", "model=a b"), file_name("curves", "model=a/b"))
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        self.assertEqual([name for name in self.written() if name.startswith("curves") and name.endswith("png")],
                         ["curves-model=A-b-3.png", "curves-model=a-b-2.png", "curves-model=a-b.png"])

    def test_a_number_that_is_taken_is_passed_over(self):
        taken = set()
        self.assertEqual([numbered(name, taken) for name in ("a", "a-2", "a", "a")], ["a", "a-2", "a-3", "a-4"])

    def test_a_run_with_step_zero_alone_is_drawn_without_warnings(self):
        run = write_run(self.directory / "m", "m", 1)
        for table, rows in (("metrics.csv", 2), ("steps.csv", 1)):
            text = (run / table).read_text().splitlines(keepends=True)
            (run / table).write_text("".join(text[:rows]))
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        self.assertEqual(self.written(), ["curves.png", "curves.svg"])

    def test_a_sweep_with_fewer_seeds_of_one_method_says_so(self):
        for workers in (8, 16, 32):
            write_run(self.directory / f"{workers}" / "a", "a", 1, workers=workers)
            write_run(self.directory / f"{workers}" / "a", "a", 2, workers=workers)
            write_run(self.directory / f"{workers}" / "b", "b", 1, workers=workers)
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        drawing = (self.directory / "plots" / "sweep.svg").read_text()
        for text in (">a<", ">b (1 seed)<", "mean of up to 2 seeds"):
            self.assertIn(text, drawing)
