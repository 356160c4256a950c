"""Selects a process's card, based on environment variables or the first device index used."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from hpu_magic.simulator.cards.configuration import MOST_CARDS, Configuration


class AcquireError(RuntimeError):
    """No card could be acquired."""


@dataclass(frozen=True)
class _Choice:
    """A card that a process has chosen, with its index among the cards that the process can use."""

    index: int
    module: int
    pid: int


_choice: _Choice | None = None
_rank: int | None = None


def choose_for(own: int | None, index: int, configuration: Configuration) -> None:
    """Choose the card at an index, as in `driver.choose`; `own` is the process's card, if any."""
    global _choice
    modules = _module_ids("HABANA_VISIBLE_MODULES") or list(range(configuration.count))
    chosen = _chosen()
    if chosen is not None and chosen.index == index:
        return
    current = _current_module() if own is None else own
    exists = index in range(len(modules))
    if exists and current in (None, modules[index]):
        _choice = _Choice(index, modules[index], os.getpid())
    elif chosen is not None or index not in _rank_indices(configuration, modules):
        why = _why(modules, current, exists)
        raise RuntimeError(f"habana active device: 0 != {index}. {why}")


def forget() -> None:
    """Discard the choice because the card could not be acquired."""
    global _choice
    _choice = None


def _chosen() -> _Choice | None:
    """Return this process's choice, which forked children do not inherit."""
    return _choice if _choice is not None and _choice.pid == os.getpid() else None


def _why(modules: Sequence[int], current: int | None, exists: bool) -> str:
    if exists:
        return (
            f"This process uses HPU {current} as hpu:0; start another process to use another card."
        )
    named = f"hpu:0 to hpu:{len(modules) - 1}" if len(modules) > 1 else "only hpu:0"
    return f"This process can use {named}."


def be_rank(rank: int) -> None:
    """Set the rank of this process in its process group."""
    global _rank
    _rank = rank


def _rank_indices(configuration: Configuration, modules: Sequence[int]) -> set[int]:
    """Return the device indices that libraries may use to refer to this rank's card."""
    local = os.environ.get("LOCAL_RANK", "")
    indices = {int(local)} if local.isascii() and local.isdigit() else set()
    return (
        indices if _rank is None else indices | {_rank % len(modules), _rank % configuration.count}
    )


def _current_module() -> int | None:
    """Return the card that this process has chosen or that its environment selects."""
    if (chosen := _chosen()) is not None:
        return chosen.module
    wanted = _module_ids("HLS_MODULE_ID")
    return wanted[0] if wanted else None


def candidates(configuration: Configuration) -> list[int]:
    """Return the module ids of the cards to try, in order.

    A rank first tries the card whose index is its local rank, because libraries such as DeepSpeed
    use the device before they select a card.

    Raises
    ------
    AcquireError
        The environment variables exclude all cards.
    ValueError
        An environment variable has an invalid value.
    """
    if (chosen := _chosen()) is not None:
        return [chosen.module]
    visible = _module_ids("HABANA_VISIBLE_MODULES")
    wanted = _module_ids("HLS_MODULE_ID")
    if wanted is not None and len(wanted) != 1:
        raise ValueError(
            f"HLS_MODULE_ID={os.environ['HLS_MODULE_ID']!r} is not a module id; use a single "
            f"integer from 0 to {configuration.count - 1}."
        )
    everything = range(configuration.count)
    local = os.environ.get("LOCAL_RANK", "")
    if visible is None:
        first = wanted or ([int(local)] if local.isascii() and local.isdigit() else [])
        order = first + [module for module in everything if module not in first]
    elif wanted is None:
        order = visible
    else:
        order = [module for module in wanted if module in visible]
    candidates = [module for module in order if module in everything]
    if not candidates:
        settings = [
            f"{name}={os.environ[name]}"
            for name in ("HLS_MODULE_ID", "HABANA_VISIBLE_MODULES")
            if name in os.environ
        ]
        raise AcquireError(
            "synStatus=8 [Device not found] Device acquire failed. No devices found. "
            f"{' with '.join(settings)} excludes all simulated cards, whose module ids are 0 to "
            f"{configuration.count - 1}; unset it or use one of these ids."
        )
    return candidates


def _module_ids(variable: str) -> list[int] | None:
    text = os.environ.get(variable)
    if text is None:
        return None
    entries = [entry.strip() for entry in text.split(",")]
    if not all(entry.isascii() and entry.isdigit() and len(entry) < 10 for entry in entries):
        raise ValueError(
            f"{variable}={text!r} is not a list of module ids; use comma-separated integers from 0 "
            f"to {MOST_CARDS - 1}, or unset it."
        )
    return list(dict.fromkeys(int(entry) for entry in entries))
