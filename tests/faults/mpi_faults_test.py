"""Ranks of a run under MPI are killed, stopped for five seconds, or late, for a method of every family.

If a rank is killed, the job ends within ten seconds and says which rank was lost and what is kept, and finished runs
are complete. If a rank is stopped or late, the run continues to its end, and its accounts show the time.

Needs SYNCOPATE_PROGRAM and SYNCOPATE_MPIEXEC. SYNCOPATE_LONG=1 runs the long set. SYNCOPATE_SEED repeats a campaign
with the printed seed.
"""

import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import zlib
from pathlib import Path

PROGRAM, MPIEXEC = os.environ["SYNCOPATE_PROGRAM"], os.environ["SYNCOPATE_MPIEXEC"]
LONG = os.environ.get("SYNCOPATE_LONG") == "1"
STOPPED_S = 5
MICRO_BATCH_S = 0.02
WORKERS = 3
AT_ONCE = 3  # launches at a time; their ranks sleep nearly always

# Two runs: once the first one has finished, the second one is running.
EXPERIMENT = """name = "ranks"
[cluster]
workers = {workers}
micro_batch_s = {micro_batch_s}
pace = "emulate"
[network]
kind = "free"
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 8
optimizer.name = "sgd"
learning_rate = {{ schedule = "constant", peak = 0.1 }}
[datasets.gaussian-mixture]
train = 400
test = 40
[evaluation]
every_steps = 20
[sweep]
"budget.steps" = [4, {steps}]
[[methods]]
{method}
"""
# By family: keys of methods, and their numbers of servers.
METHODS = {
    "synchronous": [('algorithm = "sync-sgd"', 0), ('algorithm = "dropcompute"\nthreshold_s = 1.0', 0)],
    "quorum": [('algorithm = "backup-workers"\nbackups = 1', 1), ('algorithm = "eager-sgd"\nactivation = "majority"', 0)],
    "local_sgd": [('algorithm = "local-sgd"\nperiod = { rule = "constant", steps = 4 }', 0),
                  ('algorithm = "dynamic-averaging"\nthreshold = 0.01\ncheck_every = 2', 1)],
    "asynchronous": [('algorithm = "async-sgd"', 1), ('algorithm = "async-local-sgd"\nlocal_steps = 4\nupdate = { name = "plain" }', 1)],
    "gossip": [('algorithm = "decentralized-sgd"', 0), ('algorithm = "ad-psgd"', 0)],
    "gradient_coding": [('algorithm = "gradient-coding"\ncode = "cyclic"\nstragglers = 1', 1)],
}


