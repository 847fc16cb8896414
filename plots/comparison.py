"""Which runs belong in one picture: an experiment's methods under one configuration."""

from collections import defaultdict
from dataclasses import dataclass

from plots.runs import Method, Run

NOT_COMPARED = {"name", "description", "seeds", "methods"}


@dataclass
class Comparison:
    """All methods of an experiment at one point of what varies: a sweep, or overrides such as training.model=cnn."""

    experiment: str
    point: dict[str, str]  # what varies among the experiment's runs, beside method and seed
    methods: list[Method]

    @property
    def runs(self) -> list[Run]:
        return [run for method in self.methods for run in method.runs]


def compare(runs: list[Run]) -> list[Comparison]:
    """Runs grouped by experiment and configuration, methods in the order of the directories' names."""
    experiments = defaultdict(list)
    for run in runs:
        experiments[run.config.get("name") or run.directory.parent.parent.name].append(run)
    comparisons = []
    for experiment, members in experiments.items():
        points = varying([flat({key: value for key, value in run.config.items() if key not in NOT_COMPARED})
                          for run in members])
        groups = defaultdict(list)
        for run, point in zip(members, points):
            groups[tuple(point.items())].append(run)
        comparisons += [Comparison(experiment, dict(point), group_methods(group)) for point, group in groups.items()]
    return comparisons


def group_methods(runs: list[Run]) -> list[Method]:
    """A method per label; two under one label whose settings differ are told apart by what differs."""
    labelled = defaultdict(list)
    for run in runs:
        labelled[method_label(run)].append(run)
    methods: dict[str, Method] = {}
    for label, members in labelled.items():
        settings = varying([flat((run.config.get("methods") or [{}])[0]) for run in members])
        for run, differing in zip(members, settings):
            name = " ".join([label, as_words(differing)]).strip()
            methods.setdefault(name, Method(name)).runs.append(run)
    return list(methods.values())


def method_label(run: Run) -> str:
    methods = run.config.get("methods") or [{}]
    label = run.summary.get("method") or methods[0].get("label") or run.directory.parent.name
    return f"{label} (MPI)" if run.directory.name.endswith("-mpi") else label


def flat(table: dict, prefix: str = "") -> dict[str, str]:
    """{"a": {"b": 1}} as {"a.b": "1"}."""
    result = {}
    for key, value in table.items():
        if isinstance(value, dict):
            result.update(flat(value, f"{prefix}{key}."))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            result.update(flat({str(index): entry for index, entry in enumerate(value)}, f"{prefix}{key}."))
        else:
            result[prefix + key] = f"{value:g}" if isinstance(value, float) else str(value)
    return result


def varying(tables: list[dict[str, str]]) -> list[dict[str, str]]:
    """Of each table, the keys whose value is not the same in all of them."""
    keys = list(dict.fromkeys(key for table in tables for key in table))
    differing = [key for key in keys if len({table.get(key) for table in tables}) > 1]
    return [{key: table.get(key, "none") for key in differing} for table in tables]


def as_words(point: dict[str, str]) -> str:
    """{"cluster.workers": "8"} as workers=8."""
    return " ".join(f"{key.rsplit('.', 1)[-1]}={value}" for key, value in point.items())


def heading(comparison: Comparison) -> str:
    return comparison.runs[0].config.get("description") or comparison.experiment


def subtitle(comparison: Comparison, point: str) -> str:
    config = comparison.runs[0].config
    training, parts = config.get("training", {}), [comparison.experiment]
    workers = config.get("cluster", {}).get("workers")
    if workers and "workers=" not in point:
        parts.append(f"{workers} workers")
    if point:
        parts.append(point.replace("=", " = "))
    model, dataset = training.get("model", "none"), training.get("dataset")
    if model != "none":
        parts.append(f"{model} on {dataset}" if dataset and model != "quadratic" else model)
    seeds = len({run.seed for run in comparison.runs})
    parts.append("one seed" if seeds == 1 else f"line: mean of {seeds} seeds, band: lowest to highest")
    return "  ·  ".join(parts)
