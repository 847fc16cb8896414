"""The page of a report: reads the results below a directory, puts the sections together and writes the file. If the
directory has kept summaries but no runs, as results/paper has, the page shows the summaries.

Exit status: 0: the page was written; 1: it could not be written, or plotly.js is missing; 2: wrong usage or unreadable
results; 130: interrupted.
"""

import base64
import gzip
import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path

from plots import terminal
from plots.claims import claims_table, read_claims
from plots.comparison import BETWEEN, Comparison, as_words, heading, points_in_order, seeds_text, subtitle
from plots.figures import file_name
from plots.frames import PROGRAM
from plots.plot import RUNS_PER_LINE, read_comparisons
from plots.report import escaped, rows_markup, table_markup, without_places
from plots.report.charts import (Numbers, account_colours, accounts_table, clock_of, costs_of, lines_of, list_count,
                                 points_per_line, swatch, sweeps_of, timeline_of)
from plots.report.provenance import (configuration_section, file_of, metadata_section, read_tunings, reproduce_section,
                                     tuning_section)
from plots.report.results import (Outcome, Row, bars_table, baseline, read_results, results_notes, results_table, sentences,
                                  target_text)
from plots.runs import CLAIMS, RUN_DIRECTORY, TRACE, ResultsFault, Run, find_run_directories, read_tables
from plots.style import line_styles
from plots.terminal import folder_aside, followed, list_written, say

HERE = Path(__file__).parent
# The browser must not load anything for the page, even if a label or plotly.js requests it.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"

PLOTLY = [Path("/usr/share/python3-plotly/plotly.js"), Path("/usr/share/python3-plotly/plotly.min.js")]
VERSION = re.compile(rb"plotly\.js v([\d.]+)")

TABLE, ROWS = "table.md", "runs.csv"  # a directory of kept summaries has one of these, or claims
MOST_FIGURES = 4_200_000  # most bytes of a page's figures; base64 makes them a third larger


def main(request) -> int:
    """Writes the page that a Request (plots.report.__main__) asks for; returns the exit status."""
    terminal.command = "report"
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
    return list_written([request.output], f"the page is {request.output}") or int(terminal.messages_lost)


def report(request) -> None:
    """Writes the page. Reads everything first, so that it finds a fault before it writes anything. Raises ResultsFault,
    MissingLibrary, OSError."""
    if is_kept(request.directory):
        if request.against:
            say("--against is ignored: the directory contains only kept summaries, whose table is shown unchanged")
        return write_page(kept_page(request.directory.resolve()), request.output)
    library = read_library()
    directories = find_run_directories(request.directory)
    comparisons = read_comparisons(request.directory)
    runs = list({run.directory: run for comparison in comparisons for run in comparison.runs}.values())
    for run in followed(runs, "runs' tables read", RUNS_PER_LINE):
        read_tables(run)
    parts = [read_part(group, request.against) for group in experiments_of(comparisons)]
    points = points_per_line(list_count(comparisons))
    text = page(parts, packed(compact(drawn(parts, points))), library, runs, len(directories) - len(runs), points)
    write_page(text, request.output)


def write_page(text: str, file: Path) -> None:
    """Writes the whole file, or nothing."""
    with folder_aside(file.parent) as incomplete:
        (incomplete / file.name).write_text(text, encoding="utf-8", errors="replace")
        os.replace(incomplete / file.name, file)


class MissingLibrary(Exception):
    """plotly.js is missing; the message says how to install it."""


def read_library() -> bytes:
    """The text of plotly.js, from the distribution's package python3-plotly or an installed Python package. Raises
    MissingLibrary."""
    found = find_spec("plotly")
    own = [Path(found.origin).parent / "package_data" / "plotly.min.js"] if found and found.origin else []
    for path in [*PLOTLY, *own]:
        try:
            return path.read_bytes()
        except OSError:
            continue
    raise MissingLibrary("plotly.js is missing; install the package python3-plotly, which contains it")


def library_name(library: bytes) -> str:
    found = VERSION.search(library[:2000])
    return f"plotly.js{f' {found[1].decode()}' if found else ''} (MIT licence)"


