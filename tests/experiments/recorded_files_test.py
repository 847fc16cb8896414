"""The program's recordings, read with Python's json, gzip and csv: trace.json.gz obeys the rules of the viewers that
open it, and its times add up to those in summary.json; durations.csv.gz contains every finished micro-batch; NumPy
reads parameters.npy.

Needs SYNCOPATE_PROGRAM and SYNCOPATE_MPIEXEC.
"""

import csv
import gzip
import json
import os
import re
import subprocess
import tempfile
import time
import tomllib
import unittest
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import numpy as np

ACTIVITIES = ["compute", "discarded", "wait", "communicate", "down"]
EXAMPLES = Path(__file__).parents[2] / "experiments" / "examples"
EXPERIMENT, REALITY = EXAMPLES / "timeline.toml", EXAMPLES / "reality.toml"


def ns(microseconds: float) -> int:
    """Nanoseconds as computed by viewers that truncate. The program writes numbers that truncation does not change."""
    return int(microseconds * 1000)


class RecordedFiles(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def run_program(self, *overrides: str, ranks: int = 0, experiment: Path = EXPERIMENT) -> list[Path]:
        """Runs the program; returns the runs' directories."""
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        launcher = [os.environ["SYNCOPATE_MPIEXEC"], "--oversubscribe", "-n", str(ranks)] if ranks else []
        done = subprocess.run([*launcher, os.environ["SYNCOPATE_PROGRAM"], "run", str(experiment), "--results",
                               str(self.directory), *overrides], capture_output=True, text=True, env=environment,
                              check=False, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(path.parent for path in self.directory.rglob("summary.json"))

    def read_trace(self, run: Path) -> dict:
        with gzip.open(run / "trace.json.gz", "rt", encoding="utf-8") as file:
            return json.load(file)

    def tracks_of(self, trace: dict) -> dict[int, list[dict]]:
        """Complete events by thread. Checks each event."""
        tracks = defaultdict(list)
        for event in trace["traceEvents"]:
            self.assertGreater(event["pid"], 0)
            if event["ph"] == "M":
                self.assertEqual(event["ts"], 0)
                continue
            self.assertEqual(event["ph"], "X")
            self.assertGreater(event["tid"], 0)
            self.assertIn(event["name"], ACTIVITIES)
            self.assertIsInstance(event["ts"], (int, float))
            self.assertGreater(ns(event["dur"]), 0)  # viewers drop events without a length
            self.assertTrue(event["args"]["what"])
            tracks[event["tid"]].append(event)
        return tracks

    def check_track(self, track: list[dict], until_ns: int) -> dict[str, int]:
        """Nanoseconds by activity of a track. Checks that it has no gaps and overlaps."""
        sums = dict.fromkeys(ACTIVITIES, 0)
        reached = 0
        for event, following in zip(track, [*track[1:], None]):
            begin, end = ns(event["ts"]), ns(following["ts"]) if following else until_ns
            self.assertEqual(begin, reached)
            self.assertEqual(round(event["dur"] * 1000), end - begin)
            if following:
                # Even in floating-point numbers, an event's begin plus its length is not after the next event's begin.
                self.assertLessEqual(event["ts"] + event["dur"], following["ts"])
                # speedscope distinguishes adjacent events from nested ones by name and arguments.
                self.assertNotEqual((event["name"], event["args"]), (following["name"], following["args"]))
            sums[event["name"]] += end - begin
            reached = end
        self.assertEqual(reached, until_ns)
        return sums

    def check_link(self, track: list[dict], until_ns: int):
        """Checks that a direction of a link carries only one message at a time."""
        for event, following in zip(track, track[1:]):
            self.assertLessEqual(ns(event["ts"]) + round(event["dur"] * 1000), ns(following["ts"]))
        self.assertTrue(all(ns(event["ts"]) <= until_ns for event in track))

    def check_trace(self, run: Path, servers: int) -> int:
        """Number of complete events."""
        trace, summary = self.read_trace(run), json.loads((run / "summary.json").read_text())
        workers, until_ns = trace["otherData"]["workers"], round(trace["otherData"]["until_s"] * 1e9)
        self.assertEqual(trace["displayTimeUnit"], "ms")
        metadata = json.loads((run / "metadata.json").read_text())
        expected = {key: summary[key] for key in ("experiment", "method", "seed", "hash")}
        expected |= {"cluster": metadata["cluster"], "servers": servers, "end_s": summary["end_time_s"]}
        self.assertEqual({key: trace["otherData"][key] for key in expected}, expected)
        names = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"]
        of_server = ["server", "server, in", "server, out"]  # with both directions of its link if links are shared
        self.assertIn(names[workers:], ([], of_server[:1], of_server))
        self.assertEqual(names[:workers], [f"worker {worker}" for worker in range(workers)])
        self.assertEqual("server" in names, servers == 1)
        tracks = self.tracks_of(trace)
        self.assertEqual(sorted(tracks), list(range(1, len(names) + 1)))
        for thread, track in tracks.items():
            if thread > workers + servers:
                self.check_link(track, until_ns)
                continue
            sums = self.check_track(track, until_ns)
            if thread > workers or trace["otherData"]["capped"]:
                continue
            for activity, total in sums.items():
                booked = summary["worker_seconds"]["per_worker"][activity][thread - 1]
                self.assertEqual(total, round(booked * 1e9), f"{run.parent.name}, worker {thread - 1}, {activity}")
        return sum(len(track) for track in tracks.values())

    def check_durations(self, run: Path) -> list[dict]:
        with gzip.open(run / "durations.csv.gz", "rt", encoding="utf-8", newline="") as file:
            self.assertEqual(file.readline(), "worker,step,micro_batch,duration_s,added_s\n")
            file.seek(0)
            rows = list(csv.DictReader(file))
        slots = [tuple(int(row[key]) for key in ("worker", "step", "micro_batch")) for row in rows]
        self.assertEqual(slots, sorted(slots))
        for row in rows:
            self.assertRegex(row["duration_s"], r"^\d+\.\d{9}$")
            self.assertRegex(row["added_s"], r"^\d+\.\d{9}$")
        return rows

    def test_simulated_runs(self):
        runs = self.run_program("budget.steps=30")
        self.assertEqual(len(runs), 5)
        for run in runs:
            with self.subTest(run.parent.name):
                has_server = run.parent.name in ("backup-workers", "asynchronous-sgd")
                self.check_trace(run, servers=int(has_server))
                trace = self.read_trace(run)
                self.assertFalse(trace["otherData"]["capped"])
                rows = self.check_durations(run)
                took = {(int(row["worker"]), int(row["step"]), int(row["micro_batch"])): Decimal(row["duration_s"])
                        for row in rows}
                for row in rows:
                    slow = Decimal("1.5") if row["worker"] == "7" else 1
                    base = Decimal(row["duration_s"]) - Decimal(row["added_s"])
                    self.assertLessEqual(abs(base - slow * Decimal("0.05")), Decimal("1e-9"))
                # Times that the timeline shows in full equal the recorded ones, to the nanosecond.
                end = max(event["ts"] + event["dur"] for event in trace["traceEvents"] if event["ph"] == "X")
                for event in trace["traceEvents"]:
                    if event["name"] == "compute" and event["ts"] + event["dur"] < end:
                        slot = (event["tid"] - 1, event["args"]["step"], event["args"]["micro_batch"])
                        self.assertEqual(Decimal(round(event["dur"] * 1000)) / 10**9, took[slot])

    def test_parameters_are_arrays_of_numpy(self):
        """A linear model has P = (features + 1) x classes parameters. An ensemble has a row for each of its four
        members. Their mean is the last model of the same training with averaging."""
        methods = ("methods=[{label='mean',algorithm='branch-train-merge'},"
                   "{label='members',algorithm='branch-train-merge',merge='ensemble'}]")
        runs = self.run_program(methods, "budget.steps=6", "recording.parameters=true", experiment=REALITY)
        mean, members = (np.load(run / "parameters.npy", allow_pickle=False) for run in runs)
        config = tomllib.loads((runs[0] / "config.toml").read_text())["datasets"]["gaussian-mixture"]
        size = (config["dimension"] + 1) * config["classes"]
        self.assertEqual((mean.dtype, mean.shape, members.shape), (np.float32, (size,), (4, size)))
        np.testing.assert_allclose(members.mean(axis=0, dtype=np.float64), mean, rtol=0, atol=1e-6)
        self.assertGreater(np.ptp(members, axis=0).max(), 1e-3)

    def test_a_limit_of_events_is_said_and_kept(self):
        for run in self.run_program("budget.steps=60", "recording.trace_events=400", "recording.durations=false"):
            with self.subTest(run.parent.name):
                events = self.check_trace(run, servers=len(re.findall("backup|asynchronous", run.parent.name)))
                about = self.read_trace(run)["otherData"]
                self.assertLessEqual(events, 400 + 9 * 4)  # plus steps that had begun before the limit
                self.assertTrue(about["capped"])
                self.assertLess(about["until_s"], about["end_s"])
                self.assertFalse((run / "durations.csv.gz").exists())

    def test_runs_under_mpi(self):
        runs = self.run_program("cluster.workers=2", "methods.backup workers.backups=1", "cluster.micro_batch_s=0.002",
                                "network.latency_s=0", "methods.DropCompute.threshold_s=0.013", "budget.steps=8",
                                ranks=3)
        self.assertEqual(len(runs), 5)
        for run in runs:
            with self.subTest(run.parent.name):
                self.check_trace(run, servers=len(re.findall("backup|asynchronous", run.parent.name)))
                rows = self.check_durations(run)
                self.assertEqual({row["worker"] for row in rows}, {"0", "1"})
                for row in rows:
                    self.assertGreaterEqual(Decimal(row["duration_s"]), Decimal(row["added_s"]) + Decimal("0.002"))

    def test_arrivals_under_mpi(self):
        """There is a row for every worker and round. The row of steps.csv ends with the last of them, or later."""
        runs = self.run_program("cluster.workers=2", "methods.backup workers.backups=1", "cluster.micro_batch_s=0.002",
                                "network.latency_s=0", "methods.DropCompute.threshold_s=0.013", "budget.steps=8",
                                "recording.trace=false", "recording.arrivals=true", ranks=3)
        for run in runs:
            with (self.subTest(run.parent.name),
                  gzip.open(run / "arrivals.csv.gz", "rt", encoding="utf-8", newline="") as file):
                rows = list(csv.DictReader(file))
                summary = json.loads((run / "summary.json").read_text())
                rounds = defaultdict(list)
                for row in rows:
                    rounds[int(row["step"])].append(row)
                for of_round in rounds.values():
                    self.assertEqual([int(row["k"]) for row in of_round], list(range(1, len(of_round) + 1)))
                    times = [float(row["arrival_s"]) for row in of_round]
                    self.assertEqual(times, sorted(times))
                    self.assertGreater(times[0], 0.001)
                mean = sum(float(row["arrival_s"]) for row in rows if row["k"] == "1") / summary["arrivals"]["rounds"][0]
                self.assertAlmostEqual(summary["arrivals"]["mean_s"][0], mean, places=9)
                if run.parent.name in ("synchronous-sgd", "dropcompute"):
                    self.assertEqual(sorted(rounds), list(range(1, 9)))
                    self.assertEqual({len(of_round) for of_round in rounds.values()}, {2})
                    with open(run / "steps.csv", encoding="utf-8") as steps:
                        for row in csv.DictReader(steps):
                            last = float(rounds[int(row["step"])][-1]["arrival_s"])
                            self.assertLessEqual(last, float(row["duration_s"]) + 1e-9)

    def test_the_page_on_recording_has_a_recorder_that_works(self):
        page = (EXAMPLES.parents[1] / "workers" / "time" / "data" / "recording.md").read_text(encoding="utf-8")
        scope = {}
        exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], scope)
        header, rows = None, []
        for worker in range(2):
            times = scope["MicroBatchTimes"](worker)
            for step in range(3):
                times.begin_step()
                for micro_batch in range(2):
                    time.sleep(0.004 * (1 + worker + micro_batch))
                    times.end_micro_batch()
            times.write(self.directory / "times.csv")
            header, *own = (self.directory / "times.csv").read_text().splitlines()
            rows += own
        (self.directory / "run.csv").write_text("\n".join([header, *rows]) + "\n")
        done = subprocess.run([os.environ["SYNCOPATE_PROGRAM"], "thresholds", str(self.directory / "run.csv")],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 workers, 3 steps of 2 micro-batches", done.stdout)
        for row in csv.DictReader([header, *rows]):
            asked = 0.004 * (1 + int(row["worker"]) + int(row["micro_batch"]))
            self.assertGreaterEqual(float(row["duration_s"]), asked)

    def test_a_recorded_run_replayed_is_itself(self):
        file = """[cluster]
workers = 4
micro_batches = 3
{base}
[network]
kind = "fixed"
latency_s = 0.001
{delays}
[training]
model = "none"
parameters = 1000
[budget]
steps = 30
[recording]
durations = true
[[methods]]
algorithm = "sync-sgd"
"""
        recorded, replayed = self.directory / "recorded.toml", self.directory / "replayed.toml"
        recorded.write_text(file.format(base="micro_batch_s = 0.01",
                                        delays='[[delays]]\nkind = "exponential"\nmean = 0.005'))
        [first] = self.run_program(experiment=recorded)
        replayed.write_text(file.format(base=f'[cluster.trace]\nfile = "{first / "durations.csv.gz"}"\nend = "error"',
                                        delays=""))
        [second] = set(self.run_program(experiment=replayed)) - {first}
        for name in ["steps.csv", "metrics.csv"]:
            self.assertEqual((first / name).read_text(), (second / name).read_text())
        # All workers behave like worker 0. So none waits for another one, and a step takes the time of worker 0.
        overrides = [f"cluster.trace.like.{worker}=0" for worker in [1, 2, 3]]
        [third] = set(self.run_program(*overrides, experiment=replayed)) - {first, second}
        summary = json.loads((third / "summary.json").read_text())
        with gzip.open(first / "durations.csv.gz", "rt", encoding="utf-8") as rows:
            own = sum(Decimal(row["duration_s"]) for row in csv.DictReader(rows) if row["worker"] == "0")
        self.assertAlmostEqual(float(own) + 30 * 0.001, summary["end_time_s"], places=8)


if __name__ == "__main__":
    unittest.main()
