"""What a report's page is made of: thinned lines, escaped texts, numbers of the table, claims, configuration."""

import contextlib
import gzip
import io
import json
import os
import signal
import stat
import subprocess
import sys
from base64 import b64decode, b64encode
from pathlib import Path
from unittest import mock

import numpy as np
from synthetic_results import write_experiment, write_run, write_sweep
from with_results import WithDirectory, change, comparisons_below

from plots import progress
from plots.report import report
from plots.report.accounts import accounts_table, seconds_of
from plots.report.claims import claims_table, read_claims
from plots.report.configuration import experiment_file, method_settings
from plots.report.kept import experiment_of, is_kept
from plots.report.lines import AXES, VALUES, Numbers, lines_of, shortened
from plots.report.looks import page_look
from plots.report.markup import escaped, packed, without_places
from plots.report.measures import Measured, Row, rows_of
from plots.report.request import read_request
from plots.report.results import Column, Scale, baseline, results_notes, results_table, scale_of, swatch_of
from plots.report.sweeps import sweeps_of
from plots.report.thinning import FEWEST, NUMBERS, POINTS, kept_points, points_per_line
from plots.report.timeline import MOST_BARS, timeline_of
from plots.report.tuning import read_tunings, tuning_section
from plots.runs import ResultsFault
from plots.style import line_styles

HEAD = "experiment,row,method,measure,n,mean,std,against,pairs,difference,low,high,t_p,sign_flip_p\n"
HOSTILE = '</script><script>window.hurt = 1</script><b class="hurt">&amp;'


