"""A self-contained HTML page about finished runs. This file has the functions that put texts of files into the page.

No part of such a text becomes markup, and paths on this machine are shortened.
"""

import html
import re

from plots.terminal import printable

# A match has at least two names, unlike "and/or". It does not follow a letter or another slash, unlike in a link.
ABSOLUTE_PATH = re.compile(r"(?<![\w./:~-])~?/(?:[^/\s\"'<>|]+/)+([^/\s\"'<>|]*)")


def without_places(text: str) -> str:
    """The text with each absolute path shortened to …/ and the path's last name."""
    return ABSOLUTE_PATH.sub(lambda found: f"…/{found[1]}", text)


def escaped(text: str) -> str:
    """The text as markup, for elements and quoted attributes."""
    return html.escape(without_places(printable(text)))


def escaped_lines(text: str) -> str:
    """The lines of a text as markup."""
    return "\n".join(escaped(line) for line in text.splitlines())


def table_markup(label: str, classes: str, heads: str, rows: str, foot: str = "") -> str:
    """A table that scrolls sideways. `heads`: cells of its head, empty for none; `rows`, `foot`: whole rows, as
    markup."""
    head = f"<thead><tr>{heads}</tr></thead>" if heads else ""
    return (f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table class="{classes}">{head}'
            f"<tbody>{rows}</tbody>{foot}</table></div>")


def rows_markup(rows: list[tuple[str, str]]) -> str:
    """Rows of a table, as markup. Each has a head and a cell, which are markup."""
    return "".join(f'<tr><th scope="row">{head}</th><td>{cell}</td></tr>' for head, cell in rows)
