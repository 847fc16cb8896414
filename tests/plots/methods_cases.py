"""Which runs a method has, what methods are called, their order and their colours."""

import shutil

from synthetic_results import write_experiment, write_run
from with_results import WithDirectory, change, comparisons_below

from plots.comparison import subtitle
from plots.horizontal import at_target
from plots.style import ALGORITHMS, line_styles
from plots.variation import flat


class Methods(WithDirectory):
    def write_again(self, run, end):
        """A second directory of the run: another description, another hash, another end."""
        again = shutil.copytree(run, run.with_name("seed=1-0000aaaa"))
        config = again / "config.toml"
        config.write_text(config.read_text().replace("Four methods", "Our methods"))
        change(again / "metadata.json", end=end)
        return again

    def test_the_newest_of_two_runs_of_a_seed_is_taken_and_the_other_named(self):
        run = write_run(self.directory / "m", "m", 1)
        write_run(self.directory / "m", "m", 2)
        change(run / "metadata.json", start="2026-01-01T00:00:00Z", end="2026-01-02T00:00:00Z")
        for end, older in (("2026-01-03T00:00:00Z", run), ("2026-01-01T12:00:00Z", None)):
            again = self.write_again(run, end)
            older = older or again
            comparison, = comparisons_below(self.directory / "m")
            method, = comparison.methods
            self.assertEqual([taken.seed for taken in method.runs], [1, 2])
            self.assertEqual({run, again} - {taken.directory for taken in method.runs}, {older})
            status, message = self.status_and_message(self.directory / "m")
            self.assertEqual((status, message.count("\n")), (0, 1))
            self.assertIn(f"newer run has the same method and seed: {older}\n", message)
            shutil.rmtree(again)

    def test_a_run_without_an_end_is_as_old_as_its_start(self):
        run = write_run(self.directory / "m", "m", 1)
        change(run / "metadata.json", start="2026-01-05T00:00:00Z")
        self.write_again(run, "2026-01-04T00:00:00Z")
        comparison, = comparisons_below(self.directory)
        self.assertEqual([taken.directory for taken in comparison.runs], [run])

    def test_a_method_that_has_otherwise_what_is_swept_stands_beside_each_of_its_values(self):
        for label, peaks in (("everybody", (1, 2)), ("own", (1,)), ("other", (1,))):
            for peak in peaks:
                config = write_run(self.directory / f"{label}{peak}", label, 1) / "config.toml"
                has = {"own": "[methods.training]\npeak = 5\n", "other": "[methods.training]\nclip_norm = 5\n"}
                config.write_text(config.read_text().replace("[training]", f"[training]\npeak = {peak}")
                                  + has.get(label, ""))
        found = {comparison.point["training.peak"]: sorted(method.label for method in comparison.methods)
                 for comparison in comparisons_below(self.directory)}
        self.assertEqual(found, {"1": ["everybody", "other", "own"], "2": ["everybody", "own"]})

    def test_a_common_phase_is_no_method_beside_those_that_begin_at_its_end(self):
        for label in ("a", "b"):
            config = write_run(self.directory / "x" / label, label, 1) / "config.toml"
            config.write_text(config.read_text().replace("[training]", "[training]\ncommon = { epochs = 5 }"))
        write_run(self.directory / "x" / "common-phase", "common phase", 1, algorithm="sync-sgd")
        comparison, = comparisons_below(self.directory)
        self.assertEqual(([method.label for method in comparison.methods], comparison.point), (["a", "b"], {}))
        alone, = comparisons_below(self.directory / "x" / "common-phase")
        self.assertEqual([method.label for method in alone.methods], ["common phase"])

    def test_order_is_that_of_the_experiment_file(self):
        for index, label in enumerate(["zeta", "synchronous SGD", "alpha"]):
            run = write_run(self.directory / label, label, 1, algorithm="sync-sgd" if index == 1 else "x")
            change(run / "summary.json", method_index=index)
        comparison, = comparisons_below(self.directory)
        self.assertEqual([method.label for method in comparison.methods], ["zeta", "synchronous SGD", "alpha"])

    def test_without_an_index_the_baseline_is_first_and_the_rest_by_label(self):
        for label in ("period 16", "Backup", "period 4", "synchronous SGD"):
            write_run(self.directory / label, label, 1, algorithm="sync-sgd" if label.startswith("sync") else "x")
        comparison, = comparisons_below(self.directory)
        self.assertEqual([method.label for method in comparison.methods],
                         ["synchronous SGD", "Backup", "period 4", "period 16"])

    def test_a_known_algorithm_has_its_colour_in_whatever_company(self):
        self.assertEqual(line_styles({"b": "backup-workers"})["b"]["color"], ALGORITHMS["backup-workers"])
        labels = {"a": "dropcompute", "b": "backup-workers", "c": "dropcompute", "d": "local-sgd", "e": "sync-sgd",
                  "f": "new", "g": "new"}
        colours = {label: look["color"] for label, look in line_styles(labels).items()}
        self.assertEqual({label: colours[label] for label in "abde"},
                         {label: ALGORITHMS[labels[label]] for label in "abde"})
        self.assertEqual(len(set(colours.values())), 7)

    def test_no_two_of_many_methods_look_the_same(self):
        styles = line_styles({f"m{number}": "dropcompute" for number in range(20)})
        self.assertEqual(len({str(look) for look in styles.values()}), 20)

    def test_without_colours_line_and_marker_tell_thirty_methods_apart(self):
        styles = line_styles({f"m{number}": "dropcompute" for number in range(30)})
        self.assertEqual(len({(str(look["linestyle"]), look["marker"]) for look in styles.values()}), 30)

    def test_colour_and_line_tell_thirty_methods_apart_where_there_are_no_markers(self):
        styles = line_styles({f"m{number}": "backup-workers" for number in range(30)})
        self.assertEqual(len({(str(look["linestyle"]), look["color"]) for look in styles.values()}), 30)

    def test_a_method_on_a_wall_clock_has_the_same_colour_dashed(self):
        styles = line_styles({"m": "dropcompute", "m (MPI)": "dropcompute"})
        self.assertEqual(styles["m"]["color"], styles["m (MPI)"]["color"])
        self.assertNotEqual(styles["m"]["linestyle"], styles["m (MPI)"]["linestyle"])

    def test_a_method_with_fewer_seeds_says_so(self):
        for label, seeds in (("full", 3), ("half", 1)):
            for seed in range(1, seeds + 1):
                write_run(self.directory / label, label, seed)
        comparison, = comparisons_below(self.directory)
        self.assertEqual([method.name for method in comparison.methods], ["full", "half (1 seed)"])
        self.assertIn("mean of up to 3 seeds", subtitle(comparison, ""))
        self.assertEqual(self.status_and_message(self.directory), (0, ""))
        for figure in ("curves", "rounds"):
            self.assertIn(">half (1 seed)<", (self.directory / "plots" / f"{figure}.svg").read_text())

    def test_with_equal_seeds_nothing_is_said(self):
        comparison, = comparisons_below(write_experiment(self.directory, seeds=2))
        self.assertEqual([method.name for method in comparison.methods],
                         [method.label for method in comparison.methods])
        self.assertIn("mean of 2 seeds", subtitle(comparison, ""))

    def test_time_to_target_is_the_mean_of_the_summaries(self):
        for seed, time_s, step in ((1, 10.0, 100), (2, 20.0, 300)):
            run = write_run(self.directory / "m", "m", seed)
            change(run / "summary.json", time_to_target={"time_s": time_s, "step": step, "samples": 2 * step})
        comparison, = comparisons_below(self.directory)
        method, = comparison.methods
        self.assertEqual([at_target(method, column) for column in ("time_s", "step", "samples")], [15, 200, 400])
        first_bytes = sum(int(taken.metrics.loc[taken.metrics["step"] == step, "communicated_bytes"].iloc[0])
                          for taken, step in zip(method.runs, (100, 300)))
        self.assertEqual(at_target(method, "communicated_bytes"), first_bytes / 2)
        change(run / "summary.json", time_to_target={"time_s": None, "step": None, "samples": None})
        comparison, = comparisons_below(self.directory)
        self.assertIsNone(at_target(comparison.methods[0], "time_s"))
        change(run / "summary.json", time_to_target=None)
        comparison, = comparisons_below(self.directory)
        self.assertIsNone(at_target(comparison.methods[0], "step"))

    def test_numbers_that_differ_late_are_not_taken_for_equal(self):
        texts = [flat({"peak": peak})["peak"] for peak in (0.12345671, 0.12345672, 0.2, 1e6)]
        self.assertEqual(texts, ["0.12345671", "0.12345672", "0.2", "1e+06"])
