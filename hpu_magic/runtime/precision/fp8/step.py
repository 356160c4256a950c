"""Check the process and the model for both steps, and call Neural Compressor."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.extras import installing
from hpu_magic.runtime.device import device
from hpu_magic.runtime.device.tensors import devices_elsewhere
from hpu_magic.runtime.precision.fp8.settings import Settings
from hpu_magic.runtime.start import restart

Layer = tuple[str, str]

_WORDS = {"MEASURE": "measured", "QUANTIZE": "quantized"}
# Neural Compressor keeps its state until the process ends, so a process can do only one step.
_done: str | None = None


class OtherStepError(HPUError):
    """Raised if the process has already performed the other step."""


def check_process(step: str) -> None:
    """Raise `HPUError` if a step cannot run in this process or on this machine.

    The error is an `OtherStepError` if the process has already performed the other step.
    """
    if device.generation() == "GAUDI":
        raise HPUError("First-generation Gaudi does not support FP8: use bf16.")
    if _done not in (None, step):
        how = (
            "restart the kernel (or add --restart), create the model again and repeat the command."
            if restart.interactive()
            else "run this step in another process."
        )
        raise OtherStepError(
            f"A model was already {_WORDS[_done or step]} in this process, and a process can run "
            f"only one step: {how}"
        )
    if _processes() > 1:
        raise HPUError(
            f"fp8 inference runs on a single card, but this is one of {_processes()} processes: "
            f"start a single process."
        )
    try:
        spec = importlib.util.find_spec("neural_compressor.torch")
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise HPUError(
            "fp8 inference needs Intel Neural Compressor (Python 3.11 or newer): "
            f"{installing('fp8')}."
        )


def check_model(model: Any) -> None:
    """Raise `HPUError` for a model that cannot be measured or quantized.

    A model is rejected if it is not a module, is compiled, is in training mode, is on another
    device, or has already been measured or quantized.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise HPUError(
            f"An object of type {type(model).__name__} is not a model: pass a torch.nn.Module."
        )
    if hasattr(model, "_orig_mod"):
        raise HPUError(
            f"The {type(model._orig_mod).__name__} is compiled, which changes the names of its "
            "layers: pass the original model, and compile it after quantization."
        )
    if getattr(model, "is_quantized", False) or getattr(model, "is_prepared", False):
        state = "quantized" if getattr(model, "is_quantized", False) else "measured"
        raise HPUError(f"The model is already {state}: create it again.")
    states, fixes = [], []
    if model.training:
        states.append("is in training mode")
        fixes.append("call model.eval()")
    if elsewhere := devices_elsewhere(model):
        states.append(f"has parameters on {', '.join(elsewhere)}")
        fixes.append("type %hpu_to MODEL --dtype bf16")
    elif states and torch.float32 in {parameter.dtype for parameter in model.parameters()}:
        # Without another problem, `layers` raises an error about the dtype.
        states.append("has float32 parameters")
        fixes.append("type %hpu_to MODEL --dtype bf16")
    if states:
        raise HPUError(f"The model {' and '.join(states)}: {' and '.join(fixes)} first.")


def layers(model: Any, settings: Settings) -> list[Layer]:
    """Return the name and class of each layer to measure or quantize.

    Raises `HPUError` for the same reasons as `selected`, or if the dtype of the weights is not the
    high precision dtype in the settings.
    """
    chosen = selected(model, settings)
    required = settings.high_precision
    for name, _ in chosen:
        weight = getattr(model.get_submodule(name), "weight", None)
        dtype = str(getattr(weight, "dtype", required)).removeprefix("torch.")
        if dtype != required:
            raise HPUError(
                f"The weights of {name!r} are {dtype}, but fp8 inference starts from {required}: "
                f"type %hpu_to MODEL --dtype {required} first."
            )
    return chosen


def selected(model: Any, settings: Settings) -> list[Layer]:
    """Return the layers that the lists select, regardless of the model's dtype and device.

    Raises `HPUError` if the lists contain names that are not in the model, select no layer, or
    select a layer that cannot be quantized.
    """
    FP8Config = compressor().FP8Config
    modules = {name: type(module).__name__ for name, module in model.named_modules()}
    known = FP8Config().allowlist["types"]
    settings.check_lists(modules, known)
    chosen = settings.selected(FP8Config.get_model_info(model))
    chosen = [layer for layer in chosen if layer[0]]
    if not chosen:
        quantizable = sorted(set(modules.values()) & set(known))
        fix = (
            f"shorten the blocklist; {', '.join(quantizable)} can be quantized."
            if quantizable
            else "pass a model that contains Linear or Conv2d layers."
        )
        raise HPUError(f"No layer of this {type(model).__name__} is selected: {fix}")
    _check_kinds(model, chosen)
    return chosen


def _check_kinds(model: Any, layers: list[Layer]) -> None:
    """Raise `HPUError` for layers that Neural Compressor accepts but breaks."""
    import torch

    places: dict[Any, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        places.setdefault(module, []).append(name)
    for name, _ in layers:
        layer = model.get_submodule(name)
        if isinstance(layer, torch.nn.Softmax):
            raise HPUError(
                f"{name!r} is a torch.nn.Softmax, which Neural Compressor calls with wrong "
                "arguments: put Softmax in the blocklist."
            )
        others = [repr(place) for place in places[layer] if place != name]
        if others:
            raise HPUError(
                f"{name!r} is the same layer as {', '.join(others)}, but Neural Compressor "
                f"replaces only one of them: put {name!r} in the blocklist."
            )


def compressor() -> Any:
    """Import Neural Compressor's public functions without log messages."""
    with quiet():
        from neural_compressor.torch import quantization  # type: ignore[import-not-found]

    return quantization


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress log messages up to warning level unless ``LOGLEVEL`` is set.

    Neural Compressor logs each of its steps, and makes calls that the bridge warns about.
    """
    before = logging.root.manager.disable
    if "LOGLEVEL" not in os.environ:
        logging.disable(max(before, logging.WARNING))
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def explained() -> Iterator[None]:
    """Turn errors from Neural Compressor, which checks its settings late, into an `HPUError`."""
    try:
        yield
    except Exception as error:
        raise HPUError(
            f"Neural Compressor failed with {type(error).__name__} ({error}): change the settings "
            "and create the model again."
        ) from error


@contextmanager
def config(settings: Settings) -> Iterator[Any]:
    """Yield the settings as a Neural Compressor configuration, which is read from a file.

    Scales are always calculated from the measurements, because scale files do not record their FP8
    format and backoff. File names do not contain a rank.
    """
    values = {"recalc_scales": True, **settings.values, "seperate_measure_files": False}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "fp8.json")
        file.write_text(json.dumps(values), encoding="utf-8")
        yield compressor().FP8Config.from_json_file(str(file))


def begin(step: str) -> None:
    """Record which step this process runs, and prepare the bridge for inference."""
    import habana_frameworks.torch.core as htcore

    global _done
    _done = step
    htcore.hpu_set_inference_env()


def initialize(model: Any) -> None:
    """Mark the scales of a model as constants for the bridge."""
    import habana_frameworks.torch.core as htcore

    htcore.hpu_inference_initialize(model, mark_only_scales_as_const=True)


def _processes() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    size = os.environ.get("WORLD_SIZE", "1")
    return int(size) if size.isdigit() else 1
