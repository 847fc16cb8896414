"""Tests with a real Slurm on this machine's loopback address: the distribution's munge, slurmctld and slurmd are
started in a temporary folder. srun and sbatch then start workers under MPI, and processes that share runs.

Needs SYNCOPATE_PROGRAM, and root for slurmd.
"""

import json
import os
import pwd
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
AuthInfo=socket={folder}/munge.socket
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
steps = 20
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

    def write(self, seeds: list[int], workers: int) -> Path:
        file = self.directory / "slurm.toml"
        file.write_text(EXPERIMENT.format(seeds=seeds, workers=workers), encoding="utf-8")
        return file

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

    def test_an_array_of_jobs(self):
        file = self.write([1, 2], 2)
        self.call([PROGRAM, "run", str(file), "--results", "alone", "--quiet"])
        self.call(["sbatch", "--wait", "--array=1-3", "--ntasks=1", "--cpus-per-task=1", "--mem-per-cpu=1M",
                   "--output=out%a.txt", str(SCRIPTS / "shared_experiment.sh"), str(file), "--results", "array"])
        self.assertEqual(self.metrics("array"), self.metrics("alone"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
