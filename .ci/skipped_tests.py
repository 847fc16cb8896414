#!/usr/bin/env python3
"""Names the skipped tests, and says how to run them. Usage: skipped_tests.py [--all] REPORT, where REPORT was written
by ctest --output-junit.

A test may be skipped only because the machine lacks something at the moment, and must give one of REASONS. A test that
its own configuration (such as its number of ranks) rules out must not exist, instead of being skipped.

Exit status: 1 if a test was skipped that this machine could have run; with --all, 1 if any test was skipped.
"""

import re
import sys
import xml.etree.ElementTree

REASONS = ("machine is not quiet",  # tests of wall-clock times
           "this processor has one kind of kernels",  # tests that resume a run with other kernels
           "mounts of one's own are not allowed",  # tests with small disks, which need root or user namespaces
           "chromium is not installed", "Slurm is not")  # `dev` installs both only on Debian, and slurmd needs root

# GoogleTest prints "file:line: Skipped", with the reason on the next line. unittest prints "name ... skipped 'reason'",
# or only the number of skipped tests: "OK (skipped=3)". Lines of the test itself may stand between "..." and "skipped".
GOOGLETEST = re.compile(r"^(\S+:\d+): Skipped\n(.*)$", re.MULTILINE)
UNITTEST = re.compile(r"^(?:(.*)\.\.\. )?skipped ['\"](.*)['\"]$", re.MULTILINE)
UNITTEST_COUNT = re.compile(r"^(?:OK|FAILED) \(.*\bskipped=(\d+)", re.MULTILINE)


def skips(case):
    """The skips in one of ctest's tests, as pairs of place and reason."""
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
