"""Runs clang-tidy on several sources, in less time than on each source alone.

  lint_together.py BUILD_DIRECTORY JOBS SOURCE ...

Clang-tidy spends most of its time on other people's headers, so this script joins up to six sources into one file. If
the joined sources do not compile (two define the same local name), or if clang-tidy finds something, it repeats this
with each half, and so on. So all printed findings are those of a single source. Missing includes are not found in
joined sources; ./dev lint without --since finds them. Exit status: 1 if clang-tidy finds something.
"""
import json
import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

AT_ONCE = 6
TIDY = [os.environ.get("CXX", "clang++-14").replace("clang++", "clang-tidy"), "--quiet", r"--header-filter=/(workers|algorithms|results|experiments)/.*\.[ch]pp$"]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def said_of(sources, options, batches):
    """The findings; empty if there are none."""
    shown = sources[0]
    if len(sources) > 1:
        shown = str(batches / f"{Path(sources[0]).parent.name}_{Path(sources[0]).stem}_{len(sources)}.cpp")
        lines = [f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources]
        Path(shown).write_text("".join(lines))
    good, said = run([*TIDY, shown, "--", *options])
    if good:
        return ""
    if len(sources) == 1:
        return said
    half = len(sources) // 2
    return said_of(sources[:half], options, batches) + said_of(sources[half:], options, batches)


def main(build, jobs, *sources):
    wanted = set(sources)
    by_options = {}
    for entry in json.loads(Path(build, "compile_commands.json").read_text()):
        if entry["file"] in wanted:
            by_options[entry["file"]] = shlex.split(re.search(r" -- (.*?) && ", entry["command"]).group(1))
    batches = Path(build, "together")
    batches.mkdir(exist_ok=True)
    calls = []
    for options, group in groupby(sorted(by_options, key=by_options.get), key=by_options.get):
        group = sorted(group)
        for begin in range(0, len(group), AT_ONCE):
            calls.append((group[begin:begin + AT_ONCE], options, batches))
    with ThreadPoolExecutor(int(jobs)) as pool:
        findings = [said for said in pool.map(lambda call: said_of(*call), calls) if said]
    print("\n".join(findings), end="", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
