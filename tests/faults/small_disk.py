"""File systems in memory that a campaign can fill, make read-only and make writable again. They are in a mount
namespace of this process, so they are invisible to others and disappear with it. This needs root, or permission for
user namespaces.
"""

import os
import subprocess
import sys
from pathlib import Path

WITHIN = "SYNCOPATE_OWN_MOUNTS"
NOT_ALLOWED = "mounts of one's own are not allowed here"  # .ci/skipped_tests.py knows it


def with_own_mounts() -> None:
    """Must be called first. Starts the program again in a namespace in which it may mount."""
    if WITHIN in os.environ:
        return
    for how in (["--mount"], ["--mount", "--map-root-user"]):
        own = ["unshare", *how, "--propagation", "private"]
        try:
            allowed = subprocess.run([*own, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False)
        except FileNotFoundError:
            return
        if allowed.returncode == 0:
            os.execvpe(own[0], [*own, sys.executable, "-B", *sys.argv], {**os.environ, WITHIN: "yes"})


def may_mount() -> bool:
    return WITHIN in os.environ


class SmallDisk:
    """A file system of this number of bytes, mounted at a directory that this class creates."""

    def __init__(self, directory: Path, size: int):
        self.directory = directory
        directory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)

    def fill(self, free: int) -> None:
        """Fills the file system except for this number of bytes."""
        ballast = self.directory / "ballast"
        space = os.statvfs(self.directory)
        with open(ballast, "wb") as file:
            file.write(bytes(max(0, space.f_bavail * space.f_frsize - free)))

    def empty(self) -> None:
        (self.directory / "ballast").unlink()

    def lock(self) -> bool:
        """Makes the file system read-only. Returns False if a process is writing at this moment."""
        return self._remount("ro")

    def unlock(self) -> None:
        assert self._remount("rw")

    def _remount(self, how: str) -> bool:
        return subprocess.run(["mount", "-o", f"remount,{how}", self.directory], capture_output=True, check=False).returncode == 0

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self.directory], check=True)
