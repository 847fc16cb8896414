"""What a user is told on standard error: messages, and how far the work is."""

import sys
from time import monotonic

from plots.printable import printable

CLEAR = "\r\x1b[K"
INTERVAL_S = 0.1  # between two states of the line on a terminal


messages_lost = False  # standard error cannot be written
command = "plot"  # who speaks


def say(text: str) -> None:
    write(f"{command}: {printable(text)}\n")


def write(text: str) -> None:
    """Figures matter more than messages: where these cannot be written, work goes on."""
    global messages_lost
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except OSError:
        messages_lost = True


def on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def followed(items: list, what: str, every: int):
    """The items, one after the other. Meanwhile a terminal shows in one line how many of them are done; elsewhere
    there is a line at the beginning and after each further `every` of them, but none for so few."""
    terminal, next_s = on_terminal(), 0.0
    try:
        for done, item in enumerate(items):
            state = f"{command}: {done} of {len(items)} {what}"
            if terminal and monotonic() >= next_s:
                write(CLEAR + state)
                next_s = monotonic() + INTERVAL_S
            elif not terminal and len(items) > every and done % every == 0:
                write(state + "\n")
            yield item
    finally:
        if terminal:
            write(CLEAR)
