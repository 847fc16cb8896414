"""Result directories with known content, in the layout that the program writes, and a test case with a directory for them."""

import contextlib
import gzip
import io
import json
import tempfile
import unittest
import warnings
from pathlib import Path
from zlib import crc32

import numpy as np

from plots.comparison import compare
from plots.plot import main
from plots.runs import read_tables, runs_below

EVALUATIONS = 24
STEPS = 1200
# The first line of the output of `syncopate table --format csv`.
TABLE_HEAD = "experiment,row,method,measure,n,mean,std,against,pairs,difference,low,high,t_p,sign_flip_p\n"

# A claim of claims.json, and a method of tuning.json.
CLAIM = {"sentence": "It is faster.", "measure": "step_time_s", "method": "m", "against": "a", "as": "ratio",
         "where": {"cluster.workers": "32"}, "criterion": {"below": 0.85}, "verdict": "reproduced", "reason": "",
         "paper": {"figure": "18 %", "source": "Table 1", "certainty": "stated"},
         "points": [{"label": "", "n": 3, "mean": 0.8, "interval": [0.79, 0.81], "verdict": "reproduced"}]}
TUNED = {"method": "m", "point": {"variant": "calm"}, "chosen": {"training.learning_rate.peak": "0.2"}, "mean": 0.9,
         "number_of_trials": 4, "extended": ["training.learning_rate.peak"], "at_edge": [],
         "settings": [{"values": {"training.learning_rate.peak": "0.1"}, "mean": None, "trials": []},
                      {"values": {"training.learning_rate.peak": "0.2"}, "mean": 0.9, "trials": []}]}


