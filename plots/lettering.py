"""How much room text takes, measured in the figures' own letters, and text broken into lines that fit."""

from functools import lru_cache

import matplotlib.pyplot as plt
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path


def text_inches(text: str, points: float, bold: bool = False) -> float:
    """Of the longest line."""
    families = tuple(plt.rcParams["font.family"])
    return max(line_inches(line, points, bold, families) for line in text.split("\n"))


@lru_cache(maxsize=10000)
def line_inches(line: str, points: float, bold: bool, families: tuple[str, ...]) -> float:
    font = FontProperties(family=list(families), size=points, weight="bold" if bold else "normal")
    return text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] / 72


def wrapped(text: str, inches: float, points: float) -> list[str]:
    """In lines of at most this width, broken between words; a word that is longer has a line of its own."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_inches(longer, points) > inches:
            lines.append(word)
        else:
            lines[-1:] = [longer]
    return lines
