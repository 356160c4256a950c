"""Defaults of the options, set with ``%config HPUMagics.name = value``."""

from __future__ import annotations

import argparse

from IPython.core.magic_arguments import argument
from traitlets import Bool, Enum, Float, Int, Unicode
from traitlets.config import Configurable

from hpu_magic import fits


class HPUMagics(Configurable):
    """Defaults of the options of the hpu_magic commands; an option that is given wins.

    Options that name what one call is about, such as a variable, a graph or what to end, have
    no default.
    """

    device = Unicode("hpu", help="%hpu_to --device: where to move to.").tag(config=True)
    dtype = Enum(
        ["bf16", "fp16", "fp32"],
        default_value=None,
        allow_none=True,
        help="%hpu_to --dtype: convert floating-point values on the way; None keeps them.",
    ).tag(config=True)
    autocast_dtype = Enum(
        ["bf16", "fp16"], default_value="bf16", help="%%hpu_autocast --dtype."
    ).tag(config=True)
    autocast_level = Enum(
        ["O1", "O2"],
        default_value=None,
        allow_none=True,
        help="%%hpu_autocast --level; None leaves the operator lists as they were loaded.",
    ).tag(config=True)
    autocast_verbose = Bool(False, help="%%hpu_autocast --all.").tag(config=True)
    autocast_lower = Unicode(
        "", help="%%hpu_autocast --lower; empty leaves the list as it was loaded."
    ).tag(config=True)
    autocast_fp32 = Unicode(
        "", help="%%hpu_autocast --fp32; empty leaves the list as it was loaded."
    ).tag(config=True)
    fp8_config = Unicode(
        "", help="%hpu_fp8 --config: a JSON file of settings; empty takes QUANT_CONFIG's."
    ).tag(config=True)
    fp8_stats = Unicode(
        "", help="%hpu_fp8 --stats; empty takes the file's, or hpu_fp8/measure."
    ).tag(config=True)
    fp8_observer = Unicode("", help="%hpu_fp8 --observer; empty takes the file's.").tag(config=True)
    fp8_scale_method = Unicode("", help="%hpu_fp8 --scale-method; empty takes the file's.").tag(
        config=True
    )
    fp8_scale_format = Unicode("", help="%hpu_fp8 --scale-format; empty takes the file's.").tag(
        config=True
    )
    fp8_device_for_scales = Unicode(
        "", help="%hpu_fp8 --device-for-scales; empty takes the file's, or the card's own."
    ).tag(config=True)
    fp8_format = Unicode("", help="%hpu_fp8 --format; empty takes the file's.").tag(config=True)
    fp8_dynamic = Bool(
        None, allow_none=True, help="%hpu_fp8 --dynamic; None takes the file's."
    ).tag(config=True)
    fp8_batches = Int(None, min=1, allow_none=True, help="%hpu_fp8 --batches; None takes all.").tag(
        config=True
    )
    time_runs = Int(
        0, min=0, help="%%hpu_time -n: runs a repeat; 0 chooses by the time of one run."
    ).tag(config=True)
    time_repeats = Int(5, min=1, help="%%hpu_time -r: repeats of the timed runs.").tag(config=True)
    graph_warmup = Int(1, min=0, help="%%hpu_capture --warmup: runs before the capture.").tag(
        config=True
    )
    replay_number = Int(1, min=1, help="%hpu_replay -n: number of replays.").tag(config=True)
    estimate_generation = Enum(
        ["gaudi", "gaudi2", "gaudi3"],
        default_value="gaudi2",
        help="%hpu_estimate --card: the card.",
    ).tag(config=True)
    estimate_mode = Enum(
        ["eager", "lazy", "graphs", "compile"],
        default_value=None,
        allow_none=True,
        help="%hpu_estimate --mode; None takes this process's.",
    ).tag(config=True)
    advise_mode = Enum(
        ["eager", "lazy", "graphs", "compile"],
        default_value=None,
        allow_none=True,
        help="%hpu_advise --mode; None takes the fit's, or this process's.",
    ).tag(config=True)
    estimate_precision = Enum(
        ["fp32", "bf16", "bf16-mixed", "fp8"],
        default_value=None,
        allow_none=True,
        help="%hpu_estimate --dtype; None takes the type of the model's parameters.",
    ).tag(config=True)
    wrap_max_graphs = Int(
        None,
        min=1,
        allow_none=True,
        help="%hpu_wrap --max-graphs; None leaves it to the vendor's wrapper.",
    ).tag(config=True)
    profile_trace = Bool(True, help="%%hpu_profile --trace: write a trace file.").tag(config=True)
    profile_folder = Unicode(
        "hpu_profile", help="%%hpu_profile --dir: folder that traces are written to."
    ).tag(config=True)
    panel = Enum(
        ["auto", "widget", "picture"],
        default_value="auto",
        help="%%hpu_fit, %hpu_memory_live: the live widget, a picture for front ends without widgets, or "
        "whichever the page shows.",
    ).tag(config=True)
    panel_interval = Float(
        0.5, min=0.02, max=60.0, help="%hpu_memory_live --interval: seconds between two samples."
    ).tag(config=True)
    panel_history = Float(
        120.0,
        min=1.0,
        max=86400.0,
        help="%hpu_memory_live --history: seconds that the chart shows.",
    ).tag(config=True)
    fit_interval = Float(
        fits.INTERVAL, min=0.02, max=60.0, help="%%hpu_fit --interval: seconds between two samples."
    ).tag(config=True)
    port_show = Bool(
        False, help="%%hpu_from_cuda --show: show the ported cell without running it."
    ).tag(config=True)
    port_mark_steps = Bool(
        None,
        allow_none=True,
        help="%%hpu_from_cuda --mark-steps; None marks them in lazy mode.",
    ).tag(config=True)
    parallel_workers = Int(
        None, min=1, allow_none=True, help="%%hpu_workers -n; None takes all cards."
    ).tag(config=True)
    parallel_grace = Float(
        5.0,
        min=0.0,
        help="%%hpu_workers --grace: seconds that ranks may go on once another has failed.",
    ).tag(config=True)
    doctor_all = Bool(False, help="%hpu_doctor --all: show what is green one by one too.").tag(
        config=True
    )
    restart = Bool(
        False,
        help="--restart of every command that may need one: restart the kernel without asking.",
    ).tag(config=True)


class Configured:
    """Stands as the default of an option whose value lives in `HPUMagics`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"%config HPUMagics.{self.name}"

    def value(self, settings: HPUMagics) -> object:
        """Return the current default."""
        return getattr(settings, self.name)


RESTART = argument(
    "--restart",
    action=argparse.BooleanOptionalAction,
    default=Configured("restart"),
    help="restart the kernel if the change needs it; variables are lost",
)
