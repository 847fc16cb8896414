"""Runs as pandas frames: `runs, evaluations = frames("results/runs/quickstart")`. Needs the built program."""

import subprocess
import tempfile
from pathlib import Path

import pandas as pd

from plots.runs import ResultsFault

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "bin" / "syncopate"


def frames(directory: str | Path, program: str | Path = PROGRAM) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two tables of all runs at or below `directory`: one with a row per run, one with a row per evaluation.

    Columns are as in the tables of `syncopate export` (results/result_table.hpp), with one for every varied key. Raises
    ResultsFault with the program's message.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run([program, "export", str(directory), "--to", folder], check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise ResultsFault(f"{program}: not there; ./dev build builds it") from None
        except subprocess.CalledProcessError as fault:
            raise ResultsFault(fault.stderr.strip()) from None
        return tuple(pd.read_csv(Path(folder) / name, dtype={"hash": str}) for name in ("runs.csv", "evaluations.csv"))