class Launch:
    """One launch by mpirun, in its own directory."""

    def __init__(self, directory: Path, method: str, servers: int, steps: int, late: int | None = None):
        self.directory, self.ranks = directory, WORKERS + servers
        directory.mkdir()
        (directory / "e.toml").write_text(
            EXPERIMENT.format(workers=WORKERS, method=method, steps=steps, micro_batch_s=MICRO_BATCH_S), encoding="utf-8")
        program = [PROGRAM, "run", "e.toml", "--quiet", "--results", "results"]
        command = [MPIEXEC, "--bind-to", "none", "--oversubscribe"]
        if late is None:
            command += ["-n", str(self.ranks), *program]
        else:  # this rank starts later
            script = f'[ "$OMPI_COMM_WORLD_RANK" = {late} ] && sleep {STOPPED_S}; exec "$@"'
            command += ["-n", str(self.ranks), "sh", "-c", script, "sh", *program]
        # By default mpirun kills surviving ranks a second after it told them to end. On a busy machine they print no
        # messages by then.
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_odls_base_sigkill_timeout": "4", "PRTE_MCA_odls_base_sigkill_timeout": "4"}
        self.process = subprocess.Popen(command, cwd=directory, env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def rank_processes(self) -> dict[int, int]:
        """The numbers of the ranks' processes, by rank."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.readlink(entry / "cwd") != str(self.directory) or os.readlink(entry / "exe") != str(Path(PROGRAM).resolve()):
                    continue
                for setting in (entry / "environ").read_bytes().split(b"\0"):
                    if setting.startswith(b"OMPI_COMM_WORLD_RANK="):
                        found[int(setting.partition(b"=")[2])] = int(entry.name)
            except OSError:
                continue
        return found

    def finished(self) -> list[Path]:
        # Leaves out hidden folders: they may disappear during the search, and glob would fail.
        return sorted(self.directory.glob("results/ranks/[!.]*/seed=*/summary.json"))

    def wait_for_the_second_run(self) -> dict[int, int]:
        until = time.monotonic() + 120
        while not self.finished():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until, "the first run has not come to its end"
            time.sleep(0.02)
        ranks = self.rank_processes()
        assert len(ranks) == self.ranks, ranks
        return ranks

    def end(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out + err


def whole(directory: Path) -> bool:
    listed = json.loads((directory / "files.json").read_text(encoding="utf-8"))["files"]
    return all(len(content := (directory / name).read_bytes()) == said["bytes"] and f"{zlib.crc32(content):08x}" == said["crc32"]
               for name, said in listed.items())


class Ranks(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name).resolve()
        self.seed = int(os.environ.get("SYNCOPATE_SEED", random.SystemRandom().randrange(2**32)))
        self.random = random.Random(self.seed)
        print(f"{self.id()}: SYNCOPATE_SEED={self.seed}", flush=True)

    def for_all_families(self, disturb, repeats: int) -> None:
        """Calls `disturb(name, method, servers, random)` for methods, several at a time. A failure of any call fails
        the test."""
        cases = [(f"{family}-{turn}", *(methods[turn % len(methods)] if LONG else self.random.choice(methods)),
                  random.Random(self.random.random()))
                 for turn in range(repeats) for family, methods in METHODS.items()]
        faults, lock = [], threading.Lock()

        def work():
            while True:
                with lock:
                    if not cases:
                        return
                    case = cases.pop()
                try:
                    disturb(*case)
                except BaseException as fault:  # failures of all kinds are reported below
                    with lock:
                        faults.append(f"{case[0]}, {case[1]}: {fault}")

        threads = [threading.Thread(target=work) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(faults, [], "\n\n".join(faults))


class Killed(Ranks):
    def kill(self, name: str, method: str, servers: int, own: random.Random) -> None:
        launch = Launch(self.directory / name, method, servers, steps=100000)
        try:
            ranks = launch.wait_for_the_second_run()
            time.sleep(own.uniform(0, 0.5))
            victim = own.randrange(launch.ranks)
            os.kill(ranks[victim], signal.SIGKILL)
            begin = time.monotonic()
            status, said = launch.end()
            took_s = time.monotonic() - begin
        finally:
            launch.process.kill()
        self.assertNotIn(status, (0, 130), said)
        self.assertLess(took_s, 10, said)
        # Open MPI 5 shows only a part of the ranks' messages, but names the rank itself.
        self.assertRegex(said, rf"rank {victim} on host \S+ was lost: killed, or crashed; finished runs stay|"
                               rf"prterun noticed that process rank {victim} with")
        self.assertNotIn("interrupted", said)
        kept = launch.finished()
        self.assertEqual(len(kept), 1)
        self.assertTrue(whole(kept[0].parent))
        self.assertEqual(launch.rank_processes(), {})
        print(f"killed: {name}, rank {victim}: the job ended {took_s:.1f} s later", flush=True)

    def test_the_job_ends_and_says_who_was_lost(self):
        self.for_all_families(self.kill, 10 if LONG else 1)


class Stopped(Ranks):
    def accounts(self, launch: Launch) -> dict:
        summaries = [json.loads(file.read_text(encoding="utf-8")) for file in launch.finished()]
        self.assertEqual(len(summaries), 2)
        self.assertEqual([summary["status"] for summary in summaries], ["finished"] * 2)
        return max(summaries, key=lambda summary: summary["steps"])

    def stop(self, name: str, method: str, servers: int, own: random.Random) -> None:
        launch = Launch(self.directory / name, method, servers, steps=400)
        try:
            ranks = launch.wait_for_the_second_run()
            # The run takes 8 s and has begun by now, even on a busy machine. Waiting before its start is not counted.
            time.sleep(own.uniform(1.5, 3.5))
            stopped = own.randrange(launch.ranks)
            os.kill(ranks[stopped], signal.SIGSTOP)
            time.sleep(STOPPED_S)
            os.kill(ranks[stopped], signal.SIGCONT)
            status, said = launch.end()
        finally:
            launch.process.kill()
        self.assertEqual(status, 0, said)
        summary = self.accounts(launch)
        seconds = summary["worker_seconds"]["per_worker"]
        each = [sum(seconds[activity][worker] for activity in seconds) for worker in range(WORKERS)]
        for total in each:  # every second of every worker belongs to one of five activities
            self.assertAlmostEqual(total, summary["end_time_s"], delta=1e-6 * WORKERS)
        # The stop is visible in one of these ways: other workers waited; the stopped worker took longer, also to send;
        # all workers took longer, if they were in a collective; the stopped worker's work was too late for any round;
        # or less of this work was kept.
        least_s = 0.8 * STOPPED_S
        busy, kept = [sum(times) for times in zip(seconds["compute"], seconds["discarded"])], summary["kept_micro_batches_per_worker"]
        shown = {"waited": max(seconds["wait"]) > least_s, "all sent for longer": min(seconds["communicate"]) > least_s}
        if stopped < WORKERS:
            others = [worker for worker in range(WORKERS) if worker != stopped]
            shown["took longer"] = busy[stopped] - max(busy[other] for other in others) > least_s
            sent = seconds["communicate"]
            shown["sent for longer"] = sent[stopped] - max(sent[other] for other in others) > least_s
            shown["was too late"] = seconds["discarded"][stopped] > least_s
            shown["is kept less"] = min(kept[other] for other in others) - kept[stopped] > 0.5 * least_s / MICRO_BATCH_S
        print(f"stopped: {name}, rank {stopped}: {', '.join(how for how, is_so in shown.items() if is_so)}", flush=True)
        self.assertTrue(any(shown.values()), f"{seconds}, kept {kept}")

    def test_the_run_goes_on_and_its_accounts_show_it(self):
        self.for_all_families(self.stop, 6 if LONG else 1)

    def late(self, name: str, method: str, servers: int, own: random.Random) -> None:
        launch = Launch(self.directory / name, method, servers, steps=10, late=own.randrange(WORKERS + servers))
        try:
            status, said = launch.end()
        finally:
            launch.process.kill()
        self.assertEqual(status, 0, said)
        self.assertLess(self.accounts(launch)["end_time_s"], STOPPED_S, "all begin together")

    def test_a_rank_that_comes_late_is_waited_for(self):
        self.for_all_families(self.late, 2) if LONG else self.late("late", *METHODS["asynchronous"][0], self.random)


if __name__ == "__main__":
    unittest.main(verbosity=2)
