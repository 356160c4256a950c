#!/bin/bash
# Trains on Gaudi cards through SLURM, a process a card:
#
#   sbatch slurm.sh train.py --epochs 3                                      one card
#   sbatch --ntasks-per-node=8 --gres=hpu:8 slurm.sh train.py                a machine's eight
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

# Before hours are spent: what is wrong with a machine's installation, driver or cards, and the fix.
if ! srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 hpu-magic doctor; then
    echo "slurm.sh: a machine is not well (above), nothing was started." >&2
    exit 1
fi

# Where the processes meet.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MASTER_ADDR=${hosts%%$'\n'*}
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))

# The environment that torchrun gives. The vendor's package takes the card of the local rank.
# shellcheck disable=SC2016 # each process has its own SLURM_PROCID
exec srun --kill-on-bad-exit=1 bash -c '
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    export LOCAL_WORLD_SIZE=$((SLURM_NTASKS / SLURM_NNODES))
    exec python "$@"' hpu "$@"
