"""Where, when and by what the runs were made, and the commands that make them again. No names of hosts, no paths."""

import json
import tomllib
from pathlib import Path

from plots.comparison import Comparison
from plots.report.markup import escaped, escaped_lines
from plots.runs import Run, read_document
from plots.style import time_unit

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# Keys of metadata.json, and what they are called here.
FACTS = {"syncopate_version": "Syncopate", "commit": "commit", "results_version": "version of the results",
         "cluster": "cluster", "processor": "processor", "cores": "cores", "threads": "threads", "processes": "processes",
         "operating_system": "operating system", "compiler": "compiler", "compiler_flags": "compiler’s options",
         "libtorch_version": "LibTorch", "blas_kernel": "BLAS kernel", "torch_kernels": "LibTorch’s kernels"}


def metadata_of(run: Run) -> dict:
    path = run.directory / "metadata.json"
    return read_document(path, json.loads, "the run's metadata") if path.exists() else {}


def facts_of(metadata: list[dict]) -> list[tuple[str, str]]:
    """Each with its values among the runs, in the order in which they are met."""
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
        facts.append(("curves", f"thinned to at most {points} points per line, the lowest and the highest kept; the runs’ own "
                                "files have all"))
        facts.append(("charts", plotly))
    lines = "".join(f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(value)}</td></tr>' for name, value in facts)
    return ('<div class="scroll" tabindex="0" role="region" aria-label="About these runs"><table class="settings">'
            f"<tbody>{lines}</tbody></table></div>")


def file_of(experiment: str) -> str | None:
    """The experiment file of that name in this copy of the project, as a command names it."""
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
    note = (f"Keys that were set on the command line are not in {file}; {saved}, has them." if file else
            f"{file_name}.toml is {saved}.")
    if len(comparisons) > 1:
        note += " It has the first point; the others differ in what varies, which can be set behind the file, as key=value."
    return (f'<pre tabindex="0">{escaped_lines(chr(10).join(commands))}</pre>'
            f'<p class="note">{escaped(note)} The same seeds give the same numbers, on the simulated cluster byte for byte.</p>')
