"""Finding and reading runs.

A run is a directory <experiment>/<method and swept values>/seed=<seed>-<hash>/ with config.toml, summary.json, metrics.csv,
steps.csv and optional recordings. If a run is damaged or misplaced, a ResultsFault says how.
"""

import gzip
import json
import os
import re
import stat
import tomllib
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

MPI = "-mpi"  # at the end of a run's directory name: the run was made under MPI, with wall-clock times
RUN_DIRECTORY = re.compile(rf"seed=(\d+)-[0-9a-f]+({MPI})?")
UNFINISHED = re.compile(rf"{RUN_DIRECTORY.pattern}(\.checkpoint|(\.\d+\.\d+)?\.(partial|replaced)\.).*")
COMMON_PHASE = re.compile(r"common-phase(_.*)?")  # folder of the phase from which an experiment's runs start
TRIALS = "Trials"  # the folder of an experiment's tuning trials, which are not part of its results
CLAIMS = "claims.json"  # in the directory of an experiment

DOCUMENTS = {"summary.json", "config.toml", "metadata.json"}  # short files, read at once; other files may be long
MEASURED = "measurements.csv"  # only of runs with [measurements]
TRACE = "trace.json.gz"  # a timeline of every worker, if it was recorded
ARRIVALS = "arrivals.csv.gz"  # arrival times of gradients, if they were recorded

MOST_BYTES = 1 << 28  # largest size of a file that is parsed at once
END = b"\n}\n"  # last bytes of a JSON file that the program has written
REPEATS = "the experiment's next start repeats the run"  # the advice for a damaged file

SCHEMA_VERSION = 2  # the version of results that this program writes (results/summary.hpp)
UNLISTED = (None, 1)  # schema versions that have no list of files; such results are accepted without it

METRICS = ["step", "epoch", "samples", "time_s", "test_loss", "test_accuracy", "train_loss", "learning_rate",
           "communicated_bytes"]
MEASUREMENTS = ["step", "time_s", "value"]
STEPS = ["step", "time_s", "duration_s", "kept_micro_batches", "dropped_micro_batches", "period_steps", "bytes"]


def in_words(fault: Exception) -> str:
    """The fault in words, without names of Python's exceptions."""
    if isinstance(fault, KeyError):
        return f"it lacks {fault}"
    if isinstance(fault, json.JSONDecodeError):
        return f"it is not JSON: line {fault.lineno}, column {fault.colno}: {fault.msg}"
    if isinstance(fault, OSError):
        return fault.strerror or str(fault)
    if isinstance(fault, (TypeError, AttributeError, IndexError)):
        return "a value in it has the wrong type"
    return str(fault)


class ResultsFault(Exception):
    """A fault of a results directory. Its message names the path, and says what was found and what was expected."""


@dataclass
class Run:
    """One run: a method with one seed at one point of a sweep."""

    directory: Path
    seed: int
    config: dict  # the resolved configuration
    summary: dict
    written: str = ""  # end of the run, or else its start: ISO 8601, UTC, so that texts compare as times
    metrics: pd.DataFrame | None = None  # columns METRICS, a row per evaluation, ascending in step; set by read_tables
    steps: pd.DataFrame | None = None  # columns STEPS, a row per step or round; set by read_tables
    measurements: pd.DataFrame | None = None  # columns MEASUREMENTS and quantity, if there are any; set by read_tables

    @property
    def on_wall_clock(self) -> bool:
        """Whether the run was made under MPI."""
        return MPI in self.directory.name


