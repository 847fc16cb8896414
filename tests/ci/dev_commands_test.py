"""What dev says of a command that is none."""

import os
import re
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEV = ROOT / "dev"
PROGRAM = os.environ.get("SYNCOPATE_PROGRAM") or ROOT / "build" / "bin" / "syncopate"


class Commands(unittest.TestCase):
    def test_an_unknown_one_names_those_of_dev_and_of_the_program(self):
        result = subprocess.run([DEV, "frobnicate"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        said, _, known = result.stderr.splitlines()[0].partition(" must be one of ")
        self.assertEqual(said, "dev: frobnicate: unknown command;")
        self.assertEqual(len(known.split()), len(set(known.split())))
        told = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
        subcommands = re.findall(r"^  ([a-z]+) ", told.partition("Subcommands:")[2].partition("Examples:")[0], re.MULTILINE)
        self.assertGreater(len(subcommands), 5)
        self.assertLessEqual({*subcommands, "paper", "mpirun", "plot", "report", "test", "bench", "build", "lint", "format", "help"},
                             set(known.split()))


if __name__ == "__main__":
    unittest.main()
