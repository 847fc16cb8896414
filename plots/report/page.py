"""The page's frame and sections, as text."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from plots.comparison import Comparison, heading, subtitle
from plots.methods import seeds_text
from plots.plan import file_name
from plots.report.accounts import account_colours, accounts_table
from plots.report.claims import claims_table
from plots.report.configuration import configuration_section
from plots.report.costs import costs_of
from plots.report.kept import kept_sections
from plots.report.library import name_of
from plots.report.lines import clock_of
from plots.report.looks import swatch
from plots.report.markup import escaped, packed
from plots.report.measures import Row
from plots.report.provenance import metadata_section, reproduce_section
from plots.report.results import results_notes, results_table
from plots.report.summary import Outcome, bars_table, sentences, target_text
from plots.report.sweeps import sweeps_of
from plots.report.tuning import tuning_section
from plots.runs import Run
from plots.traces import TRACE
from plots.variation import as_words

HERE = Path(__file__).parent
# Nothing may be fetched, whatever a label or a library asks for.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


@dataclass
class ExperimentPart:
    comparisons: list[Comparison]
    rows: list[Row]
    csv: str
    against: str
    why: str  # there are no differences
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


def page(parts: list[ExperimentPart], data: str, library: bytes, runs: list[Run], left_out: int,
         points: int) -> str:
    title = heading(parts[0].comparisons[0]) if len(parts) == 1 else f"{len(parts)} experiments"
    sections = [experiment_article(part, number, len(parts) > 1) for number, part in enumerate(parts)]
    draws = any(curves_frame(part) or timeline_frame(part) or part.sweeps for part in parts)
    about = section("about", "About these runs", metadata_section(runs, left_out, points, name_of(library) if draws else ""))
    main = f"""<noscript><p class="note">Curves and timelines need scripts; tables do without.</p></noscript>
<p class="fault" role="alert" hidden></p>
{"".join(sections)}{about}"""
    scripts = f"""<script type="text/plain" id="data">{data}</script>
