"""One page of HTML about finished runs, complete in itself; here is how texts of files get into it.

Nothing of such a text becomes markup, and nothing names a place on this machine.
"""

import html
import re

from plots.terminal import printable

# Two names at least, so that "and/or" stays; not behind a letter or another slash, so that a link stays.
ABSOLUTE_PATH = re.compile(r"(?<![\w./:~-])~?/(?:[^/\s\"'<>|]+/)+([^/\s\"'<>|]*)")


def without_places(text: str) -> str:
    """The text with absolute paths as …/ and their last name."""
    return ABSOLUTE_PATH.sub(lambda found: f"…/{found[1]}", text)


def escaped(text: str) -> str:
    """The text as markup, for elements and quoted attributes."""
    return html.escape(without_places(printable(text)))


def escaped_lines(text: str) -> str:
    """A text of several lines as markup."""
    return "\n".join(escaped(line) for line in text.splitlines())


def table_markup(label: str, classes: str, heads: str, rows: str, foot: str = "") -> str:
    """A table that scrolls sideways. `heads`: cells of its head, empty for none; `rows` and `foot`: whole rows, as markup."""
    head = f"<thead><tr>{heads}</tr></thead>" if heads else ""
    return (f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table class="{classes}">{head}'
            f"<tbody>{rows}</tbody>{foot}</table></div>")


def rows_markup(rows: list[tuple[str, str]]) -> str:
    """Rows of a head and a cell each, which are markup."""
    return "".join(f'<tr><th scope="row">{head}</th><td>{cell}</td></tr>' for head, cell in rows)
