"""The command `./dev plot`: draws figures of the runs below a directory into <directory>/plots.

Exit status: 0: figures were written; 1: the figures, or the list of their files, could not be written; 2: wrong usage,
unreadable results, or more figures than the limit; 130: interrupted.
"""

import os
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from plots import terminal
from plots.comparison import Comparison, as_words, compare, flat, heading, is_same_value, method_label, subtitle
from plots.runs import ResultsFault, Run, read_tables, runs_below
from plots.terminal import folder_aside, followed, list_written, say

NEEDS = {  # the data that each kind of figure needs
    "claims": "claims that have been judged", "sweep": "a swept number with at least three values",
    "sweeps": "a number that is swept at several values of another key",
    "heat": "two swept numbers, with at least three and two values", "regimes": "variants, or several experiments",
    "paretos": "variants, or several experiments, with evaluations",
    "rankings": "variants, or several experiments, with evaluations of three methods", "curves": "evaluations",
    "rounds": "a period that changes", "measurements": "[measurements]", "arrivals": "recording.arrivals",
    "kept": "recording.samples", "lengths": "recording.samples of texts", "timeline": "recording.trace",
    "bars": "two methods", "pareto": "evaluations", "accounts": "steps", "distributions": "at least 50 steps"}
KINDS = tuple(NEEDS)
FORMATS, COLUMNS, AXES = ("pdf", "svg", "png"), ("single", "double"), ("steps", "samples", "time", "bytes")
AXES_OF = {"screen": None, "double": ("steps", "time", "bytes"), "single": ("time", "bytes")}  # if --axis is not given
MOST_FIGURES = 100  # default of --limit; each figure takes about a second
RUNS_PER_LINE, FIGURES_PER_LINE = 1000, 25  # items per line of progress, if there is no terminal
SHOWN = 8  # most values or labels in a message


@dataclass
class Request:
    directory: Path
    every_formula: bool = False
    kinds: tuple[str, ...] = KINDS
    limit: int = MOST_FIGURES
    formats: tuple[str, ...] = ("png", "svg")
    axes: tuple[str, ...] | None = None  # axes of curves and Pareto fronts; None: those that tell most
    measures: tuple[str, ...] = ()  # measures of panels of sweeps, curves and bars; empty: those that tell most
    methods: tuple[str, ...] = ()  # labels; empty: all methods
    page: str = "screen"
    wanted: dict[str, str] = field(default_factory=dict)  # keys of configurations, with the values that runs must have

    @property
    def axes_side_by_side(self) -> tuple[str, ...]:
        """The axes of curves of several comparisons. Without --axis there is only time, because each axis repeats all
        panels."""
        return ("time",) if self.axes in (None, AXES_OF[self.page]) else self.axes


class Parser(ArgumentParser):
    def error(self, message: str):
        say(f"{message}; ./dev plot --help shows the usage")
        raise SystemExit(2)


def read_request(arguments: list[str]) -> Request:
    """Raises SystemExit, after a message, if the arguments are wrong or ask for help."""
    parser = Parser(prog="./dev plot", allow_abbrev=False,
                    description="Draws figures of the runs below a directory, as PNG and SVG files in DIRECTORY/plots. Given "
                                "FILE.json, the output of `thresholds --json FILE.json` or `predict --json`, draws it beside "
                                "the file.",
                    epilog="for example: ./dev plot results/runs/quickstart --only curves --axis time --column single "
                           "--format pdf")
    parser.add_argument("directory", metavar="DIRECTORY", type=directory, help="or FILE.json")
    parser.add_argument("wanted", metavar="key=value", nargs="*", default=[], type=key_and_value,
                        help="only runs whose configuration has this value, such as cluster.workers=8")
    parser.add_argument("--every-formula", action="store_true",
                        help="in figures of sweeps draw every formula of a method, not only that with the fewest assumptions")
    parser.add_argument("--only", metavar="KIND", dest="kinds", action="append", choices=KINDS,
                        help=f"only figures of these kinds: {', '.join(KINDS)}")
    parser.add_argument("--format", metavar="F,F", dest="formats", type=one_or_more(FORMATS), default=("png", "svg"),
                        help=f"formats of the files: {', '.join(FORMATS)} [png,svg]")
    parser.add_argument("--axis", metavar="A,A", dest="axes", type=one_or_more(AXES),
                        help=f"horizontal axes of curves, in this order, and of fronts of final results: "
                             f"{', '.join(AXES)} [all that do not repeat another axis; with --column those that fit]")
    parser.add_argument("--measure", metavar="M,M", dest="measures", action="append", type=labels, default=[],
                        help="in figures of sweeps, curves and bars only the panels of these measures, named as in claims "
                             "and in `syncopate table --measure`: --measure final_test_loss")
    parser.add_argument("--methods", metavar="M,M", action="append", type=labels, default=[],
                        help='only these methods, by their labels: --methods "synchronous SGD,DropCompute"; a comma '
                             "in a label needs a backslash before it")
    parser.add_argument("--column", choices=COLUMNS, help="draw for one or both columns of a paper, 3.4 or 7 inches wide: "
                                                          "small letters, no heading, names of lines in one legend below")
    parser.add_argument("--limit", metavar="N", type=positive, default=MOST_FIGURES,
                        help=f"refuse to draw more figures than this [{MOST_FIGURES}]")
    given = parser.parse_intermixed_args(arguments)
    methods = tuple(dict.fromkeys(label for several in given.methods for label in several))
    page = given.column or "screen"
    return Request(given.directory, given.every_formula, tuple(given.kinds or KINDS), given.limit, given.formats,
                   given.axes or AXES_OF[page], tuple(dict.fromkeys(name for several in given.measures for name in several)),
                   methods, page, dict(given.wanted))


