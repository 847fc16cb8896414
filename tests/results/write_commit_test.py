"""A build records whether the program differs from its commit. If so, results mark the commit as "changed"."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

FILES = ["CMakeLists.txt", "README.md", "dev", "algorithms/a.cpp", "algorithms/README.md", "experiments/commands/main.cpp",
         "experiments/paper/p.toml", "results/claims.hpp", "results/paper/p/claims.json", "results/paper/README.md",
         "results/write_commit.cmake", "tests/results/a_test.cpp", "plots/a.py", "workers/CMakeLists.txt",
         "workers/time/data/d.csv", "workers/time/embedded.cpp.in"]
OF_PROGRAM = {"CMakeLists.txt", "algorithms/a.cpp", "experiments/commands/main.cpp", "results/claims.hpp",
              "results/write_commit.cmake", "workers/CMakeLists.txt", "workers/time/data/d.csv",
              "workers/time/embedded.cpp.in"}


class WriteCommit(unittest.TestCase):
    def setUp(self):
        whole = tempfile.TemporaryDirectory()
        self.addCleanup(whole.cleanup)
        self.root = Path(whole.name) / "checkout"
        for name in FILES:
            self.write(name, "as committed\n")
        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "--quiet", "-m", "first")

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def git(self, *words):
        return subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True, text=True).stdout

    def is_dirty(self):
        output = self.root.parent / "commit.inc"
        subprocess.run([os.environ["SYNCOPATE_CMAKE"], f"-DSOURCE_DIR={self.root}", f"-DOUTPUT={output}", "-P",
                        os.environ["SYNCOPATE_SCRIPT"]], check=True, capture_output=True)
        said = output.read_text()
        self.assertIn(self.git("rev-parse", "HEAD").strip(), said)
        return {'"true"': True, '"false"': False}[said.split()[-1]]

    def test_nothing_has_changed_in_what_is_committed(self):
        self.assertFalse(self.is_dirty())

    def test_only_what_the_program_is_built_from_counts(self):
        for name in FILES:
            with self.subTest(file=name):
                self.write(name, "changed\n")
                self.assertEqual(self.is_dirty(), name in OF_PROGRAM)
                self.git("checkout", "--", name)

    def test_a_source_that_is_not_committed_counts(self):
        for name, counts in (("algorithms/new.cpp", True), ("notes.cpp", False), ("experiments/paper/new.toml", False)):
            with self.subTest(file=name):
                self.write(name, "new\n")
                self.assertEqual(self.is_dirty(), counts)
                (self.root / name).unlink()


if __name__ == "__main__":
    unittest.main(verbosity=2)
