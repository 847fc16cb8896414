"""File systems in memory that a campaign may fill up, lock and unlock, in mounts of this process's own: they are gone with
it, and nobody else sees them. Root may have them, and others where users may have namespaces.
"""

import os
import subprocess
import sys
from pathlib import Path

WITHIN = "SYNCOPATE_OWN_MOUNTS"
NOT_ALLOWED = "mounts of one's own are not allowed here"  # .ci/skipped_tests.py knows it


def with_own_mounts() -> None:
    """To be called first of all: the program starts itself again where it may mount."""
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
    """A file system of so many bytes at the directory, which is made."""

    def __init__(self, directory: Path, size: int):
        self.directory = directory
        directory.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory], check=True)

    def fill(self, free: int) -> None:
        """Leaves so many bytes, or none."""
        ballast = self.directory / "ballast"
        space = os.statvfs(self.directory)
        with open(ballast, "wb") as file:
            file.write(bytes(max(0, space.f_bavail * space.f_frsize - free)))

    def empty(self) -> None:
        (self.directory / "ballast").unlink()

    def lock(self) -> bool:
        """False where somebody is writing at this moment."""
        return self._remount("ro")

    def unlock(self) -> None:
        assert self._remount("rw")

    def _remount(self, how: str) -> bool:
        return subprocess.run(["mount", "-o", f"remount,{how}", self.directory], capture_output=True, check=False).returncode == 0

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self.directory], check=True)
