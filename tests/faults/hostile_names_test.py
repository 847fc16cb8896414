"""Names, labels and paths that look like other directories or like shell commands: in experiments, methods, sweeps, and
files that are read back. Nothing may be written outside the results directory, and nothing may reach a shell.

Needs SYNCOPATE_PROGRAM. SYNCOPATE_LONG=1 runs the long set.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import zlib
from pathlib import Path

PROGRAM, MPIEXEC = os.environ["SYNCOPATE_PROGRAM"], os.environ["SYNCOPATE_MPIEXEC"]
LONG = os.environ.get("SYNCOPATE_LONG") == "1"

COMMANDS = ["$(touch commanded)", "`touch commanded`", "; touch commanded;", "| touch commanded", "' ; touch commanded; '",
            '" && touch commanded && "', "a\ntouch commanded\n"]
PLACES = ["../x", "../../x", "a/../../../x", "/x", "/tmp/x", "..", ".", ".hidden", "~", "~root/x", "\\..\\x", "-rf", "--help",
          "x" * 5000, "é" * 300, "a\0b", "a\tb\x1b[2J\x7f", "%s%n%p", "Trials", ".shared", "con", "seed=1-01234567"]

EXPERIMENT = """name = {name}
[cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "none"
parameters = 10
[budget]
steps = 2
[[methods]]
label = {name}
algorithm = "sync-sgd"
[sweep]
delays = [{{ label = {name}, value = [] }}, {{ label = "b", value = [{{ kind = "constant", value = 0.001 }}] }}]
[[variants]]
label = {name}
cluster.micro_batches = 2
[[variants]]
label = "b"
cluster.micro_batches = 1
[[claim]]
sentence = {name}
measure = "step_time_s"
method = {name}
everywhere = true
above = 0
"""


def toml(text: str) -> str:
    """The text as a basic string of TOML."""
    return '"' + "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text) + '"'


class Hostile(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.outside = Path(temporary.name).resolve()
        self.directory = self.outside / "one" / "two" / "three"
        self.directory.mkdir(parents=True)
        self.results = self.directory / "results"

    def run_program(self, *arguments, status: int | None = 0) -> subprocess.CompletedProcess:
        done = subprocess.run([PROGRAM, *arguments], cwd=self.directory, capture_output=True, text=True, check=False,
                              env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        if status is not None:
            self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout}{done.stderr}")
        return done

    def check_places(self, *allowed: Path) -> None:
        """Checks that all files are below the results directory or existed before."""
        for path in self.outside.rglob("*"):
            if path in self.directory.parents or path == self.directory or path in allowed:
                continue
            self.assertTrue(path.is_relative_to(self.results), path)
            for part in path.relative_to(self.results).parts:
                self.assertRegex(part, r"^([A-Za-z0-9_=-][A-Za-z0-9.=_-]*|\.shared)$", path)
        self.assertEqual(list(Path(os.environ.get("TMPDIR", "/tmp")).glob("commanded")), [])


class Names(Hostile):
    def test_of_experiments_methods_variants_and_values_stay_within_the_results(self):
        file = self.directory / "e.toml"
        tables = self.directory / "tables"
        for name in PLACES + COMMANDS:
            own = self.write(file, EXPERIMENT, name)
            how = ["--jobs", "2"] if name in COMMANDS[:2] else ["--share"] if name in PLACES[:2] else []
            self.run_program("run", "e.toml", "--quiet", "--results", "results", *how)
            runs = list(self.results.rglob("seed=*/summary.json"))
            self.assertEqual(len(runs), 4, name)
            self.assertEqual(json.loads(runs[0].read_text(encoding="utf-8"))["experiment"], own)
            self.run_program("table", "results")
            self.run_program("claims", "results")
            self.run_program("status", "e.toml", "--results", "results")
            self.run_program("export", "results", "--to", "tables")
            shutil.rmtree(tables)
            self.check_places(file)
            shutil.rmtree(self.results)
        print(f"{len(PLACES + COMMANDS)} names", flush=True)

    def write(self, file: Path, text: str, name: str) -> str:
        """Runs the experiment. If its name is refused, uses another name for the experiment itself."""
        file.write_text(text.format(name=toml(name)), encoding="utf-8")
        done = self.run_program("check", file.name, status=None)
        if done.returncode == 0:
            return name
        self.assertEqual(done.returncode, 2)
        self.assertIn("must be a directory name", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        file.write_text('name = "e"\n' + text.format(name=toml(name)).partition("\n")[2], encoding="utf-8")
        return "e"

    def test_on_the_command_line(self):
        file = self.directory / "e.toml"
        file.write_text(EXPERIMENT.format(name='"e"'), encoding="utf-8")
        for name in COMMANDS:
            if "\n" not in name:
                self.run_program("run", "e.toml", f"name={toml(name)}", "--quiet", "--results", "results", "~claim")
                self.run_program("run", "e.toml", f"name={name}", "--quiet", "--results", "results", "~claim", status=None)
        self.check_places(file)

    def test_of_the_file_itself(self):
        for name in COMMANDS[:2] + ["-n", "a b;c"]:
            file = self.directory / f"{name}.toml"
            file.write_text(EXPERIMENT.format(name='"e"').replace('name = "e"\n', "", 1), encoding="utf-8")
            self.run_program("run", "--quiet", "--results", "results", f"./{file.name}", "--jobs", "2", "~claim")
            self.check_places(file)
            file.unlink()
            shutil.rmtree(self.results)

    def test_under_a_launcher(self):
        file = self.directory / "e.toml"
        self.write(file, EXPERIMENT[:EXPERIMENT.index("[sweep]")], COMMANDS[0] + COMMANDS[1] + "../x")
        self.run_program("compare", "e.toml", "--results", "results", "--mpiexec", MPIEXEC, f"description={COMMANDS[0]}")
        self.assertEqual(len(list(self.results.rglob("seed=*/summary.json"))), 2)
        self.check_places(file)

    def test_of_files_are_looked_for_and_nothing_else(self):
        for name in COMMANDS + ["../../nowhere", "/dev/zero", "/dev/stdin", "a\0b"]:
            text = EXPERIMENT.format(name='"e"') + f'[[delays]]\nkind = "histogram"\nfile = {toml(name)}\n'
            file = self.directory / "e.toml"
            file.write_text(text.replace("delays = [", "x = [", 1).replace("[sweep]\nx", "[unused]\nx"), encoding="utf-8")
            done = self.run_program("check", "e.toml", status=2)
            self.assertIn("delays.0.file", done.stderr)
            self.check_places(file)


class ReadBack(Hostile):
    """Results directories that somebody else has written."""

    def a_run(self) -> Path:
        text = EXPERIMENT.format(name='"e"')
        (self.directory / "e.toml").write_text(text[:text.index("[sweep]")], encoding="utf-8")
        self.run_program("run", "e.toml", "--quiet", "--results", "results")
        return next(self.results.rglob("seed=*"))

    def test_a_list_of_files_does_not_lead_elsewhere(self):
        run = self.a_run()
        listed = json.loads((run / "files.json").read_text(encoding="utf-8"))
        for name in ("../x", "/dev/zero", "/etc/passwd", "..", "", "a/b"):
            files = {**listed["files"], name: {"bytes": 1, "crc32": "00000000"}}
            (run / "files.json").write_text(json.dumps({**listed, "files": files}), encoding="utf-8")
            done = self.run_program("table", "results", status=2)
            self.assertRegex(done.stderr, "files.json: lists .*, which is outside the run's directory", name)

    def test_a_plan_does_not_lead_elsewhere(self):
        self.a_run()
        shared = self.results / "e" / ".shared"
        shared.mkdir(exist_ok=True)
        plan = [{"hash": "0", "label": "a", "seed": 1, "directory": place} for place in ("../../x", "/", "/etc", "..")]
        (shared / "runs.json").write_text(json.dumps(plan), encoding="utf-8")
        done = self.run_program("status", "results/e")
        self.assertRegex(done.stdout, "^e: 1 finished, 0 failed;.*\n  problem .*/runs.json: is not a list of runs")

    def test_labels_of_summaries_are_no_places(self):
        run = self.a_run()
        for name in ("../../x", "/tmp/x", COMMANDS[0], "a\nb\x1b[2J"):
            summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
            summary.update(experiment=name, method=name, sweep=[[name, name]])
            content = json.dumps(summary).encode()
            (run / "summary.json").write_bytes(content)
            listed = json.loads((run / "files.json").read_text(encoding="utf-8"))
            listed["files"]["summary.json"] = {"bytes": len(content), "crc32": f"{zlib.crc32(content):08x}"}
            (run / "files.json").write_text(json.dumps(listed), encoding="utf-8")
            for command in (["table", "results"], ["export", "results", "--to", "results/tables"], ["status", "results"]):
                done = self.run_program(*command)
                self.assertNotRegex(done.stdout + done.stderr, re.compile("\x1b"))
            self.check_places(self.directory / "e.toml")

    def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(self):
        run = self.a_run()
        for name in ("summary.json", "metrics.csv", "files.json"):
            content = (run / name).read_bytes()
            (run / name).unlink()
            os.mkfifo(run / name)
            done = self.run_program("table", "results", status=2)
            self.assertIn(str(run.relative_to(self.directory) / name), done.stderr)
            (run / name).unlink()
            (run / name).write_bytes(content)


if __name__ == "__main__":
    unittest.main(verbosity=2)
