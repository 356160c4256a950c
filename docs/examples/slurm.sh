#!/bin/bash
# Trains on Gaudi cards through SLURM, with one process per card:
#
#   sbatch slurm.sh train.py --epochs 3                                      one card
#   sbatch --ntasks-per-node=8 --gres=hpu:8 slurm.sh train.py                eight cards of a machine
#   sbatch --nodes=2 --ntasks-per-node=8 --gres=hpu:8 slurm.sh train.py      two machines
#
#SBATCH --job-name=hpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=hpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.log
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: sbatch [options] slurm.sh SCRIPT [arguments]" >&2
    exit 2
fi

# Check each machine's installation, driver and cards before the training starts.
if ! srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 hpu-magic doctor; then
    echo "slurm.sh: fix the problems above; nothing was started." >&2
    exit 1
fi

# Address of rank 0, to which all processes connect.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${hosts%%$'\n'*}
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))

# Set the same variables as torchrun. The vendor's package selects the card by the local rank.
# shellcheck disable=SC2016 # each process has its own SLURM_PROCID
exec srun --kill-on-bad-exit=1 bash -c '
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    export LOCAL_WORLD_SIZE=$((SLURM_NTASKS / SLURM_NNODES))
    exec python "$@"' hpu "$@"
