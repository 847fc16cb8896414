"""Several hosts that share a sweep. As with containers and machines, each has its own name, process numbers and file
system, and they share only the results directory.

Needs SYNCOPATE_PROGRAM. SYNCOPATE_LONG=1 runs the long set. SYNCOPATE_SEED repeats a campaign with the printed seed.
"""

import os
import re
import subprocess
import time
import unittest
from collections import Counter
from pathlib import Path

from shared_sweep import EXPERIMENT, PROGRAM, SharedSweep
from small_disk import NOT_ALLOWED, may_mount, with_own_mounts

LONG = os.environ.get("SYNCOPATE_LONG") == "1"
TIME_OUT_S = 1.0
HOSTS = ("one", "two", "three")


@unittest.skipUnless(may_mount(), NOT_ALLOWED)
class Hosts(SharedSweep):
    def start_on(self, host: str, file: Path) -> subprocess.Popen:
        """Starts a host, in which the program is process 1. The program ends with the host."""
        host_of_its_own = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]
        named = ["sh", "-c", 'hostname "$0" && exec "$@"', host]
        run = [PROGRAM, "run", str(file), "--results", str(self.results), "--threads", "1", "--share",
               "--lease-timeout", str(TIME_OUT_S)]
        process = subprocess.Popen([*host_of_its_own, *named, *run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def owners(self) -> set[tuple[str, int]]:
        return {(run["host"], run["process"]) for run in self.status()["running"]}

    def wait_for(self, owners: set[tuple[str, int]], hosts: list[subprocess.Popen]) -> None:
        while not owners <= self.owners():
            for host in hosts:
                self.assertIsNone(host.poll(), "the sweep is too short for all to have a run at once")
            time.sleep(0.02)

    def a_sweep(self, lost: int) -> None:
        """Some hosts are switched off while each of them makes a run. The other hosts make these runs."""
        file = self.write(EXPERIMENT.format(seeds=[1], micro_batches=200000, threshold_s=3000))
        reference = self.reference(file)
        hosts = [self.start_on(name, file) for name in HOSTS]
        self.wait_for({(name, 1) for name in HOSTS}, hosts)
        time.sleep(self.random.uniform(0, 0.2))
        for host in hosts[:lost]:
            host.kill()
            host.communicate()
        said = "".join(self.finish(host)[1] for host in hosts[lost:])
        self.check_ended(reference)
        if not lost:
            published = Counter(re.findall(r"^run (\d+) of 6: .*: finished after", said, re.MULTILINE))
            self.assertEqual(published, Counter(str(number) for number in range(1, 7)), said)
        for name in HOSTS[:lost]:
            self.assertIn(f": taken over from {name}, process 1, which was silent for too long", said)

    def test_share_a_sweep_though_all_are_process_1(self):
        self.a_sweep(0)

    def test_make_the_runs_of_one_that_is_lost(self):
        self.a_sweep(1)

    if LONG:
        def test_one_makes_the_runs_of_two(self):
            self.a_sweep(2)


if __name__ == "__main__":
    with_own_mounts()
    unittest.main(verbosity=2)
