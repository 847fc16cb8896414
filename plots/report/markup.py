"""Text of files on its way into a page: nothing of it is markup there, and nothing names a place on this machine."""

import base64
import gzip
import html
import json
import re

from plots.printable import printable

# Two names at least, so that "and/or" stays, and not behind a letter or another slash, so that a link does.
ABSOLUTE_PATH = re.compile(r"(?<![\w./:~-])~?/(?:[^/\s\"'<>|]+/)+([^/\s\"'<>|]*)")


def without_places(text: str) -> str:
    """Absolute paths as …/ and their last name."""
    return ABSOLUTE_PATH.sub(lambda found: f"…/{found[1]}", text)


def escaped(text: str) -> str:
    """For elements and quoted attributes."""
    return html.escape(without_places(printable(text)))


def escaped_lines(text: str) -> str:
    """The same of a text of several lines."""
    return "\n".join(escaped(line) for line in text.splitlines())


def packed(text: str | bytes) -> str:
    """Compressed and in letters that no markup has; the page unpacks it. Equal texts give equal letters."""
    content = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def compact(document) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
