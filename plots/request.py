"""What the command line asks for."""

import re
from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from plots.plan import KINDS
from plots.progress import say

FORMATS, COLUMNS, AXES = ("pdf", "svg", "png"), ("single", "double"), ("steps", "samples", "time", "bytes")
AXES_OF = {"screen": AXES, "double": ("steps", "time", "bytes"), "single": ("time", "bytes")}  # where none is asked for
MOST_FIGURES = 100  # unless --limit says otherwise: each takes about a second


@dataclass
class Request:
    directory: Path
    every_formula: bool = False
    kinds: tuple[str, ...] = tuple(KINDS)
    limit: int = MOST_FIGURES
    formats: tuple[str, ...] = ("png", "svg")
    axes: tuple[str, ...] = AXES  # of curves
    methods: tuple[str, ...] = ()  # labels; none: all
    page: str = "screen"
    wanted: dict[str, str] = field(default_factory=dict)  # of the runs' configurations: key and value


class Parser(ArgumentParser):
    def error(self, message: str):
        say(f"{message}; ./dev plot --help shows the usage")
        raise SystemExit(2)


def read_request(arguments: list[str]) -> Request:
    """Throws SystemExit, after a message, where they are wrong or ask for help."""
    parser = Parser(prog="./dev plot", allow_abbrev=False,
                    description="Figures of the runs below a directory, as PNG and SVG in DIRECTORY/plots; or of "
                                "what `thresholds --json FILE.json` has written or `predict --json` printed, beside that.",
                    epilog="for example: ./dev plot results/runs/quickstart --only curves --axis time --column single "
                           "--format pdf")
    parser.add_argument("directory", metavar="DIRECTORY", type=directory, help="or FILE.json")
    parser.add_argument("wanted", metavar="key=value", nargs="*", default=[], type=key_and_value,
                        help="only runs whose configuration has this value, such as cluster.workers=8")
    parser.add_argument("--every-formula", action="store_true",
                        help="in figures of sweeps every formula of a method, not only the one that assumes least")
    parser.add_argument("--only", metavar="KIND", dest="kinds", action="append", choices=KINDS,
                        help=f"only figures of this kind, or of several: {', '.join(KINDS)}")
    parser.add_argument("--format", metavar="F,F", dest="formats", type=one_or_more(FORMATS), default=("png", "svg"),
                        help=f"of the files: {', '.join(FORMATS)} [png,svg]")
    parser.add_argument("--axis", metavar="A,A", dest="axes", type=one_or_more(AXES),
                        help=f"what curves stand against, in this order, and what results are weighed against: "
                             f"{', '.join(AXES)} [all; in columns those for which there is room]")
    parser.add_argument("--methods", metavar="M,M", action="append", type=labels, default=[],
                        help='only these methods, by their labels: --methods "synchronous SGD,DropCompute"; one whose '
                             "label has a comma in an option of its own, with a backslash before the comma")
    parser.add_argument("--column", choices=COLUMNS, help="for one or both columns of a paper, 3.4 and 7 inches wide: small "
                                                          "letters, no heading, names of lines in one legend below")
    parser.add_argument("--limit", metavar="N", type=positive, default=MOST_FIGURES,
                        help=f"refuse to draw more figures than this [{MOST_FIGURES}]")
    given = parser.parse_intermixed_args(arguments)
    methods = tuple(dict.fromkeys(label for several in given.methods for label in several))
    page = given.column or "screen"
    return Request(given.directory, given.every_formula, tuple(given.kinds or KINDS), given.limit, given.formats,
                   given.axes or AXES_OF[page], methods, page, dict(given.wanted))


def directory(text: str) -> Path:
    if text == "":  # which Path takes for the working directory
        raise ArgumentTypeError('the name of the directory is empty (""); expected a directory above runs, such as '
                                "results/runs/<experiment>, or . for the working directory")
    return Path(text)


def one_or_more(names: tuple[str, ...]):
    """Reads some of the names, with commas between them."""
    def read(text: str) -> tuple[str, ...]:
        asked = [part.strip() for part in text.split(",")]
        for part in asked:
            if part not in names:
                near = get_close_matches(part, names, 1)
                raise ArgumentTypeError(f"found {part or 'nothing'}; expected one or more of {','.join(names)}"
                                        + (f"; did you mean {near[0]}?" if near else ""))
        return tuple(dict.fromkeys(asked))
    return read


def labels(text: str) -> tuple[str, ...]:
    found = tuple(part.strip().replace("\\,", ",") for part in re.split(r"(?<!\\),", text))
    if not all(found):
        raise ArgumentTypeError('found an empty name; expected labels of methods, such as "synchronous SGD,DropCompute"')
    return found


def key_and_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ArgumentTypeError(f"found {text}; expected key=value, such as cluster.workers=8")
    return key, value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"found {text}; expected a number from 1 on")
    return int(text)
