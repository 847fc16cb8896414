"""The report's page: charts, escaped texts, tables, sentences, claims, tuning, configuration, and kept summaries."""

import contextlib
import gzip
import io
import json
import re
import unittest
from base64 import b64decode, b64encode
from unittest import mock

import numpy as np
from synthetic_results import (CLAIM, TABLE_HEAD, TUNED, WithDirectory, change, comparisons_below, write_experiment,
                               write_run, write_sweep, write_trace)

from plots.claims import claims_table, read_claims
from plots.report import escaped, page as report_page, without_places
from plots.report.__main__ import read_request
from plots.report.charts import (AXES, FEWEST_POINTS, MOST_BARS, NUMBERS, POINTS, VALUES, Numbers, accounts_table,
                                 kept_points, lines_of, page_look, points_per_line, shortened, sweeps_of, timeline_of)
from plots.report.page import ends_by_time, is_kept, is_target_missed, packed
from plots.report.provenance import experiment_file, file_of, method_settings, read_tunings, tuning_section
from plots.report.results import (Column, Measured, Outcome, Row, Scale, bars_table, baseline, results_notes, results_table,
                                  rows_of, scale_of, sentences, swatch_of, target_text)
from plots.runs import ResultsFault
from plots.style import line_styles
from plots.timeline import seconds_of

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
        self.assertEqual(points_per_line(10 * NUMBERS), FEWEST_POINTS)

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


class Kept(WithDirectory):
    """Kept summaries without runs, as in results/paper/."""

    def setUp(self):
        super().setUp()
        (self.directory / "claims.json").write_text(json.dumps({"schema_version": 3, "claims": [CLAIM]}))
        (self.directory / "table.md").write_text("| method | time s |\n|---|---:|\n| a<b>, x = 1 | 1.5 +- 0.2 |\n\n+-: deviation.\n")
        (self.directory / "claims.png").write_bytes(b"not much of a picture")

    def report(self):
        request = read_request([str(self.directory), "-o", str(self.directory / "page.html")])
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as message:
            status = report_page.main(request)
        return status, message.getvalue()

    def test_the_page_has_claims_table_and_figures_and_says_what_is_missing(self):
        self.assertEqual(self.report(), (0, ""))
        page = (self.directory / "page.html").read_text()
        self.assertIn("It is faster.", page)
        self.assertIn('<th scope="row">a&lt;b&gt;, x = 1</th><td data-name="time s">1.5 ±\u00a00.2</td>', page)
        self.assertIn('<p class="note">+-: deviation.</p>', page)
        self.assertIn(f'src="data:image/png;base64,{b64encode(b"not much of a picture").decode()}"', page)
        self.assertIn("the runs themselves are not here", page)
        self.assertNotIn(str(self.directory), page)

    def test_the_page_says_how_the_runs_were_made(self):
        made_with = {"commit": "a0b1, changed", "processor": "<fast>", "cores": 2}
        (self.directory / "claims.json").write_text(json.dumps({"schema_version": 3, **made_with, "claims": [CLAIM]}))
        self.assertEqual(self.report(), (0, ""))
        page = (self.directory / "page.html").read_text()
        for name, text in (("commit", "a0b1, changed"), ("processor", "&lt;fast&gt;"), ("cores", "2")):
            self.assertIn(f'<th scope="row">{name}</th><td>{text}</td>', page)

    def test_an_experiment_of_the_repository_says_how_to_make_its_runs(self):
        self.assertEqual(file_of("paper-families"), "experiments/paper/families.toml")
        self.assertIsNone(file_of("nothing"))

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
        self.assertNotIn("low", speed["lines"][0])  # one seed has no interval

    def test_without_a_swept_number_there_is_none(self):
        write_experiment(self.directory, seeds=1)
        self.assertEqual(sweeps_of(comparisons_below(self.directory), {}, []), [])


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
        self.assertIn('<td data-name="waiting, %"><i class="key wait"></i>33.3</td>', table)
        self.assertNotIn("dropped", table)

    def test_without_accounts_there_is_no_table(self):
        write_run(self.directory / "m", "m", 1)
        self.assertEqual(accounts_table(self.comparison()[0], {}), "")

    def test_timelines_have_the_spans_of_the_trace_and_no_more_than_a_browser_draws(self):
        run = write_run(self.directory / "m", "m", 1)
        self.assertIsNone(timeline_of(*self.comparison()))
        write_trace(run, workers=2, until_s=60)
        timeline = timeline_of(*self.comparison())
        method, = timeline["methods"]
        self.assertEqual(method["rows"], ["worker 0", "worker 1"])
        scale = {"ms": 1000, "s": 1}[timeline["unit"]]
        self.assertIn([0, 0, 0.0, 0.3 * scale], method["bars"])
        with mock.patch("plots.report.charts.MOST_BARS", 3):
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