def write_run(directory: Path, label: str, seed: int, speed: float = 1.0, period: int = 1, drop: float = 0.0,
              accuracy: bool = True, workers: int | None = None, algorithm: str = "x") -> Path:
    """Writes a run of STEPS steps of 0.1 s / speed; its accuracy tends to 0.89, its loss to 0.3."""
    digest = crc32(f"{label} {seed} {workers}".encode())
    run = directory / f"seed={seed}-{digest:08x}"
    run.mkdir(parents=True)
    noise = np.random.default_rng(seed)
    step = np.linspace(0, STEPS, EVALUATIONS + 1).astype(int)
    share = step / STEPS
    value = 0.89 - 0.79 * np.exp(-9 * share) + 0.006 * noise.standard_normal(len(step)) * np.exp(-2 * share)
    loss = 0.3 + 2 * np.exp(-8 * share) + 0.01 * noise.standard_normal(len(step))
    time = step * 0.1 / speed * (1 + 0.02 * seed)
    with open(run / "metrics.csv", "w", encoding="utf-8") as file:
        file.write("step,epoch,samples,time_s,test_loss,test_accuracy,train_loss,learning_rate,communicated_bytes\n")
        for row in zip(step, share * 10, step * 512 * (1 - drop), time, loss, value, loss * 0.9, 0.2 * (1 - share)):
            cells = [f"{cell:.6g}" for cell in row]
            cells[5] = cells[5] if accuracy else ""
            file.write(",".join(cells) + f",{int(row[0]) * 1000000 // period}\n")
    with open(run / "steps.csv", "w", encoding="utf-8") as file:
        file.write("step,time_s,duration_s,kept_micro_batches,dropped_micro_batches,period_steps,bytes\n")
        done, now = 0, 0.0
        while done < STEPS:
            length = min(int(period * max(1, 2 * done / STEPS) ** 4) if period > 1 else 1, STEPS - done)
            duration = float(noise.lognormal(np.log(0.1 / speed * length), 0.25 / np.sqrt(length)))
            done, now = done + length, now + duration
            dropped = int(noise.binomial(64 * length, drop))
            file.write(f"{done},{now:.6f},{duration:.6f},{64 * length - dropped},{dropped},{length},1000000\n")
    summary = {"schema_version": 1, "status": "finished", "method": label, "seed": seed, "steps": STEPS,
               "sweep": [["cluster.workers", str(workers)]] if workers else [], "end_time_s": float(time[-1]),
               "samples_per_virtual_s": 32 * (workers or 16) ** 0.9 * STEPS / float(time[-1]), "drop_rate": drop,
               "final_test_accuracy": float(value[-1]) if accuracy else None, "time_to_target": None}
    reached = np.flatnonzero(value >= 0.85)
    if accuracy and len(reached):
        at = reached[0]
        summary["time_to_target"] = {"time_s": float(time[at]), "step": int(step[at]),
                                     "samples": int(step[at] * 512 * (1 - drop)), "censored": False}
    (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (run / "metadata.json").write_text("{}", encoding="utf-8")
    (run / "config.toml").write_text(
        'name = "synthetic"\ndescription = "Four methods under the same stragglers"\n[cluster]\n'
        f"workers = {workers or 16}\n"
        '[training]\nmodel = "mlp"\ndataset = "fashion-mnist"\n[evaluation]\ntarget_accuracy = 0.85\n'
        f'[[methods]]\nlabel = "{label}"\nalgorithm = "{algorithm}"\n', encoding="utf-8")
    return run


def write_trace(run: Path, workers: int = 2, servers: int = 0, until_s: float = 1.0, capped: bool = False,
                links: bool = False) -> None:
    """Writes a trace in which every participant (and with `links` each direction of a server's link) computes for 0.3
    s, loses 0.1 s and waits until the end."""
    of_server = ("", ", in", ", out") if links else ("",)
    names = [f"worker {rank}" for rank in range(workers)]
    names += [f"server {rank}{way}" for rank in range(servers) for way in of_server]
    events = [{"name": "thread_name", "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}
              for thread, name in enumerate(names, 1)]
    for thread in range(1, len(names) + 1):
        for activity, begin_s, end_s in (("compute", 0, 0.3), ("discarded", 0.3, 0.4), ("wait", 0.4, until_s)):
            events.append({"name": activity, "ph": "X", "pid": 1, "tid": thread, "ts": 1e6 * begin_s,
                           "dur": 1e6 * (end_s - begin_s), "args": {"what": "x"}})
    with gzip.open(run / "trace.json.gz", "wt", encoding="utf-8") as file:
        about = {"workers": workers, "until_s": until_s, "capped": capped}
        json.dump({"otherData": about, "traceEvents": events}, file)


def write_experiment(directory: Path, seeds: int = 3, accuracy: bool = True) -> Path:
    """Writes runs of the quick start's four methods below directory/synthetic."""
    experiment = directory / "synthetic"
    for label, algorithm, speed, period, drop in (
            ("synchronous SGD", "sync-sgd", 1, 1, 0), ("DropCompute", "dropcompute", 1.25, 1, 0.09),
            ("backup workers", "backup-workers", 1.15, 1, 0.125), ("Local SGD (QSR)", "local-sgd", 1.6, 4, 0)):
        for seed in range(1, seeds + 1):
            write_run(experiment / label.replace(" ", "-"), label, seed, speed, period, drop, accuracy,
                      algorithm=algorithm)
    return experiment


def write_sweep(directory: Path, sizes=(8, 16, 32)) -> Path:
    """Writes runs of two methods on increasing numbers of workers. Steps of the first method take longer with more
    workers."""
    experiment = directory / "synthetic"
    for workers in sizes:
        for label, speed, drop in (("synchronous SGD", 1 - 0.05 * np.log2(workers), 0), ("DropCompute", 1, 0.1)):
            write_run(experiment / f"{label.replace(' ', '-')}-workers={workers}", label, 1, speed, drop=drop,
                      accuracy=False, workers=workers)
    return experiment


class WithDirectory(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name).resolve()

    def status_and_message(self, *arguments):
        """Calls plot.py; returns the exit status and standard error."""
        with (contextlib.redirect_stderr(io.StringIO()) as message, contextlib.redirect_stdout(io.StringIO()),
              warnings.catch_warnings()):
            warnings.simplefilter("error")
            status = main([str(argument) for argument in arguments])
        return status, message.getvalue()


def comparisons_below(directory):
    runs = runs_below(directory)
    for run in runs:
        read_tables(run)
    return compare(runs)


def change(path, **values):
    """Sets keys in a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
