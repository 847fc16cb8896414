"""Numbers as figures and pages show them: with enough digits to tell them apart, and in scientific form where a plain number
would be all zeros or very long. workers/base/terminal_text.cpp has the same rule for tables and messages."""

import re
from math import floor, inf, isfinite, isnan, log10

LEAST_PLAIN, FIRST_SCIENTIFIC, MOST_DECIMALS = 1e-4, 1e7, 6
ROUNDING = 1e-12
DIGITS, DIGITS_OF_UNCERTAINTY = 4, 2
MINUS, TIMES = "\u2212", "\u00d7"
RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
POWER = re.compile(r"e([-+]\d+)")


def shown_number(value: float, digits: int = DIGITS, sign: str = "") -> str:
    """So many significant digits, without zeros at the end: 0.52, 12346, 1.25e-07. Plain from 1e-4 to 1e7, with all digits
    before the point. `sign`: "+" for one also of positive numbers."""
    value = inf - inf if isnan(value) else value
    if 10**digits <= abs(value) < FIRST_SCIENTIFIC:
        return f"{value:{sign}.0f}"
    return f"{value:{sign}.{digits}g}"


def with_decimals(value: float, decimals: int, sign: str = "") -> str:
    """So many decimals: 0.50. A number of which they would show fewer than two digits, or that is 1e7 or more, is as
    shown_number has it."""
    if is_plain(value, decimals):
        return f"{value:{sign}.{decimals}f}"
    return shown_number(value, min(max(decimals, 2), DIGITS), sign)


def is_plain(value: float, decimals: int) -> bool:
    """Whether so many decimals suit it."""
    return value == 0 or not isfinite(value) or 10.0 ** (1 - decimals) <= abs(value) < FIRST_SCIENTIFIC


class SamePlace:
    """Numbers that are read together end at the same decimal place: a mean, its deviation, the ends of its interval."""

    def __init__(self, largest: float, last_place: int):
        self.last_place = last_place
        self.is_plain = not largest >= FIRST_SCIENTIFIC and (last_place >= -MOST_DECIMALS or largest >= LEAST_PLAIN)

    @classmethod
    def of(cls, mean: float, uncertainty: float | None) -> "SamePlace":
        """To two digits of the uncertainty, a deviation or half an interval; to four of the mean where there is none."""
        has_any = bool(uncertainty) and uncertainty > 0 and isfinite(uncertainty)
        shown = uncertainty if has_any else abs(mean)
        if not shown > 0 or not isfinite(shown):
            return cls(0, 0)
        digits = DIGITS_OF_UNCERTAINTY if has_any else DIGITS
        return cls(max(abs(mean), uncertainty if has_any else 0), place_of(shown) + 1 - digits)

    def __call__(self, value: float, sign: str = "") -> str:
        decimals = min(max(-self.last_place, 0), MOST_DECIMALS)
        if not isfinite(value):
            return f"{value:{sign}.0f}"
        rounds_to_zero = abs(value) < 0.5 * 10.0**self.last_place
        if self.is_plain:
            if rounds_to_zero or abs(value) >= 0.5 * 10.0**-decimals:
                return f"{value:{sign}.{decimals}f}"
        elif rounds_to_zero:
            return "0"
        elif -MOST_DECIMALS <= self.last_place and LEAST_PLAIN <= abs(value) < FIRST_SCIENTIFIC:
            return f"{value:{sign}.{decimals}f}"  # a small deviation of a large mean
        return f"{value:{sign}.{min(max(place_of(value) - self.last_place, 0), MOST_DECIMALS)}e}"


def place_of(value: float) -> int:
    """Of its first digit; 9.999999999999998 is 10, but for rounding."""
    return floor(log10(abs(value) * (1 + ROUNDING)))


def typeset(text: str, minus: str = MINUS) -> str:
    """1.25×10⁻⁷ of 1.25e-07, 10⁻⁷ of 1e-07."""
    def power(found: re.Match) -> str:
        return f"{TIMES}10{str(int(found[1])).translate(RAISED)}"

    text = POWER.sub(power, text)
    return re.sub(rf"(?<![\d.])1{TIMES}(?=10[^\d.])", "", text).replace("-", minus)


def typeset_number(value: float, digits: int = DIGITS) -> str:
    return typeset(shown_number(value, digits))
