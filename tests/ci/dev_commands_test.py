"""Messages, builds and output of `dev`. Fake programs replace ninja, cmake and ctest, so that nothing is built."""

import os
import pty
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEV = ROOT / "dev"
PROGRAM = os.environ.get("SYNCOPATE_PROGRAM") or ROOT / "build" / "bin" / "syncopate"

# ctest prints this for three tests: a program that is not built yet, one under mpirun, and a Python file.
LISTED = """Could not find executable {build}/bin/apple_test
Looked in the following places:
{build}/bin/apple_test
{build}/bin/Release/apple_test
1: Test command:  "--gtest_brief=1"
  Test #1: apple_test
2: Test command: /usr/bin/mpiexec "-n" "2" "{build}/bin/pear_mpi_test"
  Test #2: pear_mpi_test_on_2_ranks
3: Test command: /usr/bin/python3 "-B" "{root}/fig_test.py"
3: Environment variables:
3:  SYNCOPATE_PROGRAM={build}/bin/syncopate
  Test #3: fig_test
"""
TARGETS = ["bin/apple_test", "bin/pear_mpi_test", "bin/plum_test", "bin/syncopate", "tests", "all"]


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

    def test_a_python_without_pytorch_is_refused_with_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            for python, said in (("/nowhere/python", "no such program"), ("/bin/false", "-m pip install torch")):
                result = subprocess.run([DEV, "--torch", python, "build"], capture_output=True, text=True,
                                        env={**os.environ, "BUILD_DIR": folder})
                self.assertEqual(result.returncode, 1)
                self.assertIn(said, result.stderr)
                self.assertEqual(os.listdir(folder), [])


