#!/usr/bin/env python3
"""Names the tests that were skipped, and how to run them. Use: skipped_tests.py [--all] REPORT, which ctest
--output-junit wrote.

A test may be skipped only for what the machine lacks at the moment, and must say so: REASONS. What a test needs from
its own configuration (a number of ranks, say) is no reason: then there must be no such test.

Exit status: 1 where a test was skipped that this machine could have run; with --all, where any was.
"""

import re
import sys
import xml.etree.ElementTree

REASONS = ("machine is not quiet",  # tests of wall-clock times
           "this processor has one kind of kernels",  # what resumes under others
           "mounts of one's own are not allowed",  # small disks; root may have them, and who may have namespaces
           "chromium is not installed", "Slurm is not")  # `dev` installs them on Debian alone; and slurmd needs root

# GoogleTest prints "file:line: Skipped" and the reason below it; unittest "skipped 'reason'" or "OK (skipped=3)".
GOOGLETEST = re.compile(r"^(\S+:\d+): Skipped\n(.*)$", re.MULTILINE)
UNITTEST = re.compile(r"^(.*)\.\.\. skipped ['\"](.*)['\"]$", re.MULTILINE)
UNITTEST_COUNT = re.compile(r"^(?:OK|FAILED) \(.*\bskipped=(\d+)", re.MULTILINE)


def skips(case):
    """The skips of one of ctest's tests: pairs of place and reason."""
    if case.get("status") not in ("run", "fail"):
        element = case.find("skipped")
        reason = element.get("message", "") if element is not None else ""
        yield "the whole test", f"{case.get('status')}: {reason}"
    output = case.findtext("system-out") or ""
    yield from GOOGLETEST.findall(output)
    explained = UNITTEST.findall(output)
    yield from explained
    counted = sum(map(int, UNITTEST_COUNT.findall(output)))
    if counted > len(explained):
        yield "unittest", f"{counted} tests, of which only {len(explained)} say why (-v shows it)"


def main(report, all_must_run):
    status = 0
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = case.get("name")
        found = list(skips(case))
        for place, reason in found:
            allowed = any(part in reason for part in REASONS)
            print(f"{name}: skipped{'' if allowed else ' without need'}: {place.strip()}: {reason}")
            if all_must_run or not allowed:
                status = 1
        if found:
            print(f"******** NOT TESTED: {len(found)} of {name}. Alone, on a quiet machine: ./dev test --all -R '^{name}$'")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1], "--all" in sys.argv[1:-1]))
