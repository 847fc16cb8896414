"""The tables of the web page: results, claims, and what was tuned."""

import json

import numpy as np
from synthetic_results import CLAIM, TUNED, write_experiment, write_run
from with_results import WithDirectory, change, comparisons_below

from plots.report import report
from plots.report.claims import claims_table, read_claims
from plots.report.measures import Measured, Row, rows_of
from plots.report.page import ends_by_time, is_target_missed
from plots.report.results import Column, Scale, baseline, results_notes, results_table, scale_of, swatch_of
from plots.report.tuning import read_tunings, tuning_section
from plots.runs import ResultsFault

HEAD = "experiment,row,method,measure,n,mean,std,against,pairs,difference,low,high,t_p,sign_flip_p\n"
HOSTILE = '</script><script>window.hurt = 1</script><b class="hurt">&amp;'


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
        rows = rows_of(HEAD + "e,a,a,target_missed_until_s,3,180,0,,,,,,,\ne,a,a,steps,3,5,1,,,,,,,\n"
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
        points, = report.experiments_of(comparisons_below(self.directory))
        self.assertEqual([one.point["variant"] for one in points], ["none", "heavy"])


class Claims(WithDirectory):
    def table_of(self, **changes):
        self.write({"schema_version": 2, "claims": [CLAIM | changes]})
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
        for document in ({}, [1], {"schema_version": 1, "claims": []}, {"schema_version": 2, "claims": 3},
                         {"schema_version": 2, "claims": [CLAIM | {"verdict": "true"}]},
                         {"schema_version": 2, "claims": [CLAIM | {"points": [{"n": 3}]}]}):
            self.write(document)
            with self.assertRaisesRegex(ResultsFault, "claims.json: .*; expected the claims of schema version 2"):
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
            with self.assertRaisesRegex(ResultsFault, "tuning.json: .*; expected the trials of schema version 1"):
                read_tunings([self.directory])