@dataclass
class ExperimentPart:
    """An experiment on the page."""

    comparisons: list[Comparison]
    rows: list[Row]
    csv: str
    against: str
    why: str  # why there are no differences; empty if there are some
    claims: list[dict]
    tunings: list[dict]
    looks: dict[str, dict]  # by label

    @property
    def swatches(self) -> dict[str, str]:
        return {label: swatch(look) for label, look in self.looks.items()}

    @cached_property
    def sweeps(self) -> list[dict]:
        return sweeps_of(self.comparisons, self.looks, self.claims)

    @cached_property
    def sections(self) -> list[tuple[str, str, str]]:
        return named_sections(self)

    @property
    def file_name(self) -> str:
        return file_name(self.comparisons[0].experiment)


def experiments_of(comparisons: list[Comparison]) -> list[list[Comparison]]:
    groups = defaultdict(list)
    for comparison in comparisons:
        groups[comparison.experiment].append(comparison)
    return [points_in_order(group) for group in groups.values()]


def directory_of(comparisons: list[Comparison]) -> Path:
    """The directory above all runs of one experiment."""
    return Path(os.path.commonpath([run.directory for comparison in comparisons for run in comparison.runs]))


def read_part(comparisons: list[Comparison], asked_against: str | None) -> ExperimentPart:
    """Reads everything that the page shows of one experiment, except curves."""
    methods = [method for comparison in comparisons for method in comparison.methods]
    against = asked_against or baseline(methods)
    directory = directory_of(comparisons)
    program = os.environ.get("SYNCOPATE_PROGRAM") or str(PROGRAM)
    rows, csv, why = read_results(program, directory, comparisons[0].runs[0].config.get("name") or comparisons[0].experiment,
                                  against, asked=asked_against is not None)
    beside_runs = {run.directory.parent.parent: None for comparison in comparisons for run in comparison.runs}
    looks = line_styles({method.label: method.algorithm for method in methods})
    return ExperimentPart(comparisons, rows, csv, against, why, read_claims(beside_runs), read_tunings(beside_runs), looks)


def drawn(parts: list[ExperimentPart], points: int) -> dict:
    """The data that the page's script draws."""
    numbers = Numbers()
    experiments = []
    for part in parts:
        shown = [lines_of(comparison, part.looks, numbers, points)
                 | {"timeline": timeline_of(comparison, part.looks), "costs": costs_of(comparison, part.looks)}
                 for comparison in part.comparisons]
        csv = "\n".join(without_places(line) for line in part.csv.split("\n"))
        experiments.append({"points": shown, "csv": csv, "sweeps": part.sweeps})
    return {"numbers": numbers.lists, "experiments": experiments}


def packed(text: str | bytes) -> str:
    """The compressed text in base64, which contains no markup; the page's script unpacks it. Deterministic."""
    content = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def compact(document) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def page(parts: list[ExperimentPart], data: str, library: bytes, runs: list[Run], left_out: int, points: int) -> str:
    """The page of experiments with runs. `data`: packed data for the script; `left_out`: number of runs that are not on
    the page; `points`: most points of a line."""
    title = heading(parts[0].comparisons[0]) if len(parts) == 1 else f"{len(parts)} experiments"
    sections = [experiment_article(part, number, len(parts) > 1) for number, part in enumerate(parts)]
    draws = any(curves_frame(part) or timeline_frame(part) or part.sweeps for part in parts)
    about = section("about", "About these runs", metadata_section(runs, left_out, points, library_name(library) if draws else ""))
    main = f"""<noscript><p class="note">Curves and timelines need JavaScript; tables do not.</p></noscript>
<p class="fault" role="alert" hidden></p>
{"".join(sections)}{about}"""
    scripts = f"""<script type="text/plain" id="data">{data}</script>
<script type="text/plain" id="library">{packed(library) if draws else ""}</script>
<script>
{(HERE / "page.js").read_text(encoding="utf-8")}
</script>
"""
    return framed(title, header_facts(parts), navigation(parts), main, scripts)


