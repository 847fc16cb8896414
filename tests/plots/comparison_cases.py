"""Reading runs, grouping them into methods, and the methods' names and colours."""

import json
import os
import shutil
import unittest
from unittest import mock

import matplotlib
from matplotlib.font_manager import fontManager
import numpy as np
from synthetic_results import STEPS, WithDirectory, change, comparisons_below, write_experiment, write_run

from plots.comparison import as_label, as_words, compare, flat, in_words, subtitle
from plots.curves import at_target, method_curve
from plots.figures import file_name
from plots.rounds import windowed_drop_rate
from plots.runs import ResultsFault, find_run_directories, read_run, size_and_digest
from plots.style import ALGORITHMS, FONT, decade, glyphs, label_inches, line_styles
from plots.sweeps import find_sweeps
from plots.terminal import printable


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


def list_files(run):
    """Writes files.json, as the program does since schema version 2."""
    change(run / "summary.json", schema_version=2)
    found = {path.name: size_and_digest(path) for path in run.iterdir()}
    files = {name: {"bytes": size, "crc32": f"{digest:08x}"} for name, (size, digest) in found.items()}
    (run / "files.json").write_text(json.dumps({"schema_version": 2, "files": files}), encoding="utf-8")


class DamagedFiles(WithDirectory):
    def setUp(self):
        super().setUp()
        self.run_directory = write_run(self.directory / "m", "m", 1)
        list_files(self.run_directory)

    def assert_damaged(self, name):
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2, message)
        self.assertIn(f"{self.run_directory / name}: ", message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertEqual(list(self.directory.rglob("plots")), [])

    def test_digest_is_crc32(self):
        path = self.directory / "digits"
        path.write_text("123456789")
        self.assertEqual(size_and_digest(path), (9, 0xcbf43926))  # the check value of CRC-32's definition

    def test_whole_run_is_read(self):
        self.assertEqual(read_run(self.run_directory).seed, 1)

    def test_file_with_another_digit_is_damaged(self):
        path = self.run_directory / "metrics.csv"
        text = path.read_bytes()
        at = text.rindex(b"1")
        path.write_bytes(text[:at] + b"2" + text[at + 1:])
        self.assert_damaged("metrics.csv")

    def test_shorter_table_is_damaged(self):
        path = self.run_directory / "steps.csv"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
        self.assert_damaged("steps.csv")

    def test_pipes_and_what_is_too_large_are_not_read(self):
        for name in ("summary.json", "config.toml", "metadata.json", "files.json", "metrics.csv"):
            path = self.run_directory / name
            content = path.read_bytes()
            path.unlink()
            os.mkfifo(path)
            self.assert_damaged(name)
            path.unlink()
            with path.open("wb") as file:
                file.truncate(3_000_000_000)  # a sparse file, which takes no disk space
            self.assert_damaged(name)
            path.write_bytes(content)

    def test_figures_are_not_written_through_links(self):
        elsewhere = self.directory.parent / f"{self.directory.name}-elsewhere"
        elsewhere.mkdir()
        self.addCleanup(elsewhere.rmdir)
        (self.directory / "plots").symlink_to(elsewhere)
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2, message)
        self.assertIn(f"{self.directory / 'plots'}: is a link to {elsewhere}", message)
        self.assertEqual(list(elsewhere.iterdir()), [])

    def test_damaged_common_phases_are_not_needed(self):
        phase = write_run(self.directory / "common-phase", "common phase", 1)
        (phase / "summary.json").write_text("{", encoding="utf-8")
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2, "there is no run that starts from it")
        self.assertIn(str(phase), message)
        config = self.run_directory / "config.toml"
        config.write_text(config.read_text(encoding="utf-8").replace("[training]", "[training]\ncommon.steps = 4", 1),
                          encoding="utf-8")
        (self.run_directory / "files.json").unlink()
        list_files(self.run_directory)
        self.assertEqual(self.status_and_message(self.directory)[0], 0)

    def test_damaged_list_is_named(self):
        for text in ("", "{}", '{"files": {"metrics.csv": {"bytes": 3}}}', '{"files": [1]}'):
            (self.run_directory / "files.json").write_text(text)
            self.assert_damaged("files.json")

    def test_file_of_another_program_is_named(self):
        text = json.dumps({**json.loads((self.run_directory / "files.json").read_text()), "schema_version": 9})
        (self.run_directory / "files.json").write_text(text)
        self.assert_damaged("files.json")
        change(self.run_directory / "summary.json", schema_version=9)
        self.assert_damaged("summary.json")
        self.assertIn("is of schema version 9, and this program knows 2", self.status_and_message(self.directory)[1])

    def test_missing_list_is_named(self):
        (self.run_directory / "files.json").unlink()
        self.assert_damaged("files.json")

    def test_older_run_without_a_list_is_read(self):
        (self.run_directory / "files.json").unlink()
        change(self.run_directory / "summary.json", schema_version=1)
        self.assertEqual(read_run(self.run_directory).seed, 1)

    def test_file_that_was_not_copied_along_is_no_fault(self):
        (self.run_directory / "metadata.json").unlink()
        self.assertEqual(read_run(self.run_directory).seed, 1)


