"""The section of tuning: with what each method was tried, and what was chosen, from the tuning.json that a run leaves beside
an experiment's runs (results/found_runs.hpp)."""

from collections.abc import Iterable
from pathlib import Path

from plots.numbers import typeset_number
from plots.report.markup import escaped
from plots.runs import ResultsFault, in_words, read_digested
from plots.variation import as_words

FILES, SCHEMA_VERSION = ("tuning.json", "tuning-mpi.json"), 1


def read_tunings(directories: Iterable[Path]) -> list[dict]:
    """Of all of these that have such a file."""
    tunings = []
    for path in (directory / name for directory in dict.fromkeys(directories) for name in FILES):
        try:
            document = read_digested(path, {"methods"})
            if document["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version = {document['schema_version']}")
            tuning_table(document)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as fault:
            raise ResultsFault(f"{path}: {in_words(fault)}; expected the trials of schema version "
                               f"{SCHEMA_VERSION} that `run` writes; the experiment's next start does") from None
        tunings.append(document)
    return tunings


def tuning_section(tunings: list[dict]) -> str:
    return "".join(tuning_table(tuning) for tuning in tunings)


def tuning_table(tuning: dict) -> str:
    lines = "".join(method_row(method) for method in tuning["methods"])
    where = f", at {escaped(as_words(tuning['where'], ', '))} for all" if tuning["where"] else ""
    seeds = ", ".join(str(int(seed)) for seed in tuning["seeds"])
    return ('<div class="scroll" tabindex="0" role="region" aria-label="Tuning"><table class="settings tuning"><thead><tr>'
            '<th scope="col">method</th><th scope="col">chosen</th>'
            f'<th scope="col">{escaped(tuning["measure"])} of the settings, what was chosen first</th></tr></thead>'
            f"<tbody>{lines}</tbody></table></div>"
            f'<p class="note">Each setting was tried with the seeds {seeds}{where}, none of which the runs have; the one '
            "with the best mean was run.</p>")


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
    """How many settings and trials, whether the grid grew, and whether the best is at its edge all the same."""
    words = [f"of {len(method['settings'])} settings, {int(method['number_of_trials'])} trials"]
    words += [f"grid of {escaped(last_name(key))} extended" for key in method["extended"]]
    words += [f"{escaped(last_name(key))} at the edge of the grid" for key in method["at_edge"]]
    if method.get("horizon") is not None:
        words.append(f"times cut at {float(method['horizon']):.4g}, since trials missed the target")
    return f"<small>{'; '.join(words)}</small>"


def last_name(key: str) -> str:
    return key.rsplit(".", 1)[-1]
