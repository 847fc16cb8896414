"""What dev says of a command that is none."""

import subprocess
import unittest
from pathlib import Path

DEV = Path(__file__).parents[2] / "dev"


class Commands(unittest.TestCase):
    def test_an_unknown_one_names_those_of_dev_and_of_the_program(self):
        result = subprocess.run([DEV, "frobnicate"], capture_output=True, text=True)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        said, _, known = result.stderr.splitlines()[0].partition(" must be one of ")
        self.assertEqual(said, "dev: frobnicate: unknown command;")
        self.assertEqual(len(known.split()), len(set(known.split())))
        self.assertLessEqual({"run", "predict", "compare", "table", "claims", "export", "check", "list", "thresholds", "paper",
                              "mpirun", "plot", "report", "test", "bench", "build", "lint", "format", "help"}, set(known.split()))


if __name__ == "__main__":
    unittest.main()
