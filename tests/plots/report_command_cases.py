"""The command `dev report`: the page that it writes, and the arguments and results that it refuses."""

import contextlib
import gzip
import io
import json
import os
import signal
import stat
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from unittest import mock

import numpy as np
from synthetic_results import CLAIM, TABLE_HEAD, TUNED, WithDirectory, write_experiment, write_run, write_sweep

from plots import terminal
from plots.report import page as report_page
from plots.report.__main__ import read_request
from plots.report.charts import points_per_line


class Command(WithDirectory):
    """Uses a fake program that prints a table of the test."""

    def setUp(self):
        super().setUp()
        self.runs = self.directory / "results"
        self.page = self.directory / "page.html"
        self.table("synthetic", "synchronous SGD")
        self.addCleanup(setattr, terminal, "command", terminal.command)
        # A short library is compressed sooner.
        self.library = mock.patch.object(report_page, "read_library", return_value=b"// plotly.js v1.2.3")
        self.library.start()
        self.addCleanup(mock.patch.stopall)

    def table(self, experiment, *methods, status=0, message=""):
        lines = "".join(f"{experiment},{method},{method},steps,3,1200,0,,,,,,,\n" for method in methods)
        program = self.directory / "program"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{TABLE_HEAD}{lines}END\necho \"{message}\" >&2\nexit {status}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def report(self, *arguments):
        """Exit status and standard error."""
        terminal.command = "report"
        with (contextlib.redirect_stderr(io.StringIO()) as message, contextlib.redirect_stdout(io.StringIO()),
              mock.patch.dict(os.environ, SYNCOPATE_PROGRAM=str(self.directory / "program"))):
            try:
                status = report_page.main(read_request([str(argument) for argument in arguments]))
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
        (self.runs / "synthetic" / "claims.json").write_text(json.dumps({"schema_version": 3, "claims": [CLAIM]}))
        self.report(self.runs, "-o", self.page)
        self.assertIn("It is faster.", self.page.read_text())

    def test_the_section_of_tuning_is_there_with_a_file_of_it_alone(self):
        write_experiment(self.runs, seeds=1)
        self.report(self.runs, "-o", self.page)
        self.assertNotIn("Tuning", self.page.read_text())
        (self.runs / "synthetic" / "tuning.json").write_text(json.dumps(
            {"schema_version": 1, "measure": "final_validation_loss", "seeds": [7], "where": {}, "methods": [TUNED]}))
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
        self.assert_fault("contains no runs", self.runs)
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

    def test_a_link_that_is_named_stays_one(self):
        write_experiment(self.runs, seeds=1)
        link = self.directory / "link.html"
        link.symlink_to(self.page)
        self.assertEqual(self.report(self.runs, "-o", link)[0], 0)
        self.assertTrue(link.is_symlink())
        self.assertIn("<html", self.page.read_text(encoding="utf-8"))

    def test_a_method_to_compare_with_must_be_there(self):
        write_experiment(self.runs, seeds=1)
        self.table("synthetic", status=2, message="--against: nobody is no method")
        self.assert_fault("nobody is no method", arguments=(self.runs, "-o", self.page, "--against", "nobody"))

    def test_files_that_cannot_be_are_refused_before_anything_is_read(self):
        pipe = self.directory / "pipe"
        os.mkfifo(pipe)
        (self.directory / "link").symlink_to(pipe)
        for file, why in ((pipe, "is not a regular file"), (self.directory / "link", "is not a regular file"),
                          (self.directory / "missing" / "page.html", "there is no directory"),
                          (self.directory, "is a directory"), ("", "empty")):
            self.assert_fault(why, arguments=(self.runs, "-o", file))

    def test_without_plotly_it_says_which_package_has_it(self):
        write_experiment(self.runs, seeds=1)
        self.library.stop()
        with mock.patch("plots.report.page.PLOTLY", []), mock.patch("plots.report.page.find_spec", return_value=None):
            status, message = self.report(self.runs, "-o", self.page)
        self.assertEqual((status, message), (1, "report: plotly.js is missing; install the package python3-plotly, which contains it\n"))
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
        begun.read_text()  # returns once the program runs
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
        with mock.patch.object(report_page.os, "replace", side_effect=OSError(28, "No space left on device")):
            status, message = self.report(self.runs, "-o", self.page)
        self.assertEqual(status, 1)
        self.assertIn("No space left", message)
        self.assertEqual(self.page.read_text(), "older")
        self.assertEqual(list(self.directory.glob(".plots-*")), [])
