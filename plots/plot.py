"""Figures of the runs below a directory, as PNG and SVG in <directory>/plots. Use: python -m plots [--every-formula]
DIRECTORY

Exit status: 0 figures written, 1 they or their names could not be written, 2 wrong usage or results that cannot be read,
130 interrupted.
"""

import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from shutil import rmtree
from zlib import crc32

from plots.comparison import Comparison, compare, heading, subtitle
from plots.interruptible import aside
from plots.runs import ResultsFault, find_run_directories, read_run
from plots.variation import as_words


USAGE = """Use: ./dev plot [--every-formula] DIRECTORY, for example ./dev plot results/runs/quickstart
  --every-formula  draw every formula of a method in figures of sweeps, not only the one that assumes least"""


def draw_figures(comparisons: list[Comparison], every_formula: bool):
    """All figures of the comparisons, one after the other, each with the name of its files."""
    # Matplotlib takes a second to load, which a message about a wrong directory need not wait for.
    from plots.curves_figure import curves_figure
    from plots.rounds_figure import rounds_figure
    from plots.style import line_styles
    from plots.sweep_figure import sweep_figures
    from plots.timeline_figure import timeline_figure

    algorithms = defaultdict(dict)
    for comparison in comparisons:
        for method in comparison.methods:
            algorithms[comparison.experiment].setdefault(method.label, method.algorithm)
    styles = {experiment: line_styles(methods) for experiment, methods in algorithms.items()}
    several = len(styles) > 1
    for experiment, figure in sweep_figures(comparisons, styles, every_formula):
        yield file_name("sweep", experiment if several else ""), figure
    for comparison in comparisons:
        point = as_words(comparison.point)
        for kind, draw in (("curves", curves_figure), ("rounds", rounds_figure), ("timeline", timeline_figure)):
            figure = draw(comparison.methods, styles[comparison.experiment], heading(comparison),
                          subtitle(comparison, point))
            if figure is not None:
                yield file_name(kind, comparison.experiment if several else "", point), figure


def file_name(*parts: str) -> str:
    """The parts that are not empty, in characters that suit every file system; the end of a long one as a digest.
    A plus is dropped: 1e+06 must not become 1e-06."""
    name = re.sub(r"[^\w.=-]+", "-", "-".join(part for part in parts if part).replace("+", ""))
    return name if len(name) <= 100 else f"{name[:90]}-{crc32(name.encode()):08x}"


def numbered(name: str, taken: set[str]) -> str:
    """The name, or the first of name-2, name-3 and so on that is not taken; takes it. Case does not tell apart."""
    number, unique = 1, name
    while unique.casefold() in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique.casefold())
    return unique


def write_figures(figures, directory: Path) -> list[Path]:
    """Writes all figures aside and then moves them, so that a failure leaves nothing half-written."""
    from matplotlib.pyplot import close

    written, taken = [], set()
    incomplete = aside(directory.parent, os.getpid())
    rmtree(incomplete, ignore_errors=True)  # of a process that was killed and had this one's number
    incomplete.mkdir()
    try:
        for name, figure in figures:
            name = numbered(name, taken)
            figure.savefig(incomplete / f"{name}.png", dpi=150)
            figure.savefig(incomplete / f"{name}.svg", metadata={"Date": None})
            close(figure)
        for path in sorted(incomplete.iterdir()):
            directory.mkdir(exist_ok=True)
            os.replace(path, directory / path.name)
            written.append(directory / path.name)
    finally:
        rmtree(incomplete, ignore_errors=True)
    return written


def plot(directory: Path, every_formula: bool = False) -> list[Path]:
    """Reads all runs first: a fault in one of them is found before anything is drawn."""
    runs = [read_run(path) for path in find_run_directories(directory)]
    for run in runs:
        if run.summary.get("status") == "failed":
            print(f"plot: left out, because it failed: {run.directory}", file=sys.stderr)
    runs = [run for run in runs if run.summary.get("status") != "failed"]
    if not runs:
        raise ResultsFault(f"{directory}: all its runs have failed; expected at least one that has not")
    comparisons = compare(runs)
    for run in [run for comparison in comparisons for method in comparison.methods for run in method.older]:
        print(f"plot: left out, because a newer run has the same method and seed: {run.directory}", file=sys.stderr)
    written = write_figures(draw_figures(comparisons, every_formula), directory / "plots")
    if not written:
        raise ResultsFault(f"{directory}: its runs have neither evaluations nor steps; expected at least one")
    return written


def list_figures(written: list[Path]) -> int:
    """Prints their names; status 1 where nobody can read them, on a full device or without a reader."""
    if sys.stdout is None:  # closed when Python began
        print(f"plot: the figures are in {written[0].parent}, but standard output is closed", file=sys.stderr)
        return 1
    try:
        for path in written:
            print(path)
        sys.stdout.flush()
    except OSError as fault:
        # Python would try once more at its end, and fail with a traceback and a status of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"plot: the figures are in {written[0].parent}, but standard output cannot be written: {fault.strerror}",
              file=sys.stderr)
        return 1
    return 0


def main(arguments: list[str]) -> int:
    every_formula = "--every-formula" in arguments
    directories = [argument for argument in arguments if argument != "--every-formula"]
    if len(directories) != 1 or directories[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    if directories[0] == "":  # which Path takes for the working directory
        print('plot: the name of the directory is empty (""); expected a directory above runs, such as '
              "results/runs/<experiment>, or . for the working directory", file=sys.stderr)
        return 2
    try:
        written = plot(Path(directories[0]), every_formula)
    except ResultsFault as fault:
        print(f"plot: {fault}", file=sys.stderr)
        return 2
    except OSError as fault:
        print(f"plot: cannot write the figures: {fault}", file=sys.stderr)
        return 1
    return list_figures(written)
