"""Tests with a real Slurm on this machine's loopback address: the distribution's munge, slurmctld and slurmd are
started in a temporary folder. srun and sbatch then start workers under MPI, and processes that share runs.

Needs SYNCOPATE_PROGRAM, and root for slurmd.
"""

import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = os.environ["SYNCOPATE_PROGRAM"]
SCRIPTS = Path(__file__).parents[2] / "experiments" / "slurm"
DAEMONS = ("munged", "slurmctld", "slurmd")

CONFIGURATION = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""

# cred_expire is also the time in seconds that a requeued job waits before it starts again (120 by default).

EXPERIMENT = """name = "slurm"
seeds = {seeds}
[cluster]
workers = {workers}
micro_batch_s = 0.001
micro_batches = 4
pace = "emulate"
[network]
kind = "free"
[[delays]]
kind = "exponential"
mean = 0.001
[training]
model = "quadratic"
optimizer.name = "sgd"
learning_rate = {{ schedule = "constant", peak = 0.1 }}
[budget]
steps = {steps}
[checkpoint]
every_s = 0.2
[[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "dropcompute"
threshold_s = 0.006
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def why_not() -> str:
    search = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [name for name in (*DAEMONS, "srun", "sbatch") if not shutil.which(name, path=search)]
    if missing:
        return f"Slurm is not installed: there is no {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "Slurm is not to be started: slurmd needs root"


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if why_not():
            raise unittest.SkipTest(why_not())
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = Path(temporary.name)
        cls.folder.chmod(0o755)
        for name in ("state", "spool"):
            (cls.folder / name).mkdir()
        cls.daemons = []
        cls.addClassCleanup(cls.stop)
        cls.environment = os.environ | {"SLURM_CONF": str(cls.folder / "slurm.conf"), "SYNCOPATE_PROGRAM": PROGRAM,
                                        "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
                                        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        cls.start()

    @classmethod
    def start(cls):
        host = socket.gethostname().split(".")[0]
        (cls.folder / "slurm.conf").write_text(
            CONFIGURATION.format(host=host, folder=cls.folder, controller=free_port(), daemon=free_port()),
            encoding="utf-8")
        munge = cls.folder / "munge"
        munge.mkdir()
        (munge / "key").write_bytes(os.urandom(128))
        user = "munge" if any(entry.pw_name == "munge" for entry in pwd.getpwall()) else "root"
        for path in (munge / "key", munge):
            path.chmod(0o700 if path.is_dir() else 0o400)
            shutil.chown(path, user, user)
        munge.chmod(0o755)
        as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        cls.launch([*as_user, "munged", "--foreground", "--force", f"--key-file={munge}/key",
                    f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                    f"--seed-file={munge}/seed"])
        cls.wait_for((munge / "socket").exists)
        (cls.folder / "munge.socket").symlink_to(munge / "socket")
        cls.launch(["slurmctld", "-D", "-c"])
        cls.launch(["slurmd", "-D", "-N", host])
        cls.wait_for(lambda: "idle" in cls.output(["sinfo", "--noheader", "--format=%T"]))

    @classmethod
    def launch(cls, command: list[str]):
        log = (cls.folder / f"{len(cls.daemons)}.log").open("wb")
        cls.daemons.append(subprocess.Popen(command, stdout=log, stderr=log, env=cls.environment))
        log.close()

    @classmethod
    def output(cls, command: list[str]) -> str:
        return subprocess.run(command, capture_output=True, text=True, env=cls.environment, check=False, timeout=60).stdout

    @classmethod
    def wait_for(cls, what):
        until = time.monotonic() + 60
        while not what():
            if time.monotonic() > until or any(daemon.poll() is not None for daemon in cls.daemons):
                logs = "\n".join(f"{log}: {log.read_text(errors='replace')[-1500:]}"
                                 for log in sorted(cls.folder.rglob("*.log")))
                raise AssertionError(f"Slurm does not come up\n{logs}")
            time.sleep(0.1)

    @classmethod
    def stop(cls):
        for daemon in reversed(cls.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)

    def call(self, command: list[str], status: int = 0) -> subprocess.CompletedProcess:
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False, timeout=300,
                              cwd=self.directory)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def write(self, seeds: list[int], workers: int, steps: int = 20) -> Path:
        file = self.directory / "slurm.toml"
        file.write_text(EXPERIMENT.format(seeds=seeds, workers=workers, steps=steps), encoding="utf-8")
        return file

    def poll(self, event: str, has_happened):
        until = time.monotonic() + 240
        while not has_happened():
            if time.monotonic() > until:
                outputs = [f"{path.name}: {path.read_text(encoding='utf-8')}" for path in self.directory.glob("out*")]
                self.fail("\n".join([f"not within 240 s: {event}", *outputs]))
            time.sleep(0.1)

    def job(self, name: str) -> dict[str, str]:
        shown = self.output(["scontrol", "--oneliner", "show", "job", name])
        return dict(part.split("=", 1) for part in shown.split() if "=" in part)

    def table(self, results: str) -> str:
        return self.call([PROGRAM, "table", f"{results}/slurm", "--format", "csv"]).stdout

    def metrics(self, results: str) -> dict[str, bytes]:
        folder = self.directory / results
        return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("metrics.csv"))}

    def test_a_method_under_mpi_with_pmix(self):
        file = self.write([1], 3)
        done = self.call(["srun", "--mpi=pmix", "-n", "3", PROGRAM, "run", str(file)])
        self.assertIn("dropcompute", done.stdout)
        metadata = [json.loads(path.read_text(encoding="utf-8")) for path in self.directory.rglob("metadata.json")]
        self.assertEqual([(run["cluster"], run["processes"]) for run in metadata], [("mpi", 3)] * 2)

    def test_tasks_share_an_experiment(self):
        file = self.write([1, 2, 3, 4], 4)
        self.call([PROGRAM, "run", str(file), "--results", "alone", "--quiet"])
        for kind in ("none", "pmix"):
            done = self.call(["srun", f"--mpi={kind}", "-n", "4", PROGRAM, "run", str(file), "--share",
                              "--threads", "1", "--results", kind])
            self.assertEqual(self.metrics(kind), self.metrics("alone"))
            self.assertEqual(done.stdout.count("samples/s"), 2, done.stdout)  # in the one table, which rank 0 prints
            calls = {json.loads(path.read_text(encoding="utf-8"))["call"]
                     for path in (self.directory / kind).rglob("metadata.json")}
            self.assertEqual(len(calls), 1, "one launch")

    def test_the_batch_scripts(self):
        file = self.write([1, 2], 2)
        for script, *more in (("shared_experiment.sh", "--results", "shared"), ("workers_under_mpi.sh", "--results", "mpi")):
            self.call(["sbatch", "--wait", "--ntasks=2", "--cpus-per-task=1", "--mem-per-cpu=1M", "--output=out.txt",
                       str(SCRIPTS / script), str(file), *more])
        self.assertEqual(len(self.metrics("shared")), 4, (self.directory / "out.txt").read_text(encoding="utf-8"))
        self.assertEqual(len(self.metrics("mpi")), 4)

    def test_an_array_whose_tasks_are_disturbed(self):
        """Each of four tasks executes a run. Then the first task is cancelled. The second is requeued, as after a
        preemption. The third gets the signal that announces its time limit."""
        file = self.write([1, 2, 3, 4], 4, steps=10000)
        self.call([PROGRAM, "run", str(file), "checkpoint.write=false", "--results", "alone", "--quiet"])
        job = self.call(["sbatch", "--parsable", "--array=0-3", "--cpus-per-task=1", "--mem-per-cpu=1M",
                         "--output=out%a.txt", str(SCRIPTS / "array.sbatch"), str(file),
                         "--results", "array"]).stdout.strip()
        results = self.directory / "array" / "slurm"
        self.poll("four runs have a checkpoint",
                  lambda: len({path.name.split(".")[0] for path in results.rglob("*.checkpoint*")}) >= 4)
        self.call(["scancel", f"{job}_0"])
        self.call(["scontrol", "requeue", f"{job}_1"])
        self.call(["scancel", "--batch", "--signal=TERM", f"{job}_2"])
        self.poll("the array has ended", lambda: not self.output(["squeue", "--noheader", f"--jobs={job}"]).strip())

        tasks = [self.job(f"{job}_{task}") for task in range(4)]
        self.assertEqual([(task["JobState"], task["Restarts"]) for task in tasks],
                         [("CANCELLED", "0"), ("COMPLETED", "1"), ("COMPLETED", "1"), ("COMPLETED", "0")])
        outputs = [(self.directory / f"out{task}.txt").read_text(encoding="utf-8") for task in range(4)]
        finished = re.findall(r"run (\d+) of 8: .*: finished after", "".join(outputs))
        self.assertEqual(sorted(map(int, finished)), list(range(1, 9)), "each run once")
        self.assertIn("resumes from its checkpoint", "".join(outputs))
        # The interrupted tasks gave up their leases of runs. Otherwise other tasks would have taken the runs over.
        self.assertNotIn("taken over", "".join(outputs))
        self.assertEqual([text.count("samples/s") for text in outputs], [0, 2, 2, 2])  # twice in a table
        self.assertEqual(self.metrics("array"), self.metrics("alone"))
        self.assertEqual(self.table("array"), self.table("alone"))
        self.assertEqual(list((results / ".shared" / "leases").iterdir()), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
