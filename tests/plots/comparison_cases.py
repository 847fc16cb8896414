"""Which runs a method has, what methods are called, their order and their colours."""

import shutil

from synthetic_results import STEPS, write_experiment, write_run
from with_results import WithDirectory, change, comparisons_below

from plots.comparison import subtitle
from plots.horizontal import at_target
from plots.style import ALGORITHMS, line_styles
from plots.sweeps import find_sweeps
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

    def write_sweep_with(self, *beside):
        """Two methods at 4, 8 and 16 workers over two seeds; and, made later without the sweep, runs (label, workers, steps)
        of the first seed."""
        for label in ("sync", "local"):
            for workers in (4, 8, 16):
                for seed in (1, 2):
                    run = write_run(self.directory / f"{label}-{workers}", label, seed, workers=workers)
                    change(run / "metadata.json", end="2026-01-01T00:00:00Z")
        for label, workers, steps in beside:
            run = write_run(self.directory / f"{label}-beside-{workers}-{steps}", label, 1, workers=workers)
            config = run / "config.toml"
            config.write_text(config.read_text() + ("" if steps == STEPS else f"[budget]\nsteps = {steps}\n"))
            change(run / "summary.json", sweep=[], steps=steps)
            change(run / "metadata.json", end="2026-02-01T00:00:00Z")

    def found(self):
        """By point the folders and seeds of each method's runs."""
        return {tuple(one.point.items()): {method.label: [(run.directory.parent.name, run.seed) for run in method.runs]
                                           for method in one.methods} for one in comparisons_below(self.directory)}

    def test_a_run_beside_the_sweep_is_where_its_own_configuration_puts_it_and_nowhere_else(self):
        self.write_sweep_with(("sync", 2, 12), ("local", 2, 12))
        of_sweep = {(("cluster.workers", str(workers)), ("budget.steps", "none")):
                    {label: [(f"{label}-{workers}", 1), (f"{label}-{workers}", 2)] for label in ("local", "sync")}
                    for workers in (4, 8, 16)}
        beside = {(("cluster.workers", "2"), ("budget.steps", "12")):
                  {label: [(f"{label}-beside-2-12", 1)] for label in ("local", "sync")}}
        self.assertEqual(self.found(), beside | of_sweep)
        sweep, = find_sweeps(comparisons_below(self.directory))
        self.assertEqual((sweep.xs, sweep.others), ([4, 8, 16], {"budget.steps": "none"}))
        self.assertFalse([run for run in sweep.runs if "beside" in run.directory.parent.name])

    def test_a_run_beside_the_sweep_is_at_the_point_that_it_shares_and_the_newest_of_its_seed_there(self):
        self.write_sweep_with(("sync", 8, STEPS))
        found = self.found()
        self.assertEqual(found[("cluster.workers", "8"),], {"local": [("local-8", 1), ("local-8", 2)],
                                                           "sync": [(f"sync-beside-8-{STEPS}", 1), ("sync-8", 2)]})
        self.assertEqual(found[("cluster.workers", "4"),]["sync"], [("sync-4", 1), ("sync-4", 2)])
        self.assertEqual(found[("cluster.workers", "16"),]["sync"], [("sync-16", 1), ("sync-16", 2)])

    def test_a_method_that_was_never_swept_is_at_its_own_point_alone(self):
        self.write_sweep_with(("new", 8, STEPS))
        self.assertEqual([dict(point)["cluster.workers"] for point, methods in self.found().items() if "new" in methods], ["8"])

    def test_a_run_beside_variants_does_not_stand_for_one_of_them(self):
        for variant, slow in (("calm", 1.0), ("rough", 2.0), (None, 3.0)):
            run = write_run(self.directory / f"m-{variant}", "m", 1)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"slow = {slow}\n[training]"))
            change(run / "summary.json", sweep=[["variant", variant]] if variant else [])
        self.assertEqual({dict(point)["variant"]: methods["m"] for point, methods in self.found().items()},
                         {"calm": [("m-calm", 1)], "rough": [("m-rough", 1)], "no variant": [("m-None", 1)]})

    def test_a_method_whose_own_setting_is_that_of_one_point_is_at_every_point(self):
        for peak in (1, 2):
            run = write_run(self.directory / f"m-{peak}", "m", 1)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"[training]\npeak = {peak}"))
            change(run / "summary.json", sweep=[["training.peak", str(peak)]])
        own = write_run(self.directory / "own", "own", 1) / "config.toml"  # its own peak of 1 is not to be seen
        own.write_text(own.read_text().replace("[training]", "[training]\npeak = 1"))
        self.assertEqual({dict(point)["training.peak"]: sorted(methods) for point, methods in self.found().items()},
                         {"1": ["m", "own"], "2": ["m", "own"]})

    def write_hashed(self, folder, seed, digest, of_hash=None, sweep=()):
        """A run in the directory of `digest` whose summary says `of_hash`."""
        run = write_run(self.directory / folder, "m", seed)
        run = run.rename(run.with_name(f"seed={seed}-{digest[:8]}"))
        change(run / "summary.json", hash=of_hash or digest, sweep=[list(pair) for pair in sweep])
        return run

    def test_a_copy_of_runs_is_a_fault_that_names_both(self):
        one = self.write_hashed("m", 1, "0123456789abcdef")
        self.write_hashed("m", 2, "1123456789abcdef")
        shutil.copytree(one.parent, self.directory / "m.bak")
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2)
        self.assertIn(f"{one} and {self.directory / 'm.bak' / one.name}: are the same run", message)
        self.assertIn("(2 runs are in both folders)", message)

    def test_a_run_in_the_directory_of_another_is_a_fault_that_names_both(self):
        self.write_hashed("m", 1, "0123456789abcdef")
        strange = self.write_hashed("m", 2, "1123456789abcdef", of_hash="0123456789abcdef")
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2)
        self.assertIn(f"{strange}: holds the run of seed=2-01234567; must hold its own", message)

    def test_a_run_in_a_directory_of_another_name_is_one_fault(self):
        one = self.write_hashed("m", 1, "0123456789abcdef")
        self.write_hashed("m", 2, "1123456789abcdef")
        for name in (f"{one.name}.bak", f"{one.name} (copy)", "kept"):
            copy = shutil.copytree(one, one.with_name(name))
            status, message = self.status_and_message(self.directory)
            self.assertEqual((status, message.count("\n")), (2, 1))
            self.assertIn(f"{copy}: holds the run of {one}; it must be there once: remove the copy\n", message)
            shutil.rmtree(copy)
        for name in ("seed=1-old", "old"):
            renamed = one.rename(one.with_name(name))
            status, message = self.status_and_message(self.directory)
            self.assertEqual((status, message.count("\n")), (2, 1))
            self.assertIn(f"{renamed}: holds the run of {one.name}; must have its name, or be removed", message)
            self.assertEqual(self.status_and_message(renamed)[0], 2)
            renamed.rename(one)

    def test_what_is_hidden_a_link_or_of_no_run_is_no_fault(self):
        one = self.write_hashed("m", 1, "0123456789abcdef")
        for name in (".kept", ".hidden/kept", f".{one.name}.partial.1.2"):
            shutil.copytree(one, one.parent / name)
        one.with_name("newest").symlink_to(one)
        one.with_name("notes").mkdir()
        (one.parent / "notes" / "config.toml").write_text("x = 1\n")
        comparison, = comparisons_below(self.directory)
        self.assertEqual([run.directory for run in comparison.runs], [one])

    def test_a_hash_under_two_names_of_swept_values_is_one_run(self):
        named = self.write_hashed("m-4", 1, "0123456789abcdef", sweep=[("cluster.workers", "16")])
        self.write_hashed("m", 1, "0123456789abcdef")
        comparison, = comparisons_below(self.directory)
        self.assertEqual([run.directory for run in comparison.runs], [named])

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

    def test_where_links_are_not_shared_the_subtitle_says_so(self):
        for shared, is_said in ((True, False), (False, True)):
            directory = self.directory / str(shared)
            config = write_run(directory / "a", "a", 1) / "config.toml"
            config.write_text(config.read_text() + f'\n[network]\nkind = "ring"\ncontention = {str(shared).lower()}\n')
            comparison, = comparisons_below(directory)
            self.assertEqual("links are not shared" in subtitle(comparison, ""), is_said)

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
