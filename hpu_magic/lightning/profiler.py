"""Lightning's profiler over PyTorch's, with the card among what is recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from hpu_magic.errors import HPUError


class HPUProfilerBase:
    """Profile a run: operators on the host and on the card, by the name of Lightning's hooks.

    Parameters
    ----------
    dirpath
        Folder of the trace and of the table; ``trainer.log_dir`` where only `filename` is given.
    filename
        File that the table is written to, without its suffix; None prints it.
    group_by_input_shapes
        Give each shape of an operator's inputs a row of its own; needs ``record_shapes=True``.
    export_to_chrome
        Write traces (``*.pt.trace.json``), for TensorBoard and Perfetto.
    row_limit
        Most rows of the table; -1 for all.
    sort_by_key
        What the rows are sorted by, ``"cpu_time_total"`` by default.
    record_module_names
        Record the names of modules too.
    **profiler_kwargs
        Options of ``torch.profiler.profile``, with the vendor's ``debug_activities``; to
        `activities` the card is added.

    Raises
    ------
    HPUError
        ``HABANA_PROFILE`` asks the vendor's library for another kind of trace.
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
        # The vendor's package has an enumeration of its own in the place of PyTorch's.
        known = torch.profiler.ProfilerActivity
        activities = list(profiler_kwargs.pop("activities", None) or [known.CPU])
        card = getattr(known, "HPU", None)  # PyTorch's own had none at first
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
                "HPUProfiler needs the light trace of the vendor's library, and HABANA_PROFILE is "
                f"{kind!r}: leave that variable out."
            )
