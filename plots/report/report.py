"""One page of HTML about the runs below a directory, complete in itself. Use: see request.py.

Exit status: 0 written, 1 it could not be written or plotly.js is not there, 2 wrong usage or results that cannot be
read, 130 interrupted.
"""

import os
import shutil
from collections import defaultdict
from pathlib import Path

from plots import progress
from plots.comparison import Comparison, points_in_order
from plots.interruptible import aside
from plots.plot import RUNS_PER_LINE, list_written, read_comparisons
from plots.progress import followed, say
from plots.report.claims import read_claims
from plots.report.costs import costs_of
from plots.report.kept import is_kept
from plots.report.library import MissingLibrary, read_library
from plots.report.lines import Numbers, list_count, lines_of
from plots.report.markup import compact, packed, without_places
from plots.report.page import ExperimentPart, kept_page, page
from plots.report.request import Request
from plots.report.results import baseline, read_results
from plots.report.thinning import points_per_line
from plots.report.timeline import timeline_of
from plots.report.tuning import read_tunings
from plots.runs import ResultsFault, find_run_directories, read_tables
from plots.style import line_styles

PROGRAM = Path(__file__).parents[2] / "build" / "bin" / "syncopate"


def experiments_of(comparisons: list[Comparison]) -> list[list[Comparison]]:
    groups = defaultdict(list)
    for comparison in comparisons:
        groups[comparison.experiment].append(comparison)
    return [points_in_order(group) for group in groups.values()]


def directory_of(comparisons: list[Comparison]) -> Path:
    """Above all runs of one experiment."""
    return Path(os.path.commonpath([run.directory for comparison in comparisons for run in comparison.runs]))


def read_part(comparisons: list[Comparison], request: Request) -> ExperimentPart:
    """What a page says of one experiment, but for its curves."""
    methods = [method for comparison in comparisons for method in comparison.methods]
    against = request.against or baseline(methods)
    directory = directory_of(comparisons)
    program = os.environ.get("SYNCOPATE_PROGRAM") or str(PROGRAM)
    rows, csv, why = read_results(program, directory, comparisons[0].runs[0].config.get("name") or comparisons[0].experiment,
                                  against, asked=request.against is not None)
    beside_runs = {run.directory.parent.parent: None for comparison in comparisons for run in comparison.runs}
    looks = line_styles({method.label: method.algorithm for method in methods})
    return ExperimentPart(comparisons, rows, csv, against, why, read_claims(beside_runs), read_tunings(beside_runs), looks)


def drawn(parts: list[ExperimentPart], points: int) -> dict:
    """What the page's script draws."""
    numbers = Numbers()
    experiments = []
    for part in parts:
        shown = [lines_of(comparison, part.looks, numbers, points) | {"timeline": timeline_of(comparison, part.looks),
                                                                              "costs": costs_of(comparison, part.looks)}
                 for comparison in part.comparisons]
        csv = "\n".join(without_places(line) for line in part.csv.split("\n"))
        experiments.append({"points": shown, "csv": csv, "sweeps": part.sweeps})
    return {"numbers": numbers.lists, "experiments": experiments}


def report(request: Request) -> None:
    """Reads everything first: a fault is found before anything is written."""
    if is_kept(request.directory):
        if request.against:
            say("--against needs runs; here are kept summaries alone, and the page has the table as it was kept")
        return write_page(kept_page(request.directory.resolve()), request.output)
    library = read_library()
    directories = find_run_directories(request.directory)
    comparisons = read_comparisons(request.directory)
    runs = list({run.directory: run for comparison in comparisons for run in comparison.runs}.values())
    for run in followed(runs, "runs' tables read", RUNS_PER_LINE):
        read_tables(run)
    parts = [read_part(group, request) for group in experiments_of(comparisons)]
    points = points_per_line(list_count(comparisons))
    text = page(parts, packed(compact(drawn(parts, points))), library,
                runs, len(directories) - len(runs), points)
    write_page(text, request.output)


def write_page(text: str, file: Path) -> None:
    """Whole or not at all."""
    incomplete = aside(file.parent, os.getpid())
    shutil.rmtree(incomplete, ignore_errors=True)  # of a process that was killed and had this one's number
    incomplete.mkdir()
    try:
        (incomplete / file.name).write_text(text, encoding="utf-8", errors="replace")
        os.replace(incomplete / file.name, file)
    finally:
        shutil.rmtree(incomplete, ignore_errors=True)


def main(request: Request) -> int:
    progress.command = "report"
    try:
        report(request)
    except ResultsFault as fault:
        say(str(fault))
        return 2
    except MissingLibrary as fault:
        say(str(fault))
        return 1
    except OSError as fault:
        say(f"cannot write the page: {fault}")
        return 1
    return list_written([request.output], f"the page is {request.output}") or int(progress.messages_lost)
