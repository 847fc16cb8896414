"""In which settings several tables of a configuration differ, and how to say so."""

import re
from math import isclose, isfinite

from plots.printable import printable

RATE = re.compile(r"[0-9.]+ [kMGT]?(bit|B|bytes)/s")
BANDWIDTH = "bandwidth_bytes_per_s"
SIZES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def flat(table: dict, prefix: str = "") -> dict[str, str]:
    """{"a": {"b": 1}} as {"a.b": "1"}."""
    result = {}
    for key, value in table.items():
        if isinstance(value, dict):
            result.update(flat(value, f"{prefix}{key}."))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            result.update(flat({str(index): entry for index, entry in enumerate(value)}, f"{prefix}{key}."))
        else:
            result[prefix + key] = number_text(value) if isinstance(value, float) else str(value)
    return result


def number_text(value: float) -> str:
    """The shortest usual notation from which the same number is read: unequal numbers give unequal texts."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def varying(tables: list[dict[str, str]]) -> list[dict[str, str]]:
    """Of each table, the keys whose value is not the same in all of them."""
    keys = list(dict.fromkeys(key for table in tables for key in table))
    differing = [key for key in keys if len({table.get(key) for table in tables}) > 1]
    return [{key: table.get(key, "none") for key in differing} for table in tables]


def as_words(point: dict[str, str], between: str = " ", equals: str = "=") -> str:
    """{"cluster.workers": "8"} as workers=8; what says by itself what it is, alone."""
    return printable(between.join(alone(key, value) or f"{key.rsplit('.', 1)[-1]}{equals}{short_value(value)}"
                                  for key, value in point.items()))


def alone(key: str, value: str) -> str:
    """What says by itself what it is, as the program's tables have it (results/run.cpp): a variant,
    "10 Gbit/s", also of a bandwidth in bytes; else empty."""
    if key == "variant" or key.endswith(BANDWIDTH) and RATE.fullmatch(value):
        return value
    return bits_per_s(value) if key.endswith(BANDWIDTH) else ""


def value_text(key: str, value: str) -> str:
    """Along an axis of that key."""
    return alone(key, value) or value


def bits_per_s(value: str) -> str:
    """1 Gbit/s of 125000000.0 bytes; empty of what is no number, and where six digits do not tell it."""
    if not is_number(value) or not float(value) > 0:
        return ""
    bits = 8 * float(value)
    size, letter = next(((size, letter) for size, letter in SIZES if bits >= size), (1, ""))
    short = f"{bits / size:.6g}"
    return f"{short} {letter}bit/s" if isclose(float(short) * size, bits, rel_tol=1e-12) else ""


def in_words(point: dict[str, str], between: str = ", ") -> str:
    """For titles: {"x.threshold_s": "12 to 26", "y.bandwidth_bytes_per_s": "10 Gbit/s"} as "threshold = 12 to 26 s,
    10 Gbit/s": a name that the sweep gives has its own unit."""
    return printable(between.join(alone(key, value) or worded(key.rsplit(".", 1)[-1], value)
                                  for key, value in point.items()))


def worded(key: str, value: str) -> str:
    found = re.fullmatch(r"(.+?)(?:_(?:(bytes)_)?(?:per_)?s)?", key)
    words = found[1].replace("_", " ")
    has_unit = found[1] != key and all(is_number(re.sub("[kMG]$", "", end)) for end in value.split(" to "))
    unit = "" if not has_unit else f" {found[2] or '1'}/s" if key.endswith("_per_s") else " s"
    return f"{words} = {' to '.join(short_value(end) for end in value.split(' to '))}{unit}"


def as_label(name: str, point: dict[str, str]) -> str:
    """As the program's tables have it (results/run.hpp): DropCompute, threshold_s = 0.07."""
    return ", ".join(part for part in (name, as_words(point, ", ", " = ")) if part)


def short_value(text: str) -> str:
    """1.25G of 1250000000.0; where six digits do not tell the number, it stays."""
    if not is_number(text) or abs(number := float(text)) < 1e4:
        return text
    size, letter = next((size, letter) for size, letter in SIZES if abs(number) >= size)
    short = f"{number / size:.6g}"
    return short + letter if isclose(float(short) * size, number, rel_tol=1e-12) else text


def is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False
