"""What the command line asks for."""

from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import dataclass, field
from pathlib import Path

from plots.plan import KINDS
from plots.progress import say

MOST_FIGURES = 100  # unless --limit says otherwise: each takes about a second


@dataclass
class Request:
    directory: Path
    every_formula: bool = False
    kinds: tuple[str, ...] = tuple(KINDS)
    limit: int = MOST_FIGURES
    wanted: dict[str, str] = field(default_factory=dict)  # of the runs' configurations: key and value


class Parser(ArgumentParser):
    def error(self, message: str):
        say(f"{message}; ./dev plot --help shows the usage")
        raise SystemExit(2)


def read_request(arguments: list[str]) -> Request:
    """Throws SystemExit, after a message, where they are wrong or ask for help."""
    parser = Parser(prog="./dev plot", allow_abbrev=False,
                    description="Figures of the runs below a directory, as PNG and SVG in DIRECTORY/plots; or of "
                                "what `thresholds --json FILE.json` has written, beside that.",
                    epilog="for example: ./dev plot results/runs/quickstart")
    parser.add_argument("directory", metavar="DIRECTORY", type=directory, help="or FILE.json")
    parser.add_argument("wanted", metavar="key=value", nargs="*", default=[], type=key_and_value,
                        help="only runs whose configuration has this value, such as cluster.workers=8")
    parser.add_argument("--every-formula", action="store_true",
                        help="in figures of sweeps every formula of a method, not only the one that assumes least")
    parser.add_argument("--only", metavar="KIND", dest="kinds", action="append", choices=KINDS,
                        help=f"only figures of this kind, or of several: {', '.join(KINDS)}")
    parser.add_argument("--limit", metavar="N", type=positive, default=MOST_FIGURES,
                        help=f"refuse to draw more figures than this [{MOST_FIGURES}]")
    given = parser.parse_intermixed_args(arguments)
    return Request(given.directory, given.every_formula, tuple(given.kinds or KINDS), given.limit, dict(given.wanted))


def directory(text: str) -> Path:
    if text == "":  # which Path takes for the working directory
        raise ArgumentTypeError('the name of the directory is empty (""); expected a directory above runs, such as '
                                "results/runs/<experiment>, or . for the working directory")
    return Path(text)


def key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"found {text}; expected key=value, such as cluster.workers=8")
    return key, value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"found {text}; expected a number from 1 on")
    return int(text)
