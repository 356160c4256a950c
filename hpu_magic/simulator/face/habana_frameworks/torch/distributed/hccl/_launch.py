"""Determine the rank and card of this process from the launcher's environment variables."""

from __future__ import annotations

import os

from habana_frameworks.torch.hpu import _utils

_FROM_MPI = {
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "RANK": "OMPI_COMM_WORLD_RANK",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
}


def initialize_distributed_hpu(
    world_size: int | None = None, rank: int | None = None, local_rank: int | None = None
) -> tuple[int, int, int]:
    """Return the world size and this process's ranks, and select the card of this process.

    Under ``mpirun``, this sets ``WORLD_SIZE``, ``RANK`` and ``LOCAL_RANK``, as well as
    ``MASTER_ADDR`` and ``MASTER_PORT`` if they are not set. ``ID``, the name of the log folder, is
    set to the rank. If there are several processes, it sets ``HLS_MODULE_ID``, unless already set,
    to the card in ``HABANA_VISIBLE_MODULES`` whose index is the local rank.

    Returns
    -------
    world_size, rank, local_rank : int
        The arguments if passed, otherwise the values from the environment, which default to 1, -1
        and -1.

    Raises
    ------
    AssertionError
        There are more processes than cards.
    """
    if any(variable in os.environ for variable in _FROM_MPI.values()):
        for name, variable in _FROM_MPI.items():
            if variable in os.environ:
                os.environ[name] = os.environ[variable]
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "12345")
    world_size = _chosen(world_size, "WORLD_SIZE", 1)
    rank = _chosen(rank, "RANK", -1)
    local_rank = _chosen(local_rank, "LOCAL_RANK", -1)
    if rank != -1:
        os.environ["ID"] = str(rank)
    if world_size > 1 and local_rank != -1 and "HLS_MODULE_ID" not in os.environ:
        modules = _utils._get_available_modules_from_environ()
        assert local_rank < len(modules), (
            "There is not enough devices available for training: "
            f"local rank {local_rank} has no card among the modules {modules}."
        )
        os.environ["HLS_MODULE_ID"] = str(modules[local_rank])
    return world_size, rank, local_rank


def _chosen(value: int | None, variable: str, default: int) -> int:
    return int(os.environ.get(variable) or default) if value is None else value
