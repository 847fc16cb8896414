#!/bin/bash
# Shares an experiment's runs between any number of nodes:
#   sbatch experiments/slurm/shared_experiment.sh FILE [options of run]
# array.sbatch does this with a job array, whose tasks start one by one and may be preempted.
# If it is submitted again, it executes the missing runs. Submit it from the top of the checkout, after building.
#SBATCH --job-name=syncopate
#SBATCH --ntasks=8
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=2G
#SBATCH --time=04:00:00
set -euo pipefail

# Without MPI: processes share runs only through the results directory, which must be visible on all nodes. If one of
# them fails, the others continue.
srun --mpi=none --kill-on-bad-exit=0 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
  "${SYNCOPATE_PROGRAM:-build/bin/syncopate}" run "$@" --share --threads "${SLURM_CPUS_PER_TASK:-1}"
