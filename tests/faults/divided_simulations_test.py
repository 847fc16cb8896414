"""Simulations that two processes divide. One or both processes are killed at random moments and started again. Other
cases: one process cannot write its part of a checkpoint, sees another results directory, or has another processor.

Needs SYNCOPATE_PROGRAM and SYNCOPATE_MPIEXEC. SYNCOPATE_LONG=1 runs the long set. SYNCOPATE_SEED repeats a campaign
with the printed seed.
"""

import os
import platform
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from shared_sweep import NAME, PROGRAM, SharedSweep, files_below

LONG = os.environ.get("SYNCOPATE_LONG") == "1"
PROCESSES = 2
LONGEST_PAUSE_S = 3

# A run takes a second or two.
EXPERIMENT = """name = "sweep"
[cluster]
workers = 8
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "free"
[[delays]]
kind = "exponential"
mean = 0.005
[training]
model = "mlp"
dataset = "gaussian-mixture"
micro_batch_size = 8
optimizer = { name = "sgd", momentum = 0.9 }
learning_rate = { schedule = "constant", peak = 0.1 }
[models.mlp]
hidden = [16]
[datasets.gaussian-mixture]
train = 1280
test = 200
[budget]
steps = 1500
[evaluation]
every_steps = 300
[checkpoint]
every_s = 0.1
"""
LOCAL_SGD = """[[methods]]
algorithm = "local-sgd"
period = { rule = "constant", steps = 4 }
"""
OTHERS = """[[methods]]
algorithm = "sync-sgd"
compression = { name = "top-k", ratio = 0.1, error_feedback = true }
[[methods]]
algorithm = "async-sgd"
[[methods]]
algorithm = "decentralized-sgd"
"""


class Divided(SharedSweep):
    def start(self, file: Path, *arguments: str, results: Path | None = None, second: str = "true") -> subprocess.Popen:
        """Starts both processes. `second`: shell commands that the second process runs first."""
        script = f'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then {second}; fi; exec "$@"'
        command = [os.environ["SYNCOPATE_MPIEXEC"], "--bind-to", "none", "--oversubscribe", "-n", str(PROCESSES),
                   "sh", "-c", script, "sh", PROGRAM, "run", str(file), "--cluster", "simulated", "--threads", "1",
                   "--results", str(results or self.results), *arguments]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMPI_MCA_odls_base_sigkill_timeout": "1", "PRTE_MCA_odls_base_sigkill_timeout": "1"}
        process = subprocess.Popen(command, cwd=self.directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.started.append(process)
        return process

    def of_program(self) -> list[int]:
        """The numbers of the launch's running processes."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "cwd") == str(self.directory.resolve()) \
                        and os.readlink(entry / "exe") == str(Path(PROGRAM).resolve()):
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def checkpoints(self) -> list[str]:
        return [name for _, _, names in os.walk(self.directory) for name in names if ".checkpoint" in name]

    def kill(self) -> int:
        victims = self.of_program()
        victims = self.random.sample(victims, min(len(victims), self.random.choice([1, PROCESSES])))
        for victim in victims:
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(victims)

    def check_ended(self, reference: dict[str, bytes]):
        self.check_published()
        self.assertEqual(files_below(self.results / NAME, "metrics.csv", "steps.csv"), reference)
        left = [path for path in self.results.rglob("*") if ".checkpoint" in path.name or path.name.startswith(".")]
        self.assertEqual(left, [])


class Killed(Divided):
    def test_at_random_moments(self):
        file = self.write(EXPERIMENT + LOCAL_SGD + OTHERS)
        reference = self.reference(file)
        killed, sweeps, goes_on, begins_anew = 0, 0, 0, 0
        begin = time.monotonic()
        while killed < (100 if LONG else 4):
            launch = self.start(file)
            time.sleep(self.random.uniform(0.2, LONGEST_PAUSE_S))
            killed += self.kill()
            _, said = launch.communicate(timeout=60)
            self.assertEqual(self.of_program(), [], "none stays behind")
            self.check_published()
            goes_on += said.count("resumes from its checkpoint")
            begins_anew += said.count("the run starts from the beginning")
            if launch.returncode == 0:  # it ended before the kill
                self.check_ended(reference)
                shutil.rmtree(self.results)
                sweeps += 1
        self.finish(self.start(file, "--quiet"))
        self.check_ended(reference)
        self.assertEqual(begins_anew, 0)
        if LONG:
            self.assertGreater(goes_on, 0)
        print(f"{killed} processes killed, {goes_on} times a run went on from its checkpoint, {sweeps + 1} sweeps, "
              f"{time.monotonic() - begin:.1f} s", flush=True)


class OneOfThem(Divided):
    def goes_on_without(self, why: str, second: str, results: Path | None = None):
        """No checkpoint can be written, and one process reports it once. The run finishes, and no files are left
        over."""
        file = self.write(EXPERIMENT + LOCAL_SGD)
        reference = self.reference(file)
        launch = self.start(file, results=results, second=second)
        most = 0
        while launch.poll() is None:
            most = max(most, len(self.checkpoints()))
            time.sleep(0.02)
        _, said = launch.communicate(timeout=60)
        self.assertEqual(launch.returncode, 0, said)
        self.assertEqual(said.count("no new one was written, and the run continues: "), 1, said)
        self.assertRegex(said, why)
        self.assertLessEqual(most, PROCESSES + 1, "parts do not pile up")
        self.assertEqual(self.checkpoints(), [])
        self.assertEqual(files_below(self.results / NAME, "metrics.csv", "steps.csv"), reference)

    def test_cannot_write_its_part(self):
        # The limit must not apply from the beginning, because MPI makes large files of its own.
        limit = f"{{ (until [ -e '{self.results / NAME}' ]; do sleep 0.01; done; prlimit --fsize=512 --pid $$) & }}"
        self.goes_on_without(r"process 1: File too large; allow larger files \(ulimit -f\)", limit)

    def test_has_another_results_directory(self):
        (self.directory / "elsewhere").mkdir()
        self.goes_on_without(r"process 1: results/sweep does not exist: is the results directory shared\?",
                             "cd elsewhere", Path("results"))

    def test_has_another_results_directory_with_the_same_experiment(self):
        (self.directory / "elsewhere" / "results" / NAME).mkdir(parents=True)
        self.goes_on_without(r"process 0 cannot see the part of process 1: is the results directory shared\?",
                             "cd elsewhere", Path("results"))

    def test_has_another_processor(self):
        """The kernels of the two processes round differently. Each process continues with its own kernels."""
        if platform.machine() != "x86_64":
            self.skipTest("this processor has one kind of kernels that OpenBLAS would use")
        avx512 = "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
        file, second = self.write(EXPERIMENT + LOCAL_SGD), f"export OPENBLAS_CORETYPE={'Haswell' if avx512 else 'Nehalem'}"
        undisturbed = self.directory / "unlike"
        self.finish(self.start(file, "--quiet", results=undisturbed, second=second))
        launch = self.start(file, second=second)
        until = time.monotonic() + 60
        while not any(name.endswith(".checkpoint") for name in self.checkpoints()) and time.monotonic() < until:
            time.sleep(0.01)
        self.kill()
        launch.communicate(timeout=60)
        self.assertNotEqual(launch.returncode, 0, "it had ended")
        _, said = self.finish(self.start(file, second=second))
        self.assertEqual(said.count("resumes from its checkpoint"), 1, said)
        self.assertEqual(files_below(self.results / NAME, "metrics.csv"), files_below(undisturbed / NAME, "metrics.csv"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
