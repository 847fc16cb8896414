"""The origin of the runs: configuration, tuning, machine, and the commands that repeat them, without names of hosts and
paths."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from plots.comparison import Comparison, Method, as_words, flat, settings
from plots.numbers import typeset_number
from plots.report import escaped, escaped_lines, rows_markup, table_markup, without_places
from plots.runs import ResultsFault, Run, in_words, read_digested, read_document
from plots.style import time_unit
from plots.terminal import printable

SHOWN_POINTS = 60
METHODS = re.compile(r"^\[\[methods\]\]$", re.MULTILINE)
SEEDS = re.compile(r"^seeds = .*$", re.MULTILINE)
FOUND_OUT = re.compile(r"^\w+_hash = .*\n", re.MULTILINE)  # hashes of files; experiment files do not contain them

TUNINGS, SCHEMA_VERSION = ("tuning.json", "tuning-mpi.json"), 1  # beside an experiment's runs (results/found_runs.hpp)

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# Keys of metadata.json, and their names on the page.
FACTS = {"syncopate_version": "Syncopate", "commit": "commit", "results_version": "version of the results",
         "cluster": "cluster", "processor": "processor", "cores": "cores", "threads": "threads", "processes": "processes",
         "operating_system": "operating system", "compiler": "compiler", "compiler_flags": "compiler’s options",
         "libtorch_version": "LibTorch", "blas_kernel": "BLAS kernel", "torch_kernels": "LibTorch’s kernels",
         "device": "device", "precision": "precision"}


def configuration_section(comparisons: list[Comparison], file_name: str) -> str:
    first = comparisons[0]
    point = varied(comparisons)
    at = f" (at {escaped(', '.join(f'{key} = {value}' for key, value in first.point.items()))})" if first.point else ""
    return ('<p class="note">Settings that differ between the methods; all other settings are equal.</p>'
            + method_settings(all_methods(comparisons))
            + (f'<p class="note">Other settings that vary:</p>{point}' if point else "")
            + f'<details><summary>The whole resolved configuration{at}</summary>'
            + '<p class="note">All keys with their defaults, as a file that can be run. Absolute paths are shortened to their last name.</p>'
            + f'<button type="button" class="save" data-name="{escaped(file_name)}.toml">Save as {escaped(file_name)}.toml'
            + f'</button><pre tabindex="0">{escaped_lines(experiment_file(first))}</pre></details>')


def all_methods(comparisons: list[Comparison]) -> list[Method]:
    """The methods of all points, one per label."""
    methods = {}
    for comparison in comparisons:
        for method in comparison.methods:
            methods.setdefault(method.label, method)
    return list(methods.values())


def method_settings(methods: list[Method]) -> str:
    """A table with a row per method: its settings, except those that all methods share."""
    tables = [{key: value for key, value in flat(settings(method.runs[0])).items() if key != "label"} for method in methods]
    everywhere = Counter(item for table in tables for item in table.items())
    lines = []
    for method, table in zip(methods, tables):
        own = [f"<code>{escaped(key)} = {escaped(value)}</code>" for key, value in table.items()
               if len(methods) == 1 or everywhere[key, value] < len(methods)]
        lines.append((escaped(method.label), " ".join(own) or "nothing"))
    return table_markup("Settings of the methods", "settings", "", rows_markup(lines))


def varied(comparisons: list[Comparison]) -> str:
    """A table of the keys that vary, except method and seed; empty if no key varies."""
    keys = list(dict.fromkeys(key for comparison in comparisons for key in comparison.point))
    lines = []
    for key in keys:
        values = list(dict.fromkeys(comparison.point[key] for comparison in comparisons if key in comparison.point))
        more = f" and {len(values) - SHOWN_POINTS} more" if len(values) > SHOWN_POINTS else ""
        lines.append((f"<code>{escaped(key)}</code>", f"{escaped(', '.join(values[:SHOWN_POINTS]))}{more}"))
    return table_markup("What varies", "settings", "", rows_markup(lines)) if lines else ""


def experiment_file(comparison: Comparison) -> str:
    """The resolved configuration of all methods and seeds at one point, as an experiment file."""
    texts = [(method.runs[0].directory / "config.toml").read_text(encoding="utf-8") for method in comparison.methods]
    parts = [METHODS.split(text, maxsplit=1) for text in texts]
    seeds = sorted({run.seed for run in comparison.runs})
    head = SEEDS.sub(f"seeds = {seeds}", FOUND_OUT.sub("", parts[0][0]), count=1)
    text = "[[methods]]".join([head, *(part[1].rstrip("\n") + "\n\n" for part in parts if len(part) > 1)])
    return "\n".join(printable(without_places(line)) for line in text.rstrip("\n").split("\n")) + "\n"


def read_tunings(directories: Iterable[Path]) -> list[dict]:
    """The contents of all tuning files in the directories. Raises ResultsFault for a file that the page cannot show."""
    tunings = []
    for path in (directory / name for directory in dict.fromkeys(directories) for name in TUNINGS):
        try:
            document = read_digested(path, {"methods"})
            if document["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version = {document['schema_version']}")
            tuning_table(document)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as fault:
            raise ResultsFault(f"{path}: {in_words(fault)}; expected trials of schema version {SCHEMA_VERSION}; the "
                               "experiment's next start writes them again") from None
        tunings.append(document)
    return tunings


def tuning_section(tunings: list[dict]) -> str:
    return "".join(tuning_table(tuning) for tuning in tunings)


def tuning_table(tuning: dict) -> str:
    """The settings tried for each method, and the chosen ones, as markup."""
    lines = "".join(method_row(method) for method in tuning["methods"])
    where = f", at {escaped(as_words(tuning['where'], ', '))} for all" if tuning["where"] else ""
    seeds = ", ".join(str(int(seed)) for seed in tuning["seeds"])
    heads = ('<th scope="col">method</th><th scope="col">chosen</th>'
             f'<th scope="col">{escaped(tuning["measure"])} of the settings, the chosen one first</th>')
    return (table_markup("Tuning", "settings tuning", heads, lines) +
            f'<p class="note">Each setting was tried with the seeds {seeds}{where}, which the runs do not use. The '
            "setting with the best mean was run.</p>")


def method_row(method: dict) -> str:
    point = f"<small>{escaped(as_words(method['point'], ', '))}</small>" if method["point"] else ""
    settings = sorted(method["settings"], key=lambda setting: (setting["values"] != method["chosen"], setting["mean"] is None))
    tried = " ".join(f"<code>{setting_text(setting['values'])}: {mean_text(setting['mean'])}</code>" for setting in settings)
    return (f'<tr><th scope="row">{escaped(method["method"])}{point}</th>'
            f"<td>{setting_text(method['chosen']) if method['chosen'] else 'none'}{remarks(method)}</td><td>{tried}</td></tr>")


def setting_text(values: dict[str, str]) -> str:
    return escaped(as_words(values, ", ", " = "))


def mean_text(mean: float | None) -> str:
    return "–" if mean is None else typeset_number(float(mean))


def remarks(method: dict) -> str:
    """The numbers of settings and trials, whether the grid was extended, and whether the chosen setting is at its
    edge."""
    words = [f"of {len(method['settings'])} settings, {int(method['number_of_trials'])} trials"]
    words += [f"grid of {escaped(last_name(key))} extended" for key in method["extended"]]
    words += [f"{escaped(last_name(key))} at the edge of the grid" for key in method["at_edge"]]
    if method.get("horizon") is not None:
        words.append(f"times cut at {float(method['horizon']):.4g}, since trials missed the target")
    return f"<small>{'; '.join(words)}</small>"


def last_name(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def metadata_of(run: Run) -> dict:
    path = run.directory / "metadata.json"
    return read_document(path, json.loads, "the run's metadata") if path.exists() else {}


def facts_of(metadata: list[dict]) -> list[tuple[str, str]]:
    """The facts in FACTS with their values for the runs, and the times at which the runs were made."""
    facts = []
    for key, name in FACTS.items():
        values = [fact_text(document, key) for document in metadata if document.get(key) not in (None, "")]
        if values:
            facts.append((name, ", ".join(dict.fromkeys(values))))
    begins = sorted(str(document["start"]) for document in metadata if document.get("start"))
    ends = sorted(str(document["end"]) for document in metadata if document.get("end"))
    if begins and ends:
        times = dict.fromkeys([date_text(begins[0]), date_text(ends[-1])])
        facts.append(("made", f"{' to '.join(times)} UTC"))
    return facts


def fact_text(document: dict, key: str) -> str:
    if key != "commit":
        return str(document[key])
    return str(document[key])[:12] + (" with changes" if document.get("dirty") else "")


def date_text(time: str) -> str:
    """2026-11-23T08:57:32Z as 2026-11-23 08:57."""
    return time[:16].replace("T", " ")


def metadata_section(runs: list[Run], left_out: int, points: int, plotly: str) -> str:
    metadata = [metadata_of(run) for run in runs]
    facts = facts_of(metadata)
    host_s = sum(float(run.summary.get("host_s") or 0) for run in runs)
    count = f"{len(runs)}" + (f"; {left_out} more, failed or older ones of the same seed, are left out" if left_out else "")
    facts.append(("runs", count))
    if host_s:
        scale, unit = time_unit(host_s)
        facts.append(("time they took", f"{host_s / scale:.2g} {unit}"))
    if plotly:
        facts.append(("curves", f"thinned to at most {points} points per line, including the lowest and the highest; the runs’ "
                                "own files contain all points"))
        facts.append(("charts", plotly))
    return table_markup("About these runs", "settings", "", rows_markup([(escaped(name), escaped(value)) for name, value in facts]))


def file_of(experiment: str) -> str | None:
    """The file of this experiment in this copy of the project, relative to the root; None if there is none."""
    for path in sorted(EXPERIMENTS.rglob("*.toml")):
        try:
            if tomllib.loads(path.read_text(encoding="utf-8")).get("name") == experiment:
                return f"experiments/{path.relative_to(EXPERIMENTS)}"
        except (OSError, ValueError):
            continue
    return None


def reproduce_section(comparisons: list[Comparison], file_name: str) -> str:
    experiment = comparisons[0].experiment
    commits = list(dict.fromkeys(str(commit)[:12] for comparison in comparisons for run in comparison.runs
                                 if (commit := run.summary.get("commit"))))
    file = file_of(experiment)
    commands = [f"git checkout {commits[-1]}"] if commits else []
    commands += [f"./dev run {file or f'{file_name}.toml'}", f"./dev report results/runs/{experiment}"]
    saved = f"the whole configuration above, saved as {file_name}.toml"
    note = (f"Keys that were set on the command line are not in {file}, but in {saved}." if file else
            f"{file_name}.toml is {saved}.")
    if len(comparisons) > 1:
        note += " It describes the first point. For other points, append the keys that vary to the command, as key=value."
    return (f'<pre tabindex="0">{escaped_lines(chr(10).join(commands))}</pre>'
            f'<p class="note">{escaped(note)} The same seeds give the same numbers, on the simulated cluster byte for byte.</p>')