class Table(WithDirectory):
    def row(self, line):
        rows = rows_of(TABLE_HEAD + line, "e")
        return rows[0]

    def test_rows_are_those_of_the_experiment_in_their_order(self):
        rows = rows_of(TABLE_HEAD + 'e,"a, x = 1",a,steps,3,5,1,,,,,,,\nother,a,a,steps,3,5,1,,,,,,,\ne,b,b,steps,1,7,0,,,,,,,\n'
                              'e,"a, x = 1",a,rounds,3,2,0,,,,,,,\n', "e")
        self.assertEqual([(row.label, row.method, sorted(row.measures)) for row in rows],
                         [("a, x = 1", "a", ["rounds", "steps"]), ("b", "b", ["steps"])])

    def test_another_table_is_a_fault(self):
        for text in ("experiment,row\ne,b\n", TABLE_HEAD + "e,b,b,steps,three,5,1,,,,,,,\n", TABLE_HEAD + "e,b\n"):
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
            self.assertIn("Exact: the difference is the same for every seed", results_notes([row], "a", ""))
        row = self.row("e,b,b,final_test_loss,4,0.3,0.01,a,4,-0.2,-0.3,-0.1,0.01,0.125\n")
        self.assertNotIn("Exact", results_notes([row], "a", ""))

    def test_one_common_seed_has_a_difference_and_no_interval(self):
        row = self.row("e,b,b,final_test_loss,1,0.3,0,a,1,-0.2,,,,\n")
        self.assertIn('<span class="difference">−0.2000</span>', results_table([row], {}))
        self.assertNotIn("interval of that mean", results_notes([row], "a", ""))

    def test_how_many_reached_the_target_is_said(self):
        rows = rows_of(TABLE_HEAD + "e,a,a,target_missed_until_s,3,180,0,,,,,,,\ne,a,a,steps,3,5,1,,,,,,,\n"
                              "e,b,b,target_missed_until_s,1,90,0,,,,,,,\ne,b,b,steps,3,5,1,,,,,,,\n"
                              "e,b,b,time_to_target_s,2,50,1,a,3,-20,,,,\ne,c,c,time_to_target_s,3,40,2,,,,,,,\n", "e")
        table = results_table(rows, {})
        for text in ('&gt; 180.00<small class="std">(0/3)</small>', '&gt; 90.00<small class="std">(2/3)</small>', "−20.00",
                     '40.00<small class="std">±2.00</small>', "time to target"):
            self.assertIn(text, table)
        self.assertIn("(k/n): k of n seeds reached", results_notes(rows, "a", ""))
        self.assertNotIn("(k/n)", results_notes(rows[2:], "a", ""))
        self.assertIn('&gt; 3.000<small class="std">(0/3)</small>', results_table(rows[:1], {}))

    def test_ends_that_a_budget_in_seconds_sets_are_not_compared(self):
        row = self.row("e,b,b,end_time_s,3,128.9,0.0086,a,3,-0.16,-0.17,-0.15,0.01,0.25\n")
        self.assertIn('class="difference', results_table([row], {}))
        self.assertNotIn('class="difference', results_table([row], {}, ends_by_time=True))
        run = write_run(self.directory / "a", "a", 1)
        self.assertFalse(ends_by_time(comparisons_below(self.directory)))
        config = run / "config.toml"
        config.write_text(config.read_text() + "\n[budget]\nseconds = 10\n")
        change(run / "summary.json", end_time_s=9.95)
        self.assertTrue(ends_by_time(comparisons_below(self.directory)))
        change(run / "summary.json", end_time_s=5)
        self.assertFalse(ends_by_time(comparisons_below(self.directory)))

    def test_a_target_that_nobody_reached_is_said(self):
        for label in ("a", "b"):
            write_run(self.directory / label, label, 1)
        comparisons = comparisons_below(self.directory)
        self.assertFalse(is_target_missed(comparisons))
        summaries = list(self.directory.glob("*/seed=*/summary.json"))
        for summary in summaries:
            change(summary, time_to_target={"time_s": None, "step": None, "samples": None})
        self.assertTrue(is_target_missed(comparisons_below(self.directory)))
        change(summaries[0], time_to_target={"time_s": 5, "step": 5, "samples": 5})
        self.assertFalse(is_target_missed(comparisons_below(self.directory)))
        row = self.row("e,b,b,steps,3,5,1,,,,,,,\n")
        self.assertIn("No run reached the target", results_notes([row], "a", "", missed=True))
        self.assertNotIn("target", results_notes([row], "a", ""))

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
        points, = report_page.experiments_of(comparisons_below(self.directory))
        self.assertEqual([one.point["variant"] for one in points], ["none", "heavy"])


