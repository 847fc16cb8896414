"""The user's terminal: printable text, messages, progress, and how a command ends at Ctrl-C.

The commands import this module before they block signals, so this module imports little.
"""

import os
import re
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from time import monotonic
from zlib import crc32

# Control characters (C0, DEL and C1), characters that no terminal shows or that change the direction of writing, and
# surrogates, which stand for bytes that are not UTF-8. workers/base/terminal_text.cpp has the same list.
COMMANDS = re.compile("[\0-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
                      "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
                      "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")
CLEAR = "\r\x1b[K"
INTERVAL_S = 0.1  # seconds between updates of the progress line
INTERRUPTIONS = {signal.SIGINT, signal.SIGTERM}

messages_lost = False  # whether a message could not be written to standard error
command = "plot"  # at the beginning of each message


def printable(text: str) -> str:
    """The text with control and invisible characters as escapes: \\n, \\t, \\u001B. Existing escapes are unchanged."""
    return COMMANDS.sub(lambda found: escape(found[0]), text)


def escape(character: str) -> str:
    code = ord(character)
    if 0xdc80 <= code <= 0xdcff:
        return f"\\x{code - 0xdc00:02X}"
    return {"\n": "\\n", "\t": "\\t"}.get(character, f"\\U{code:08X}" if code > 0xffff else f"\\u{code:04X}")


def say(text: str) -> None:
    write(f"{command}: {printable(text)}\n")


def write(text: str) -> None:
    """Writes to standard error. If it cannot, it does not fail, because figures matter more than messages."""
    global messages_lost
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except OSError:
        messages_lost = True


def on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def followed(items: list, what: str, every: int):
    """Yields the items and reports progress. A terminal gets one line that is overwritten. Other outputs get a line
    before the first item and after every `every` items, or none if there are no more than `every` items."""
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


def list_written(written: list[Path], told: str) -> int:
    """Prints the names of files. Returns the exit status, 1 if standard output is closed, full or without a reader."""
    if sys.stdout is None:  # standard output was closed before Python began
        say(f"{told}, but standard output is closed")
        return 1
    try:
        for path in written:
            print(path)
        sys.stdout.flush()
    except OSError as fault:
        # Otherwise Python would flush standard output again at its exit, and fail with a traceback and another status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say(f"{told}, but standard output cannot be written: {fault.strerror}")
        return 1
    return 0


def aside(directory: Path, process: int) -> Path:
    """The folder into which a process writes incomplete files. Its name differs between machines and containers."""
    return directory / f".plots-{process}-{crc32(this_machine().encode()):08x}"


@contextmanager
def folder_aside(directory: Path):
    """A context manager: an empty folder in `directory` for incomplete files, removed at the end."""
    folder = aside(directory, os.getpid())
    rmtree(folder, ignore_errors=True)  # left by a killed process with the same number
    folder.mkdir()
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)


def this_machine() -> str:
    """The ids of the boot and of the process namespace, which distinguish containers that share a directory."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8") + os.readlink("/proc/self/ns/pid")
    except OSError:
        return os.uname().nodename


def run_interruptibly(work, directories: list[Path]) -> int:
    """Runs work() in a child process and returns its exit status.

    Ctrl-C or SIGTERM kills the child at once. Python itself would handle a signal only between two instructions, but an
    instruction that reads a large file takes seconds. If a signal ends the child, its incomplete files in `directories`
    are removed. After an interruption one line is printed and 130 is returned; after another signal, a message names
    the signal and 1 is returned.
    """
    heard = INTERRUPTIONS | {signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    worker = os.fork()
    if worker == 0:
        for number in INTERRUPTIONS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
        ended_with = work()
        drop_lost_messages()
        sys.exit(ended_with)
    status = None
    while status is None and signal.sigwait(heard) == signal.SIGCHLD:
        ended, result = os.waitpid(worker, os.WNOHANG)
        status = os.waitstatus_to_exitcode(result) if ended else None
    if status is not None and status >= 0:
        return status
    if status is None:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
    for directory in directories:
        rmtree(aside(directory, worker), ignore_errors=True)
    if status is None or -status in INTERRUPTIONS:
        print(f"{CLEAR if on_terminal() else ''}{command}: interrupted", file=sys.stderr)
        return 130
    print(f"{command}: ended by signal {-status} ({signal.strsignal(-status)})", file=sys.stderr)
    return 1


def drop_lost_messages() -> None:
    """Discards buffered messages that cannot be written, because Python 3.13 and later would exit with status 120."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    except AttributeError:  # standard error was closed before Python began
        pass
