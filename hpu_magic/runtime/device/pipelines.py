"""Pipelines from transformers and diffusers, which contain models but are not modules."""

from __future__ import annotations

import sys
from typing import Any

from hpu_magic.errors import HPUError

_OVER_ONE_MODEL = (("transformers.pipelines.base", "Pipeline"),)
_OVER_COMPONENTS = (
    ("diffusers.pipelines.pipeline_utils", "DiffusionPipeline"),
    ("diffusers.modular_pipelines.modular_pipeline", "ModularPipeline"),
)


def is_pipeline(value: Any) -> bool:
    """Return whether `value` is a transformers or diffusers pipeline, without importing either."""
    return _is_one_of(value, _OVER_ONE_MODEL + _OVER_COMPONENTS)


def models_of(pipeline: Any) -> dict[str, Any]:
    """Return the pipeline's modules by name.

    Raises `HPUError` if the modules were placed by a device map, because the library's hooks then
    move their inputs.
    """
    if _is_one_of(pipeline, _OVER_ONE_MODEL):
        return {"model": pipeline.model}
    places = getattr(pipeline, "hf_device_map", None)
    if places is not None:
        raise HPUError(
            f"The modules of this {type(pipeline).__name__} were placed by the device map "
            f"{places}: call its reset_device_map() first."
        )
    torch = sys.modules["torch"]
    components = pipeline.components.items()
    return {name: model for name, model in components if isinstance(model, torch.nn.Module)}


def take_inputs_on(pipeline: Any, device: Any) -> None:
    """Make the pipeline move its inputs to the device of its models."""
    if _is_one_of(pipeline, _OVER_ONE_MODEL):
        pipeline.device = device  # pipelines from diffusers use the device of their modules


def _is_one_of(value: Any, classes: tuple[tuple[str, str], ...]) -> bool:
    return any(
        (known := getattr(sys.modules.get(module), name, None)) is not None
        and isinstance(value, known)
        for module, name in classes
    )