def read_table(path: Path, columns: list[str], texts: tuple[str, ...] = ()) -> pd.DataFrame:
    """Reads numeric columns (`columns`) and text columns (`texts`) of a CSV file. Lines that begin with #, such as
    that of the schema version, are comments. Raises ResultsFault."""
    expected = f"expected a CSV file with the columns {', '.join(columns)}"
    try:
        table = pd.read_csv(path, comment="#")
    except FileNotFoundError:
        raise ResultsFault(f"{path}: not there; {expected}; {REPEATS}") from None
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as fault:
        raise ResultsFault(f"{path}: {fault}; {expected}") from None
    missing = [column for column in [*columns, *texts] if column not in table.columns]
    if missing:
        raise ResultsFault(f"{path}: has no column {', '.join(missing)}; {expected}")
    for column in columns:
        if is_numeric_dtype(table[column]):  # the checks below take ten times as long as reading a short table
            continue
        numbers = pd.to_numeric(table[column], errors="coerce")
        words = table[column].notna() & numbers.isna() & ~table[column].astype(str).str.lower().isin(["nan", "-nan"])
        if words.any():
            row = int(np.argmax(words))
            raise ResultsFault(f"{path}: row {row + 1}: {column} = {table[column][row]}; expected a number")
        table[column] = numbers
    if table[columns[0]].isna().any():
        row = int(np.argmax(table[columns[0]].isna()))
        raise ResultsFault(f"{path}: row {row + 1}: {columns[0]} is empty; expected a number")
    return table[[*columns, *texts]]


def runs_below(directory: Path, follow: Callable[[list[Path]], Iterable[Path]] = lambda paths: paths) -> list[Run]:
    """The runs at or below the directory, without their tables. The program's tables have the same rules
    (results/found_runs.hpp): a run in another run's directory is a fault, and so is a copy. Directories with the same
    hash but different numbers of swept values are one run. `follow` wraps the paths, to report progress. Raises
    ResultsFault."""
    runs = read_all_documents(follow(find_run_directories(directory)))
    strange = [run for run in runs if is_misplaced(run)]
    runs = [run for run in runs if not is_misplaced(run)]
    faults = [fault_of_misplaced(run, runs) for run in strange]
    alike = defaultdict(list)
    for run in runs:
        if digest := run.summary.get("hash"):  # results of early versions have no hash
            alike[digest, run.on_wall_clock].append(run)
    left_out, copies = set(), defaultdict(list)
    for members in alike.values():
        best = max(members, key=lambda run: len(run.summary.get("sweep") or []))
        for run in members:
            if run is best:
                continue
            left_out.add(run.directory)
            if run.summary.get("sweep") == best.summary.get("sweep"):
                copies[best.directory.parent, run.directory.parent].append((best, run))
    for (one, other), *more in copies.values():
        count = f" ({len(more) + 1} runs are in both folders)" if more else ""
        faults.append(f"{one.directory} and {other.directory}: contain the same run (their hashes are equal); remove one of "
                      f"the two{count}")
    if faults:
        raise ResultsFault("\n".join(faults))
    return [run for run in runs if run.directory not in left_out]


def own_name(run: Run) -> str:
    """The right name for the run's directory; empty if the summary lacks the hash."""
    seed, digest = run.summary.get("seed", run.seed), run.summary.get("hash")
    return f"seed={seed}-{digest[:8]}{MPI if run.on_wall_clock else ''}" if digest else ""


def is_misplaced(run: Run) -> bool:
    return not RUN_DIRECTORY.fullmatch(run.directory.name) or own_name(run) not in ("", run.directory.name)


def fault_of_misplaced(run: Run, others: list[Run]) -> str:
    """The message about a run in a wrong directory. `others`: runs in right directories."""
    same = next((other for other in others if (other.summary.get("hash"), other.on_wall_clock) ==
                 (run.summary.get("hash"), run.on_wall_clock)), None) if run.summary.get("hash") else None
    is_named_as_a_run = RUN_DIRECTORY.fullmatch(run.directory.name)
    if same and not is_named_as_a_run:
        return f"{run.directory}: contains a copy of the run in {same.directory}; remove one of the two"
    own = own_name(run) or f"seed {run.seed}"
    return (f"{run.directory}: contains the run {own}; must "
            f"{'contain the run of its name' if is_named_as_a_run else 'have the name of this run'}, or be "
            f"removed: {f'that run is in {same.directory}' if same else REPEATS}")


def read_run(directory: Path) -> Run:
    run = read_documents(directory)
    read_tables(run)
    return run


def read_documents(directory: Path) -> Run:
    """Reads a run without its tables. Raises ResultsFault."""
    summary = read_document(directory / "summary.json", json.loads, "the run's summary")
    check_files(directory, summary, lambda name: name in DOCUMENTS)
    named = RUN_DIRECTORY.fullmatch(directory.name)
    return Run(directory=directory, seed=int(named[1]) if named else summary.get("seed", 0),
               config=read_document(directory / "config.toml", tomllib.loads, "the run's resolved configuration"),
               summary=summary,
               written=read_time(directory / "metadata.json"))


