#!/usr/bin/env python3
"""Compares the program's output and results with a file of digests, to check a change that must alter neither.

  baselines.py PROGRAM FILE                    compare with FILE and print each difference
  baselines.py PROGRAM FILE --write            write FILE
  baselines.py PROGRAM FILE --write --missing  write only what FILE lacks: continue after an interruption
  baselines.py PROGRAM FILE --only PATTERN     only experiments, or names of `list`, that match or contain PATTERN
  baselines.py PROGRAM FILE --kinds check,list only these kinds

Kinds:
  results    every run of every file in experiments/: each column of its CSV files and each total of summary.json
  predicted  predictions by formulas for the same runs (`predicted` in summary.json)
  check      the output of `check` for every file
  list       the output of `list`: everything, each kind, each name, each top-level key with all keys below it
  predict    each value that `predict --json` prints for every file

Runs are short: seed 1, at most 60 steps, no tuning. Runs without a model take no time to train and keep their length.
A file that needs its whole length, such as one with a given number of rounds, keeps it, too. Step times that a file
asks the program to measure are replaced by fixed ones. LEFT_OUT names files whose shortened runs together still take
more than two minutes of processor time.

Digests leave out measured values: computing time, memory, disk space. Losses round differently with another LibTorch or
another processor, so `results` are compared only if both are the same as on the machine that wrote FILE. If they are
not, the script says so; then write FILE with the old program first. The other kinds do not depend on the machine.

A digest covers lines of text. FILE also contains 12 bits of each line, which show which line has changed, but not its
old text. With `--texts DIR`, `--write` puts the lines into DIR, and comparing with the same DIR shows old and new
values.

Exit status: 0: nothing differs (or everything is written); 1: something differs or could not be run; 2: wrong usage;
130: interrupted.
"""

import argparse
import base64
import csv
import difflib
import fnmatch
import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = ROOT / "experiments"
KINDS = ("results", "predicted", "check", "list", "predict")
STEPS = 60  # enough to find every threshold, and for a few periods under each rule
TOO_LONG = "more than two minutes of processor time"
LEFT_OUT = {
    "results": {},
    "predict": {"examples/million.toml": TOO_LONG},
}
OF_THIS_MACHINE = {"schema_version", "hash", "commit", "host_s", "samples_per_host_s"}
FIXED_TIMES = "cluster.micro_batch_s={base_s=1e-3,per_token_s=3e-5}"
LIST_KINDS = ("algorithms", "delays", "networks", "models", "datasets", "schedules", "optimizers")
LIST_WORDS = ("staleness", "no-such-name")  # a word that occurs in sentences, and one that occurs nowhere
COMMAND = "(command)"  # the entry of an experiment that says how its runs were shortened


class CannotRun(Exception):
    pass


# --- Digests ----------------------------------------------------------------------------------------------------------

WHOLE, PART = 10, 2  # base64 characters, of 6 bits each
LONG = 160  # most characters of a line that are shown


