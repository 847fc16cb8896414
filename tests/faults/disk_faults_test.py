"""Campaigns of disk faults: the disk is full or read-only, files may not grow, the results directory is removed, and
files of results are truncated or changed. No finished run may be lost, each fault is reported once, and the next start
makes the missing runs.

Needs SYNCOPATE_PROGRAM. SYNCOPATE_LONG=1 runs the long set. SYNCOPATE_SEED repeats a campaign with the printed seed.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
import unittest
from pathlib import Path

from shared_sweep import EXPERIMENT, NAME, PROGRAM, TRAINED, SharedSweep, files_below, run_directories
from small_disk import NOT_ALLOWED, SmallDisk, may_mount, with_own_mounts

LONG = os.environ.get("SYNCOPATE_LONG") == "1"
CHECKOUT = Path(__file__).resolve().parents[2]
SHORT_RUNS = EXPERIMENT.format(seeds=[1, 2], micro_batches=2000, threshold_s=30)
LONGER_RUNS = EXPERIMENT.format(seeds=[1, 2], micro_batches=40000, threshold_s=600)
TRAINED_RUNS = TRAINED.format(phase_steps=20, steps=40)
RECORDED = """
[recording]
trace = true
durations = true
parameters = true
"""
CLAIM = """
[[claim]]
sentence = "Dropping makes steps shorter"
measure = "step_time_s"
method = "dropcompute"
against = "sync-sgd"
as = "ratio"
below = 0.99
"""
TUNED = """
[tune]
seeds = [11]
measure = "final_train_loss"
"training.learning_rate.peak" = [0.05, 0.1, 0.2]
extend = 0
"""


class OnADisk(SharedSweep):
    """Checks that there is exactly one message about the disk, and that it is one line."""

    def said_once(self, err: str, *parts: str) -> None:
        lines = [line for line in err.splitlines() if parts[0] in line]
        self.assertEqual(len(lines), 1, err)
        for part in parts:
            self.assertIn(part, lines[0])

    def end(self, process: subprocess.Popen) -> tuple[int, str]:
        out, err = process.communicate(timeout=600)
        return process.returncode, out + err

    def nothing_hidden(self, results: Path) -> None:
        hidden = [path for path in results.rglob(".*") if path.name != ".shared"]
        self.assertEqual(hidden, [])


@unittest.skipUnless(may_mount(), NOT_ALLOWED)
class Full(OnADisk):
    def campaign(self, text: str, *how: str, rounds: int) -> None:
        """After some runs have finished, the remaining bytes suffice only for a part of the other runs."""
        file = self.write(text)
        reference = self.reference(file)
        whole = sum(path.stat().st_size for path in (self.directory / "undisturbed").rglob("*") if path.is_file())
        failed = 0
        for turn in range(rounds):
            disk = SmallDisk(self.directory / f"disk{turn}", 64_000_000)
            self.addCleanup(disk.close)
            self.results = disk.directory / "results"
            self.finish(self.start(file, "--quiet", "--only", "sync-sgd"))
            before = {path: path.read_bytes() for path in self.results.rglob("seed=*/*") if "sync-sgd" in path.parts}
            disk.fill(self.random.choice([0, 4096, self.random.randrange(whole)]))
            status, said = self.end(self.start(file, "--quiet", *how))
            if status != 0:
                failed += 1
                self.assertIn(status, (1, 2), said)
                self.said_once(said, "No space left on device", str(self.results / NAME), "--results", "next start")
                self.assertNotIn("have ended", said, "for which there would be no need")
            self.check_published()
            self.nothing_hidden(self.results)
            for path, content in before.items():
                self.assertEqual(path.read_bytes(), content, path)
            disk.empty()
            self.finish(self.start(file, "--quiet", *how))
            self.check_published()
            self.assertEqual(files_below(self.results / NAME, "metrics.csv", "steps.csv"), reference)
        print(f"{rounds} disks, of which {failed} did not suffice, {' '.join(how)}", flush=True)
        self.assertGreater(failed, 0)

    def test_while_runs_are_made(self):
        self.campaign(SHORT_RUNS, rounds=30 if LONG else 3)

    def test_while_models_are_trained(self):
        self.campaign(TRAINED_RUNS + RECORDED + CLAIM, rounds=30 if LONG else 3)

    def test_while_runs_are_shared(self):
        self.campaign(SHORT_RUNS, "--share", rounds=30 if LONG else 2)

    def test_while_processes_of_one_call_make_runs(self):
        """Both processes and the one that started them encounter the full disk. One of the three reports it."""
        self.campaign(SHORT_RUNS, "--jobs", "2", rounds=30 if LONG else 2)

    def test_while_settings_are_tried(self):
        self.campaign(TRAINED_RUNS + TUNED, rounds=30 if LONG else 2)


@unittest.skipUnless(may_mount(), NOT_ALLOWED)
class ReadOnly(OnADisk):
    def setUp(self):
        super().setUp()
        self.disk = SmallDisk(self.directory / "disk", 64_000_000)
        self.addCleanup(self.disk.close)
        self.results = self.disk.directory / "results"

    def lock_soon(self) -> None:
        until = time.monotonic() + 20
        while not self.disk.lock():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.001)

    def test_from_the_beginning_nothing_is_run(self):
        file = self.write(SHORT_RUNS)
        self.finish(self.start(file, "--quiet", "--only", "sync-sgd"))
        self.assertTrue(self.disk.lock())
        for how in ([], ["--share"], ["--jobs", "2"]):
            status, said = self.end(self.start(file, "--quiet", *how))
            self.assertEqual(status, 2, said)
            self.said_once(said, "Read-only file system", str(self.results / NAME), "--results")
        self.finish(self.start(file, "--quiet", "--only", "sync-sgd"))  # finished runs can be shown
        for command, wanted in ((["table", self.results], 0), (["export", self.results], 2),
                                (["export", self.results, "--to", self.directory / "tables"], 0)):
            done = subprocess.run([PROGRAM, *command], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, wanted, done.stderr)
            if wanted:
                self.said_once(done.stderr, "Read-only file system", str(self.results))

    def test_while_runs_are_made(self):
        file = self.write(LONGER_RUNS)
        reference = self.reference(file)
        for how in [[], ["--share"]] * (10 if LONG else 1):
            process = self.start(file, "--quiet", *how)
            while not run_directories(self.results):
                self.assertIsNone(process.poll())
                time.sleep(0.005)
            time.sleep(self.random.uniform(0, 0.3))
            self.lock_soon()
            status, said = self.end(process)
            if status != 0:
                self.assertEqual(status, 1, said)
                self.said_once(said, "Read-only file system", str(self.results / NAME), "--results", "next start")
            self.disk.unlock()
            self.check_published()
            self.finish(self.start(file, "--quiet", *how))
            self.check_published()
            self.assertEqual(files_below(self.results / NAME, "metrics.csv", "steps.csv"), reference)
            shutil.rmtree(self.results)


class Removed(OnADisk):
    def test_while_runs_are_made(self):
        file = self.write(LONGER_RUNS)
        reference = self.reference(file)
        for how in [[], ["--share"]] * (10 if LONG else 1):
            process = self.start(file, "--quiet", *how)
            while not run_directories(self.results):
                self.assertIsNone(process.poll())
                time.sleep(0.005)
            time.sleep(self.random.uniform(0, 0.2))
            gone = self.directory / "gone"
            self.results.rename(gone)
            status, said = self.end(process)
            self.assertEqual(status, 1, said)
            self.said_once(said, "was removed while runs were made", str(self.results / NAME), "next start")
            self.assertEqual(list(self.results.rglob("*")), [], "nothing is made anew in part")
            shutil.rmtree(gone)
            self.finish(self.start(file, "--quiet", *how))
            self.assertEqual(files_below(self.results / NAME, "metrics.csv", "steps.csv"), reference)
            shutil.rmtree(self.results)


class Limited(OnADisk):
    def test_a_file_that_may_not_grow_is_said(self):
        file = self.write(TRAINED_RUNS + RECORDED)
        reference = self.reference(file)
        command = [PROGRAM, "run", file, "--results", self.results, "--quiet", "--threads", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.said_once(done.stderr, "File too large", str(self.results / NAME), "--results", "next start")
        self.check_published()
        self.finish(self.start(file, "--quiet"))
        self.assertEqual(files_below(self.results / NAME, "metrics.csv", "steps.csv"), reference)


class Damaged(OnADisk):
    """Which commands find damage: a file is truncated, has a changed byte, or is missing."""

    def damage(self, path: Path) -> str:
        content = path.read_bytes()
        how = self.random.choice(["cut off", "another byte", "gone", "empty"])
        if how == "cut off":
            path.write_bytes(content[:self.random.randrange(len(content))])
        elif how == "another byte":
            at = self.random.randrange(len(content))
            path.write_bytes(content[:at] + bytes([content[at] ^ (1 << self.random.randrange(8))]) + content[at + 1:])
        elif how == "gone":
            path.unlink()
        else:
            path.write_bytes(b"")
        return how

    def found_by(self, command: list, path: Path, status: int = 2) -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.directory,
                              env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
        self.assertEqual(done.returncode, status, f"{command}: {done.stdout}{done.stderr}")
        # With a changed digit in the list of files, the fault names the file to which the digit belongs.
        named = f"{path.parent}/" if path.name == "files.json" else str(path)
        lines = [line for line in done.stderr.splitlines() if named in line]
        self.assertEqual(len(lines), 1, f"{command}: {done.stderr}")
        self.assertRegex(lines[0], "next start|next `run`|run the experiment again", "what to do is said")

    def readers(self) -> dict[str, list]:
        return {"table": [PROGRAM, "table", self.results], "claims": [PROGRAM, "claims", self.results],
                "export": [PROGRAM, "export", self.results, "--to", self.directory / "tables"],
                "plot": [sys.executable, "-B", "-m", "plots", self.results],
                "report": [sys.executable, "-B", "-m", "plots.report", self.results, "-o", self.directory / "report.html"]}

    def test_files_of_runs(self):
        file = self.write(TRAINED_RUNS + RECORDED + CLAIM)
        # `check` looks in the default results directory.
        self.results = self.directory / "results" / "runs"
        self.finish(self.start(file, "--quiet"))
        reference = files_below(self.results / NAME, "metrics.csv", "steps.csv")
        runs = [path for path in self.results.rglob("seed=*") if "common-phase" not in path.parts]
        names = sorted({path.name for run in runs for path in run.iterdir()})
        self.assertGreaterEqual(len(names), 9)
        damaged = []
        for name in names * (5 if LONG else 1):
            run = self.random.choice(runs)
            others = {path: path.stat() for path in self.results.rglob("seed=*/*") if path.parent != run}
            how = self.damage(run / name)
            damaged.append(f"{name}: {how}")
            print(damaged[-1], flush=True)
            for who, command in self.readers().items():
                draws = who in ("plot", "report")
                if draws and how == "gone" and name not in ("summary.json", "files.json", "metrics.csv"):
                    continue  # figures accept that files were not copied (tests/plots/comparison_cases.py)
                if LONG or not draws or name == {"plot": "metrics.csv", "report": "summary.json"}[who]:
                    self.found_by(command, run / name)
            self.assertEqual(list(self.results.rglob("plots")), [])
            self.found_by([PROGRAM, "check", file], run.relative_to(self.directory) / name, status=0)
            _, err = self.finish(self.start(file, "--quiet"))
            self.assertIn(f"{run}/" if name == "files.json" else str(run / name), err)
            self.assertEqual(files_below(self.results / NAME, "metrics.csv", "steps.csv"), reference)
            for path, before in others.items():
                self.assertEqual((path.stat().st_ino, path.stat().st_mtime_ns), (before.st_ino, before.st_mtime_ns), path)
        print(f"{len(damaged)} files damaged", flush=True)

    def test_what_stands_beside_runs(self):
        file = self.write(TRAINED_RUNS + CLAIM + TUNED)
        self.finish(self.start(file, "--quiet"))
        readers = self.readers()
        for name, by in (("claims.json", ["claims", "report"]), ("tuning.json", ["table", "report"])):
            path = self.results / NAME / name
            content = path.read_bytes()
            for turn in range(40 if LONG else 4):
                how = ""
                while how in ("", "gone"):
                    path.write_bytes(content)
                    how = self.damage(path)
                for who in by:
                    if LONG or who != "report" or turn == 0:
                        self.found_by(readers[who], path)
            path.write_bytes(content)


if __name__ == "__main__":
    with_own_mounts()
    unittest.main(verbosity=2)