def framed(title: str, facts: str, links: str, main: str, scripts: str) -> str:
    """The whole page. All arguments but the title are markup."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<link rel="icon" href="data:,">
<title>{escaped(title)}</title>
<style>
{(HERE / "page.css").read_text(encoding="utf-8")}{account_colours()}
</style>
</head>
<body>
<header>
<h1>{escaped(title)}</h1>
<p class="facts">{facts}</p>
{links}
</header>
<main>
{main}
</main>
{scripts}<script>
{(HERE / "more.js").read_text(encoding="utf-8")}
</script>
</body>
</html>
"""


def header_facts(parts: list[ExperimentPart]) -> str:
    if len(parts) == 1:
        return escaped(own_facts(parts[0]))
    return escaped(", ".join(part.comparisons[0].experiment for part in parts))


def own_facts(part: ExperimentPart) -> str:
    """The facts about an experiment: workers, model and seeds, and if there are several points, their number."""
    first = part.comparisons[0]
    facts = [fact for fact in subtitle(first, "").split(BETWEEN) if not fact.startswith(("line: mean", "one seed"))]
    if len(part.comparisons) > 1:
        facts = [*(fact for fact in facts if not (fact.endswith(" workers") and "cluster.workers" in first.point)),
                 f"{len(part.comparisons)} points"]
    seeds = {len(method.runs) for comparison in part.comparisons for method in comparison.methods}
    return BETWEEN.join([*facts, f"{'up to ' if len(seeds) > 1 else ''}{seeds_text(max(seeds))}"])


def navigation(parts: list[ExperimentPart]) -> str:
    if len(parts) > 1:
        links = [(f"e{number}", part.comparisons[0].experiment) for number, part in enumerate(parts)]
    else:
        links = [(f"e0-{key}", name) for key, name, _ in parts[0].sections]
    links.append(("about", "About"))
    return f'<nav>{"".join(f"""<a href="#{key}">{escaped(name)}</a>""" for key, name in links)}</nav>'


def is_target_missed(comparisons: list[Comparison]) -> bool:
    """Whether there is a target that no run reached."""
    targets = [run.summary["time_to_target"] for comparison in comparisons for run in comparison.runs
               if run.summary.get("time_to_target")]
    return bool(targets) and all(target.get("time_s") is None for target in targets)


def ends_by_time(comparisons: list[Comparison]) -> bool:
    """Whether a budget in seconds ends all runs, so that the times at which they end do not depend on methods."""
    nearly = 0.99  # a run ends before a step that would exceed its budget
    def ends_by_it(run: Run) -> bool:
        seconds = run.config.get("budget", {}).get("seconds")
        return seconds is not None and run.summary.get("end_time_s", 0) >= nearly * seconds
    return all(ends_by_it(run) for comparison in comparisons for run in comparison.runs)


def named_sections(part: ExperimentPart) -> list[tuple[str, str, str]]:
    """Key, name and content of each section that is not empty."""
    results = [("results", "Results", results_section(part)), ("claims", "Claims", claims_table(part.claims) if part.claims else "")]
    curves = [("curves", "Curves", curves_frame(part)), ("costs", "Cost of the target", costs_frame(part))]
    of_all_points = len(part.comparisons) > 1  # results and claims are then above the menu for one point
    return [(key, name, content) for key, name, content in (
        ("summary", "What came out", summary_section(part)),
        ("sweep", "Sweep", sweep_frame(part)),
        *(results + curves if of_all_points else curves + results),
        ("accounts", "Accounts", accounts_section(part)),
        ("timeline", "Timeline", timeline_frame(part)),
        ("tuning", "Tuning", tuning_section(part.tunings)),
        ("configuration", "Configuration", configuration_section(part.comparisons, part.file_name)),
        ("reproduce", "How to reproduce", reproduce_section(part.comparisons, part.file_name))) if content]


def summary_section(part: ExperimentPart) -> str:
    """Sentences about the results, and if there is a single point, bars."""
    first = part.comparisons[0]
    outcome = Outcome(part.rows, part.against, target_text(first.runs[0].config.get("evaluation", {})), clock_of(first),
                      ends_by_time(part.comparisons), len(part.comparisons))
    said = sentences(outcome)
    return (f'<p class="lead">{" ".join(said)}</p>' if said else "") + bars_table(outcome, part.looks, part.swatches)


