"""Campaigns on sweeps that several processes share. Processes are killed at random moments and started again, or
stopped for longer than the time-out of their leases.

Needs SYNCOPATE_PROGRAM. SYNCOPATE_LONG=1 runs the long set. SYNCOPATE_SEED repeats a campaign with the printed seed.
"""

import os
import re
import shutil
import signal
import time
import unittest
from collections import Counter
from pathlib import Path

from shared_sweep import EXPERIMENT, NAME, TRAINED, SharedSweep, files_below

LONG = os.environ.get("SYNCOPATE_LONG") == "1"
TIME_OUT_S = 0.6


class Killed(SharedSweep):
    def campaign(self, text: str, kills: int, longest_pause_s: float):
        """Repeatedly, one or all processes are killed at a random moment and started again."""
        file = self.write(text)
        reference = self.reference(file)
        begin = time.monotonic()
        processes, killed, sweeps = [], 0, 0
        while killed < kills:
            while len(processes) < 3:
                processes.append(self.start(file, "--share", "--quiet", "--lease-timeout", str(TIME_OUT_S)))
            time.sleep(self.random.uniform(0, longest_pause_s))
            for process in self.random.sample(processes, self.random.choice([1, 1, 3])):
                if process.poll() is None:
                    killed += 1
                process.kill()
                process.communicate()
                processes.remove(process)
            self.check_published()
            ended = [process for process in processes if process.poll() is not None]
            if ended:  # the sweep has finished: check it, and start another one
                for process in processes:
                    process.communicate(timeout=60)
                processes = []
                self.finish(self.start(file, "--share", "--quiet"))
                self.check_ended(reference)
                shutil.rmtree(self.results)
                sweeps += 1
        for process in processes:
            process.kill()
            process.communicate()
        self.finish(self.start(file, "--share", "--quiet"))
        self.check_ended(reference)
        print(f"{killed} processes killed, {sweeps + 1} sweeps, {time.monotonic() - begin:.1f} s", flush=True)

    def test_at_random_moments(self):
        self.campaign(EXPERIMENT.format(seeds=[1, 2], micro_batches=40000, threshold_s=600), 200 if LONG else 8, 0.6)

    def test_with_a_common_phase_that_is_trained(self):
        self.campaign(TRAINED.format(phase_steps=100, steps=200), 200 if LONG else 6, 1.5)


class Stopped(SharedSweep):
    def a_sweep_of(self, processes: int, stops: int):
        """The owner of a lease is stopped for longer than the time-out, and then continues."""
        file = self.write(EXPERIMENT.format(seeds=[1], micro_batches=100000, threshold_s=1500))
        reference = self.reference(file)
        shared = [self.start(file, "--share", "--lease-timeout", str(TIME_OUT_S)) for _ in range(processes)]
        numbers = {process.pid for process in shared}
        stopped = 0
        while stopped < stops and all(process.poll() is None for process in shared):
            running = [run["process"] for run in self.status()["running"] if run["process"] in numbers]
            if not running:
                time.sleep(0.02)
                continue
            owner = self.random.choice(running)
            time.sleep(self.random.uniform(0, 0.1))
            os.kill(owner, signal.SIGSTOP)
            time.sleep(2.5 * TIME_OUT_S)
            os.kill(owner, signal.SIGCONT)
            stopped += 1
            time.sleep(self.random.uniform(0, 0.3))
        self.assertGreaterEqual(stopped, 1)
        said = [self.finish(process) for process in shared]
        errors = "".join(err for _, err in said)
        published = Counter(re.findall(r"^run (\d+) of 6: .*: finished after", errors, re.MULTILINE))
        self.assertEqual(published, Counter(str(number) for number in range(1, 7)), errors)
        late = re.findall(r"another process has taken it over|another process has published it", errors)
        self.check_ended(reference)
        tables = {out for out, _ in said}
        self.assertEqual(len(tables), 1)
        return stopped, len(late), errors

    def test_for_longer_than_the_time_out(self):
        stopped, late, errors = self.a_sweep_of(2, 1)
        print(f"{stopped} stopped, {late} late", flush=True)

    if LONG:
        def test_among_many(self):
            for processes in (2, 3, 4):
                for _ in range(8):
                    stopped, late, _ = self.a_sweep_of(processes, 3)
                    print(f"{processes} processes, {stopped} stopped, {late} late", flush=True)
                    shutil.rmtree(self.results)
                    shutil.rmtree(self.directory / "undisturbed")