def read_all_documents(paths: Iterable[Path]) -> list[Run]:
    """Reads runs without tables. Leaves out damaged common phases, which figures do not show. Raises ResultsFault."""
    runs, phases = [], []
    for path in paths:
        try:
            runs.append(read_documents(path))
        except ResultsFault as fault:
            if not COMMON_PHASE.fullmatch(path.parent.name):
                raise
            phases.append((path, fault))
    started_from_one = {run.directory.parent.parent for run in runs if "common" in run.config.get("training", {})}
    for path, fault in phases:
        if path.parent.parent not in started_from_one:
            raise fault
    return runs


def read_tables(run: Run) -> None:
    check_files(run.directory, run.summary, lambda name: name not in DOCUMENTS)
    run.metrics = read_table(run.directory / "metrics.csv", METRICS)
    run.steps = read_table(run.directory / "steps.csv", STEPS)
    if (measurements := run.directory / MEASURED).exists():
        run.measurements = read_table(measurements, MEASUREMENTS, ("quantity",))


@dataclass
class Trace:
    """The spans of one run, and its participants."""

    spans: pd.DataFrame  # thread, activity, begin_s, end_s; ascending in thread and begin_s
    names: dict[int, str]  # participants by thread, workers first
    workers: int
    until_s: float  # end of the recording
    capped: bool  # whether the run continued after the recording


def read_trace(path: Path) -> Trace:
    """Reads trace.json.gz. Raises ResultsFault."""
    expected = "expected Chrome trace events as Syncopate writes them, compressed by gzip"
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            document = json.load(file)
        events, about = document["traceEvents"], document["otherData"]
        names = {event["tid"]: event["args"]["name"] for event in events
                 if event["ph"] == "M" and event["name"] == "thread_name"}
        rows = [(event["tid"], event["name"], event["ts"], event["ts"] + event["dur"])
                for event in events if event["ph"] == "X"]
        spans = pd.DataFrame(rows, columns=["thread", "activity", "begin_s", "end_s"])
        spans[["begin_s", "end_s"]] *= 1e-6
        return Trace(spans.sort_values(["thread", "begin_s"], kind="stable"), names, int(about["workers"]),
                     float(about["until_s"]), bool(about["capped"]))
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as fault:
        raise ResultsFault(f"{path}: {in_words(fault)}; {expected}") from None


