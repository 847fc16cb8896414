"""Which points of an experiment are to be drawn, by key=value."""

from difflib import get_close_matches

from plots.comparison import Comparison
from plots.runs import ResultsFault
from plots.variation import flat

SHOWN = 8  # values of a key in a message


def choose(comparisons: list[Comparison], wanted: dict[str, str]) -> list[Comparison]:
    """Those whose resolved configuration has all these values. Throws ResultsFault if there are none."""
    for key, value in wanted.items():
        configs = [flat(comparison.runs[0].config) for comparison in comparisons]
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


def same(one: str, other: str) -> bool:
    """0.010 is 0.01."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other