def results_section(part: ExperimentPart) -> str:
    return (results_table(part.rows, part.swatches, ends_by_time(part.comparisons))
            + results_notes(part.rows, part.against, part.why, is_target_missed(part.comparisons))
            + f'<button type="button" class="save" data-name="{escaped(part.file_name)}.csv">Save all numbers as CSV</button>')


def experiment_article(part: ExperimentPart, number: int, several: bool) -> str:
    head = (f'<h2 class="experiment">{escaped(heading(part.comparisons[0]))}</h2>'
            f'<p class="facts">{escaped(own_facts(part))}</p>') if several else ""
    sections = [section(f"e{number}-{key}", name, content, level=3 if several else 2)
                for key, name, content in part.sections]
    place = next(at for at, (key, _, _) in enumerate(part.sections) if key in ("curves", "costs", "accounts", "configuration"))
    sections.insert(place, point_choice(part))
    return f'<article id="e{number}" data-experiment="{number}">{head}{"".join(sections)}</article>'


def section(key: str, name: str, content: str, level: int = 2) -> str:
    return f'<section id="{key}" aria-labelledby="{key}-name"><h{level} id="{key}-name">{name}</h{level}>{content}</section>'


def point_choice(part: ExperimentPart) -> str:
    """The menu for the point of which curves, accounts and timeline are shown; empty if there is only one point."""
    if len(part.comparisons) < 2:
        return ""
    options = "".join(f'<option value="{number}">{escaped(as_words(comparison.point, ", ", " = "))}</option>'
                      for number, comparison in enumerate(part.comparisons))
    return f'<p class="choice"><label>Shown below: <select class="point" autocomplete="off">{options}</select></label></p>'


def sweep_frame(part: ExperimentPart) -> str:
    """The section of sweeps; empty if no number is swept."""
    if not part.sweeps:
        return ""
    band = any("low" in line for sweep in part.sweeps for value in sweep["values"] for line in value["lines"])
    return ('<div class="sweeps"></div>' + '<p class="note">Lines are means over the seeds, bands go from the lowest seed to '
            "the highest.</p>" * band)


def curves_frame(part: ExperimentPart) -> str:
    """The section of curves; empty without a model, because then there are no evaluations."""
    if not any(run.config.get("training", {}).get("model", "none") != "none"
               for comparison in part.comparisons for run in comparison.runs):
        return ""
    several = any(len(method.runs) > 1 for comparison in part.comparisons for method in comparison.methods)
    band = "Lines are means over the seeds, bands go from the lowest seed to the highest. " if several else ""
    return ('<div class="curves"></div>'
            f'<p class="note">{band}Drag over a part to enlarge it; a double click shows all.</p>')


def costs_frame(part: ExperimentPart) -> str:
    """The section of the target's costs; empty if no point has such costs (costs_of)."""
    if not any(costs_of(comparison, part.looks) for comparison in part.comparisons):
        return ""
    several = any(len(method.runs) > 1 for comparison in part.comparisons for method in comparison.methods)
    return ('<div class="costs"></div><p class="note">Time and bytes until the first evaluation at the target, for methods that '
            "reached the target with every seed. The lower left is better."
            f"{' Strokes: 95 % intervals of the means over the seeds.' * several}</p>")


def accounts_section(part: ExperimentPart) -> str:
    tables = [accounts_table(comparison, part.swatches) for comparison in part.comparisons]
    if not any(tables):
        return ""
    several = any(len(method.runs) > 1 for comparison in part.comparisons for method in comparison.methods)
    return ("".join(f'<div data-point="{number}"{" hidden" if number else ""}>{table}</div>'
                    for number, table in enumerate(tables))
            + '<p class="note">Activities of all workers, in shares of the worker-seconds of each method'
            + (", as means over the seeds" if several else "")
            + '. All bars have one scale: a shorter bar is a shorter run.</p>')


def timeline_frame(part: ExperimentPart) -> str:
    has_trace = any((run.directory / TRACE).exists() for comparison in part.comparisons for run in comparison.runs)
    return ('<div class="timeline"></div><p class="note">The first rounds of the first seed, all methods on one scale of '
            "time. Dotted lines: ends of rounds. Drag to enlarge.</p>") if has_trace else ""


