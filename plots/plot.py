"""Figures of the runs below a directory, as files in <directory>/plots. Use: see request.py.

Exit status: 0 figures written, 1 they or their names could not be written, 2 wrong usage, results that cannot be read
or more figures than the limit, 130 interrupted.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from shutil import rmtree

from plots import progress
from plots.choice import choose, choose_methods
from plots.comparison import Comparison, compare, heading, subtitle
from plots.interruptible import aside
from plots.plan import KINDS, NEEDS, Planned, plan_figures
from plots.progress import followed, say
from plots.request import Request, read_request
from plots.runs import ResultsFault, read_tables, runs_below
from plots.variation import as_words

RUNS_PER_LINE, FIGURES_PER_LINE = 1000, 25  # of what is said about progress beside a terminal


def draw_figures(plan: list[Planned], comparisons: list[Comparison], request: Request):
    """All figures of the plan, one after the other, each with the name of its files."""
    # Matplotlib takes a second to load, which a message about a wrong directory need not wait for.
    from plots.drawing import Drawing
    from plots.fonts import use_fonts_for, without_font
    from plots.page import use_page

    use_page(request.page)
    if missing := use_fonts_for("".join(texts(comparisons))):
        say(without_font(missing))
    drawing = Drawing(comparisons, request)
    for planned in followed(plan, "figures", FIGURES_PER_LINE):
        if (figure := drawing.draw(planned)) is not None:
            yield planned.name, figure


def texts(comparisons: list[Comparison]) -> set[str]:
    """What users have written of what figures show."""
    return {text for comparison in comparisons
            for text in (heading(comparison), subtitle(comparison, as_words(comparison.point)),
                         *(method.label for method in comparison.methods))}


def numbered(name: str, taken: set[str]) -> str:
    """The name, or the first of name-2, name-3 and so on that is not taken; takes it. Case does not tell apart."""
    number, unique = 1, name
    while unique.casefold() in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique.casefold())
    return unique


def write_figures(figures, directory: Path, formats: tuple[str, ...]) -> list[Path]:
    """Writes all figures aside and then moves them, so that a failure leaves nothing half-written."""
    from plots.saving import save

    written, taken = [], set()
    if directory.is_symlink():
        raise ResultsFault(f"{directory}: is a link to {os.readlink(directory)}, where somebody else's files may be; figures "
                           "are not written through links: remove it")
    incomplete = aside(directory.parent, os.getpid())
    rmtree(incomplete, ignore_errors=True)  # of a process that was killed and had this one's number
    incomplete.mkdir()
    try:
        for name, figure in figures:
            save(figure, incomplete, numbered(name, taken), formats)
        for path in sorted(incomplete.iterdir()):
            directory.mkdir(exist_ok=True)
            os.replace(path, directory / path.name)
            written.append(directory / path.name)
    finally:
        rmtree(incomplete, ignore_errors=True)
    return written


def read_comparisons(directory: Path, labels: tuple[str, ...] = ()) -> list[Comparison]:
    """Of the runs below the directory, without their tables; `labels`: of these methods alone."""
    runs = runs_below(directory, lambda paths: followed(paths, "summaries read", RUNS_PER_LINE))
    for run in runs:
        if run.summary.get("status") == "failed":
            say(f"left out, because it failed: {run.directory}")
    runs = [run for run in runs if run.summary.get("status") != "failed"]
    if not runs:
        raise ResultsFault(f"{directory}: all its runs have failed; expected at least one that has not")
    comparisons = compare(choose_methods(runs, labels))
    older = [run.directory for comparison in comparisons for method in comparison.methods for run in method.older]
    for directory in dict.fromkeys(older):  # one may belong to several points
        say(f"left out, because a newer run has the same method and seed: {directory}")
    return comparisons


def plot(request: Request) -> list[Path]:
    """Reads all tables first: a fault in one of them is found before anything is drawn."""
    if request.directory.suffix == ".json":
        from plots.json_figure import write_json_figure

        return write_json_figure(request.directory, request.formats, request.page)
    comparisons = choose(read_comparisons(request.directory, request.methods), request.wanted)
    plan = plan_figures(comparisons, request.kinds, asked=set(request.kinds) != set(KINDS))
    if len(plan) > request.limit:
        raise ResultsFault(refusal(request, plan, comparisons))
    runs = [run for comparison in comparisons for run in comparison.runs]
    for run in followed(runs, "runs' tables read", RUNS_PER_LINE):
        read_tables(run)
    written = write_figures(draw_figures(plan, comparisons, request), request.directory / "plots", request.formats)
    if not written:
        raise ResultsFault(f"{request.directory}: its runs have nothing for figures of the kinds "
                           f"{', '.join(request.kinds)}; expected {expected_by(request.kinds)}")
    return written


def expected_by(kinds: tuple[str, ...]) -> str:
    """What runs must have for figures of these kinds."""
    return "; ".join(f"{kind}: {NEEDS[kind]}" for kind in kinds) if len(kinds) < len(KINDS) else "evaluations or steps"


def refusal(request: Request, plan: list[Planned], comparisons: list[Comparison]) -> str:
    """How many figures there would be, and how there can be fewer."""
    kinds = Counter(planned.kind for planned in plan)
    ways = []
    if len(kinds) > 1:
        ways.append(f"--only {min(kinds, key=kinds.get)}")
    if point := comparisons[0].point:
        ways.append(f"key=value, such as {'='.join(next(iter(point.items())))}")
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    return (f"{request.directory}: {len(plan)} figures ({counts}); must be at most {request.limit}, or as many as "
            f"--limit allows{'; fewer with ' if ways else ''}{' or '.join(ways)}")


def list_written(written: list[Path], told: str) -> int:
    """Prints their names; status 1 where nobody can read them, on a full device or without a reader."""
    if sys.stdout is None:  # closed when Python began
        say(f"{told}, but standard output is closed")
        return 1
    try:
        for path in written:
            print(path)
        sys.stdout.flush()
    except OSError as fault:
        # Python would try once more at its end, and fail with a traceback and a status of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"{told}, but standard output cannot be written: {fault.strerror}")
        return 1
    return 0


def main(arguments: list[str]) -> int:
    try:
        request = read_request(arguments)
    except SystemExit as ended:  # with a message, or help
        return ended.code
    try:
        written = plot(request)
    except ResultsFault as fault:
        say(str(fault))
        return 2
    except OSError as fault:
        say(f"cannot write the figures: {fault}")
        return 1
    return list_written(written, f"the figures are in {written[0].parent}") or int(progress.messages_lost)
