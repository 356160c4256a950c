"""Settings of the compile backend, read from the environment once.

Setting ``configuration_flags[key]`` affects all later compilations, whereas ``torch.compile(...,
options={key: value})`` affects only one. The simulator runs graphs as captured by Dynamo, so the
settings of the vendor's graph passes do not affect results.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

_BOOLEANS = {
    "use_compiled_recipes": ("PT_HPU_COMPILE_USE_RECIPES", True),
    "keep_input_mutations": ("PT_HPU_KEEP_INPUT_MUTATIONS", True),
    "use_eager_fallback": ("PT_HPU_USE_EAGER_FALLBACK", True),
    "use_graph_freezing": ("PT_HPU_COMPILE_GRAPH_FREEZE", False),
    "discard_frozen_params": ("PT_HPU_COMPILE_DISCARD_FROZEN_PARAMS", False),
    "remove_unnecessary_clones": ("PT_HPU_COMPILE_REMOVE_UNNECESSARY_CLONES", True),
    "use_inplace_allreduce": ("PT_HPU_USE_INPLACE_COLLECTIVE", True),
    "use_inplace_index_copy": ("PT_HPU_USE_INPLACE_INDEX_COPY", True),
    "inference": ("PT_HPU_USE_INFERENCE_COMPILER", True),
    "enable_sfg": ("PT_HPU_ENABLE_SFG", False),
    "use_cpp_partitioner": ("PT_HPU_USE_CPP_PARTITIONER", True),
    "enable_allreduce_graph_split": ("PT_HPU_ENABLE_ALLREDUCE_GRAPH_SPLIT", True),
    "force_static_compile": ("PT_HPU_FORCE_STATIC_COMPILE", False),
    "reinplace_add": ("PT_HPU_REINPLACE_ADD", True),
    "reassign_full_copy": ("PT_HPU_REASSIGN_FULL_COPY", True),
    "reassign_copy_": ("PT_HPU_REASSIGN_COPY_", True),
    "use_boxed_input": ("PT_HPU_USE_BOXED_INPUT", True),
}
_DECOMPOSITIONS = ("habana", "core_aten", "none", "inductor")
_TRUE = frozenset({"on", "1", "yes", "true", "y", "t"})
_FALSE = frozenset({"off", "0", "no", "false", "n", "f"})


def _boolean(variable: str, default: bool) -> bool:
    text = os.environ.get(variable)
    if text is None:
        return default
    if text.lower() not in _TRUE | _FALSE:
        raise AssertionError(f"{variable}={text!r} is not a boolean; use 1 or 0.")
    return text.lower() in _TRUE


def _decomposition() -> str:
    mode = os.environ.get("PT_HPU_COMPILE_DECOMPOSITION_MODE", "habana")
    if mode not in _DECOMPOSITIONS:
        raise AssertionError(
            f"PT_HPU_COMPILE_DECOMPOSITION_MODE={mode!r} is not supported; use one of "
            f"{', '.join(_DECOMPOSITIONS)}."
        )
    return mode


configuration_flags: dict[str, Any] = {
    key: _boolean(variable, default) for key, (variable, default) in _BOOLEANS.items()
}
configuration_flags["decomposition_mode"] = _decomposition()


@contextlib.contextmanager
def patched(options: Mapping[str, Any]) -> Iterator[None]:
    """Override settings inside the ``with`` block; raise KeyError if a setting does not exist."""
    for key in options:
        if key not in configuration_flags:
            raise KeyError(
                f"{key!r} is not a setting of hpu_backend; see "
                "habana_frameworks.torch.dynamo.compile_backend.config."
            )
    before = dict(configuration_flags)
    configuration_flags.update(options)
    try:
        yield
    finally:
        configuration_flags.clear()
        configuration_flags.update(before)
