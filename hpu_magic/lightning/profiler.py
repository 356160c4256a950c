"""Extend Lightning's ``PyTorchProfiler`` to the device."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from hpu_magic.errors import HPUError

_PATCHED = "_hpu_magic_patched"


class HPUProfilerBase:
    """Profile operators on the host and the device, and record the names of Lightning's hooks.

    Parameters
    ----------
    dirpath
        Folder for the trace and the table; if only `filename` is set, the default is
        ``trainer.log_dir``.
    filename
        Name of the table's file, without the suffix. If it is None, the table is printed.
    group_by_input_shapes
        Whether each input shape of an operator has a separate row; needs ``record_shapes=True``.
    export_to_chrome
        Whether to write traces (``*.pt.trace.json``) for TensorBoard and Perfetto.
    row_limit
        Maximum number of rows, or -1 for all.
    sort_by_key
        Key by which the rows are sorted; ``"cpu_time_total"`` by default.
    record_module_names
        Whether to record the names of modules.
    **profiler_kwargs
        Options of ``torch.profiler.profile``, including the vendor's ``debug_activities``. The
        device is added to ``activities``.

    Raises
    ------
    HPUError
        ``HABANA_PROFILE`` selects a different kind of trace.
    """

    def __init__(
        self,
        dirpath: str | Path | None = None,
        filename: str | None = None,
        group_by_input_shapes: bool = False,
        export_to_chrome: bool = True,
        row_limit: int = 20,
        sort_by_key: str | None = None,
        record_module_names: bool = False,
        **profiler_kwargs: Any,
    ) -> None:
        # The vendor's package replaces PyTorch's enum.
        known = torch.profiler.ProfilerActivity
        activities = list(profiler_kwargs.pop("activities", None) or [known.CPU])
        card = getattr(known, "HPU", None)  # older releases of PyTorch do not have HPU
        if card is not None and card not in activities:
            activities.append(card)
        super().__init__(  # type: ignore[call-arg]
            dirpath=dirpath,
            filename=filename,
            group_by_input_shapes=group_by_input_shapes,
            export_to_chrome=export_to_chrome,
            row_limit=row_limit,
            sort_by_key=sort_by_key or "cpu_time_total",
            record_module_names=record_module_names,
            activities=activities,
            **profiler_kwargs,
        )
        kind = os.environ.get("HABANA_PROFILE", "profile_api_light")
        if kind != "profile_api_light":
            raise HPUError(
                "HPUProfiler needs the light trace of the vendor's library, but HABANA_PROFILE is "
                f"{kind!r}: unset this variable."
            )


def patch_profilers(setup: ModuleType, profiler_class: type[Any]) -> None:
    """Make ``Trainer(profiler="hpu")`` work by wrapping the function that resolves the name.

    `setup` is Lightning's module ``trainer.setup``.
    """
    if hasattr(setup, _PATCHED):
        return
    original = setup._init_profiler

    @functools.wraps(original)
    def init_profiler(trainer: Any, profiler: Any) -> None:
        named = isinstance(profiler, str) and profiler.lower() == "hpu"
        original(trainer, profiler_class() if named else profiler)

    setup._init_profiler = init_profiler  # type: ignore[attr-defined]
    setattr(setup, _PATCHED, True)
