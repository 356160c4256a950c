"""What both steps ask of the process and of the model, before anything is changed."""

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

from hpu_magic.errors import RefusedError
from hpu_magic.extras import installing
from hpu_magic.runtime.device import device
from hpu_magic.runtime.precision.fp8.settings import Settings
from hpu_magic.runtime.start import restart

Layer = tuple[str, str]

_WORDS = {"MEASURE": "measured", "QUANTIZE": "quantized"}
# Neural Compressor keeps what it measured or quantized for the rest of the process.
_done: str | None = None


class OtherStepError(RefusedError):
    """The process has done the other step already."""


def check_process(step: str) -> None:
    """Refuse a step that this process or this machine cannot do.

    Raises
    ------
    OtherStepError
        The process has done the other step.
    RefusedError
        First-generation Gaudi, several processes, or no Neural Compressor.
    """
    if device.generation() == "GAUDI":
        raise RefusedError("First-generation Gaudi has no 8-bit floating point: stay with bf16.")
    if _done not in (None, step):
        how = (
            "restart the kernel (or add --restart), build the model again and repeat the command."
            if restart.interactive()
            else "run this step in another process."
        )
        raise OtherStepError(
            f"A model was {_WORDS[_done or step]} in this process, and a process does one step: "
            f"{how}"
        )
    if _processes() > 1:
        raise RefusedError(
            f"fp8 inference runs on one card, and this is one of {_processes()} processes: start "
            "it alone."
        )
    try:
        found = importlib.util.find_spec("neural_compressor.torch")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise RefusedError(
            "fp8 inference needs Intel Neural Compressor (Python 3.11 or newer): "
            f"{installing('fp8')}."
        )


def check_model(model: Any) -> None:
    """Refuse what is no model for inference on the card.

    Raises
    ------
    RefusedError
        No module, one that is compiled, in training mode, on another device, or measured or
        quantized already.
    """
    import torch

    if not isinstance(model, torch.nn.Module):
        raise RefusedError(f"A {type(model).__name__} is no model: give a torch.nn.Module.")
    if hasattr(model, "_orig_mod"):
        raise RefusedError(
            f"The {type(model._orig_mod).__name__} is compiled, and its layers have other names "
            "there: give the model that was compiled, and compile it when it is quantized."
        )
    if getattr(model, "is_quantized", False) or getattr(model, "is_prepared", False):
        state = "quantized" if getattr(model, "is_quantized", False) else "measured"
        raise RefusedError(f"The model has been {state} already: build it anew.")
    if model.training:
        raise RefusedError("The model is in training mode: call model.eval() first.")
    elsewhere = {str(one.device) for one in model.parameters() if one.device.type != "hpu"}
    if elsewhere:
        raise RefusedError(
            f"The model has parameters on {', '.join(sorted(elsewhere))}: type %hpu_to MODEL "
            "--dtype bf16 first."
        )


def layers(model: Any, settings: Settings) -> list[Layer]:
    """Return the layers that are to be measured or quantized, by name and class.

    Raises
    ------
    RefusedError
        The lists name what the model lacks, leave nothing, or leave a layer that cannot be had;
        or the weights have another type than the settings' high precision.
    """
    found = selected(model, settings)
    wanted = settings.high_precision
    for name, _ in found:
        weight = getattr(model.get_submodule(name), "weight", None)
        dtype = str(getattr(weight, "dtype", wanted)).removeprefix("torch.")
        if dtype != wanted:
            raise RefusedError(
                f"The weights of {name!r} are {dtype}, and fp8 inference starts from {wanted}: "
                f"type %hpu_to MODEL --dtype {wanted} first."
            )
    return found


def selected(model: Any, settings: Settings) -> list[Layer]:
    """Return the layers that the lists let through, of a model in any type and anywhere.

    Raises
    ------
    RefusedError
        The lists name what the model lacks, leave nothing, or leave a layer that cannot be had.
    """
    FP8Config = compressor().FP8Config
    modules = {name: type(module).__name__ for name, module in model.named_modules()}
    known = FP8Config().allowlist["types"]
    settings.check_lists(modules, known)
    found = settings.selected(FP8Config.get_model_info(model))
    found = [layer for layer in found if layer[0]]
    if not found:
        there = sorted(set(modules.values()) & set(known))
        mend = (
            f"shorten the blocklist; {', '.join(there)} can be."
            if there
            else "give a model with Linear or Conv2d layers within it."
        )
        raise RefusedError(f"Nothing of this {type(model).__name__} is to be quantized: {mend}")
    _check_kinds(model, found)
    return found


def _check_kinds(model: Any, layers: list[Layer]) -> None:
    """Refuse layers that Neural Compressor takes and breaks."""
    import torch

    places: dict[Any, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        places.setdefault(module, []).append(name)
    for name, _ in layers:
        layer = model.get_submodule(name)
        if isinstance(layer, torch.nn.Softmax):
            raise RefusedError(
                f"{name!r} is a torch.nn.Softmax, and Neural Compressor calls a Softmax with other "
                "arguments than it takes: put Softmax in the blocklist."
            )
        others = [repr(place) for place in places[layer] if place != name]
        if others:
            raise RefusedError(
                f"{name!r} is also {', '.join(others)} of the model, and Neural Compressor "
                f"replaces a layer in one place alone: put {name!r} in the blocklist."
            )


def compressor() -> Any:
    """Import Neural Compressor's public functions, without its log in between."""
    with quiet():
        from neural_compressor.torch import quantization  # type: ignore[import-not-found]

    return quantization


@contextmanager
def quiet() -> Iterator[None]:
    """Keep log lines back that are not about what the user asked for, unless ``LOGLEVEL`` is set.

    Neural Compressor tells each of its steps, and calls the bridge where that has nothing to do.
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
    """Turn what Neural Compressor fails with into a sentence: its checks come late, or not at all.

    Raises
    ------
    RefusedError
        It failed.
    """
    try:
        yield
    except Exception as error:
        raise RefusedError(
            f"Neural Compressor failed with {type(error).__name__} ({error}): take other settings, "
            "and build the model anew."
        ) from error


@contextmanager
def config(settings: Settings) -> Iterator[Any]:
    """Yield the settings in Neural Compressor's own form, which it reads from a file.

    Scales are calculated from the measurements each time: the files that they are kept in do not
    say of which 8-bit format or backoff they are. Names of files have no rank in them.
    """
    values = {"recalc_scales": True, **settings.values, "seperate_measure_files": False}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "fp8.json")
        file.write_text(json.dumps(values), encoding="utf-8")
        yield compressor().FP8Config.from_json_file(str(file))


def begin(step: str) -> None:
    """Note that the process does this step, and set it up for inference."""
    import habana_frameworks.torch.core as htcore

    global _done
    _done = step
    htcore.hpu_set_inference_env()


def initialize(model: Any) -> None:
    """Tell the bridge which of the model's tensors are scales."""
    import habana_frameworks.torch.core as htcore

    htcore.hpu_inference_initialize(model, mark_only_scales_as_const=True)


def _processes() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size())
    size = os.environ.get("WORLD_SIZE", "1")
    return int(size) if size.isdigit() else 1
