"""Defaults of options, which can be changed with ``%config HPUMagics.name = value``."""

from __future__ import annotations

from typing import Any

from traitlets import Bool, Enum, Float, Int, Unicode, observe
from traitlets.config import Configurable

from hpu_magic import backend, fits


class HPUMagics(Configurable):
    """Defaults of the options of hpu_magic's commands.

    A trait is named after its option, such as ``card``, or after its command and option, such as
    ``autocast_dtype``.
    """

    autocast_dtype = Enum(
        ["bf16", "fp16"], default_value="bf16", help="%%hpu_autocast --dtype."
    ).tag(config=True)
    card = Enum(
        ["gaudi", "gaudi2", "gaudi3"],
        default_value="gaudi2",
        help="%hpu_estimate, %hpu_estimate_generation and %hpu_advise --card.",
    ).tag(config=True)
    card_time = Enum(
        ["off", "ideal", "measured"],
        default_value="off",
        help="Clock of the simulated card; %%hpu_time, %%hpu_profile, %hpu_ledger and panels show "
        "its time. An ideal host needs time only to launch work; a measured host also needs the "
        "time that this process spends between operators.",
    ).tag(config=True)
    time_runs = Int(
        0,
        min=0,
        help="%%hpu_time --runs: runs per repeat; 0 chooses a number based on the time of a run.",
    ).tag(config=True)
    time_repeats = Int(
        5, min=1, help="%%hpu_time --repeats: number of repeats of the timed runs."
    ).tag(config=True)
    profile_dir = Unicode("hpu_profile", help="%%hpu_profile --dir: the directory for traces.").tag(
        config=True
    )
    profile_trace = Bool(True, help="%%hpu_profile --trace: write a trace file.").tag(config=True)
    panel = Enum(
        ["auto", "widget", "picture"],
        default_value="auto",
        help="%%hpu_fit and %hpu_memory_live --panel: a live widget, a picture for front ends "
        "without widgets, or the best option that the page supports (auto).",
    ).tag(config=True)
    fit_interval = Float(
        fits.INTERVAL, min=0.02, max=60.0, help="%%hpu_fit --interval: seconds between two samples."
    ).tag(config=True)
    memory_live_interval = Float(
        0.5, min=0.02, max=60.0, help="%hpu_memory_live --interval: seconds between two samples."
    ).tag(config=True)
    memory_live_history = Float(
        120.0,
        min=1.0,
        max=86400.0,
        help="%hpu_memory_live --history: number of seconds that the chart shows.",
    ).tag(config=True)
    workers_grace = Float(
        5.0,
        min=0.0,
        help="%%hpu_workers --grace: seconds that ranks may continue after another rank fails.",
    ).tag(config=True)

    @observe("card_time")
    def _set_card_time(self, change: Any) -> None:
        backend.set_card_time(change["new"])


class Configured:
    """The default of an option, taken from a trait of `HPUMagics`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"%config HPUMagics.{self.name}"

    def value(self, settings: HPUMagics) -> object:
        """Return the current value of the trait."""
        return getattr(settings, self.name)