def directory(text: str) -> Path:
    if text == "":  # Path("") is the working directory
        raise ArgumentTypeError('the name of the directory is empty (""); expected one that contains runs, such as '
                                "results/runs/<experiment>, or . for the working directory")
    return Path(text)


def one_or_more(names: tuple[str, ...]):
    """Returns a function that reads an argument such as "png,svg": one or more of `names`, separated by commas."""
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
        raise ArgumentTypeError(f"found {text}; expected an integer of at least 1")
    return int(text)


def choose(comparisons: list[Comparison], wanted: dict[str, str]) -> list[Comparison]:
    """The comparisons whose resolved configuration has all `wanted` values. Raises ResultsFault if there are none."""
    for key, value in wanted.items():
        configs = [flat(comparison.runs[0].config) | comparison.config for comparison in comparisons]
        there = list(dict.fromkeys(config[key] for config in configs if key in config))
        if not there:
            near = get_close_matches(key, configs[0], 1)
            raise ResultsFault(f"{key}={value}: the runs' configurations have no key {key}"
                               + (f"; did you mean {near[0]}?" if near else ""))
        comparisons = [comparison for comparison, config in zip(comparisons, configs)
                       if key in config and is_same_value(config[key], value)]
        if not comparisons:
            raise ResultsFault(f"{key}={value}: no run has that value; found {and_more(there)}")
    return comparisons


def choose_methods(runs: list[Run], labels: tuple[str, ...]) -> list[Run]:
    """The runs of the methods with these labels; all runs if `labels` is empty. Raises ResultsFault for an unknown
    label."""
    there = list(dict.fromkeys(method_label(run) for run in runs))
    for label in labels:
        if label not in there:
            near = {other.casefold(): other for other in reversed(there)}
            found = get_close_matches(label.casefold(), near, 1)
            raise ResultsFault(f"--methods {label}: no run has that method"
                               + (f"; did you mean {near[found[0]]}?" if found else "")
                               + f"; found {and_more(there)}")
    return [run for run in runs if method_label(run) in labels] if labels else runs


def check_measures(comparisons: list[Comparison], measures: tuple[str, ...]) -> None:
    """Raises ResultsFault for a measure that no run has."""
    if not measures:
        return
    from plots.numbers import KNOWN, OF_TARGET

    numbers = {key for comparison in comparisons for run in comparison.runs for key, value in run.summary.items()
               if isinstance(value, (int, float)) and not isinstance(value, bool)}
    there = sorted(numbers | {*KNOWN, *OF_TARGET})
    for measure in measures:
        if measure not in there:
            near = get_close_matches(measure, there, 1)
            raise ResultsFault(f"--measure {measure}: no run has that measure"
                               + (f"; did you mean {near[0]}?" if near else "") + f"; found {and_more(there)}")


def and_more(found: list[str]) -> str:
    """The first SHOWN texts, and the number of the others."""
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")


def read_comparisons(directory: Path, labels: tuple[str, ...] = ()) -> list[Comparison]:
    """Comparisons of the runs below the directory, without their tables. `labels`: methods to keep; empty: all."""
    runs = runs_below(directory, lambda paths: followed(paths, "summaries read", RUNS_PER_LINE))
    for run in runs:
        if run.summary.get("status") == "failed":
            say(f"left out, because it failed: {run.directory}")
    runs = [run for run in runs if run.summary.get("status") != "failed"]
    if not runs:
        raise ResultsFault(f"{directory}: all runs have failed; expected at least one finished run")
    comparisons = compare(choose_methods(runs, labels))
    older = [run.directory for comparison in comparisons for method in comparison.methods for run in method.older]
    for directory in dict.fromkeys(older):  # a run may belong to several points
        say(f"left out, because a newer run has the same method and seed: {directory}")
    return comparisons