def check_files(directory: Path, summary: dict, is_asked: Callable[[str], bool]) -> None:
    """Raises ResultsFault if a file differs from what the program wrote. In a partial copy, files may be missing."""
    check_version(directory / "summary.json", summary)
    if not (directory / "files.json").exists() and summary.get("schema_version") in UNLISTED:
        return
    path = directory / "files.json"
    expected = "the run's list of files, with their sizes and CRC-32s"
    document = read_document(path, json.loads, expected)
    check_version(path, document)
    files = document.get("files")
    try:
        written = {name: (int(file["bytes"]), int(file["crc32"], 16)) for name, file in files.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ResultsFault(f"{path}: damaged; expected {expected}; {REPEATS}") from None
    for name, (size, digest) in written.items():
        if Path(name).name != name:
            raise ResultsFault(f"{path}: lists {name!r}, which is outside the run's directory; expected {expected}; {REPEATS}")
        if not is_asked(name):
            continue
        if (directory / name).exists() and not (directory / name).is_file():  # to read a pipe would block
            raise ResultsFault(f"{directory / name}: is not a file; expected one of {size} bytes; {REPEATS}")
        try:
            if (has := (directory / name).stat().st_size) != size:
                raise ResultsFault(f"{directory / name}: damaged: has {has} bytes; expected {size}, as they were written; "
                                   f"{REPEATS}")
            found = size_and_digest(directory / name)
        except FileNotFoundError:
            continue
        except OSError as fault:
            raise ResultsFault(f"{directory / name}: {fault.strerror}; expected a file of {size} bytes") from None
        if found != (size, digest):
            raise ResultsFault(f"{directory / name}: damaged: {found[0]} bytes of CRC-32 {found[1]:08x}; expected {size} "
                               f"of {digest:08x}, as they were written; {REPEATS}")


def check_version(path: Path, document: dict) -> None:
    version = document.get("schema_version")
    if version not in (*UNLISTED, SCHEMA_VERSION):
        raise ResultsFault(f"{path}: is of schema version {version}, and this program knows {SCHEMA_VERSION}; read it with "
                           f"the program that made it: {REPEATS}")


def size_and_digest(path: Path) -> tuple[int, int]:
    size = digest = 0
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            size, digest = size + len(piece), zlib.crc32(piece, digest)
    return size, digest


def own_bytes(path: Path) -> bytes:
    """The content of a file that the program has written. Refuses a pipe or a huge file in its place, which would block
    or fill the memory. Raises OSError, ValueError."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a regular file")
        if status.st_size > MOST_BYTES:
            raise ValueError(f"has {status.st_size} bytes; must have at most {MOST_BYTES}")
        return file.read()


def read_digested(path: Path, last: set[str]) -> dict:
    """Reads a JSON file whose last member is the CRC-32 of the text before it (results/summary.hpp). Files of earlier
    programs have no CRC-32; their last member is one of `last`. Raises OSError, ValueError."""
    content = own_bytes(path)
    document = json.loads(content)
    if not isinstance(document, dict) or not document:
        raise ValueError("is not an object")
    found = next(reversed(document))
    head, mark, tail = content.rpartition(b',\n  "crc32": "')
    written = mark + f"{zlib.crc32(head + END):08x}".encode() + b'"' + END
    if found not in last and (found != "crc32" or mark + tail != written):
        raise ValueError("has changed since it was written")
    return document


def read_time(path: Path) -> str:
    """The time at which the run ended, or began if its end is unknown. Empty without metadata, as in a partial copy, so
    that any other run counts as newer."""
    metadata = read_document(path, json.loads, "the run's metadata") if path.exists() else {}
    return str(metadata.get("end") or metadata.get("start") or "")


def read_document(path: Path, parse, what: str) -> dict:
    try:
        document = parse(own_bytes(path).decode())
    except FileNotFoundError:
        raise ResultsFault(f"{path}: not there; expected {what}; {REPEATS}") from None
    except (OSError, ValueError) as fault:
        raise ResultsFault(f"{path}: {fault}; expected {what}; {REPEATS}") from None
    if not isinstance(document, dict):
        raise ResultsFault(f"{path}: found a {type(document).__name__}; expected {what}; {REPEATS}")
    return document


def misnamed_runs(directory: Path) -> list[Path]:
    """Directories at or below this one that contain a run's files but have another kind of name, such as copies. The
    program uses the same rule (is_misnamed_run in results/found_runs.cpp)."""
    found = []
    for place, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".") and name != TRIALS]
        name = Path(place).name
        if name.startswith(".") or RUN_DIRECTORY.fullmatch(name) or UNFINISHED.fullmatch(name):
            continue
        has = [document in files for document in ("summary.json", "config.toml")]
        if any(has) if name.startswith("seed=") else all(has):
            found.append(Path(place))
    return found


def find_run_directories(directory: Path) -> list[Path]:
    """All run directories at or below `directory`, sorted. Raises ResultsFault if there are none."""
    expected = "expected a directory that contains runs, such as results/runs/<experiment>"
    if not directory.exists():
        raise ResultsFault(f"{directory}: no such directory; {expected}")
    if not directory.is_dir():
        raise ResultsFault(f"{directory}: not a directory; {expected}")
    directory = directory.resolve()
    closed = []  # rglob skips folders that it cannot read, without a message
    for _ in os.walk(directory, onerror=closed.append):
        pass
    if closed:
        raise ResultsFault("\n".join(f"{fault.filename}: {fault.strerror}; {expected}" for fault in closed))
    found = [path for path in [directory, *directory.rglob("seed=*-*")]
             if RUN_DIRECTORY.fullmatch(path.name) and path.is_dir() and TRIALS not in path.relative_to(directory).parts]
    found += misnamed_runs(directory)
    if not found:
        kept = "; these are kept summaries of finished runs, which ./dev report shows" if (directory / CLAIMS).is_file() else ""
        raise ResultsFault(f"{directory}: contains no runs (directories named seed=<number>-<hash>){kept}; {expected}")
    return sorted(found)
