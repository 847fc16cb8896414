"""Shared by the campaigns on shared sweeps: an experiment of some seconds, processes that share it, and checks of the
results directory during the campaign and at its end.

Needs SYNCOPATE_PROGRAM. SYNCOPATE_SEED repeats a campaign with the printed seed.
"""

import json
import os
import random
import subprocess
import tempfile
import unittest
import zlib
from pathlib import Path

PROGRAM = os.environ["SYNCOPATE_PROGRAM"]
NAME = "sweep"

# A run takes some tenths of a second. It has few steps of many micro-batches, so its files are small.
EXPERIMENT = """name = "sweep"
seeds = {seeds}
[cluster]
workers = 16
micro_batch_s = 0.01
micro_batches = {micro_batches}
[network]
kind = "free"
[[delays]]
kind = "exponential"
mean = 0.005
[training]
model = "none"
parameters = 10
[budget]
steps = 20
[[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "dropcompute"
threshold_s = {threshold_s}
[sweep]
"cluster.workers" = [16, 12, 8]
"""

TRAINED = """name = "sweep"
seeds = [1, 2, 3]
[cluster]
workers = 4
micro_batch_s = 0.01
micro_batches = 4
[network]
kind = "free"
[[delays]]
kind = "exponential"
mean = 0.005
[training]
model = "linear"
dataset = "gaussian-mixture"
micro_batch_size = 16
optimizer.name = "sgd"
learning_rate = {{ schedule = "constant", peak = 0.1 }}
[training.common]
steps = {phase_steps}
[datasets.gaussian-mixture]
train = 2000
test = 500
[budget]
steps = {steps}
[[methods]]
algorithm = "sync-sgd"
[[methods]]
algorithm = "dropcompute"
threshold_s = 0.06
[[methods]]
algorithm = "local-sgd"
period = {{ rule = "constant", steps = 4 }}
"""


def run_directories(results: Path) -> list[Path]:
    """The run directories with their final names. Hidden folders may disappear during the search, and rglob would
    fail."""
    found = []
    for place, folders, _ in os.walk(results):
        folders[:] = [folder for folder in folders if not folder.startswith(".")]
        found += [Path(place) / folder for folder in folders if folder.startswith("seed=")]
    return found


def files_below(directory: Path, *names: str) -> dict[str, bytes]:
    """File contents by their paths below the experiment's directory, without hidden folders."""
    found = {}
    for path in directory.rglob("*"):
        relative = path.relative_to(directory)
        if path.name in names and not any(part.startswith(".") for part in relative.parts):
            found[str(relative)] = path.read_bytes()
    return found


class SharedSweep(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)
        self.results = self.directory / "results"
        self.seed = int(os.environ.get("SYNCOPATE_SEED", random.SystemRandom().randrange(2**32)))
        self.random = random.Random(self.seed)
        print(f"{self.id()}: SYNCOPATE_SEED={self.seed}", flush=True)
        self.started = []
        self.addCleanup(self.end_all)

    def end_all(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def write(self, text: str) -> Path:
        file = self.directory / "sweep.toml"
        file.write_text(text, encoding="utf-8")
        return file

    def start(self, file: Path, *arguments: str, results: Path | None = None) -> subprocess.Popen:
        command = [PROGRAM, "run", str(file), "--results", str(results or self.results), "--threads", "1", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen, status: int = 0) -> tuple[str, str]:
        out, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def reference(self, file: Path) -> dict[str, bytes]:
        """The results of an undisturbed sweep by one process."""
        results = self.directory / "undisturbed"
        self.finish(self.start(file, "--quiet", results=results))
        return files_below(results / NAME, "metrics.csv", "steps.csv")

    def status(self) -> dict:
        done = subprocess.run([PROGRAM, "status", str(self.results / NAME), "--json"], capture_output=True, text=True,
                              check=False)
        return json.loads(done.stdout)[0] if done.returncode == 0 else {"running": [], "finished": 0}

    def check_published(self):
        """Checks that each run directory with its final name is complete, by its list of files."""
        for directory in run_directories(self.results):
            listed = json.loads((directory / "files.json").read_text(encoding="utf-8"))
            names = {path.name for path in directory.iterdir()} - {"files.json"}
            files = listed["files"] if "files" in listed else listed
            self.assertEqual(names, set(files), directory)
            for name, said in files.items():
                content = (directory / name).read_bytes()
                self.assertEqual(len(content), said["bytes"], directory / name)
                self.assertEqual(f"{zlib.crc32(content):08x}", said["crc32"], directory / name)

    def check_ended(self, reference: dict[str, bytes]):
        """Checks that results equal those of the undisturbed sweep, and that no temporary files are left."""
        self.check_published()
        self.assertEqual(files_below(self.results / NAME, "metrics.csv", "steps.csv"), reference)
        self.assertEqual(list((self.results / NAME / ".shared" / "leases").iterdir()), [])
        hidden = [path for path in self.results.rglob(".*") if path.name != ".shared"]
        self.assertEqual(hidden, [])