class Methods(WithDirectory):
    def write_again(self, run, end):
        """Writes a second directory of the run, with another description, hash and end."""
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
        """Writes runs of two methods at 4, 8 and 16 workers with two seeds, and runs (label, workers, steps) of the
        first seed as if made later without the sweep."""
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
        """By point: folders and seeds of each method's runs."""
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
        own = write_run(self.directory / "own", "own", 1) / "config.toml"  # the method's own peak of 1 must not be visible
        own.write_text(own.read_text().replace("[training]", "[training]\npeak = 1"))
        self.assertEqual({dict(point)["training.peak"]: sorted(methods) for point, methods in self.found().items()},
                         {"1": ["m", "own"], "2": ["m", "own"]})

    def write_hashed(self, folder, seed, digest, of_hash=None, sweep=()):
        """Writes a run in the directory for `digest` whose summary contains the hash `of_hash`."""
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
        self.assertIn(f"{one} and {self.directory / 'm.bak' / one.name}: contain the same run", message)
        self.assertIn("(2 runs are in both folders)", message)

    def test_a_run_in_the_directory_of_another_is_a_fault_that_names_both(self):
        self.write_hashed("m", 1, "0123456789abcdef")
        strange = self.write_hashed("m", 2, "1123456789abcdef", of_hash="0123456789abcdef")
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2)
        self.assertIn(f"{strange}: contains the run seed=2-01234567; must contain the run of its name", message)

    def test_a_run_in_a_directory_of_another_name_is_one_fault(self):
        one = self.write_hashed("m", 1, "0123456789abcdef")
        self.write_hashed("m", 2, "1123456789abcdef")
        for name in (f"{one.name}.bak", f"{one.name} (copy)", "kept"):
            copy = shutil.copytree(one, one.with_name(name))
            status, message = self.status_and_message(self.directory)
            self.assertEqual((status, message.count("\n")), (2, 1))
            self.assertIn(f"{copy}: contains a copy of the run in {one}; remove one of the two\n", message)
            shutil.rmtree(copy)
        for name in ("seed=1-old", "old"):
            renamed = one.rename(one.with_name(name))
            status, message = self.status_and_message(self.directory)
            self.assertEqual((status, message.count("\n")), (2, 1))
            self.assertIn(f"{renamed}: contains the run {one.name}; must have the name of this run, or be removed", message)
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


class Names(unittest.TestCase):
    def test_large_numbers_are_short_as_in_tables(self):  # cases of tests/results/paired_table_test.cpp
        for value, shown in {"1250000000.0": "1.25G", "1.25e+08": "125M", "10000": "10k", "9999.0": "9999.0", "0.05": "0.05",
                             "-20000": "-20k", "1234567891": "1234567891", "10 Gbit/s": "10 Gbit/s"}.items():
            self.assertEqual(as_label("A", {"training.parameters": value}), f"A, parameters = {shown}")

    def test_rates_say_no_key_as_in_tables(self):  # cases of tests/results/result_table_test.cpp
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