class Claims(WithDirectory):
    def table_of(self, **changes):
        self.write({"schema_version": 3, "claims": [CLAIM | changes]})
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
        best = self.table_of(**{"as": "best", "over": "n", "where": {}, "criterion": {"within": [1, 2]}})
        self.assertIn("the value of n at which step_time_s of m is best: within 1 to 2", best)
        self.assertNotIn("slope", best)

    def test_hours_are_shown_in_hours_and_rates_say_no_key(self):
        table = self.table_of(shown={"times": 1, "unit": "s"}, criterion={"within": [86_400, 108_000]}, measure="end_time_s",
                              where={"network.bandwidth_bytes_per_s": "10 Gbit/s"}, points=[
                                  CLAIM["points"][0] | {"mean": 90_000, "interval": [79_200, 93_600],
                                                        "restricted": {"horizon_s": 108_000, "own_reached": 3, "other_reached": 2}}])
        for text in ("25.0 h<small>[22.0, 26.0], n = 3, times up to 30 h, reached", "at 10 Gbit/s: within 24 to 30 h"):
            self.assertIn(text, table)

    def test_shares_are_shown_in_points(self):
        table = self.table_of(shown={"times": 100, "unit": "points"}, criterion={"margin": 0.003}, points=[
            {"label": "", "n": 3, "mean": 0.004, "interval": [0.002, 0.006], "verdict": "reproduced"}])
        self.assertIn("0.40 points<small>[0.20, 0.60], n = 3", table)
        self.assertIn("margin 0.3 points", table)

    def test_times_that_some_seeds_missed_are_marked(self):
        restricted = {"horizon_s": 350.25, "own_reached": 6, "other_reached": 2}
        table = self.table_of(points=[{"label": "", "n": 6, "mean": 0.8, "interval": [0.7, 0.9], "restricted": restricted}])
        self.assertIn("n = 6, times up to 350.2 s, reached by 6 and 2<", table)

    def test_of_many_points_the_lowest_and_the_highest_are_shown(self):
        points = [{"label": f"workers = {n}", "n": 1, "mean": -n, "interval": None} for n in range(2, 9)]
        table = self.table_of(points=points)
        self.assertIn("<small>workers = 8</small>−8.000<small>n = 1</small>", table)
        self.assertIn("workers = 2<", table)
        self.assertNotIn("workers = 3<", table)
        self.assertIn("of 7 points", table)

    def test_a_damaged_file_is_one_message(self):
        for document in ({}, [1], {"schema_version": 1, "claims": []}, {"schema_version": 3, "claims": 3},
                         {"schema_version": 3, "claims": [CLAIM | {"verdict": "true"}]},
                         {"schema_version": 3, "claims": [CLAIM | {"points": [{"n": 3}]}]}):
            self.write(document)
            with self.assertRaisesRegex(ResultsFault, "claims.json: .*; expected claims of schema version 3"):
                read_claims([self.directory])
        (self.directory / "claims.json").write_text("{")
        with self.assertRaisesRegex(ResultsFault, "claims.json"):
            read_claims([self.directory])


class Tuning(WithDirectory):
    def section_of(self, **changes):
        self.write({"schema_version": 1, "measure": "final_validation_accuracy", "seeds": [101, 102],
                    "where": {"variant": "calm"}, "methods": [TUNED | changes]})
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

    def test_times_that_are_cut_where_trials_missed_the_target_are_told(self):
        self.assertIn("; times cut at 40.5, since trials missed the target</small>", self.section_of(horizon=40.5))
        self.assertNotIn("cut", self.section_of())

    def test_a_method_without_a_setting_is_told(self):
        section = self.section_of(chosen=None, method=HOSTILE, at_edge=["training.learning_rate.peak"])
        self.assertIn("<td>none<small>", section)
        self.assertIn("peak at the edge of the grid", section)
        self.assertNotIn("<b ", section)

    def test_a_damaged_file_is_one_message(self):
        for document in ({}, [1], {"schema_version": 2, "methods": []}, {"schema_version": 1, "methods": 3},
                         {"schema_version": 1, "measure": "m", "seeds": ["x"], "where": {}, "methods": []}):
            self.write(document)
            with self.assertRaisesRegex(ResultsFault, "tuning.json: .*; expected trials of schema version 1"):
                read_tunings([self.directory])


TIME, ACCURACY, SPEED = "time_to_target_s", "final_test_accuracy", "samples_per_s"


def rows(*lines):
    """The table's CSV from tuples (row, measure, n, mean, std) or (..., difference, low, high), compared with "a"."""
    text = TABLE_HEAD
    for label, measure, n, mean, std, *compared in lines:
        difference = f"a,{n},{','.join(map(str, compared))}" if compared else ",,,,"
        text += f'e,"{label}",{label.split(",")[0]},{measure},{n},{mean},{std},{difference},,\n'
    return rows_of(text, "e")


