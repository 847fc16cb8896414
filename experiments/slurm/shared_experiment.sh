#!/bin/bash
# An experiment's runs on any number of nodes: sbatch experiments/slurm/shared_experiment.sh FILE [options of run]
# As an array of jobs, each of which takes runs as it starts: sbatch --array=1-20 --ntasks=1 ...
# Submitted again, it makes what is missing. From the top of the checkout, with a program that is built.
#SBATCH --job-name=syncopate
#SBATCH --ntasks=8
#SBATCH --cpus-per-task=4
#SBATCH --mem-per-cpu=2G
#SBATCH --time=04:00:00
set -euo pipefail

# Without MPI: the processes meet in the results directory alone, which all nodes must see. One that fails ends no other.
srun --mpi=none --kill-on-bad-exit=0 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
  "${SYNCOPATE_PROGRAM:-build/bin/syncopate}" run "$@" --share --threads "${SLURM_CPUS_PER_TASK:-1}"