class Thinning(WithDirectory):
    def test_short_lines_stay(self):
        np.testing.assert_array_equal(kept_points(np.arange(7.0), 7), np.arange(7))

    def test_ends_and_every_spike_stay(self):
        values = np.sin(np.arange(10_000) / 500)
        values[[137, 8_001]] = 9, -9
        kept = kept_points(values, 100)
        self.assertLessEqual(len(kept), 100)
        self.assertLessEqual({0, 137, 8_001, 9_999}, set(kept))
        self.assertTrue((np.diff(kept) > 0).all())

    def test_a_thinned_line_is_near_the_whole_one(self):
        x = np.arange(5_000.0)
        values = 1 - np.exp(-x / 800)
        kept = kept_points(values, POINTS)
        np.testing.assert_allclose(np.interp(x, x[kept], values[kept]), values, atol=1e-3)

    def test_the_more_lines_the_fewer_points(self):
        self.assertEqual(points_per_line(1), POINTS)
        self.assertEqual(points_per_line(NUMBERS // 100), 100)
        self.assertEqual(points_per_line(10 * NUMBERS), FEWEST)

    def test_numbers_have_five_digits_and_none_is_no_number(self):
        self.assertEqual([shortened(value) for value in (0.1234567, 1638.0, float("nan"), float("inf"))],
                         [0.12346, 1638, None, None])

    def test_equal_lists_are_there_once(self):
        numbers = Numbers()
        self.assertEqual([numbers.place(np.array(values)) for values in ([1, 2], [1.0, 2.0000001], [2, 1])], [0, 0, 1])


class Escaping(WithDirectory):
    def test_no_text_is_markup(self):
        self.assertNotRegex(escaped(HOSTILE), "[<>\"]")
        self.assertEqual(escaped("a < b & 'c'"), "a &lt; b &amp; &#x27;c&#x27;")
        self.assertEqual(escaped("line\nbreak\x1b[2J"), "line\\nbreak\\u001B[2J")

    def test_absolute_paths_keep_their_last_name(self):
        self.assertEqual(without_places('file = "/home/me/data/x.npy"'), 'file = "…/x.npy"')
        self.assertEqual(without_places("in /var/tmp/runs, and ~/data/y"), "in …/runs, and …/y")

    def test_what_is_no_path_stays(self):
        for text in ("and/or", "1/2 of 3/4/5", "https://example.org/a/b", "../x/y", "samples/s", "/"):
            self.assertEqual(without_places(text), text)

    def test_what_is_packed_comes_out_again_and_has_no_markup(self):
        self.assertEqual(gzip.decompress(b64decode(packed(HOSTILE))).decode(), HOSTILE)
        self.assertRegex(packed(HOSTILE), r"\A[A-Za-z0-9+/=]+\Z")
        self.assertEqual(packed(HOSTILE), packed(HOSTILE))


class Table(WithDirectory):
    def row(self, line):
        rows = rows_of(HEAD + line, "e")
        return rows[0]

    def test_rows_are_those_of_the_experiment_in_their_order(self):
        rows = rows_of(HEAD + 'e,"a, x = 1",a,steps,3,5,1,,,,,,,\nother,a,a,steps,3,5,1,,,,,,,\ne,b,b,steps,1,7,0,,,,,,,\n'
                              'e,"a, x = 1",a,rounds,3,2,0,,,,,,,\n', "e")
        self.assertEqual([(row.label, row.method, sorted(row.measures)) for row in rows],
                         [("a, x = 1", "a", ["rounds", "steps"]), ("b", "b", ["steps"])])

    def test_another_table_is_a_fault(self):
        for text in ("experiment,row\ne,b\n", HEAD + "e,b,b,steps,three,5,1,,,,,,,\n", HEAD + "e,b\n"):
            with self.assertRaisesRegex(ResultsFault, "expected the CSV of this version"):
                rows_of(text, "e")

    def test_differences_stand_with_their_interval_below_the_mean(self):
        # Differences of 1, 2 and 3 points: mean 2, standard error 1 / sqrt(3), times t(0.975; 2) = 4.302653.
        half = 0.01 * 4.302653 / np.sqrt(3)
        row = self.row(f"e,b,b,final_test_accuracy,3,0.89,0.001,a,3,0.02,{0.02 - half},{0.02 + half},0.07,0.25\n")
        table = results_table([row], {})
        self.assertIn('89.00<small class="std">±0.10</small>', table)
        self.assertIn('<span class="difference">+2.00 <small>[−0.48, +4.48]</small></span>', table)

    def test_no_deviation_and_no_interval_reads_as_none(self):
        row = self.row("e,b,b,end_time_s,3,128.901,0.0086,a,3,-35.6,-35.6004,-35.5996,0.01,0.25\n")
        table = results_table([row], {})
        self.assertIn("±0.009", table)
        self.assertIn("[−35.60040, −35.59960]", table)

    def test_only_what_excludes_no_difference_is_marked(self):
        for low, high, pairs, p, marked in ((0.1, 0.3, 3, 0.25, True), (-0.1, 0.3, 3, 0.25, False), (0, 0.3, 3, 0.25, False),
                                            (-0.3, -0.1, 6, 0.03125, True), (-0.3, -0.1, 6, 0.0625, False),
                                            (0.1, 0.3, 30, None, True)):
            measured = Measured(pairs, 1, 1, "a", pairs, 0.2, low, high, p)
            self.assertEqual(measured.is_significant, marked, (low, high, pairs, p))
        row = self.row("e,b,b,final_test_loss,3,0.3,0.01,a,3,-0.2,-0.3,-0.1,0.01,0.25\n")
        self.assertIn('class="difference significant"', results_table([row], {}))

    def test_what_is_the_same_for_every_seed_is_exact_and_has_no_star(self):
        for difference, low, high, shown in ((-0.2, -0.2, -0.2, "−0.2000"), (-1e-17, -2e-17, -1e-17, "0.0000"),
                                             (0, 0, 0, "0.0000")):
            row = self.row(f"e,b,b,final_test_loss,4,0.3,0.01,a,4,{difference},{low},{high},,0.125\n")
            self.assertIn(f'<span class="difference">{shown} <small>exact</small></span>', results_table([row], {}))
            self.assertIn("Exact: it is the same for every seed", results_notes([row], "a", ""))
        row = self.row("e,b,b,final_test_loss,4,0.3,0.01,a,4,-0.2,-0.3,-0.1,0.01,0.125\n")
        self.assertNotIn("Exact", results_notes([row], "a", ""))

    def test_one_common_seed_has_a_difference_and_no_interval(self):
        row = self.row("e,b,b,final_test_loss,1,0.3,0,a,1,-0.2,,,,\n")
        self.assertIn('<span class="difference">−0.2000</span>', results_table([row], {}))
        self.assertNotIn("interval of that mean", results_notes([row], "a", ""))

    def test_how_many_reached_the_target_is_said(self):
        rows = rows_of(HEAD + "e,b,b,steps,3,5,1,,,,,,,\ne,b,b,time_to_target_s,2,50,1,,,,,,,\n", "e")
        self.assertIn("of 2", results_table(rows, {}))

    def test_columns_have_one_unit_and_one_number_of_decimals(self):
        seconds = scale_of(Column("end_time_s", "time", "time"), [164.53, 2.5])
        self.assertEqual((seconds.unit, seconds(164.53), seconds(2.5)), ("s", "164.53", "2.50"))
        sent = scale_of(Column("communicated_bytes", "sent", "bytes"), [40_005_856_800, 16.1e9])
        self.assertEqual((sent.unit, sent(40_005_856_800)), ("GB", "40.01"))
        some = scale_of(Column("communicated_bytes", "sent", "bytes"), [46.2e12, 1.2e15, 1.3e15])
        self.assertEqual((some.unit, some(46.2e12), some(1.2e15)), ("TB", "46", "1\u202f200"))
        self.assertEqual(scale_of(Column("rounds", "", "count"), [1638, 659])(1638), "1\u202f638")
        self.assertEqual(Scale(1, "", 1)(-0.01, sign=True), "0.0")

    def test_a_row_has_the_line_of_its_method_at_each_point(self):
        swatches = {"b": "1", "b, threshold_s = 0.05": "2", "b, threshold_s = 0.5": "3", "b, threshold_s = 0.05 (MPI)": "4"}
        for label, expected in (("b, threshold_s = 0.05, delays = heavy", "2"), ("b, delays = heavy, threshold_s = 0.5", "3"),
                                ("b, threshold_s = 0.05, under MPI", "4"), ("b, workers = 8", "1"), ("c", "")):
            self.assertEqual(swatch_of(Row(label, "b", {}), swatches), expected, label)

    def test_labels_are_escaped(self):
        row = self.row("e,x,x,steps,3,5,1,,,,,,,\n")
        row.label = HOSTILE
        self.assertNotIn("<b", results_table([row], {}))
        self.assertNotIn("<b ", results_notes([row], HOSTILE, HOSTILE))

    def test_methods_are_compared_with_the_first_synchronous_sgd(self):
        write_experiment(self.directory, seeds=1)
        comparison, = comparisons_below(self.directory)
        self.assertEqual(baseline(comparison.methods), "synchronous SGD")
        others = [method for method in comparison.methods if method.algorithm != "sync-sgd"]
        self.assertEqual(baseline(others), others[0].label)


class Order(WithDirectory):
    def test_points_without_numbers_stand_as_they_were_run(self):
        for at, delays in enumerate(("none", "heavy")):
            run = write_run(self.directory / delays, "m", 1)
            config = run / "config.toml"
            config.write_text(config.read_text().replace("[training]", f"[training]\noptimizer = \"{delays}\""))
            change(run / "summary.json", sweep=[["variant", delays]])
            (run / "metadata.json").write_text(json.dumps({"end": f"2026-01-0{at + 1}T00:00:00Z"}))
        points, = report.experiments_of(comparisons_below(self.directory))
        self.assertEqual([one.point["variant"] for one in points], ["none", "heavy"])


class Kept(WithDirectory):
    """Summaries without runs, as results/paper/ has them."""

    def setUp(self):
        super().setUp()
        (self.directory / "claims.json").write_text(json.dumps({"schema_version": 2, "claims": [Claims.CLAIM]}))
        (self.directory / "table.md").write_text("| method | time s |\n|---|---:|\n| a<b>, x = 1 | 1.5 |\n\n+-: deviation.\n")
        (self.directory / "claims.png").write_bytes(b"not much of a picture")

    def report(self):
        request = read_request([str(self.directory), "-o", str(self.directory / "page.html")])
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as message:
            status = report.main(request)
        return status, message.getvalue()

    def test_the_page_has_claims_table_and_figures_and_says_what_is_missing(self):
        self.assertEqual(self.report(), (0, ""))
        page = (self.directory / "page.html").read_text()
        self.assertIn("It is faster.", page)
        self.assertIn('<th scope="row">a&lt;b&gt;, x = 1</th><td>1.5</td>', page)
        self.assertIn('<p class="note">+-: deviation.</p>', page)
        self.assertIn(f'src="data:image/png;base64,{b64encode(b"not much of a picture").decode()}"', page)
        self.assertIn("the runs themselves are not here", page)
        self.assertNotIn(str(self.directory), page)

    def test_an_experiment_of_the_repository_says_how_to_make_its_runs(self):
        self.assertEqual(experiment_of("paper-families"), "experiments/paper/families.toml")
        self.assertEqual(experiment_of("nothing"), "")

    def test_beside_runs_nothing_is_kept(self):
        self.assertTrue(is_kept(self.directory))
        write_run(self.directory / "m", "m", 1)
        self.assertFalse(is_kept(self.directory))

    def test_plot_says_what_these_are(self):
        status, message = self.status_and_message(self.directory)
        self.assertEqual(status, 2)
        self.assertIn("these are kept summaries of finished runs, which ./dev report shows", message)


class Sweeps(WithDirectory):
    def test_a_sweep_without_a_model_has_a_line_per_method_along_the_key(self):
        write_sweep(self.directory, sizes=(8, 16, 32))
        comparisons = comparisons_below(self.directory)
        looks = line_styles({method.label: method.algorithm for method in comparisons[0].methods})
        sweep, = sweeps_of(comparisons, looks, [])
        self.assertEqual((sweep["key"], sweep["where"], sweep["ticks"], sweep["texts"], sweep["spread"]),
                         ("workers", "workers", [8, 16, 32], ["8", "16", "32"], True))
        speed = sweep["values"][0]
        self.assertEqual((speed["label"], [line["name"] for line in speed["lines"]]),
                         ("Samples per second", ["DropCompute", "synchronous SGD"]))
        runs = {(run.config["cluster"]["workers"], method.label): run for comparison in comparisons for method in comparison.methods
                for run in method.runs}
        for line in speed["lines"]:
            np.testing.assert_allclose(line["mean"], [runs[x, line["name"]].summary["samples_per_virtual_s"] for x in line["x"]],
                                       rtol=1e-4)
        self.assertNotIn("low", speed["lines"][0])  # of one seed

    def test_without_a_swept_number_there_is_none(self):
        write_experiment(self.directory, seeds=1)
        self.assertEqual(sweeps_of(comparisons_below(self.directory), {}, []), [])


class Claims(WithDirectory):
    CLAIM = {"sentence": "It is faster.", "measure": "step_time_s", "method": "m", "against": "a", "as": "ratio",
             "where": {"cluster.workers": "32"}, "criterion": {"below": 0.85}, "verdict": "reproduced", "reason": "",
             "paper": {"figure": "18 %", "source": "Table 1", "certainty": "stated"},
             "points": [{"label": "", "n": 3, "mean": 0.8, "interval": [0.79, 0.81], "verdict": "reproduced"}]}

    def table_of(self, **changes):
        self.write({"schema_version": 2, "claims": [self.CLAIM | changes]})
        return claims_table(read_claims([self.directory, self.directory]))

    def write(self, document):
        (self.directory / "claims.json").write_text(json.dumps(document))

    def test_there_may_be_none(self):
        self.assertEqual(read_claims([self.directory]), [])

    def test_they_stand_in_a_table_with_what_counts(self):
        table = self.table_of()
        for text in ("It is faster.", "18 %", "Table 1; stated", "0.800<small>[0.790, 0.810], n = 3", ">reproduced<",
                     "step_time_s, m divided by a, at cluster.workers = 32: below 0.85"):
            self.assertIn(text, table)
        self.assertEqual(table.count("It is faster."), 1)

    def test_what_is_not_known_is_left_out_and_the_reason_is_told(self):
        table = self.table_of(sentence=HOSTILE, verdict="inconclusive", reason="one seed", points=[], paper=None)
        self.assertIn('<td data-name="paper">–</td><td data-name="ours">–</td>', table)
        self.assertIn("one seed", table)
        self.assertNotIn("<b ", table)

    def test_all_kinds_of_claims_have_words(self):
        self.assertIn("rounds: a &lt; b", self.table_of(measure="rounds", order=["a", "b"]))
        self.assertIn("step_time_s of m, slope per doubling of n: within 1 to 2",
                      self.table_of(**{"as": "value", "over": "n", "per_doubling": True, "where": {}, "criterion": {"within": [1, 2]}}))
        self.assertIn("step_time_s, m less a, at", self.table_of(**{"as": "difference"}))

    def test_shares_are_shown_in_points(self):
        table = self.table_of(shown={"times": 100, "unit": "points"}, criterion={"margin": 0.003}, points=[
            {"label": "", "n": 3, "mean": 0.004, "interval": [0.002, 0.006], "verdict": "reproduced"}])
        self.assertIn("0.40 points<small>[0.20, 0.60], n = 3", table)
        self.assertIn("margin 0.3 points", table)

    def test_of_many_points_the_lowest_and_the_highest_are_shown(self):
        points = [{"label": f"workers = {n}", "n": 1, "mean": -n, "interval": None} for n in range(2, 9)]
        table = self.table_of(points=points)
        self.assertIn("<small>workers = 8</small>−8.000<small>n = 1</small>", table)
        self.assertIn("workers = 2<", table)
        self.assertNotIn("workers = 3<", table)
        self.assertIn("of 7 points", table)

    def test_a_damaged_file_is_one_message(self):
        for document in ({}, [1], {"schema_version": 1, "claims": []}, {"schema_version": 2, "claims": 3},
                         {"schema_version": 2, "claims": [self.CLAIM | {"verdict": "true"}]},
                         {"schema_version": 2, "claims": [self.CLAIM | {"points": [{"n": 3}]}]}):
            self.write(document)
            with self.assertRaisesRegex(ResultsFault, "claims.json: .*; expected the claims of schema version 2"):
                read_claims([self.directory])
        (self.directory / "claims.json").write_text("{")
        with self.assertRaisesRegex(ResultsFault, "claims.json"):
            read_claims([self.directory])


class Tuning(WithDirectory):
    METHOD = {"method": "m", "point": {"variant": "calm"}, "chosen": {"training.learning_rate.peak": "0.2"}, "mean": 0.9,
              "number_of_trials": 4, "extended": ["training.learning_rate.peak"], "at_edge": [],
              "settings": [{"values": {"training.learning_rate.peak": "0.1"}, "mean": None, "trials": []},
                           {"values": {"training.learning_rate.peak": "0.2"}, "mean": 0.9, "trials": []}]}

    def section_of(self, **changes):
        self.write({"schema_version": 1, "measure": "final_validation_accuracy", "seeds": [101, 102],
                    "where": {"variant": "calm"}, "methods": [self.METHOD | changes]})
        return tuning_section(read_tunings([self.directory, self.directory]))

    def write(self, document):
        (self.directory / "tuning.json").write_text(json.dumps(document))

    def test_there_may_be_none(self):
        self.assertEqual(read_tunings([self.directory]), [])

    def test_what_was_chosen_stands_first_with_all_that_was_tried(self):
        section = self.section_of()
        self.assertIn("<td>peak = 0.2<small>of 2 settings, 4 trials; grid of peak extended</small></td>", section)
        self.assertIn("<code>peak = 0.2: 0.9</code> <code>peak = 0.1: –</code>", section)
        self.assertIn("seeds 101, 102, at calm for all", section)
        self.assertEqual(section.count("<table"), 1)

    def test_a_method_without_a_setting_is_told(self):
        section = self.section_of(chosen=None, method=HOSTILE, at_edge=["training.learning_rate.peak"])
        self.assertIn("<td>none<small>", section)
        self.assertIn("peak at the edge of the grid", section)
        self.assertNotIn("<b ", section)

    def test_a_damaged_file_is_one_message(self):
        for document in ({}, [1], {"schema_version": 2, "methods": []}, {"schema_version": 1, "methods": 3},
                         {"schema_version": 1, "measure": "m", "seeds": ["x"], "where": {}, "methods": []}):
            self.write(document)
            with self.assertRaisesRegex(ResultsFault, "tuning.json: .*; expected the trials of schema version 1"):
                read_tunings([self.directory])


class Contents(WithDirectory):
    def comparison(self):
        comparison, = comparisons_below(self.directory)
        return comparison, line_styles({method.label: method.algorithm for method in comparison.methods})

    def test_lines_are_means_with_the_lowest_and_the_highest_seed(self):
        write_experiment(self.directory, seeds=3)
        comparison, looks = self.comparison()
        numbers = Numbers()
        lines = lines_of(comparison, looks, numbers, POINTS)
        self.assertEqual([axis["key"] for axis in lines["axes"]], [key for key, _ in AXES])
        self.assertEqual([value["key"] for value in lines["values"]], [key for key, _, _ in VALUES])
        self.assertEqual([value.get("target") for value in lines["values"]], [0.85, None, None])
        for method, shown in zip(comparison.methods, lines["methods"]):
            self.assertEqual(shown["name"], method.label)
            x, mean, low, high = (numbers.lists[place] for place in shown["curves"]["step|test_accuracy"])
            values = np.stack([run.metrics["test_accuracy"] for run in method.runs])
            np.testing.assert_allclose(x, method.runs[0].metrics["step"])
            for found, expected in ((mean, values.mean(0)), (low, values.min(0)), (high, values.max(0))):
                np.testing.assert_allclose(found, expected, rtol=1e-4)

    def test_colours_and_dashes_are_those_of_the_figures(self):
        looks = line_styles({f"m{number}": "x" for number in range(9)})
        for look in looks.values():
            shown = page_look(look)
            self.assertEqual(shown["light"], look["color"])
            self.assertEqual(bool(shown["dash"]), look["linestyle"] != "solid")
        self.assertNotEqual(page_look(line_styles({"a": "sync-sgd"})["a"])["dark"], "#000000")  # on a dark page

    def test_accounts_are_shares_of_the_worker_seconds_of_all_seeds(self):
        for seed, wait in ((1, 2.0), (2, 4.0)):
            run = write_run(self.directory / "m", "m", seed)
            change(run / "summary.json", worker_seconds={"summed": {"compute": 6.0, "discarded": 0.0, "wait": wait,
                                                                    "communicate": 0.0, "down": 0.0, "total": 6 + wait}})
        comparison, _ = self.comparison()
        self.assertEqual(seconds_of(comparison.methods[0]), {"compute": 6, "discarded": 0, "wait": 3, "communicate": 0,
                                                             "down": 0, "total": 9})
        table = accounts_table(comparison, {})
        self.assertIn('<i class="compute" style="width:66.667%"', table)
        self.assertIn("<td>33.3</td>", table)
        self.assertNotIn("dropped", table)

    def test_without_accounts_there_is_no_table(self):
        write_run(self.directory / "m", "m", 1)
        self.assertEqual(accounts_table(self.comparison()[0], {}), "")

    def test_timelines_have_the_spans_of_the_trace_and_no_more_than_a_browser_draws(self):
        from synthetic_results import write_trace

        run = write_run(self.directory / "m", "m", 1)
        self.assertIsNone(timeline_of(*self.comparison()))
        write_trace(run, workers=2, until_s=60)
        timeline = timeline_of(*self.comparison())
        method, = timeline["methods"]
        self.assertEqual(method["rows"], ["worker 0", "worker 1"])
        scale = {"ms": 1000, "s": 1}[timeline["unit"]]
        self.assertIn([0, 0, 0.0, 0.3 * scale], method["bars"])
        with mock.patch("plots.report.timeline.MOST_BARS", 3):
            self.assertLessEqual(len(timeline_of(*self.comparison())["methods"][0]["bars"]), 3)
        self.assertGreater(MOST_BARS, 1000)

    def test_settings_that_all_methods_have_alike_are_left_out(self):
        for label, threshold_s in (("a", 1), ("b", 2)):
            config = write_run(self.directory / label, label, 1) / "config.toml"
            config.write_text(config.read_text() + f"threshold_s = {threshold_s}\nname = '<i>'\n")
        text = method_settings(self.comparison()[0].methods)
        self.assertIn("<code>threshold_s = 1</code>", text)
        self.assertNotIn("algorithm", text)
        self.assertNotIn("<i>", text)

    def test_the_resolved_configuration_has_all_methods_and_seeds_and_no_places(self):
        for label in ("a", "b"):
            for seed in (1, 2):
                config = write_run(self.directory / label, label, seed) / "config.toml"
                config.write_text(config.read_text().replace("[cluster]", f'seeds = [{seed}]\nfile = "/elsewhere/x/y.csv"\n[cluster]'))
        text = experiment_file(self.comparison()[0])
        self.assertEqual(text.count("[[methods]]"), 2)
        self.assertIn("seeds = [1, 2]", text)
        self.assertIn('file = "…/y.csv"', text)


class Command(WithDirectory):
    """With a program that prints a table written here."""

    def setUp(self):
        super().setUp()
        self.runs = self.directory / "results"
        self.page = self.directory / "page.html"
        self.table("synthetic", "synchronous SGD")
        self.addCleanup(setattr, progress, "command", progress.command)
        self.library = mock.patch.object(report, "read_library", return_value=b"// plotly.js v1.2.3")  # packs sooner
        self.library.start()
        self.addCleanup(mock.patch.stopall)

    def table(self, experiment, *methods, status=0, message=""):
        lines = "".join(f"{experiment},{method},{method},steps,3,1200,0,,,,,,,\n" for method in methods)
        program = self.directory / "program"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{HEAD}{lines}END\necho \"{message}\" >&2\nexit {status}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def report(self, *arguments):
        """Status and standard error."""
        progress.command = "report"
        with (contextlib.redirect_stderr(io.StringIO()) as message, contextlib.redirect_stdout(io.StringIO()),
              mock.patch.dict(os.environ, SYNCOPATE_PROGRAM=str(self.directory / "program"))):
            try:
                status = report.main(read_request([str(argument) for argument in arguments]))
            except SystemExit as ended:
                status = ended.code
        return status, message.getvalue()

    def assert_fault(self, *fragments, arguments=None):
        status, message = self.report(*(arguments or (self.runs, "-o", self.page)))
        self.assertEqual((status, message.count("\n")), (2, 1), message)
        self.assertTrue(message.startswith("report: "))
        for fragment in fragments:
            self.assertIn(str(fragment), message)
        self.assertFalse(self.page.exists())
        self.assertEqual([path for path in self.directory.rglob(".plots-*")], [])

    def test_the_page_lies_beside_the_runs_unless_a_file_is_named(self):
        write_experiment(self.runs, seeds=1)
        self.assertEqual(self.report(self.runs), (0, ""))
        self.assertEqual(self.report(self.runs, "--output", self.page), (0, ""))
        self.assertEqual((self.runs / "report.html").read_bytes(), self.page.read_bytes())

    def test_no_place_on_this_machine_is_in_the_page(self):
        write_experiment(self.runs, seeds=1)
        for run in self.runs.rglob("metadata.json"):
            run.write_text(json.dumps({"host": "secret-host", "commit": "0123456789abcdef", "processor": "Fast <CPU>",
                                       "cores": 2, "start": "2024-05-01T10:00:00Z", "end": "2024-05-01T10:01:00Z"}))
        self.assertEqual(self.report(self.runs, "-o", self.page)[0], 0)
        page = self.page.read_text()
        for text in (str(self.directory), str(Path(__file__).parents[2]), "secret-host", "<CPU>"):
            self.assertNotIn(text, page)
        for text in ("0123456789ab", "Fast &lt;CPU&gt;", "2024-05-01 10:00"):
            self.assertIn(text, page)
        data = page.split('id="data">')[1].split("<")[0]
        self.assertNotIn(str(self.directory), gzip.decompress(b64decode(data)).decode())

    def test_a_page_of_hundreds_of_runs_is_small(self):
        self.library.stop()
        rng = np.random.default_rng(1)
        share = np.linspace(0, 1, 1500)
        for workers in range(1, 101):
            for seed in (1, 2, 3):
                run = write_run(self.runs / f"{workers}", "synchronous SGD", seed, workers=workers)
                noise = rng.standard_normal((4, len(share)))
                table = np.column_stack([share * 1500, share * 10, share * 7e5, np.cumsum(np.exp(noise[0])), noise[1],
                                         noise[2], noise[3], share, share * 1e9])
                header = (run / "metrics.csv").read_text().splitlines()[0]
                np.savetxt(run / "metrics.csv", table, fmt="%.6g", delimiter=",", header=header, comments="")
        self.assertEqual(self.report(self.runs, "-o", self.page)[0], 0)
        self.assertLess(self.page.stat().st_size, 6_000_000)
        self.assertIn(f"thinned to at most {points_per_line(100 * 15 * 4)} points per line", self.page.read_text())

    def test_without_curves_or_timelines_there_is_no_library(self):
        write_run(self.runs, "synchronous SGD", 1, accuracy=False)
        for config in self.runs.rglob("config.toml"):
            config.write_text(config.read_text().replace('model = "mlp"', 'model = "none"'))
        self.assertEqual(self.report(self.runs, "-o", self.page)[0], 0)
        self.assertLess(self.page.stat().st_size, 200_000)

    def test_the_section_of_claims_is_there_with_a_file_of_them_alone(self):
        write_experiment(self.runs, seeds=1)
        self.report(self.runs, "-o", self.page)
        self.assertNotIn("Claims", self.page.read_text())
        (self.runs / "synthetic" / "claims.json").write_text(json.dumps({"schema_version": 2, "claims": [Claims.CLAIM]}))
        self.report(self.runs, "-o", self.page)
        self.assertIn("It is faster.", self.page.read_text())

    def test_the_section_of_tuning_is_there_with_a_file_of_it_alone(self):
        write_experiment(self.runs, seeds=1)
        self.report(self.runs, "-o", self.page)
        self.assertNotIn("Tuning", self.page.read_text())
        (self.runs / "synthetic" / "tuning.json").write_text(json.dumps(
            {"schema_version": 1, "measure": "final_validation_loss", "seeds": [7], "where": {}, "methods": [Tuning.METHOD]}))
        self.report(self.runs, "-o", self.page)
        self.assertIn('<h2 id="e0-tuning-name">Tuning</h2>', self.page.read_text())

    def test_several_experiments_are_articles_of_one_page(self):
        write_run(self.runs / "a", "synchronous SGD", 1)
        other = write_run(self.runs / "b", "synchronous SGD", 2) / "config.toml"
        other.write_text(other.read_text().replace('name = "synthetic"', 'name = "other"').replace("Four methods", "Others"))
        program = self.directory / "program"
        program.write_text(program.read_text().replace("synthetic,", "synthetic,a,a,steps,1,1,0,,,,,,,\nother,"))
        self.assertEqual(self.report(self.runs, "-o", self.page), (0, ""))
        self.assertEqual(self.page.read_text().count("<article"), 2)

    def test_points_stand_in_ascending_order(self):
        write_sweep(self.runs, sizes=(8, 16, 128))
        self.assertEqual(self.report(self.runs, "-o", self.page), (0, ""))
        page = self.page.read_text()
        places = [page.index(f">workers = {size}</option>") for size in (8, 16, 128)]
        self.assertEqual(places, sorted(places))

    def test_a_report_over_nothing_is_one_message(self):
        self.assert_fault("no such directory", self.runs)
        self.runs.mkdir()
        self.assert_fault("holds no runs", self.runs)
        self.assert_fault("the name of the directory is empty", arguments=("",))

    def test_damaged_runs_are_one_message(self):
        run = write_run(self.runs, "synchronous SGD", 1)
        text = (run / "metrics.csv").read_text()
        (run / "metrics.csv").write_text(text.replace("test_loss", "loss"))
        self.assert_fault(run / "metrics.csv", "no column test_loss")
        (run / "metrics.csv").write_text(text)
        (run / "summary.json").write_text("{")
        self.assert_fault(run / "summary.json")

    def test_what_the_program_refuses_is_one_message(self):
        write_experiment(self.runs, seeds=1)
        self.table("synthetic", status=2, message="x is damaged")
        self.assert_fault("x is damaged")
        (self.directory / "program").unlink()
        self.assert_fault("./dev build makes the program")

    def test_a_method_to_compare_with_must_be_there(self):
        write_experiment(self.runs, seeds=1)
        self.table("synthetic", status=2, message="--against: nobody is no method")
        self.assert_fault("nobody is no method", arguments=(self.runs, "-o", self.page, "--against", "nobody"))

    def test_files_that_cannot_be_are_refused_before_anything_is_read(self):
        for file, why in ((self.directory / "missing" / "page.html", "there is no directory"),
                          (self.directory, "is a directory"), ("", "empty")):
            self.assert_fault(why, arguments=(self.runs, "-o", file))

    def test_without_plotly_it_says_which_package_has_it(self):
        write_experiment(self.runs, seeds=1)
        self.library.stop()
        with mock.patch("plots.report.library.PLACES", []), mock.patch("plots.report.library.find_spec", return_value=None):
            status, message = self.report(self.runs, "-o", self.page)
        self.assertEqual((status, message), (1, "report: plotly.js is not there; the package python3-plotly has it\n"))
        self.assertFalse(self.page.exists())

    def test_ctrl_c_leaves_nothing(self):
        write_experiment(self.runs, seeds=1)
        begun = self.directory / "begun"
        os.mkfifo(begun)
        (self.directory / "program").write_text(f"#!/bin/sh\necho > {begun}\nexec sleep 600\n")

        def block():  # as `dev` does
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])

        process = subprocess.Popen([sys.executable, "-B", "-m", "plots.report", self.runs, "-o", self.page],
                                   cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=os.environ | {"SYNCOPATE_PROGRAM": str(self.directory / "program")},
                                   preexec_fn=block, start_new_session=True)
        self.addCleanup(process.kill)
        begun.read_text()  # once the program runs
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.communicate(timeout=60), ("", "report: interrupted\n"))
        self.assertEqual(process.returncode, 130)
        self.assertFalse(self.page.exists())
        self.assertEqual(list(self.directory.glob(".plots-*")), [])

    def test_wrong_usage_is_told(self):
        for arguments in ((), (self.runs, self.runs), (self.runs, "--output"), (self.runs, "--agains", "x")):
            self.assertEqual(self.report(*arguments)[0], 2, arguments)

    def test_a_full_device_leaves_the_page_that_was_there(self):
        write_experiment(self.runs, seeds=1)
        self.page.write_text("older")
        with mock.patch.object(report.os, "replace", side_effect=OSError(28, "No space left on device")):
            status, message = self.report(self.runs, "-o", self.page)
        self.assertEqual(status, 1)
        self.assertIn("No space left", message)
        self.assertEqual(self.page.read_text(), "older")
        self.assertEqual(list(self.directory.glob(".plots-*")), [])
