"""Fonts for characters that the figures' own font lacks, such as those of Chinese or Japanese."""

import warnings

import matplotlib.pyplot as plt
from matplotlib.font_manager import FontProperties, findfont, fontManager
from matplotlib.ft2font import FT2Font

OWN = "DejaVu Sans"
DRAWS_BOXES = "LastResort"  # fonts of that name have a box for every character
SHOWN = 8  # characters in a message


def use_fonts_for(text: str) -> str:
    """Takes installed fonts for what the figures' own font lacks; the characters that none has, in order. Matplotlib
    says nothing of these any more: it would do so each time one is drawn or measured."""
    missing, families = {character for character in text if not character.isspace()} - glyphs(OWN), [OWN]
    for family in sorted({font.name for font in fontManager.ttflist}) if missing else []:
        if DRAWS_BOXES in family.replace(" ", "") or not (found := missing & glyphs(family)):
            continue
        families.append(family)
        missing -= found
    plt.rcParams["font.family"] = families
    for character in missing:
        warnings.filterwarnings("ignore", f"Glyph {ord(character)} .* missing from")
    return "".join(sorted(missing))


def glyphs(family: str) -> set[str]:
    """What the family has both in normal and in bold letters."""
    files = [findfont(FontProperties(family=family, weight=weight)) for weight in ("normal", "bold")]
    return set.intersection(*({chr(code) for code in FT2Font(file).get_charmap()} for file in files))


def without_font(missing: str) -> str:
    """What a user is told of these characters."""
    named = ", ".join(f"{character} (U+{ord(character):04X})" for character in missing[:SHOWN])
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return f"no installed font has {named}{more}: PNG files show boxes, SVG files whatever their viewer has"
