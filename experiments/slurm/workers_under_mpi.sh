#!/bin/bash
# An experiment with a process for each worker, on the clock of the wall:
#   sbatch --ntasks="$(build/bin/syncopate check --ranks FILE)" experiments/slurm/workers_under_mpi.sh FILE [options of run]
# From the top of the checkout, with a program that is built.
#SBATCH --job-name=syncopate-mpi
#SBATCH --cpus-per-task=1
#SBATCH --time=01:00:00
set -euo pipefail

# Open MPI speaks PMIx with srun; with another kind each task would be alone.
srun --mpi=pmix "${SYNCOPATE_PROGRAM:-build/bin/syncopate}" run "$@"