class Printable(unittest.TestCase):
    """The cases of tests/workers/terminal_text_test.cpp: tables and figures agree."""

    def test_escapes_what_a_terminal_obeys(self):
        for text, escaped in (("\x1b[31mred\x1b[0m", r"\u001B[31mred\u001B[0m"),
                              ("a\nb\tc\rd\a\x7f", r"a\nb\tc\u000Dd\u0007\u007F"), ("\0", r"\u0000"),
                              ("\x9b1m", r"\u009B1m"), ("\u202eabc", r"\u202Eabc")):
            self.assertEqual(printable(text), escaped)
            self.assertEqual(printable(escaped), escaped)  # escaped text is unchanged

    def test_leaves_all_other_text_as_it_is(self):
        for text in ("", "plain", "Größe", "学习率", "emoji 🙂", 'a "quote" and \\', "\xa0"):
            self.assertEqual(printable(text), text)

    def test_shows_bytes_that_are_no_text(self):
        self.assertEqual(printable(b"\xc3(\xff".decode(errors="surrogateescape")), r"\xC3(\xFF")


class Labels(WithDirectory):
    def draw(self, label, description="d", fonts=(FONT,)):
        """Draws figures; returns the messages, and all drawings as one text. `fonts`: the installed fonts."""
        for workers in (4, 8, 16):
            run = write_run(self.directory / f"{workers}", "m", 1, workers=workers)
            change(run / "summary.json", method=label)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("Four methods under the same stragglers", description))
        installed = [font for font in fontManager.ttflist if font.name in fonts]
        with mock.patch.object(fontManager, "ttflist", installed):
            status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 0, message)
        return message, [path.read_text(encoding="utf-8") for path in sorted(self.directory.rglob("plots/*.svg"))]

    def test_control_characters_are_escaped_as_in_tables(self):
        message, drawings = self.draw("s\x1b[31mync\a")
        self.assertEqual(message, "")
        self.assertEqual(len(drawings), 7)
        for drawing in drawings:
            self.assertIn(r">s\u001B[31mync\u0007<", drawing)

    def test_dollars_are_no_formulas(self):
        message, drawings = self.draw(r"$\foo$", r"costs $5, \\not $6")
        self.assertEqual(message, "")
        for drawing in drawings:
            self.assertIn(r">$\foo$<", drawing)
            self.assertIn(r">costs $5, \not $6<", drawing)

    def test_a_description_of_several_lines_is_one_heading(self):
        for drawing in self.draw("m", r"first line\n  and second")[1]:
            self.assertIn(">first line and second<", drawing)

    def test_characters_that_no_font_has_are_named_once(self):
        message, drawings = self.draw("日本", "日")
        self.assertEqual(message, "plot: no installed font has 日 (U+65E5), 本 (U+672C): PNG files show boxes, SVG files "
                                  "whatever their viewer has\n")
        for drawing in drawings:
            self.assertIn(">日本<", drawing)

    def test_of_many_such_characters_some_are_named(self):
        message, _ = self.draw("".join(map(chr, range(0x4e00, 0x4e00 + 30))))
        self.assertIn("and 22 more", message)
        self.assertEqual(message.count("\n"), 1)

    def test_a_font_that_has_a_character_is_taken(self):
        lacking = min(glyphs("STIXGeneral") - glyphs(FONT))
        self.assertEqual(self.draw(f"m{lacking}", fonts=(FONT, "STIXGeneral"))[0], "")
        self.assertEqual(matplotlib.rcParams["font.family"], [FONT, "STIXGeneral"])

    def test_wide_characters_have_the_room_of_two(self):
        self.assertEqual(label_inches(["同期"]), label_inches(["sync"]))

    def test_powers_of_ten_are_short_texts(self):
        self.assertEqual([decade(value) for value in (1e-12, 1e-4, 0.01, 0.1, 1, 10, 1e4)],
                         ["10⁻¹²", "10⁻⁴", "0.01", "0.1", "1", "10", "10k"])
