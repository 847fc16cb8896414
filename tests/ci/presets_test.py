"""Every preset configures, with its tests. Most presets are only used by hand, so no other test would notice a
fault."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
CMAKE = os.environ.get("SYNCOPATE_CMAKE") or "cmake"


class Presets(unittest.TestCase):
    def test_each_configures(self):
        for preset in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]:
            compiler = preset["cacheVariables"].get("CMAKE_CXX_COMPILER")
            if compiler and not shutil.which(compiler):
                continue  # the linter's compiler may be missing
            with self.subTest(preset["name"]), tempfile.TemporaryDirectory() as build:
                configure = [CMAKE, "--preset", preset["name"], "-S", ROOT, "-B", build, "-DSYNCOPATE_TESTS=ON"]
                result = subprocess.run(configure, cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    unittest.main()
