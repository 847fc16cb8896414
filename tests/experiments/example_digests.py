#!/usr/bin/env python3
"""Digests of what the experiments of this project compute, before and after a change that must not alter it.

  example_digests.py PROGRAM FILE           runs every experiment, shortened, and compares with the digests in FILE
  example_digests.py PROGRAM FILE --write   writes them instead

Of each run: metrics.csv and steps.csv, byte for byte, and the totals of summary.json (what depends on this machine's
speed left out). Arithmetic rounds differently on other processors: digests compare on the machine that wrote them.

Exit status: 0 all are the same (or written), 1 some differ, 2 an experiment could not be run.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
STEPS = 60  # enough for every threshold to be found, and for some periods of every rule
OF_THIS_MACHINE = {"schema_version", "hash", "commit", "host_s", "samples_per_host_s"}


def shortened(file: Path) -> list[str]:
    text = file.read_text()
    if 'model = "none"' in text:  # time alone takes next to none
        return ["seeds=[1]"]
    shorter = [*(["~tune"] if "[tune]" in text else []), "seeds=[1]", f"budget={{ steps = {STEPS} }}"]
    if "every_epochs" not in text and "every_seconds" not in text:
        shorter.append("evaluation.every_steps=20")
    if 'micro_batch_s = "measured"' in text:
        shorter.append("cluster.micro_batch_s={base_s=1e-3,per_token_s=3e-5}")
    if "warmup_steps" in text:
        shorter.append("training.learning_rate.warmup_steps=10")
    return shorter


def digest(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()[:16]


def of_run(directory: Path) -> dict[str, str]:
    summary = json.loads((directory / "summary.json").read_text())
    totals = {key: value for key, value in summary.items() if key not in OF_THIS_MACHINE}
    for formula in totals.get("predicted", []):
        formula.pop("sampled", None)  # a word about the formula, no number, and younger than the table of digests
    digests = {name: digest((directory / name).read_bytes()) for name in ("metrics.csv", "steps.csv")
               if (directory / name).exists()}
    return digests | {"totals": digest(json.dumps(totals, sort_keys=True).encode())}


def of_experiment(program: str, file: Path) -> dict[str, dict[str, str]]:
    """By the run's directory, without the hash in its name."""
    with tempfile.TemporaryDirectory() as results:
        changes = shortened(file)
        if subprocess.run([program, "check", file, *changes], capture_output=True).returncode != 0:
            changes = ["seeds=[1]"]  # something in it, such as a number of rounds, needs its whole length
        subprocess.run([program, "run", file, *changes, "--quiet", "--results", results], check=True,
                       stdout=subprocess.DEVNULL)
        runs = sorted(path.parent for path in Path(results).rglob("summary.json"))
        return {f"{run.parent.name}/{run.name.rsplit('-', 1)[0]}": of_run(run) for run in runs}


def differences(expected: dict, found: dict) -> list[str]:
    lines = []
    for file in sorted(expected.keys() | found.keys()):
        before, now = expected.get(file, {}), found.get(file, {})
        for run in sorted(before.keys() | now.keys()):
            one, other = before.get(run), now.get(run)
            if one is None or other is None:
                lines.append(f"{file}: {run}: {'new' if one is None else 'gone'}")
            elif changed := [part for part in sorted(one.keys() | other.keys()) if one.get(part) != other.get(part)]:
                lines.append(f"{file}: {run}: {', '.join(changed)}")
    return lines


def as_text(found: dict) -> str:
    """JSON with a line for each run, so that a change shows which."""
    files = [f"{json.dumps(file)}: {{\n" + ",\n".join(f" {json.dumps(run)}: {json.dumps(digests)}"
                                                       for run, digests in sorted(runs.items())) + "\n}"
             for file, runs in sorted(found.items())]
    return "{\n" + ",\n".join(files) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("file", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found = {}
    for file in [EXPERIMENTS / "quickstart.toml", *sorted((EXPERIMENTS / "examples").glob("*.toml"))]:
        try:
            found[file.name] = of_experiment(options.program, file)
        except subprocess.CalledProcessError as fault:
            print(f"{file}: ended with status {fault.returncode}", file=sys.stderr)
            return 2
    if options.write:
        options.file.write_text(as_text(found))
        return 0
    lines = differences(json.loads(options.file.read_text()), found)
    print("\n".join(lines) or f"the same: {sum(map(len, found.values()))} runs")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
