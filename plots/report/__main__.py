"""The command, `python -m plots.report`: see report.py."""

import sys

from plots import progress
from plots.interruptible import run_interruptibly
from plots.report.request import read_request

progress.command = "report"
try:
    request = read_request(sys.argv[1:])
except SystemExit as ended:  # with a message, or help
    sys.exit(ended.code)


def work() -> int:
    from plots.report.report import main  # takes a second

    return main(request)


sys.exit(run_interruptibly(work, [request.output.parent]))
