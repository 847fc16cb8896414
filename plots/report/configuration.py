"""What was run: what differs between methods, what varies beside them, and the whole as one file that can be run."""

import re
from collections import Counter

from plots.comparison import Comparison
from plots.methods import Method, settings
from plots.printable import printable
from plots.report.markup import escaped, escaped_lines, without_places
from plots.variation import flat

SHOWN_POINTS = 60
METHODS = re.compile(r"^\[\[methods\]\]$", re.MULTILINE)
SEEDS = re.compile(r"^seeds = .*$", re.MULTILINE)
FOUND_OUT = re.compile(r"^\w+_hash = .*\n", re.MULTILINE)  # of files: what no experiment file says


def method_settings(methods: list[Method]) -> str:
    """A line per method: its settings that not all methods have alike."""
    tables = [{key: value for key, value in flat(settings(method.runs[0])).items() if key != "label"} for method in methods]
    everywhere = Counter(item for table in tables for item in table.items())
    lines = []
    for method, table in zip(methods, tables):
        own = [f"<code>{escaped(key)} = {escaped(value)}</code>" for key, value in table.items()
               if len(methods) == 1 or everywhere[key, value] < len(methods)]
        lines.append(f'<tr><th scope="row">{escaped(method.label)}</th><td>{" ".join(own) or "nothing"}</td></tr>')
    return ('<div class="scroll" tabindex="0" role="region" aria-label="Settings of the methods"><table class="settings">'
            f'<tbody>{"".join(lines)}</tbody></table></div>')


def varied(comparisons: list[Comparison]) -> str:
    """What varies among an experiment's runs beside method and seed; empty where nothing does."""
    keys = list(dict.fromkeys(key for comparison in comparisons for key in comparison.point))
    lines = []
    for key in keys:
        values = list(dict.fromkeys(comparison.point[key] for comparison in comparisons if key in comparison.point))
        more = f" and {len(values) - SHOWN_POINTS} more" if len(values) > SHOWN_POINTS else ""
        lines.append(f'<tr><th scope="row"><code>{escaped(key)}</code></th>'
                     f"<td>{escaped(', '.join(values[:SHOWN_POINTS]))}{more}</td></tr>")
    return ('<div class="scroll" tabindex="0" role="region" aria-label="What varies"><table class="settings">'
            f'<tbody>{"".join(lines)}</tbody></table></div>') if lines else ""


def experiment_file(comparison: Comparison) -> str:
    """The resolved configuration of all methods and seeds at one point, as a file that can be run."""
    texts = [(method.runs[0].directory / "config.toml").read_text(encoding="utf-8") for method in comparison.methods]
    parts = [METHODS.split(text, maxsplit=1) for text in texts]
    seeds = sorted({run.seed for run in comparison.runs})
    head = SEEDS.sub(f"seeds = {seeds}", FOUND_OUT.sub("", parts[0][0]), count=1)
    text = "[[methods]]".join([head, *(part[1].rstrip("\n") + "\n\n" for part in parts if len(part) > 1)])
    return "\n".join(printable(without_places(line)) for line in text.rstrip("\n").split("\n")) + "\n"


def configuration_section(comparisons: list[Comparison], file_name: str) -> str:
    first = comparisons[0]
    point = varied(comparisons)
    at = f" (at {escaped(', '.join(f'{key} = {value}' for key, value in first.point.items()))})" if first.point else ""
    return ('<p class="note">What differs between the methods; what is left out is the same for all.</p>'
            + method_settings(all_methods(comparisons))
            + (f'<p class="note">What varies beside them:</p>{point}' if point else "")
            + f'<details><summary>The whole resolved configuration{at}</summary>'
            + '<p class="note">All keys with their defaults; a file that can be run. Of paths outside of it the last name is left.</p>'
            + f'<button type="button" class="save" data-name="{escaped(file_name)}.toml">Save as {escaped(file_name)}.toml'
            + f'</button><pre tabindex="0">{escaped_lines(experiment_file(first))}</pre></details>')


def all_methods(comparisons: list[Comparison]) -> list[Method]:
    """Each label once, as at its first point."""
    methods = {}
    for comparison in comparisons:
        for method in comparison.methods:
            methods.setdefault(method.label, method)
    return list(methods.values())
