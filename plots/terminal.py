"""Work that Ctrl-C ends at once. It is done by a process of its own: Python hears of a signal between two of its
instructions, of which one that reads a large file takes seconds, and its imports would end in a traceback.

What is imported here is there before a signal is heard, so it is little.
"""

import os
import signal
import sys
from pathlib import Path
from zlib import crc32

from plots import progress

INTERRUPTIONS = {signal.SIGINT, signal.SIGTERM}


def aside(directory: Path, process: int) -> Path:
    """Where such a process of this machine and container writes what is not complete yet."""
    return directory / f".plots-{process}-{crc32(this_machine().encode()):08x}"


def this_machine() -> str:
    """The system's start, and the space that process numbers belong to: containers may share a directory."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8") + os.readlink("/proc/self/ns/pid")
    except OSError:
        return os.uname().nodename


def run_interruptibly(work, directories: list[Path]) -> int:
    """The exit status that work() returns; 130 if it was interrupted: then what it has written aside in one of the
    directories is removed, and one line says so."""
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
        remove(aside(directory, worker))
    if status is None or -status in INTERRUPTIONS:
        clear = "\r\x1b[K" if sys.stderr is not None and sys.stderr.isatty() else ""  # a line of progress
        print(f"{clear}{progress.command}: interrupted", file=sys.stderr)
        return 130
    print(f"{progress.command}: ended by signal {-status} ({signal.strsignal(-status)})", file=sys.stderr)
    return 1


def drop_lost_messages() -> None:
    """Where standard error cannot be written, what is left for it goes nowhere: Python 3.13 and later would end with 120
    instead of the command's own status."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    except AttributeError:  # it was closed before Python began
        pass


def remove(directory: Path) -> None:
    from shutil import rmtree

    rmtree(directory, ignore_errors=True)
