"""Mixed precision and FP8 inference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from hpu_magic.commands.parameters import Inputs, Loader, Model, Names
from hpu_magic.errors import HPUError

if TYPE_CHECKING:
    from hpu_magic.runtime.precision.autocast import Autocast
    from hpu_magic.runtime.precision.explain import AutocastExplanation
    from hpu_magic.runtime.precision.fp8.measure import MeasureReport
    from hpu_magic.runtime.precision.fp8.quantize import QuantizeReport

_Result = TypeVar("_Result")


def autocast(
    switch: Literal["on", "off"] | None = None,
    *,
    dtype: Literal["bf16", "fp16"] = "bf16",
    lower: Names = None,
    fp32: Names = None,
    level: Literal["O1", "O2"] | None = None,
    all: bool = False,
    restart: bool = False,
) -> Autocast:
    """Run a ``with`` block, a cell or all later cells in mixed precision.

    Operator lists are read once, when torch is imported. If you pass different lists later, they
    are saved for this notebook and take effect when the kernel restarts.

    Parameters
    ----------
    switch : {"on", "off"}, optional
        ``off`` disables autocast in the block or cell; in the line form of the magic, ``on`` and
        ``off`` apply to all later cells.
    dtype : {"bf16", "fp16"}
        The lower precision.
    lower : sequence of str, optional
        Operators to run in lower precision: names, a file with one name per line, or default.
    fp32 : sequence of str, optional
        Operators to run in float32, in the same form.
    level : {"O1", "O2"}, optional
        O1 uses the operator lists; O2 runs only matrix multiplications and convolutions in lower
        precision.
    all : bool
        Report the dtype of each operator, the conversions and the lists.
    restart : bool
        Restart the kernel if different lists require it. Variables are lost.

    Raises
    ------
    HPUError
        An operator or a dtype is unknown, first-generation Gaudi is used with fp16, or different
        lists are loaded.
    """
    from hpu_magic.runtime.precision.autocast import Autocast
    from hpu_magic.runtime.precision.operators import RestartNeededError

    def entered() -> Autocast:
        return Autocast(
            dtype,
            enabled=switch != "off",
            lower=_list(lower),
            fp32=_list(fp32),
            level=level,
            verbose=all,
        )

    if switch not in (None, "off"):
        raise HPUError(
            f"hpu_magic.autocast({switch!r}) does not enable autocast: run %hpu_autocast on, or "
            "use with hpu_magic.autocast(dtype='bf16'):"
        )
    return _restarting(
        entered,
        RestartNeededError,
        "The kernel is restarting with these lists: run the cell again afterwards.",
        restart=restart,
    )


def explain_autocast(
    model: Model, inputs: Inputs, *, dtype: Literal["bf16", "fp16"] = "bf16"
) -> AutocastExplanation:
    """Show the dtype of each operation of a model under autocast, with the reason.

    The model runs once without gradients. Buffers and the state of the random number generator do
    not change.

    Parameters
    ----------
    model : torch.nn.Module
        A module on the device.
    inputs : torch.Tensor, sequence of torch.Tensor, or dict
        Arguments of the model, on the device. A dict is passed as keyword arguments.
    dtype : {"bf16", "fp16"}
        The lower precision.

    Raises
    ------
    HPUError
        `model` is not a module or not on the device, the dtype is unknown, a profile is being
        recorded, or no operation ran on the device.
    """
    from hpu_magic.runtime.device.inputs import call_arguments
    from hpu_magic.runtime.precision.explain import explained

    arguments, named = call_arguments(inputs)
    return explained(model, arguments, named, dtype)


def fp8_measure(
    model: Model,
    inputs: Inputs = None,
    *,
    data: Loader = None,
    batches: int | None = None,
    config: str | None = None,
    stats: str | None = None,
    observer: str | None = None,
    scale_method: str | None = None,
    scale_format: str | None = None,
    card: Literal["gaudi2", "gaudi3"] | None = None,
    dtype: Literal["E4M3", "E5M2"] | None = None,
    dynamic: bool | None = None,
    allow: Names = None,
    block: Names = None,
    restart: bool = False,
    **settings: Any,
) -> MeasureReport:
    """Measure the values in each layer of a model, as the first step towards FP8 inference.

    The second step, fp8_quantize, must run in another process. Requires neural-compressor-pt and
    one card.

    Parameters
    ----------
    model : torch.nn.Module
        A module on the device, in bf16 and evaluation mode. Its layers record measurements from now
        on.
    inputs : torch.Tensor, sequence, dict or callable, optional
        Arguments of the model, or a function that calls it. A dict is passed as keyword arguments.
    data : iterable, optional
        A data loader, instead of inputs. A batch is a tensor, a dict of arguments by name, or a
        tuple that begins with the required arguments.
    batches : int, optional
        Maximum number of batches to measure.
    config : str, optional
        A JSON file with settings; by default, the file specified by ``QUANT_CONFIG``. Options
        override the file.
    stats : str, optional
        Folder and file name prefix of the measurement files.
    observer : str, optional
        The kind of measurement, such as maxabs.
    scale_method : str, optional
        How scales are computed, such as maxabs_hw.
    scale_format : str, optional
        The kind of scales: scalar or const.
    card : {"gaudi2", "gaudi3"}, optional
        The card whose hardware scales are used; by default, the card of this process.
    dtype : {"E4M3", "E5M2"}, optional
        The 8-bit floating-point type.
    dynamic : bool, optional
        Compute scales while the model runs, without measurements.
    allow : sequence of str, optional
        Layers to quantize: names, parts of names, or classes.
    block : sequence of str, optional
        Layers to keep in bf16: names, parts of names, or classes.
    restart : bool
        Restart the kernel if this process has already quantized a model. Variables are lost.
    **settings
        Further settings, named as in the JSON file.

    Raises
    ------
    HPUError
        The process, the model, its inputs or a setting is not suitable; nothing has changed.
    """
    from hpu_magic.runtime.precision.fp8.measure import measure

    return _in_own_process(
        lambda: measure(
            model,
            inputs,
            data=data,
            batches=batches,
            config=config or None,
            **_settings(
                model,
                settings,
                stats=stats,
                observer=observer,
                scale_method=scale_method,
                scale_format=scale_format,
                card=card,
                dtype=dtype,
                dynamic=dynamic,
                allow=allow,
                block=block,
            ),
        ),
        restart=restart,
    )


def fp8_quantize(
    model: Model,
    inputs: Inputs = None,
    *,
    config: str | None = None,
    stats: str | None = None,
    observer: str | None = None,
    scale_method: str | None = None,
    scale_format: str | None = None,
    card: Literal["gaudi2", "gaudi3"] | None = None,
    dtype: Literal["E4M3", "E5M2"] | None = None,
    dynamic: bool | None = None,
    allow: Names = None,
    block: Names = None,
    restart: bool = False,
    **settings: Any,
) -> QuantizeReport:
    """Quantize a measured model to FP8; with inputs, show the error of each layer.

    The first step, fp8_measure, must run in another process. Requires neural-compressor-pt and one
    card.

    Parameters
    ----------
    model : torch.nn.Module
        The measured module, on the device, in bf16 and evaluation mode. The module is changed in
        place.
    inputs : torch.Tensor, sequence, dict or callable, optional
        Arguments of the model, or a function that calls it, to show the error of each layer. A dict
        is passed as keyword arguments.
    config : str, optional
        A JSON file with settings; by default, the file specified by ``QUANT_CONFIG``. Options
        override the file.
    stats : str, optional
        Folder and file name prefix of the measurement files.
    observer : str, optional
        The kind of measurement, such as maxabs.
    scale_method : str, optional
        How scales are computed, such as maxabs_hw.
    scale_format : str, optional
        The kind of scales: scalar or const.
    card : {"gaudi2", "gaudi3"}, optional
        The card whose hardware scales are used; by default, the card of this process.
    dtype : {"E4M3", "E5M2"}, optional
        The 8-bit floating-point type.
    dynamic : bool, optional
        Compute scales while the model runs, without measurements.
    allow : sequence of str, optional
        Layers to quantize: names, parts of names, or classes.
    block : sequence of str, optional
        Layers to keep in bf16: names, parts of names, or classes.
    restart : bool
        Restart the kernel if this process has already measured a model. Variables are lost.
    **settings
        Further settings, named as in the JSON file.

    Raises
    ------
    HPUError
        The process, the model, a setting or the measurements are not suitable; nothing has changed.
    """
    from hpu_magic.runtime.precision.fp8.quantize import quantize

    return _in_own_process(
        lambda: quantize(
            model,
            inputs,
            config=config or None,
            **_settings(
                model,
                settings,
                stats=stats,
                observer=observer,
                scale_method=scale_method,
                scale_format=scale_format,
                card=card,
                dtype=dtype,
                dynamic=dynamic,
                allow=allow,
                block=block,
            ),
        ),
        restart=restart,
    )


def _list(names: Any) -> Any:
    """Join names for `operators.requested`, which rejects the result for an empty list."""
    return names if names is None or isinstance(names, str) else ",".join(names) or ","


_JSON_NAMES = {
    "stats": "dump_stats_path",
    "card": "device_for_scales",
    "dtype": "fp8_config",
    "dynamic": "dynamic_quantization",
    "allow": "allowlist",
    "block": "blocklist",
}


def _settings(model: Any, settings: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Return settings keyed by their JSON names; options override other settings."""
    from hpu_magic.runtime.precision.fp8.settings import layer_lists

    chosen = {name: value for name, value in options.items() if value is not None}
    if "card" in chosen:
        chosen["card"] = str(chosen["card"]).upper()
    for name in ("allow", "block"):
        if name in chosen:
            chosen[name] = layer_lists(model, chosen[name])
    return {**settings, **{_JSON_NAMES.get(name, name): value for name, value in chosen.items()}}


def _in_own_process(call: Callable[[], _Result], *, restart: bool) -> _Result:
    from hpu_magic.runtime.precision.fp8.step import OtherStepError

    return _restarting(
        call,
        OtherStepError,
        "The kernel is restarting: afterwards, create the model again and repeat the command.",
        restart=restart,
    )


def _restarting(
    call: Callable[[], _Result], needed: type[HPUError], text: str, *, restart: bool
) -> _Result:
    """Return the result of a call; if it raises `needed` and restart is set, restart the kernel."""
    from hpu_magic.runtime.start.restart import restart_kernel

    try:
        return call()
    except needed:
        if not restart:
            raise
    restart_kernel()
    raise HPUError(text)