def said(*lines, **more):
    return re.sub("</?b>", "", " ".join(sentences(Outcome(rows(*lines), "a", **more))))


class Sentences(unittest.TestCase):
    def test_the_first_at_the_target_is_named_with_its_interval(self):
        text = said(("a", TIME, 3, 100, 1), ("b", TIME, 3, 75, 2, -25, -30, -20), target="88 % test accuracy", clock="virtual time")
        self.assertEqual(text, "The first to reach 88 % test accuracy was b, after 75.0 ± 2.0 s of virtual time, 25 % sooner than a "
                               "(difference −25.0 s, 95 % interval −30.0 to −20.0).")

    def test_what_seeds_do_not_tell_apart_is_said(self):
        text = said(("a", TIME, 2, 100, 1), ("b", TIME, 2, 75, 2, -25, -74, 24), target="88 %")
        self.assertIn("(difference −25 s, 95 % interval −74 to +24, so that 2 seeds do not tell the two apart)", text)

    def test_who_missed_the_target_is_named(self):
        text = said(("a", TIME, 3, 100, 1), ("b", TIME, 2, 50, 1), ("b", "target_missed_until_s", 1, 200, 0),
                    ("c", "target_missed_until_s", 3, 200, 0), target="88 %")
        self.assertEqual(text, "No method reached 88 % sooner than a, which did after 100.0 ± 1.0 s of time; b and c did not with every seed.")
        text = said(("a", "target_missed_until_s", 3, 200, 0), ("b", "target_missed_until_s", 3, 200, 0), target="88 %")
        self.assertEqual(text, "No method reached 88 %.")

    def test_accuracies_that_are_told_apart_are_named(self):
        text = said(("a", ACCURACY, 3, 0.8, 0.01), ("b", ACCURACY, 3, 0.83, 0.01, 0.03, 0.01, 0.05),
                    ("c", ACCURACY, 3, 0.81, 0.01, 0.01, -0.01, 0.03))
        self.assertEqual(text, "After the whole runs the test accuracy is higher with b (+3.0 points, 95 % interval +1.0 to +5.0) than "
                               "with a (80.0 ± 1.0 %); the 95 % intervals do not separate c from a.")

    def test_one_seed_claims_no_certainty(self):
        text = said(("a", ACCURACY, 1, 0.8, 0), ("b", ACCURACY, 1, 0.83, 0, 0.03, "", ""))
        self.assertEqual(text, "The last model of b has the highest test accuracy, 83.00 % (with one seed each, the uncertainty is unknown).")

    def test_without_a_model_speed_counts(self):
        text = said(("a", SPEED, 3, 100, 1), ("b", SPEED, 3, 125, 1, 25, 20, 30))
        self.assertEqual(text, "The most samples per second of time are those of b, 125.0 ± 1.0, 25 % more than with a "
                               "(difference +25.0, 95 % interval +20.0 to +30.0).")

    def test_of_several_points_the_range_of_ratios(self):
        text = said(("a, w = 2", SPEED, 3, 100, 1), ("b, w = 2", SPEED, 3, 125, 1, 25, 20, 30),
                    ("a, w = 4", SPEED, 3, 200, 1), ("b, w = 4", SPEED, 3, 300, 1, 100, 90, 110), points=2)
        self.assertEqual(text, "Samples per second, as a multiple of that of a at the same point: b 1.25 to 1.5.")

    def test_targets_have_words(self):
        self.assertEqual(target_text({"target_accuracy": 0.88}), "88 % test accuracy")
        self.assertEqual(target_text({"target_loss": 1e-7, "target_of": "validation"}), "a validation loss of 10⁻⁷")
        self.assertEqual(target_text({}), "")


class Bars(unittest.TestCase):
    def test_widths_are_those_of_the_numbers(self):
        table = bars_table(Outcome(rows(("a", SPEED, 1, 100, 0), ("b", SPEED, 1, 25, 0)), "a"), {}, {})
        self.assertEqual(re.findall(r'class="fill" style="width:([\d.]+)%', table), ["100.00", "25.00"])

    def test_what_is_far_above_the_others_leaves_them_their_bars(self):
        table = bars_table(Outcome(rows(("a", SPEED, 1, 1e9, 0), ("b", SPEED, 1, 25, 0), ("c", SPEED, 1, 50, 0), ("d", SPEED, 1, 0, 0)),
                                   "a"), {}, {})
        self.assertEqual(re.findall(r'class="fill" style="width:([\d.]+)%', table), ["50.00", "100.00", "0.00"])
        self.assertEqual(table.count("beyond right"), 1)
        self.assertIn("10⁹", table)

    def test_one_row_has_no_bars(self):
        self.assertEqual(bars_table(Outcome(rows(("a", SPEED, 1, 100, 0)), "a"), {}, {}), "")
