"""Reads the arguments of the command `./dev report`; page.py does the work.

This file imports little, because the arguments are read before signals are handled.
"""

import os
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

from plots import terminal
from plots.terminal import run_interruptibly, say

PAGE = "report.html"


@dataclass
class Request:
    directory: Path
    output: Path
    against: str | None = None  # method to compare with; None: chosen by results.baseline


class Parser(ArgumentParser):
    def error(self, message: str):
        say(f"{message}; ./dev report --help shows the usage")
        raise SystemExit(2)


def read_request(arguments: list[str]) -> Request:
    """Raises SystemExit, after a message, if the arguments are wrong or ask for help."""
    parser = Parser(prog="./dev report", allow_abbrev=False,
                    description="Writes a self-contained HTML page about the runs below a directory. It opens in a browser "
                                "from the disk, without a network.",
                    epilog="for example: ./dev report results/runs/quickstart -o quickstart.html")
    parser.add_argument("directory", metavar="DIRECTORY", help="contains runs, such as results/runs/<experiment>")
    parser.add_argument("-o", "--output", metavar="FILE", help=f"where the page is written [DIRECTORY/{PAGE}]")
    parser.add_argument("--against", metavar="METHOD",
                        help="the method to compare the others with [the first sync-sgd, otherwise the first method]")
    given = parser.parse_args(arguments)
    if given.directory == "":  # Path("") is the working directory
        parser.error('the name of the directory is empty (""); expected one that contains runs, such as '
                     "results/runs/<experiment>, or . for the working directory")
    if given.output == "":
        parser.error('-o: the name of the file is empty (""); expected a file, such as report.html')
    directory = Path(given.directory)
    output = Path(given.output) if given.output else directory / PAGE
    if given.output and output.is_symlink():  # the page replaces the file to which a link leads, not the link
        output = Path(os.path.realpath(output))
    if given.output and (why := why_not_writable(output)):
        parser.error(f"-o {given.output}: {why}")
    return Request(directory, output, given.against)


def why_not_writable(file: Path) -> str:
    """The reason why a page cannot be written into this file; empty if it can."""
    if file.is_dir():
        return "is a directory; expected a file, such as report.html"
    if file.exists() and not file.is_file():  # the page would replace a device
        return "is not a regular file; expected one, such as report.html"
    if not file.parent.is_dir():
        return f"there is no directory {file.parent}; create it, or name a file in another directory"
    if not os.access(file.parent, os.W_OK):
        return f"no permission to write into the directory {file.parent}"
    return ""


def main() -> int:
    terminal.command = "report"
    try:
        request = read_request(sys.argv[1:])
    except SystemExit as ended:  # after a message, or help
        return ended.code

    def work() -> int:
        from plots.report.page import main  # importing it takes a second

        return main(request)

    return run_interruptibly(work, [request.output.parent])


if __name__ == "__main__":
    sys.exit(main())