def plot(request: Request) -> list[Path]:
    """Writes the figures and returns their files. Reads all tables first, so that a fault is found before it draws
    anything. Raises ResultsFault, OSError."""
    if request.directory.suffix == ".json":
        from plots.predictions import write_json_figure

        return write_json_figure(request.directory, request.formats, request.page)
    comparisons = choose(read_comparisons(request.directory, request.methods), request.wanted)
    check_measures(comparisons, request.measures)
    from plots.figures import plan_figures  # importing it takes a second, so messages come first

    plan = plan_figures(comparisons, request.kinds, asked=set(request.kinds) != set(KINDS))
    if len(plan) > request.limit:
        raise ResultsFault(refusal(request, plan, comparisons))
    runs = [run for comparison in comparisons for run in comparison.runs]
    for run in followed(runs, "runs' tables read", RUNS_PER_LINE):
        read_tables(run)
    written = write_figures(draw_figures(plan, comparisons, request), request.directory / "plots", request.formats)
    if not written:
        raise ResultsFault(f"{request.directory}: its runs have no data for figures of the kinds "
                           f"{', '.join(request.kinds)}; expected {expected_by(request.kinds)}")
    return written


def draw_figures(plan: list, comparisons: list[Comparison], request: Request):
    """Yields each figure of the plan, with the name of its files."""
    from plots.figures import Drawing
    from plots.style import use_fonts_for, use_page, without_font

    use_page(request.page)
    if missing := use_fonts_for("".join(texts(comparisons))):
        say(without_font(missing))
    drawing = Drawing(comparisons, request.axes, request.axes_side_by_side, request.every_formula, request.measures)
    for planned in followed(plan, "figures", FIGURES_PER_LINE):
        if (figure := drawing.draw(planned)) is not None:
            yield planned.name, figure


def texts(comparisons: list[Comparison]) -> set[str]:
    """The texts in figures that come from users."""
    return {text for comparison in comparisons
            for text in (heading(comparison), subtitle(comparison, as_words(comparison.point)),
                         *(method.label for method in comparison.methods))}


def numbered(name: str, taken: set[str]) -> str:
    """The first of name, name-2, name-3, ... that is not in `taken`, ignoring case. Adds it to `taken`."""
    number, unique = 1, name
    while unique.casefold() in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique.casefold())
    return unique


def write_figures(figures, directory: Path, formats: tuple[str, ...]) -> list[Path]:
    """Writes the figures into a temporary folder and then moves them, so that a failure leaves no incomplete files."""
    from plots.sheet import save

    written, taken = [], set()
    if directory.is_symlink():
        raise ResultsFault(f"{directory}: is a link to {os.readlink(directory)}; remove it, because figures are not written "
                           "through links, which may lead to somebody else's files")
    with folder_aside(directory.parent) as incomplete:
        for name, figure in figures:
            save(figure, incomplete, numbered(name, taken), formats)
        for path in sorted(incomplete.iterdir()):
            directory.mkdir(exist_ok=True)
            os.replace(path, directory / path.name)
            written.append(directory / path.name)
    return written


def expected_by(kinds: tuple[str, ...]) -> str:
    """A text about the data that figures of these kinds need."""
    return "; ".join(f"{kind}: {NEEDS[kind]}" for kind in kinds) if len(kinds) < len(KINDS) else "evaluations or steps"


def refusal(request: Request, plan: list, comparisons: list[Comparison]) -> str:
    """The message if there are too many figures, with ways to draw fewer."""
    kinds = Counter(planned.kind for planned in plan)
    ways = []
    if len(kinds) > 1:
        ways.append(f"--only {min(kinds, key=kinds.get)}")
    if point := comparisons[0].point:
        ways.append(f"key=value, such as {'='.join(next(iter(point.items())))}")
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return (f"{request.directory}: {len(plan)} figures ({counts}); must be at most {request.limit} (--limit raises this)"
            f"{'; fewer with ' if ways else ''}{' or '.join(ways)}")


def main(arguments: list[str]) -> int:
    try:
        request = read_request(arguments)
    except SystemExit as ended:  # after a message, or help
        return ended.code
    try:
        written = plot(request)
    except ResultsFault as fault:
        say(str(fault))
        return 2
    except OSError as fault:
        say(f"cannot write the figures: {fault}")
        return 1
    return list_written(written, f"the figures are in {written[0].parent}") or int(terminal.messages_lost)
