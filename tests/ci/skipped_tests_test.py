"""Output and status of .ci/skipped_tests.py for reports of ctest --output-junit."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / ".ci" / "skipped_tests.py"


def check(cases, *options):
    """The script's exit status and output for a report with these cases: (status, output of the test)."""
    text = "".join(
        f'<testcase name="test_{i}" classname="test_{i}" time="1" status="{status}">'
        + ('<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>' if status == "notrun" else "")
        + f"<system-out>{output}</system-out></testcase>"
        for i, (status, output) in enumerate(cases)
    )
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
        report.write(f'<?xml version="1.0" encoding="UTF-8"?><testsuite name="all">{text}</testsuite>')
        report.flush()
        result = subprocess.run([sys.executable, SCRIPT, *options, report.name], capture_output=True, text=True)
    return result.returncode, result.stdout


class SkippedTests(unittest.TestCase):
    def test_none_is_all_right(self):
        self.assertEqual(check([("run", "[  PASSED  ] 3 tests.\n"), ("run", "Ran 5 tests in 0.1s\n\nOK\n")]), (0, ""))

    def test_one_that_could_have_run_fails_and_is_named_with_its_reason(self):
        for output in (
            "tests/a_test.cpp:71: Skipped\ntwo servers and a worker are three participants\n\n[  SKIPPED ] 1 test.\n",
            "test_it (a.B) ... skipped 'no numpy'\nOK (skipped=1)\n",
            "..s.\nOK (skipped=1)\n",
        ):
            status, text = check([("run", "[  PASSED  ] 3 tests.\n"), ("run", output)])
            self.assertEqual(status, 1, output)
            self.assertIn("test_1: skipped without need: ", text)
        self.assertIn("tests/a_test.cpp:71: two servers and a worker",
                      check([("run", "tests/a_test.cpp:71: Skipped\ntwo servers and a worker\n")])[1])

    def test_a_whole_test_that_was_not_run_fails(self):
        for status in ("notrun", "disabled"):
            self.assertEqual(check([(status, "")])[0], 1, status)

    def test_what_the_machine_cannot_meet_is_told_and_passes(self):
        reason = "the machine is not quiet: a thread gets 55 % of a core"
        status, text = check([("run", f"tests/a_test.cpp:7: Skipped\n{reason}\n")])
        self.assertEqual(status, 0)
        self.assertIn(reason, text)
        self.assertEqual(check([("run", f"test_it (a.B) ... the test's own line\nskipped '{reason}'\nOK (skipped=1)\n")])[0], 0)
        self.assertEqual(check([("run", f"a.cpp:7: Skipped\n{reason}\na.cpp:9: Skipped\nno time\n")])[0], 1)

    def test_what_was_not_tested_stands_out_with_how_to_run_it(self):
        output = "a.cpp:7: Skipped\nthe machine is not quiet\na.cpp:9: Skipped\nthe machine is not quiet\n"
        self.assertEqual(check([("run", "fine\n"), ("run", output)])[1].splitlines()[-1],
                         "******** NOT TESTED: 2 of test_1. Alone, on a quiet machine: ./dev test --all -R '^test_1$'")

    def test_where_all_must_run_any_skip_fails(self):
        skipped = ("run", "a.cpp:7: Skipped\nthe machine is not quiet\n")
        self.assertEqual(check([skipped])[0], 0)
        self.assertEqual(check([skipped], "--all")[0], 1)
        self.assertEqual(check([("run", "fine\n")], "--all"), (0, ""))

    def test_without_a_report_it_fails(self):
        result = subprocess.run([sys.executable, SCRIPT, "/nowhere.xml"], capture_output=True, text=True)
        self.assertNotEqual(result.returncode, 0)


if __name__ == "__main__":
    unittest.main()
