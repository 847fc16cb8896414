"""What the tests share: a temporary directory, reading the results in it, and calling plot.py on it."""

import contextlib
import io
import json
import tempfile
import unittest
import warnings
from pathlib import Path

from plots.comparison import compare
from plots.plot import main
from plots.runs import read_tables, runs_below


class WithDirectory(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name).resolve()

    def status_and_message(self, *arguments):
        """Exit status and standard error of a call of plot.py."""
        with (contextlib.redirect_stderr(io.StringIO()) as message, contextlib.redirect_stdout(io.StringIO()),
              warnings.catch_warnings()):
            warnings.simplefilter("error")
            status = main([str(argument) for argument in arguments])
        return status, message.getvalue()


def comparisons_below(directory):
    runs = runs_below(directory)
    for run in runs:
        read_tables(run)
    return compare(runs)


def change(path, **values):
    """Sets keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
