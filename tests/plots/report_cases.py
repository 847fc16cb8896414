"""What a report's page is made of: thinned lines, escaped texts, sweeps, configuration, and what is kept without runs."""

import contextlib
import gzip
import io
import json
from base64 import b64decode, b64encode
from unittest import mock

import numpy as np
from synthetic_results import CLAIM, write_experiment, write_run, write_sweep
from with_results import WithDirectory, change, comparisons_below

from plots.report import report
from plots.report.accounts import accounts_table, seconds_of
from plots.report.configuration import experiment_file, method_settings
from plots.report.kept import experiment_of, is_kept
from plots.report.lines import AXES, VALUES, Numbers, lines_of, shortened
from plots.report.looks import page_look
from plots.report.markup import escaped, packed, without_places
from plots.report.request import read_request
from plots.report.sweeps import sweeps_of
from plots.report.thinning import FEWEST, NUMBERS, POINTS, kept_points, points_per_line
from plots.report.timeline import MOST_BARS, timeline_of
from plots.style import line_styles

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


class Kept(WithDirectory):
    """Summaries without runs, as results/paper/ has them."""

    def setUp(self):
        super().setUp()
        (self.directory / "claims.json").write_text(json.dumps({"schema_version": 2, "claims": [CLAIM]}))
        (self.directory / "table.md").write_text("| method | time s |\n|---|---:|\n| a<b>, x = 1 | 1.5 +- 0.2 |\n\n+-: deviation.\n")
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
        self.assertIn('<th scope="row">a&lt;b&gt;, x = 1</th><td data-name="time s">1.5 ±\u00a00.2</td>', page)
        self.assertIn('<p class="note">+-: deviation.</p>', page)
        self.assertIn(f'src="data:image/png;base64,{b64encode(b"not much of a picture").decode()}"', page)
        self.assertIn("the runs themselves are not here", page)
        self.assertNotIn(str(self.directory), page)

    def test_the_page_says_how_the_runs_were_made(self):
        made_with = {"commit": "a0b1, changed", "processor": "<fast>", "cores": 2}
        (self.directory / "claims.json").write_text(json.dumps({"schema_version": 2, **made_with, "claims": [CLAIM]}))
        self.assertEqual(self.report(), (0, ""))
        page = (self.directory / "page.html").read_text()
        for name, text in (("commit", "a0b1, changed"), ("processor", "&lt;fast&gt;"), ("cores", "2")):
            self.assertIn(f'<th scope="row">{name}</th><td>{text}</td>', page)

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
