"""Fuzzes one parser with inputs that libFuzzer makes from the corpus, under the sanitizers of addresses and of
undefined behaviour. Then checks which share of the parser's lines the inputs have reached.

Usage: fuzz.py PARSER INPUTS SOURCE..., where INPUTS is the number of inputs. Needs SYNCOPATE_FUZZERS, the folder of
`ninja fuzzers`. SYNCOPATE_SEED repeats a run with the printed seed. Inputs that fail are kept in found/PARSER in that
folder. Once the fault is fixed, move them to tests/faults/corpus/PARSER.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
LEAST_SHARE = 0.80  # least share of a parser's lines that inputs must reach
LONGEST = {"experiment": 3000, "results": 6000, "records": 4000, "cifar": 4000}  # bytes of an input (others: 1,000)
OPTIONS = ["-timeout=60", "-rss_limit_mb=1024", "-malloc_limit_mb=1024", "-print_final_stats=1", "-verbosity=1", "-reload=0"]


def fuzz(program: Path, parser: str, inputs: int, made: Path, corpus: Path, environment: dict) -> None:
    seed = int(os.environ.get("SYNCOPATE_SEED", random.SystemRandom().randrange(1, 2**32)))
    print(f"{parser}: SYNCOPATE_SEED={seed}", flush=True)
    found = program.parent / "found" / parser
    found.mkdir(parents=True, exist_ok=True)
    command = [program, f"-runs={inputs}", f"-seed={seed}", f"-max_len={LONGEST.get(parser, 1000)}",
               f"-artifact_prefix={found}/", *OPTIONS, made, corpus]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                          env={**environment, "LLVM_PROFILE_FILE": "/dev/null"})
    number = re.search(r"stat::number_of_executed_units: (\d+)", done.stderr)
    speed = re.search(r"stat::average_exec_per_sec: *(\d+)", done.stderr)
    memory = re.search(r"stat::peak_rss_mb: *(\d+)", done.stderr)
    print(f"{parser}: {number[1] if number else '?'} inputs, {speed[1] if speed else '?'} per second, at most "
          f"{memory[1] if memory else '?'} MB", flush=True)
    if done.returncode != 0:
        print(done.stderr[-6000:])
        sys.exit(f"{parser}: an input was found that it does not take: see {found}")


def tool(name: str) -> str:
    """The path of an LLVM program in the version of the fuzzers' compiler, which is that of Debian 12 or 13."""
    return next((found for version in (14, 19) if (found := shutil.which(f"{name}-{version}"))), f"{name}-14")


def share_of_lines(program: Path, parser: str, sources: list[str], inputs: list[Path], environment: dict) -> float:
    with tempfile.TemporaryDirectory() as folder:
        raw, merged = Path(folder) / "raw", Path(folder) / "merged"
        subprocess.run([program, "-runs=0", *inputs], capture_output=True, check=True,
                       env={**environment, "LLVM_PROFILE_FILE": str(raw)})
        subprocess.run([tool("llvm-profdata"), "merge", "-sparse", raw, "-o", merged], check=True)
        report = subprocess.run([tool("llvm-cov"), "export", "-summary-only", f"-instr-profile={merged}", program,
                                 *[CHECKOUT / source for source in sources]], capture_output=True, text=True, check=True)
    reached = lines = 0
    for file in json.loads(report.stdout)["data"][0]["files"]:
        name = str(Path(file["filename"]).relative_to(CHECKOUT))
        if name not in sources:
            continue
        of_file = file["summary"]["lines"]
        reached, lines = reached + of_file["covered"], lines + of_file["count"]
        print(f"{parser}: {of_file['covered']:>5} of {of_file['count']:>5} lines  {name}")
    print(f"{parser}: {reached} of {lines} lines, {100 * reached / lines:.1f} %", flush=True)
    return reached / lines


def main(parser: str, inputs: int, sources: list[str]) -> None:
    program = Path(os.environ["SYNCOPATE_FUZZERS"]) / f"fuzz_{parser}"
    if not program.exists():
        sys.exit(f"{program} is not there: it needs clang, lld, llvm and libclang-rt of version 14 or 19, and is built by "
                 "./dev test --all")
    corpus = CHECKOUT / "tests" / "faults" / "corpus" / parser
    with tempfile.TemporaryDirectory() as made:
        # Keeps digests of the fuzzer's files out of the user's cache.
        environment = {**os.environ, "XDG_CACHE_HOME": str(Path(made) / "cache"),
                       "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=16:allocator_may_return_null=0",
                       "UBSAN_OPTIONS": "print_stacktrace=1"}
        inputs_made = Path(made) / "inputs"
        inputs_made.mkdir()
        fuzz(program, parser, inputs, inputs_made, corpus, environment)
        share = share_of_lines(program, parser, sources, [inputs_made, corpus], environment)
        if kept := os.environ.get("SYNCOPATE_KEEP"):
            shutil.copytree(inputs_made, Path(kept) / parser, dirs_exist_ok=True)
    if share < LEAST_SHARE:
        sys.exit(f"{parser}: less than {100 * LEAST_SHARE:.0f} % of its lines are reached: the corpus lacks inputs")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
