"""In which settings several tables of a configuration differ, and how to say so."""

from math import isfinite

from plots.printable import printable


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


def as_words(point: dict[str, str], between: str = " ") -> str:
    """{"cluster.workers": "8"} as workers=8; a variant by its label alone."""
    return printable(between.join(value if key == "variant" else f"{key.rsplit('.', 1)[-1]}={value}"
                                  for key, value in point.items()))


def is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False
