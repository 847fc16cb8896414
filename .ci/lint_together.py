"""What clang-tidy says of some sources, in less time than of each by itself.

  lint_together.py BUILD_DIRECTORY JOBS SOURCE ...

Most of clang-tidy's time goes to headers of others, so it is shown up to six sources as one. Where these do not compile
as one, since two have a name of their own alike, or where something is found, it is shown each half, and so on: what is
printed is said of a source by itself. Whether each source includes all that it uses is not seen here; ./dev lint without
--since sees it. Exit status: 1 where something is found.
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
    """Findings, or nothing."""
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