<script type="text/plain" id="library">{packed(library) if draws else ""}</script>
<script>
{(HERE / "page.js").read_text(encoding="utf-8")}
</script>
"""
    return framed(title, header_facts(parts), navigation(parts), main, scripts)


def kept_page(directory: Path) -> str:
    """Of summaries without runs."""
    sections = kept_sections(directory)
    links = "".join(f'<a href="#{key}">{escaped(name)}</a>' for key, name, _ in sections)
    return framed(directory.name, "kept summaries of finished runs", f"<nav>{links}</nav>",
                  "".join(section(key, name, content) for key, name, content in sections), "")


def framed(title: str, facts: str, links: str, main: str, scripts: str) -> str:
    """All but the title is markup."""
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
    """Experiment, workers, model and seeds; where points vary, how many instead of what varies."""
    first = part.comparisons[0]
    facts = [fact for fact in subtitle(first, "").split("  ·  ") if not fact.startswith(("line: mean", "one seed"))]
    if len(part.comparisons) > 1:
        facts = [*(fact for fact in facts if not (fact.endswith(" workers") and "cluster.workers" in first.point)),
                 f"{len(part.comparisons)} points"]
    seeds = {len(method.runs) for comparison in part.comparisons for method in comparison.methods}
    return "  ·  ".join([*facts, f"{'up to ' if len(seeds) > 1 else ''}{seeds_text(max(seeds))}"])


def navigation(parts: list[ExperimentPart]) -> str:
    if len(parts) > 1:
        links = [(f"e{number}", part.comparisons[0].experiment) for number, part in enumerate(parts)]
    else:
        links = [(f"e0-{key}", name) for key, name, _ in parts[0].sections]
    links.append(("about", "About"))
    return f'<nav>{"".join(f"""<a href="#{key}">{escaped(name)}</a>""" for key, name in links)}</nav>'


def is_target_missed(comparisons: list[Comparison]) -> bool:
    """There is a target, and no run reached it."""
    targets = [run.summary["time_to_target"] for comparison in comparisons for run in comparison.runs
               if run.summary.get("time_to_target")]
    return bool(targets) and all(target.get("time_s") is None for target in targets)


def ends_by_time(comparisons: list[Comparison]) -> bool:
    """All runs end by a budget in seconds, so that their ends say nothing of the methods."""
    nearly = 0.99  # a run may stop short of a step that would end too late
    def ends_by_it(run: Run) -> bool:
        seconds = run.config.get("budget", {}).get("seconds")
        return seconds is not None and run.summary.get("end_time_s", 0) >= nearly * seconds
    return all(ends_by_it(run) for comparison in comparisons for run in comparison.runs)


def named_sections(part: ExperimentPart) -> list[tuple[str, str, str]]:
    """Key, name and content of those that have anything to say."""
    results = [("results", "Results", results_section(part)), ("claims", "Claims", claims_table(part.claims) if part.claims else "")]
    curves = [("curves", "Curves", curves_frame(part)), ("costs", "Cost of the target", costs_frame(part))]
    of_all_points = len(part.comparisons) > 1  # results and claims: they stand above the choice of one
    return [(key, name, content) for key, name, content in (
        ("summary", "What came out", summary_section(part)),
        ("sweep", "Sweep", sweep_frame(part)),
        *(results + curves if of_all_points else curves + results),
        ("accounts", "Accounts", accounts(part)),
        ("timeline", "Timeline", timeline_frame(part)),
        ("tuning", "Tuning", tuning_section(part.tunings)),
        ("configuration", "Configuration", configuration_section(part.comparisons, part.file_name)),
        ("reproduce", "How to reproduce", reproduce_section(part.comparisons, part.file_name))) if content]


def summary_section(part: ExperimentPart) -> str:
    """Sentences, and bars of one point."""
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
    """At which point of what varies curves, accounts and timeline are."""
    if len(part.comparisons) < 2:
        return ""
    options = "".join(f'<option value="{number}">{escaped(as_words(comparison.point, ", ", " = "))}</option>'
                      for number, comparison in enumerate(part.comparisons))
    return f'<p class="choice"><label>Shown below: <select class="point" autocomplete="off">{options}</select></label></p>'


def sweep_frame(part: ExperimentPart) -> str:
    """Empty where no number is swept."""
    if not part.sweeps:
        return ""
    band = any("low" in line for sweep in part.sweeps for value in sweep["values"] for line in value["lines"])
    return ('<div class="sweeps"></div>' + '<p class="note">Lines are means over the seeds, bands go from the lowest seed to '
            "the highest.</p>" * band)


def curves_frame(part: ExperimentPart) -> str:
    """Empty without a model: then there are no evaluations."""
    if not any(run.config.get("training", {}).get("model", "none") != "none"
               for comparison in part.comparisons for run in comparison.runs):
        return ""
    several = any(len(method.runs) > 1 for comparison in part.comparisons for method in comparison.methods)
    band = "Lines are means over the seeds, bands go from the lowest seed to the highest. " if several else ""
    return ('<div class="curves"></div>'
            f'<p class="note">{band}Drag over a part to enlarge it; a double click shows all.</p>')


def costs_frame(part: ExperimentPart) -> str:
    """Empty where the target says nothing at any point: see costs_of."""
    if not any(costs_of(comparison, part.looks) for comparison in part.comparisons):
        return ""
    several = any(len(method.runs) > 1 for comparison in part.comparisons for method in comparison.methods)
    return ('<div class="costs"></div><p class="note">Until the first evaluation at the target, of methods that reached it with '
            f"every seed: the lower left is better.{' Strokes: 95 % intervals of the means over the seeds.' * several}</p>")


def accounts(part: ExperimentPart) -> str:
    tables = [accounts_table(comparison, part.swatches) for comparison in part.comparisons]
    if not any(tables):
        return ""
    several = any(len(method.runs) > 1 for comparison in part.comparisons for method in comparison.methods)
    return ("".join(f'<div data-point="{number}"{" hidden" if number else ""}>{table}</div>'
                    for number, table in enumerate(tables))
            + '<p class="note">What all workers together did, in shares of the worker-seconds of each method'
            + (", as means over the seeds" if several else "")
            + '. The bars have one scale: a shorter one is a shorter run.</p>')


def timeline_frame(part: ExperimentPart) -> str:
    has_trace = any((run.directory / TRACE).exists() for comparison in part.comparisons for run in comparison.runs)
    return ('<div class="timeline"></div><p class="note">The first rounds of the first seed, all methods on one scale of '
            "time. Dotted lines: ends of rounds. Drag to enlarge.</p>") if has_trace else ""
