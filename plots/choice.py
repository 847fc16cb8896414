"""Which points of an experiment are to be drawn, by key=value, and which methods, by their labels."""

from difflib import get_close_matches

from plots.comparison import Comparison
from plots.methods import method_label
from plots.runs import ResultsFault, Run
from plots.variation import flat

SHOWN = 8  # values of a key in a message


def choose(comparisons: list[Comparison], wanted: dict[str, str]) -> list[Comparison]:
    """Those whose resolved configuration has all these values. Throws ResultsFault if there are none."""
    for key, value in wanted.items():
        configs = [flat(comparison.runs[0].config) | comparison.config for comparison in comparisons]
        there = list(dict.fromkeys(config[key] for config in configs if key in config))
        if not there:
            near = get_close_matches(key, configs[0], 1)
            raise ResultsFault(f"{key}={value}: the runs' configurations have no key {key}"
                               + (f"; did you mean {near[0]}?" if near else ""))
        comparisons = [comparison for comparison, config in zip(comparisons, configs)
                       if key in config and same(config[key], value)]
        if not comparisons:
            more = f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""
            raise ResultsFault(f"{key}={value}: no run has that value; found {', '.join(there[:SHOWN])}{more}")
    return comparisons


def choose_methods(runs: list[Run], labels: tuple[str, ...]) -> list[Run]:
    """Those of the methods with these labels; all where no label is given. Throws ResultsFault for a label that no run
    has."""
    there = list(dict.fromkeys(method_label(run) for run in runs))
    for label in labels:
        if label not in there:
            near = {other.casefold(): other for other in reversed(there)}
            found = get_close_matches(label.casefold(), near, 1)
            raise ResultsFault(f"--methods {label}: no run has that method"
                               + (f"; did you mean {near[found[0]]}?" if found else "")
                               + f"; found {', '.join(there[:SHOWN])}"
                               + (f" and {len(there) - SHOWN} more" if len(there) > SHOWN else ""))
    return [run for run in runs if method_label(run) in labels] if labels else runs


def same(one: str, other: str) -> bool:
    """0.010 is 0.01."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other