def is_kept(directory: Path) -> bool:
    """Whether the directory contains kept summaries but no runs."""
    if not any((directory / name).is_file() for name in (CLAIMS, TABLE, ROWS)):
        return False
    return not any(RUN_DIRECTORY.fullmatch(path.name) for path in directory.rglob("seed=*-*"))


def kept_page(directory: Path) -> str:
    """The page of kept summaries."""
    sections = kept_sections(directory)
    links = "".join(f'<a href="#{key}">{escaped(name)}</a>' for key, name, _ in sections)
    return framed(directory.name, "kept summaries of finished runs", f"<nav>{links}</nav>",
                  "".join(section(key, name, content) for key, name, content in sections), "")


def kept_sections(directory: Path) -> list[tuple[str, str, str]]:
    """Key, name and content of each section that is not empty."""
    claims = read_claims([directory])
    return [(key, name, content) for key, name, content in (
        ("claims", "Claims", claims_table(claims) if claims else ""), ("results", "Results", kept_table(directory)),
        ("figures", "Figures", figures_of(directory)), ("about", "About this page", about_kept(directory))) if content]


def kept_table(directory: Path) -> str:
    """The tables in table.md, and the lines between them, as markup."""
    try:
        text = (directory / TABLE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as fault:
        raise ResultsFault(f"{directory / TABLE}: {fault}; expected a table that `run` has written") from None
    parts = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.split("\n")
        if len(lines) > 1 and lines[0].startswith("|") and set(lines[1]) <= set("|-: "):
            parts.append(kept_rows(lines))
        else:
            parts.append(f'<p class="note">{"<br>".join(escaped(line) for line in lines)}</p>')
    return "".join(parts)


def kept_rows(lines: list[str]) -> str:
    """A Markdown table as markup."""
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))] for line in lines]
    head = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in rows[0])
    heads = [escaped(cell) for cell in rows[0][1:]]
    body = "".join(f'<tr><th scope="row">{escaped(row[0])}</th>'
                   + "".join(f'<td data-name="{name}">{cell_markup(cell)}</td>'
                             for name, cell in zip_longest(heads, row[1:], fillvalue="")) + "</tr>" for row in rows[2:])
    return table_markup("Table of results", "results kept", head, body)


def cell_markup(cell: str) -> str:
    """A cell as markup, in which no line break precedes a deviation."""
    return escaped(cell).replace("+- ", "\u00b1\u00a0")


def figures_of(directory: Path) -> str:
    parts, room, left_out = [], MOST_FIGURES, []
    for path in sorted(directory.glob("*.png")):
        content = path.read_bytes()
        if len(content) > room:
            left_out.append(path.name)
            continue
        room -= len(content)
        parts.append(f'<figure><img alt="{escaped(path.stem)}" src="data:image/png;base64,{base64.b64encode(content).decode()}">'
                     f"<figcaption>{escaped(path.stem)}</figcaption></figure>")
    if left_out:
        parts.append(f'<p class="note">Left out, because the page would be too large: {escaped(", ".join(left_out))}.</p>')
    return "".join(parts)


def about_kept(directory: Path) -> str:
    """The commands that repeat the runs, and the facts in claims.json about how the runs were made."""
    command = f"<pre>./dev run {escaped(file)}\n./dev report results/runs/{escaped(directory.name)}</pre>" if (
        file := file_of(directory.name)) else ""
    return ('<p class="note">These are kept summaries of finished runs; the runs themselves are not here, and so there are no '
            "curves, accounts or configurations."
            f"{' To repeat the runs, and to get a page with all of these:' if command else ''}</p>{command}{made_with(directory)}")


def made_with(directory: Path) -> str:
    """Commit, processor, cores and time of the runs."""
    try:
        said = json.loads((directory / CLAIMS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    rows = [(name, escaped(str(said[name]))) for name in ("commit", "processor", "cores", "time") if name in said]
    return table_markup("How they were made", "settings", "", rows_markup(rows)) if rows else ""
