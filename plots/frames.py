"""Runs as pandas frames: `runs, evaluations = frames("results/runs/quickstart")`, in a checkout that is built."""

import subprocess
import tempfile
from pathlib import Path

import pandas as pd

from plots.runs import ResultsFault

PROGRAM = Path(__file__).resolve().parent.parent / "build" / "bin" / "syncopate"


def frames(directory: str | Path, program: str | Path = PROGRAM) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row per run and a row per evaluation of all runs at or below `directory`, with every varied key as a column.

    The columns are those that `syncopate export` writes (results/result_table.hpp says which). Throws ResultsFault, with
    what the program says is wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run([program, "export", str(directory), "--to", folder], check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise ResultsFault(f"{program}: not there; ./dev build makes it") from None
        except subprocess.CalledProcessError as fault:
            raise ResultsFault(fault.stderr.strip()) from None
        return tuple(pd.read_csv(Path(folder) / name, dtype={"hash": str}) for name in ("runs.csv", "evaluations.csv"))