def hashed(text: str, characters: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()[:characters]


def digest(lines: list[str]) -> str:
    """The digest of all lines together, followed by that of each line."""
    return hashed("\n".join(lines), WHOLE) + "".join(hashed(line, PART) for line in lines)


def parts(of: str) -> list[str]:
    return [of[at:at + PART] for at in range(WHOLE, len(of), PART)]


def leaves(tree, path: str = "") -> list[str]:
    """A line `path: value` for each value of a JSON document. A list of plain values is one value."""
    if isinstance(tree, dict):
        return [line for key, branch in tree.items() for line in leaves(branch, f"{path}.{key}" if path else key)]
    if isinstance(tree, list) and any(isinstance(branch, (dict, list)) for branch in tree):
        return [line for i, branch in enumerate(tree) for line in leaves(branch, f"{path}[{i}]")]
    return [f"{path}: {json.dumps(tree)}"]


# --- What is compared: lines of each item -----------------------------------------------------------------------------

def called(program: str, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd=ROOT, check=False,
                          env=os.environ | {"COLUMNS": "120"})
    return done.returncode, done.stdout, done.stderr


def ended(program: str, *arguments: str) -> tuple[int, str, str]:
    """Like `called`, but raises CannotRun if the program crashed or was interrupted. No digest is made of that."""
    status, output, errors = called(program, *arguments)
    if status < 0 or status == 130:
        raise CannotRun(f"status {status}: {errors.strip()[-500:]}")
    return status, output, errors


def printed(program: str, *arguments: str) -> list[str]:
    status, output, errors = ended(program, *arguments)
    # Output contains whole paths of the files that an experiment names, so paths below the root are shortened.
    lines = [f"exit status: {status}", *output.splitlines(), *errors.splitlines()]
    return [line.replace(f"{ROOT}/", "") for line in lines]


def with_fixed_times(file: str) -> list[str]:
    return [FIXED_TIMES] if 'micro_batch_s = "measured"' in (EXPERIMENTS / file).read_text() else []


def of_check(program: str, file: str) -> list[str]:
    # There are no finished runs in "no-results". `check` prints memory, which depends on the number of threads.
    lines = printed(program, "check", f"experiments/{file}", *with_fixed_times(file), "--threads", "1", "--results",
                    "no-results")
    return [line for line in lines if not line.startswith("# memory of a process")]  # this line is measured


def of_predict(program: str, file: str) -> list[str]:
    status, output, errors = ended(program, "predict", f"experiments/{file}", *with_fixed_times(file), "--json")
    lines = [f"exit status: {status}", *errors.splitlines()]
    try:
        document = json.loads(output)
    except json.JSONDecodeError:
        return lines + output.splitlines()
    for i, prediction in enumerate(document.pop("predictions")):
        lines += leaves(prediction, f"{i + 1} ({prediction['method']})")
    return lines + leaves(document)


def names_of_lists(program: str) -> list[str]:
    """The arguments of `list`: kinds, names and top-level keys. `list KEY` prints all keys below KEY."""
    output = called(program, "list")[1]
    families = re.findall(r"^  \S.*:$", output, re.MULTILINE)
    names = {line.split()[0] for line in output.splitlines()
             if re.match(r" {2,4}[a-z0-9]", line) and line not in families}
    reference = (EXPERIMENTS / "reference.md").read_text()
    tables = set(re.findall(r"^## \[+([a-z_]+)", reference, re.MULTILINE))
    top = re.search(r"^## Above all tables\n(.*?)^## ", reference, re.MULTILINE | re.DOTALL)
    keys = set(re.findall(r"^\| `([a-z0-9_]+)` \|", top[1], re.MULTILINE)) if top else set()
    return ["all", *LIST_KINDS, *LIST_WORDS, *sorted((names | tables | keys) - set(LIST_KINDS))]


def of_list(program: str, name: str) -> list[str]:
    return printed(program, "list", *([] if name == "all" else [name]))


def shortened(program: str, file: str) -> list[str]:
    text = (EXPERIMENTS / file).read_text()
    if 'model = "none"' in text:  # runs without a model take almost no time
        return ["seeds=[1]"]
    shorter = [*(["~tune"] if "[tune]" in text else []), "seeds=[1]", f"budget={{ steps = {STEPS} }}"]
    if "every_epochs" not in text and "every_seconds" not in text:
        shorter.append("evaluation.every_steps=20")
    shorter += with_fixed_times(file)
    if "warmup_steps" in text:
        shorter.append("training.learning_rate.warmup_steps=10")
    if called(program, "check", f"experiments/{file}", *shorter)[0] == 0:
        return shorter
    return ["seeds=[1]", *with_fixed_times(file)]  # a key, such as a number of rounds, needs the whole length


def columns(table: Path) -> list[str]:
    """One line per column of a CSV file."""
    with (gzip.open if table.suffix == ".gz" else open)(table, "rt", newline="") as file:
        header, *rows = csv.reader(file)
    return [f"{table.name} {name}: {' '.join(values)}" for name, *values in zip(header, *rows)]


def of_run(directory: Path) -> dict[str, list[str]]:
    summary = json.loads((directory / "summary.json").read_text())
    predicted = summary.pop("predicted", [])
    totals = {key: value for key, value in summary.items() if key not in OF_THIS_MACHINE}
    tables = [line for table in sorted(directory.glob("*.csv*")) for line in columns(table)]
    return {"results": tables + leaves(totals, "summary.json"), "predicted": leaves(predicted, "predicted")}


def by_run(directories: list[Path], command: list[str]) -> dict[str, dict[str, list[str]]]:
    """Results by kind and by the run's directory, without the hash in its name. Runs with equal names, such as common
    phases of several methods, are numbered in the order of their results."""
    found = {"results": {COMMAND: command}, "predicted": {}}
    by_name: dict[str, list[dict[str, list[str]]]] = {}
    for directory in directories:
        by_name.setdefault(f"{directory.parent.name}/{directory.name.rsplit('-', 1)[0]}", []).append(of_run(directory))
    for name, runs in sorted(by_name.items()):
        for number, run in enumerate(sorted(runs, key=lambda run: run["results"]), 1):
            for kind, lines in run.items():
                found[kind][f"{name} ({number})" if len(runs) > 1 else name] = lines
    return found


def of_runs(program: str, file: str, threads: int, limit_s: int) -> dict[str, dict[str, list[str]]]:
    changes = shortened(program, file)
    with tempfile.TemporaryDirectory() as results:
        # Limits processor time, which other programs do not affect.
        limited = ["bash", "-c", f'ulimit -S -t {limit_s} && exec "$@"', "bash"]
        done = subprocess.run([*limited, program, "run", f"experiments/{file}", *changes, "--quiet", "--cluster",
                               "simulated", "--threads", str(threads), "--results", results],
                              cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode == -signal.SIGXCPU:
            raise CannotRun(f"takes more than {limit_s} s of processor time")
        directories = [path.parent for path in Path(results).rglob("summary.json")]
        # Status 1: some runs failed. In some experiments, such as a study of divergence, they are meant to fail.
        if done.returncode not in (0, 1) or not directories:
            raise CannotRun(f"status {done.returncode}: {done.stderr.strip()[-500:]}")
        return by_run(directories, [*changes, f"exit status: {done.returncode}"])


# --- Differences ------------------------------------------------------------------------------------------------------

def name_and_value(line: str) -> tuple[str, str]:
    """Splits `name: value` or TOML's `name = value`; the name includes the separator."""
    found = re.match(r".*?(?:: | = )", line)
    return (found[0], line[found.end():]) if found else (line, "")


def shown(old: str | None, new: str) -> str:
    """The new line, and the old line if it is known. Long lines are shown from the first difference on."""
    name, value = name_and_value(new)
    if old is None:
        return new if len(new) <= LONG else f"{new[:LONG]} ..."
    was = old.removeprefix(name)
    if len(new) + len(was) <= LONG:
        return f"{new}, was {was}"
    first = next((i for i, (a, b) in enumerate(zip(value, was)) if a != b), min(len(value), len(was)))
    begin = value.rfind(" ", 0, first) + 1
    return f"{name}... {value[begin:begin + LONG // 3]} ..., was {was[begin:begin + LONG // 3]} ..."


def difference(old: str | None, new: list[str] | None, old_lines: list[str] | None = None) -> str | None:
    """The differences of an item in words; empty if it is unchanged."""
    if old is None:
        return "is new"
    if new is None:
        return "is gone"
    now = digest(new)
    if now == old:
        return None
    before, after = (old_lines, new) if old_lines else (parts(old), parts(now))
    if len(before) == len(after):
        changed = [i for i, (a, b) in enumerate(zip(before, after)) if a != b]
        if not changed:
            return "differs"  # the line's few bits in the digest are equal by chance
        others = list(dict.fromkeys(name_and_value(new[i])[0][:60].rstrip(" :=") for i in changed[1:]))
        first = shown(old_lines[changed[0]] if old_lines else None, new[changed[0]])
        also = f"; also {', '.join(others[:8])}{' ...' if len(others) > 8 else ''}" if others else ""
        return f"line {changed[0] + 1} is now {first}{also}"
    changes = [change for change in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
               if change[0] != "equal"]
    how, begin, _, new_begin, _ = changes[0]
    if how == "insert":
        first = f"line {new_begin + 1} is new: {shown(None, new[new_begin])}"
    elif how == "delete":
        first = f"line {begin + 1} is gone{f': {shown(None, old_lines[begin])}' if old_lines else ''}"
    else:
        first = f"line {new_begin + 1} is now {shown(old_lines[begin] if old_lines else None, new[new_begin])}"
    more = f"; also {len(changes) - 1} other places" if len(changes) > 1 else ""
    return f"{len(after)} lines, was {len(before)}; {first}{more}"


# --- The file of digests ----------------------------------------------------------------------------------------------

def write(file: Path, kept: dict) -> None:
    """Writes the file atomically, so that an interruption leaves either the old or the new file."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    temporary.replace(file)


def kernels(program: str) -> str:
    """The versions and processor features on which losses depend."""
    said = re.findall(r"^(?:LibTorch|BLAS kernel|kernels) +([^(\n]*)", called(program, "--version")[1], re.MULTILINE)
    return "; ".join(part.strip() for part in said)


class Texts:
    """Stores the lines of items as files in a directory. Does nothing without a directory."""

    def __init__(self, directory: Path | None):
        self.directory = directory

    def path(self, kind: str, subject: str, item: str) -> Path:
        return self.directory / kind / subject / f"{item or 'lines'}.txt"

    def write(self, kind: str, subject: str, item: str, lines: list[str]) -> None:
        if self.directory:
            self.path(kind, subject, item).parent.mkdir(parents=True, exist_ok=True)
            self.path(kind, subject, item).write_text("\n".join(lines))

    def read(self, kind: str, subject: str, item: str, old: str | None) -> list[str] | None:
        """The lines to which the digest belongs, if they are stored."""
        if not self.directory or not old or not self.path(kind, subject, item).exists():
            return None
        lines = self.path(kind, subject, item).read_text().split("\n")
        return lines if digest(lines) == old else None


def items_of(kept: dict, kind: str, subject: str) -> dict[str, str]:
    """Stored items by the run's name. Kinds without runs have one item, whose name is empty."""
    entry = kept.get(kind, {}).get(subject, {})
    return entry if isinstance(entry, dict) else {"": entry}


# --- All of it --------------------------------------------------------------------------------------------------------

Found = dict[str, dict[str, list[str]]]  # lines by kind and item


def tasks_of(program: str, options: argparse.Namespace, kept: dict) -> dict[tuple[str, ...], dict[str, object]]:
    """The functions that compute what is compared, by kinds and subject. Each returns Found."""
    files = sorted(str(path.relative_to(EXPERIMENTS)) for path in EXPERIMENTS.rglob("*.toml"))
    runs = tuple(kind for kind in ("results", "predicted") if kind in options.kinds)
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    tasks = {}

    def add(kinds: tuple[str, ...], subject: str, work) -> None:
        is_left_out = subject in LEFT_OUT.get("results" if kinds == runs else kinds[0], {})
        is_selected = not options.only or any(pattern in subject or fnmatch.fnmatchcase(subject, pattern)
                                              for pattern in options.only)
        is_kept = options.missing and all(subject in kept.get(kind, {}) for kind in kinds)
        if is_selected and not is_left_out and not is_kept:
            tasks[kinds, subject] = work

    for kind, lines_of, subjects in (("list", of_list, names_of_lists(program) if "list" in options.kinds else []),
                                     ("check", of_check, files), ("predict", of_predict, files)):
        if kind in options.kinds:
            for subject in subjects:
                add((kind,), subject,
                    lambda kind=kind, lines_of=lines_of, subject=subject: {kind: {"": lines_of(program, subject)}})
    if runs:
        for file in files:
            add(runs, file, lambda file=file: of_runs(program, file, threads, options.limit_s))
    return tasks


class Outcome:
    """Writes results into the file, or compares them with the file and counts differences."""

    def __init__(self, options: argparse.Namespace, kept: dict):
        self.options, self.kept, self.texts = options, kept, Texts(options.texts)
        self.count = self.differing = 0

    def differs(self, where: str, words: str) -> None:
        self.differing += 1
        print(f"{where}: {words}", flush=True)

    def take(self, kinds: tuple[str, ...], subject: str, found: Found) -> None:
        for kind in kinds:
            self.count += len(found[kind])
            (self.keep if self.options.write else self.compare)(kind, subject, found[kind])
        if self.options.write:
            write(self.options.file, self.kept)

    def compare(self, kind: str, subject: str, found: dict[str, list[str]]) -> None:
        before = items_of(self.kept, kind, subject)
        for item in sorted(before.keys() | found.keys()):
            old = before.get(item)
            words = difference(old, found.get(item), self.texts.read(kind, subject, item, old))
            if words:
                self.differs(f"{kind}: {subject}{f': {item}' if item else ''}", words)

    def keep(self, kind: str, subject: str, found: dict[str, list[str]]) -> None:
        for item, lines in found.items():
            self.texts.write(kind, subject, item, lines)
        digests = {item: digest(lines) for item, lines in found.items()}
        self.kept.setdefault(kind, {})[subject] = digests[""] if list(digests) == [""] else digests

    def drop(self, kind: str, there: set[str]) -> None:
        """Reports items that no longer exist."""
        for subject in sorted(self.kept.get(kind, {}).keys() - there):
            if self.options.write:
                del self.kept[kind][subject]
            else:
                self.differs(f"{kind}: {subject}", "is gone")

    def words(self) -> str:
        if self.options.write:
            failed = f"; could not be run: {self.differing}" if self.differing else ""
            return f"written: {self.count} digests{failed}"
        return f"{self.differing} differ of {self.count}" if self.differing else f"the same: {self.count} digests"


def timed(work) -> tuple[float, Found]:
    begin = time.monotonic()
    found = work()
    return time.monotonic() - begin, found


def carry_out(tasks: dict, outcome: Outcome, jobs: int) -> None:
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = {pool.submit(timed, work): task for task, work in tasks.items()}
        for future in as_completed(futures):
            kinds, subject = futures[future]
            where = f"{', '.join(kinds)}: {subject}"
            try:
                seconds, found = future.result()
            except CannotRun as fault:
                outcome.differs(where, f"could not be run: {fault}")
                continue
            print(f"  {where}: {seconds:.1f} s", file=sys.stderr, flush=True)
            outcome.take(kinds, subject, found)
    finally:
        pool.shutdown(cancel_futures=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true", help="write FILE instead of comparing with it")
    parser.add_argument("--missing", action="store_true", help="with --write: only what FILE lacks")
    parser.add_argument("--only", metavar="PATTERN", nargs="+", default=[])
    parser.add_argument("--kinds", metavar="KIND,...", default=",".join(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="experiments at a time; they divide the cores")
    parser.add_argument("--limit-s", metavar="S", type=int, default=300,
                        help="stop an experiment after S seconds of processor time [300]")
    parser.add_argument("--texts", metavar="DIR", type=Path, help="what is digested, to see old values")
    options = parser.parse_args()
    options.kinds = options.kinds.split(",")
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"--kinds: no kind is called {', '.join(sorted(unknown))}; must be of {', '.join(KINDS)}")
    if options.jobs < 1:
        parser.error("--jobs: must be at least 1")
    if options.missing and not options.write:
        parser.error("--missing: goes with --write")
    if not os.access(options.program, os.X_OK):
        parser.error(f"{options.program}: no program")
    if not options.write and not options.file.exists():
        parser.error(f"{options.file}: no such file; --write makes it")
    return options


def faults(options: argparse.Namespace, kept: dict, tasks: dict, machine: str) -> str | None:
    """What is wrong with the request; None if it can be carried out."""
    if not tasks and not options.missing:
        return f"--only: nothing matches {' '.join(options.only)}"
    is_part = options.only or options.missing
    if options.write and is_part and "results" in options.kinds and kept.get("machine", machine) != machine:
        return (f"{options.file} was written with {kept['machine']}; here is {machine}: write all results, or another "
                "file")
    return None


def main() -> int:
    options = parsed()
    program = str(options.program.resolve())
    try:
        kept = json.loads(options.file.read_text()) if options.file.exists() else {}
    except json.JSONDecodeError as fault:
        print(f"{options.file}: {fault}", file=sys.stderr)
        return 2
    tasks = tasks_of(program, options, kept)
    machine = kernels(program)
    if fault := faults(options, kept, tasks, machine):
        print(fault, file=sys.stderr)
        return 2
    if options.write:
        kept["left_out"] = LEFT_OUT
        if "results" in options.kinds:
            kept["machine"] = machine
    elif "results" in options.kinds and machine != kept.get("machine"):
        print(f"note: {options.file} was written with {kept.get('machine')}; here is {machine}: losses round "
              "differently")

    outcome = Outcome(options, kept)
    if not options.only and not options.missing:
        for kind in options.kinds:
            outcome.drop(kind, {subject for kinds, subject in tasks if kind in kinds})
    try:
        carry_out(tasks, outcome, options.jobs)
    except KeyboardInterrupt:
        print("interrupted" + ("; --write --missing continues" if options.write else ""), file=sys.stderr)
        return 130
    if options.write:
        write(options.file, kept)
    print(outcome.words())
    return 1 if outcome.differing else 0


if __name__ == "__main__":
    sys.exit(main())
