#!/bin/bash
# Executes an experiment under MPI, with one process per worker, on the wall clock:
#   sbatch --ntasks="$(build/bin/syncopate check --ranks FILE)" experiments/slurm/workers_under_mpi.sh FILE [options of
#   run]
# Submit it from the top of the checkout, after building.
#SBATCH --job-name=syncopate-mpi
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00
set -euo pipefail

# Open MPI needs PMIx to connect the tasks; with other kinds each task would be a launch of its own.
srun --mpi=pmix "${SYNCOPATE_PROGRAM:-build/bin/syncopate}" run "$@"
