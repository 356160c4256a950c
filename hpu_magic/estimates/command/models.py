"""The model that a command's line names: a function of a module, or a configuration in a file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hpu_magic.errors import suggestion
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.extras import absence


def model_named(text: str) -> nn.Module:
    """Return a model without memory for its weights, where its code lets it be made so.

    Parameters
    ----------
    text : str
        ``module:callable`` that returns the model, or the folder or JSON file of a configuration of
        transformers.

    Raises
    ------
    EstimateError
        There is no such thing, or it makes no model.
    """
    path = Path(text).expanduser()
    if path.is_dir() or path.suffix == ".json":
        return _of_configuration(path / "config.json" if path.is_dir() else path)
    made = function_named(text)
    if not isinstance(made, nn.Module):
        made = _called(text, made)
    if isinstance(made, nn.Module):
        return made
    raise EstimateError(f"{text} gives a {type(made).__name__}, and a torch.nn.Module is needed.")


def function_named(text: str) -> Any:
    """Return what ``module:name`` names; modules of the working directory are found.

    Raises
    ------
    EstimateError
        There is no such module, or no such name in it.
    """
    module_name, colon, name = text.partition(":")
    if not (colon and module_name and name):
        raise EstimateError(
            f"{text!r} names nothing: give module:callable, as in models:make, or the folder or "
            "JSON file of a model's configuration."
        )
    with _working_directory_first():
        try:
            found: Any = importlib.import_module(module_name)
        except ImportError as error:
            raise EstimateError(f"{module_name} cannot be imported: {error}.") from error
    for part in name.split("."):
        if not hasattr(found, part):
            mend = suggestion(part, [one for one in dir(found) if not one.startswith("_")])
            raise EstimateError(
                f"There is no {part!r} in {module_name}{f': {mend}' if mend else '.'}"
            )
        found = getattr(found, part)
    return found


def _called(text: str, make: Any) -> Any:
    if not callable(make):
        raise EstimateError(f"{text} is a {type(make).__name__}, neither a model nor a function.")
    try:
        with torch.device("meta"):
            return make()
    except NotImplementedError:  # it moves or reads its weights, which takes memory
        return make()
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise EstimateError(
                f"{text} cannot be called without arguments: {error}; name a function that makes "
                "the model."
            ) from error
        raise


def _of_configuration(path: Path) -> nn.Module:
    if not path.is_file():
        raise EstimateError(f"There is no file {path}: a model's folder has a config.json.")
    if why := absence("A configuration of transformers", "huggingface", ["transformers"]):
        raise EstimateError(why)
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(path)
    except (ValueError, OSError, KeyError) as error:
        raise EstimateError(
            f"{path} is no configuration that transformers knows: {_first_line(error)}"
        ) from error
    kinds = [getattr(transformers, name, None) for name in config.architectures or ()]
    kind = next((one for one in kinds if one is not None), transformers.AutoModelForCausalLM)
    with torch.device("meta"):
        made: Any = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
    model: nn.Module = made
    return model


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def _working_directory_first() -> Iterator[None]:
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.path[:] = before
