"""The command `python -m plots`, which plot.py describes."""

import sys
from pathlib import Path

from plots.terminal import run_interruptibly


def work() -> int:
    from plots.plot import main  # importing it takes a second

    return main(sys.argv[1:])


sys.exit(run_interruptibly(work, [Path(argument) for argument in sys.argv[1:]]))
