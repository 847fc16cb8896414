"""baselines.py: a comparison with a file that was just written finds no difference, and every change is found and
located.

Needs SYNCOPATE_PROGRAM.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]

import baselines

SMALL = ["examples/timeline.toml", "examples/outages.toml", "slowmo"]  # files without models, and a name for `list`


class Baselines(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)
        self.file = self.directory / "kept.json"

    def call(self, *arguments: str, program: str | None = None) -> tuple[int, str]:
        """Calls baselines.py; returns the exit status and standard output."""
        done = subprocess.run([sys.executable, "-B", baselines.__file__, program or os.environ["SYNCOPATE_PROGRAM"],
                               str(self.file), *arguments], capture_output=True, text=True, check=False, timeout=300)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout

    def changed_program(self, name: str, change: str) -> str:
        """A program that prints the output of the real one, changed by sed."""
        program = self.directory / name
        true_one = os.environ["SYNCOPATE_PROGRAM"]
        program.write_text(f"#!/bin/bash\nset -o pipefail\n'{true_one}' \"$@\" | sed '{change}'\n")
        program.chmod(0o755)
        return str(program)

    def test_a_second_run_has_the_same_digests_and_changed_ones_are_named(self):
        self.assertEqual(self.call("--write", "--only", *SMALL)[0], 0)
        self.assertEqual(self.call("--only", *SMALL)[0], 0)

        kept = json.loads(self.file.read_text())
        runs = kept["results"][SMALL[0]]
        run = next(name for name in runs if name != baselines.COMMAND)
        digest = runs[run]
        at = baselines.WHOLE + baselines.PART  # begin of the second column
        runs[run] = "x" * baselines.WHOLE + digest[baselines.WHOLE:at] + "xx" + digest[at + 2:]
        del kept["predicted"][SMALL[1]]
        self.file.write_text(json.dumps(kept))
        status, output = self.call("--only", *SMALL, "--kinds", "results,predicted")
        self.assertEqual(status, 1)
        self.assertIn(f"results: {SMALL[0]}: {run}: line 2 is now ", output)
        self.assertIn(f"predicted: {SMALL[1]}: ", output)
        self.assertIn("is new", output)

        # Only missing entries are written.
        self.assertEqual(self.call("--write", "--missing", "--only", *SMALL, "--kinds", "predicted")[0], 0)
        self.assertEqual(self.call("--only", *SMALL, "--kinds", "predicted")[0], 0)
        self.assertEqual(self.call("--only", *SMALL, "--kinds", "results")[0], 1)

    def test_another_program_is_compared_line_by_line(self):
        texts = ["--texts", str(self.directory / "texts")]
        only = ["--only", SMALL[1], "slowmo", "--kinds", "check,list,predict"]
        self.assertEqual(self.call("--write", *only, *texts)[0], 0)
        status, output = self.call(*only, *texts, program=self.changed_program("other", "s/^workers = 16/hands = 16/"))
        self.assertEqual(status, 1)
        [line, count] = output.splitlines()
        self.assertRegex(line, rf"^check: {SMALL[1]}: line \d+ is now hands = 16, was workers = 16$")
        self.assertEqual(count, "1 differ of 3")
        self.assertEqual(self.call(*only, program=self.changed_program("longer", "$ a one more line"))[0], 1)

    def test_wrong_use_has_its_own_status(self):
        self.assertEqual(self.call()[0], 2)  # there is no file to compare with
        self.assertEqual(self.call("--write", "--kinds", "results,colours")[0], 2)
        self.assertEqual(self.call("--write", "--only", "no-such-experiment")[0], 2)
        self.assertEqual(self.call("--missing")[0], 2)
        self.assertEqual(self.call("--write", program=str(self.directory / "nothing"))[0], 2)
        self.assertFalse(self.file.exists())

    def test_digests_of_two_machines_do_not_mix(self):
        self.file.write_text(json.dumps({"machine": "another", "results": {SMALL[0]: {}}}))
        self.assertEqual(self.call("--write", "--only", SMALL[1])[0], 2)
        self.assertEqual(self.call("--write", "--only", SMALL[1], "--kinds", "check")[0], 0)
        self.assertEqual(json.loads(self.file.read_text())["machine"], "another")

    def test_what_is_left_out_exists(self):
        for kind, files in baselines.LEFT_OUT.items():
            self.assertIn(kind, baselines.KINDS)
            for file in files:
                self.assertTrue((baselines.EXPERIMENTS / file).exists(), file)


class Runs(unittest.TestCase):
    def test_runs_of_one_name_are_numbered_by_their_results(self):
        with tempfile.TemporaryDirectory() as results:
            def directory(place: str, loss: float) -> Path:
                path = Path(results) / place
                path.mkdir(parents=True)
                (path / "summary.json").write_text(json.dumps({"loss": loss, "host_s": 1.5, "predicted": {"s": loss}}))
                return path
            later, earlier = directory("1/phase/seed=1-aa", 0.5), directory("2/phase/seed=1-bb", 0.25)
            alone = directory("1/method/seed=1-cc", 0.125)
            found = baselines.by_run([later, alone, earlier], ["seeds=[1]"])
        self.assertEqual(found["results"], {baselines.COMMAND: ["seeds=[1]"],
                                            "phase/seed=1 (1)": ["summary.json.loss: 0.25"],
                                            "phase/seed=1 (2)": ["summary.json.loss: 0.5"],
                                            "method/seed=1": ["summary.json.loss: 0.125"]})
        self.assertEqual(found["predicted"]["phase/seed=1 (2)"], ["predicted.s: 0.5"])


class Differences(unittest.TestCase):
    def words(self, old: list[str], new: list[str], with_old: bool = False) -> str | None:
        return baselines.difference(baselines.digest(old), new, old if with_old else None)

    def test_equal_lines_do_not_differ(self):
        self.assertIsNone(self.words(["a: 1", "b: 2"], ["a: 1", "b: 2"]))

    def test_the_first_line_is_shown_and_the_others_are_named(self):
        old, new = ["a: 1", "b: 2", "c: 3", "d: 4"], ["a: 1", "b: 5", "c: 3", "d: 6"]
        self.assertEqual(self.words(old, new), "line 2 is now b: 5; also d")
        self.assertEqual(self.words(old, new, with_old=True), "line 2 is now b: 5, was 2; also d")

    def test_of_a_long_line_the_first_differing_value_is_shown(self):
        old = "loss: " + " ".join(str(i) for i in range(1000, 2000))
        words = self.words([old], [old.replace(" 1500 ", " 2500 ")], with_old=True)
        self.assertTrue(words.startswith("line 1 is now loss: ... 2500 1501 "), words)
        self.assertIn(", was 1500 1501 ", words)

    def test_lines_that_come_or_go_are_placed(self):
        old = ["a: 1", "b: 2", "d: 3"]
        self.assertEqual(self.words(old, ["a: 1", "x: 0", "b: 2", "d: 3"]), "4 lines, was 3; line 2 is new: x: 0")
        self.assertEqual(self.words(old, ["a: 1", "d: 3"]), "2 lines, was 3; line 2 is gone")
        self.assertEqual(self.words(old, ["a: 1", "d: 3"], with_old=True), "2 lines, was 3; line 2 is gone: b: 2")

    def test_items_come_and_go(self):
        self.assertEqual(baselines.difference(None, ["a"]), "is new")
        self.assertEqual(baselines.difference(baselines.digest(["a"]), None), "is gone")

    def test_values_of_documents_have_their_paths(self):
        self.assertEqual(baselines.leaves({"a": {"b": [1, 2]}, "c": [{"d": None}, {"d": 0.5}]}),
                         ["a.b: [1, 2]", "c[0].d: null", "c[1].d: 0.5"])


if __name__ == "__main__":
    unittest.main()