class LateOwner(SharedSweep):
    def test_notices_and_says_so(self):
        """There is only one run. While its owner is stopped, the other process takes it over."""
        one = ["--only", "sync-sgd", "cluster.workers=16"]
        file = self.write(EXPERIMENT.format(seeds=[1], micro_batches=400000, threshold_s=1))
        share = [*one, "--share", "--lease-timeout", str(TIME_OUT_S)]
        undisturbed = self.directory / "undisturbed"
        self.finish(self.start(file, *one, results=undisturbed))
        first = self.start(file, *share)
        self.wait_until_it_runs(first)
        os.kill(first.pid, signal.SIGSTOP)
        second = self.start(file, *share)
        self.wait_until_it_runs(second)
        os.kill(first.pid, signal.SIGCONT)
        (_, of_first), (_, of_second) = self.finish(first), self.finish(second)
        self.assertRegex(of_first, r"another process has (taken it over|published it)")
        self.assertIn(f", process {first.pid}, which was silent for too long", of_second)
        self.assertEqual((of_first + of_second).count(": finished after"), 1)
        self.check_ended(files_below(undisturbed / NAME, "metrics.csv", "steps.csv"))

    def wait_until_it_runs(self, process):
        while not any(run["process"] == process.pid for run in self.status()["running"]):
            self.assertIsNone(process.poll())
            time.sleep(0.02)


class Jobs(SharedSweep):
    def start_jobs(self, *arguments):
        """Starts `run --jobs 3`, and waits until each process makes a run."""
        process = self.start(self.file, "--jobs", "3", *arguments)
        while len(self.status()["running"]) < 3:
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        return process, [run["process"] for run in self.status()["running"]]

    def test_end_within_seconds_of_a_signal_and_leave_nothing(self):
        self.file = self.write(EXPERIMENT.format(seeds=[1], micro_batches=200000, threshold_s=3000))
        for sent in (signal.SIGINT, signal.SIGTERM):
            process, jobs = self.start_jobs()
            begin = time.monotonic()
            process.send_signal(sent)
            _, err = self.finish(process, 130)
            self.assertLess(time.monotonic() - begin, 15, "of a machine that has much else to do")
            self.assertEqual(err.count("interrupted; finished runs stay"), 1, err)
            for job in jobs:
                self.assertFalse(Path(f"/proc/{job}").exists(), job)
            self.check_published()
            self.assertEqual(list((self.results / NAME / ".shared" / "leases").iterdir()), [])

    def test_one_that_is_killed_is_followed_by_another(self):
        self.file = self.write(EXPERIMENT.format(seeds=[1], micro_batches=100000, threshold_s=1500))
        reference = self.reference(self.file)
        process, jobs = self.start_jobs()
        os.kill(jobs[0], signal.SIGKILL)
        _, err = self.finish(process)
        self.assertIn(f"process {jobs[0]} was killed by signal 9 during a run; a new process replaces it", err)
        self.check_ended(reference)

    def test_their_parent_is_killed_and_they_end(self):
        self.file = self.write(EXPERIMENT.format(seeds=[1], micro_batches=100000, threshold_s=1500))
        reference = self.reference(self.file)
        process, jobs = self.start_jobs()
        process.kill()
        process.wait()
        until = time.monotonic() + 30
        while any(is_running(job) for job in jobs) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual([job for job in jobs if is_running(job)], [])
        # The kernel may signal processes twice. At the second signal they end at once and keep their leases.
        self.finish(self.start(self.file, "--share", "--quiet"))
        self.check_ended(reference)


def is_running(process: int) -> bool:
    """Whether the process runs. False for a zombie, which has ended but was not yet waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main(verbosity=2)
