"""Which of several results no other one beats in two respects, as far as their seeds tell them apart."""

from math import isfinite

import numpy as np

from plots.intervals import mean_and_half

Seeds = dict[int, float]  # a value for each


def side(own: Seeds, other: Seeds) -> int:
    """1: more than the other, -1: less, 0: not told apart. By the 95 % interval of the mean difference over the seeds that
    both have; with fewer than two of these nothing is known of what chance does, and the means decide."""
    common = [seed for seed in own if seed in other]
    if len(common) < 2:
        mean, half = float(np.mean([*own.values()]) - np.mean([*other.values()])), 0.0
    else:
        mean, half = mean_and_half([own[seed] - other[seed] for seed in common])
    return 0 if not isfinite(mean) or abs(mean) <= half else 1 if mean > 0 else -1


def beats(own: tuple[Seeds, Seeds], other: tuple[Seeds, Seeds]) -> bool:
    """Both (cost, gain): better in one respect and not worse in the other."""
    cheaper, better = -side(own[0], other[0]), side(own[1], other[1])
    return min(cheaper, better) >= 0 and max(cheaper, better) > 0


def front(results: dict[str, tuple[Seeds, Seeds]]) -> list[str]:
    """The names of results that no other beats, by ascending cost. Of equal results all."""
    kept = [name for name, own in results.items() if not any(beats(other, own) for other in results.values())]
    return sorted(kept, key=lambda name: means_of(results[name]))


def chains(results: dict[str, tuple[Seeds, Seeds]]) -> list[list[str]]:
    """The front in pieces: neighbours are joined where the dearer one is told apart from the other in both respects."""
    pieces: list[list[str]] = []
    for name in front(results):
        before = results[pieces[-1][-1]] if pieces else None
        if before and all(side(own, other) > 0 for own, other in zip(results[name], before)):
            pieces[-1].append(name)
        else:
            pieces.append([name])
    return pieces


def means_of(result: tuple[Seeds, Seeds]) -> tuple[float, float]:
    return float(np.mean([*result[0].values()])), float(np.mean([*result[1].values()]))