class Builds(unittest.TestCase):
    """Builds in a separate build folder, with a fake ninja whose script `self.ninja` sets."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.build = self.folder / "build"
        (self.folder / "tools").mkdir()
        self.tool("cmake", 'while [[ $1 != -B ]]; do shift; done; touch "$2/build.ninja"; touch "$2/CMakeCache.txt"')
        self.tool("ctest", f"echo ctest \"$@\" >>{self.folder}/calls\n"
                           f"[[ \" $* \" != *' -N '* ]] || cat {self.folder}/listed")
        (self.folder / "listed").write_text(LISTED.format(build=self.build, root=ROOT))
        (self.folder / "targets").write_text("".join(f"{name}: phony\n" for name in TARGETS))
        self.ninja("")

    def tool(self, name, script):
        path = self.folder / "tools" / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def ninja(self, script):
        self.tool("ninja", f"if [[ \" $* \" == *' -t targets '* ]]; then cat {self.folder}/targets; exit; fi\n"
                           f"echo ninja \"$@\" >>{self.folder}/calls\n{script}")

    @property
    def environment(self):
        return {**os.environ, "BUILD_DIR": str(self.build), "SYNCOPATE_INSTALL": "0", "TERM": "xterm",
                "PATH": f"{self.folder}/tools:{os.environ['PATH']}"}

    def dev(self, *arguments):
        return subprocess.run([DEV, *arguments], capture_output=True, text=True, env=self.environment)

    def calls(self, tool):
        return [line for line in (self.folder / "calls").read_text().splitlines() if line.startswith(tool)]

    def test_only_what_chosen_tests_need_is_built(self):
        self.dev("test", "-R", "fruit")
        built = self.calls("ninja")[-1].split()
        self.assertEqual({name for name in TARGETS if name in built}, {"bin/apple_test", "bin/pear_mpi_test", "bin/syncopate"})
        self.assertIn("-R fruit", self.calls("ctest")[-1])
        packages = (self.build / "packages-chosen.stamp").read_text().split(" | ")[0].split()
        self.assertIn("python3-matplotlib", packages)  # one of the tests is a Python test
        self.assertFalse({"slurmd", "chromium", "munge"} & set(packages))

    def test_all_tests_are_built_where_none_is_chosen(self):
        self.dev("test")
        self.assertTrue(self.calls("ninja")[-1].endswith(" tests"))

    def test_what_compilers_say_is_shown_where_a_build_fails_and_nothing_else(self):
        self.ninja("echo '[1/9] Building a'; echo 'FAILED: b'; echo 'b.cpp:1: error: no'; exit 1")
        result = self.dev("build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("b.cpp:1: error: no", result.stderr)
        self.assertNotIn("Building a", result.stderr)

    def test_a_terminal_shows_how_far_the_build_is(self):
        self.ninja("for i in 1 2 3 4; do echo \"[$i/4] Building $i\"; done; echo 'warning: odd'")
        parent, child = pty.openpty()
        done = subprocess.Popen([DEV, "build"], stdout=child, stderr=child, env=self.environment)
        os.close(child)
        shown = b""
        try:
            while part := os.read(parent, 4096):
                shown += part
        except OSError:  # the other end of the terminal is closed
            pass
        os.close(parent)
        self.assertEqual(done.wait(), 0)
        text = shown.decode()
        for i in range(1, 5):
            self.assertIn(f"\r\x1b[Kbuilding: {i} of 4", text)
        self.assertIn("warning: odd", text)
        self.assertNotIn("Building 2", text)


class Installing(unittest.TestCase):
    def test_an_installed_program_finds_its_library(self):
        with tempfile.TemporaryDirectory() as folder:
            build = Path(PROGRAM).parents[1]
            subprocess.run(["cmake", "--install", build, "--prefix", folder], capture_output=True, check=True)
            version = subprocess.run([Path(folder) / "bin" / "syncopate", "--version"], capture_output=True, text=True)
        # Without the library there is no path behind LibTorch's version.
        self.assertRegex(version.stdout, r"(?m)^LibTorch +\S+ \(\S*libtorch_cpu")


class OnDebian(unittest.TestCase):
    SCRIPT = ROOT / "tests" / "ci" / "on_debian.sh"

    def test_without_root_it_says_so_and_fails(self):
        as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
        result = subprocess.run([*as_nobody, "bash", "-s", "bookworm"], input=self.SCRIPT.read_text(), capture_output=True,
                                text=True, cwd="/")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("what is missing:\n  root (this is user ", result.stderr)

    def test_wrong_usage_has_a_status_of_its_own(self):
        for arguments in ([], ["../x"], ["bookworm", "true", "more"]):
            result = subprocess.run([self.SCRIPT, *arguments], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2, result.stderr)


class Checkout(unittest.TestCase):
    ROOT_FILES = {".ci", ".clang-format", ".clang-tidy", ".dockerignore", ".editorconfig", ".gitignore", "CHANGELOG.md",
                  "CITATION.cff", "CMakeLists.txt", "CMakePresets.json", "CONTRIBUTING.md", "Containerfile", "LICENSE",
                  "README.md", "algorithms", "dev", "experiments", "plots", "results", "tests", "workers"}

    def test_nothing_stands_at_the_root_that_nobody_expects(self):
        listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True)
        names = {line.split("/")[0] for line in listed.stdout.splitlines()} if listed.returncode == 0 else set()
        self.assertLessEqual(names, self.ROOT_FILES)

    def test_pages_name_the_version_of_the_program(self):
        named = {"CMakeLists.txt": r"^project\(syncopate VERSION (\S+)", "CITATION.cff": r"^version: (\S+)",
                 "README.md": r"To cite Syncopate ([\d.]+),", "CHANGELOG.md": r"^## ([\d.]+)"}
        found = {name: re.findall(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)[:1]
                 for name, pattern in named.items()}
        self.assertEqual(found, {name: found["CMakeLists.txt"] for name in named})
        self.assertEqual(len(found["CMakeLists.txt"]), 1)


if __name__ == "__main__":
    unittest.main()
