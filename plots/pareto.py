"""Which of several results no other one beats in both of two respects."""


def front(points: dict[str, tuple[float, float]]) -> list[str]:
    """The names of points (cost, gain) than which no other has both as low a cost and as high a gain, one of them better;
    by ascending cost. Of equal points all."""
    kept = [name for name, (cost, gain) in points.items()
            if not any(other_cost <= cost and other_gain >= gain and (other_cost, other_gain) != (cost, gain)
                       for other_cost, other_gain in points.values())]
    return sorted(kept, key=lambda name: points[name])
