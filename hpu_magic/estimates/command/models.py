"""Load the model that the command line specifies as a function or a configuration file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from hpu_magic.errors import suggestion
from hpu_magic.estimates.errors import EstimateError
from hpu_magic.extras import absence


def load_model(text: str) -> nn.Module:
    """Return a model without allocating memory for its weights, if the model's code allows that.

    ``text`` is either ``module:callable``, where the callable returns the model, or the path of a
    folder or JSON file with a transformers configuration.
    """
    path = Path(text).expanduser()
    if path.is_dir() or path.suffix == ".json":
        return _from_configuration(path / "config.json" if path.is_dir() else path)
    found = load_function(text)
    if not isinstance(found, nn.Module):
        found = _call(text, found)
    if isinstance(found, nn.Module):
        return found
    raise EstimateError(f"{text} returns a {type(found).__name__}; it must be a torch.nn.Module.")


def load_function(text: str) -> Any:
    """Import and return the object ``module:name``; the module may be in the working directory."""
    module_name, colon, name = text.partition(":")
    if not (colon and module_name and name):
        raise EstimateError(
            f"{text!r} is not a model: use module:callable, such as models:make, or the path "
            "of a folder or JSON file with a model's configuration."
        )
    with _working_directory_first():
        try:
            found: Any = importlib.import_module(module_name)
        except ImportError as error:
            raise EstimateError(f"{module_name} cannot be imported: {error}.") from error
    for part in name.split("."):
        if not hasattr(found, part):
            fix = suggestion(part, [each for each in dir(found) if not each.startswith("_")])
            raise EstimateError(f"{module_name} has no {part!r}{f': {fix}' if fix else '.'}")
        found = getattr(found, part)
    return found


def _call(text: str, make: Any) -> Any:
    if not callable(make):
        raise EstimateError(f"{text} is a {type(make).__name__}, not a model or a function.")
    try:
        with torch.device("meta"):
            return make()
    except NotImplementedError:  # the code moves or reads weights, but meta tensors have no data
        return make()
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise EstimateError(
                f"{text} cannot be called without arguments: {error}; use a function that creates "
                "the model."
            ) from error
        raise


def _from_configuration(path: Path) -> nn.Module:
    if not path.is_file():
        raise EstimateError(f"The file {path} does not exist: use a folder with a config.json.")
    if why := absence("A configuration of transformers", "huggingface", ["transformers"]):
        raise EstimateError(why)
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(path)
    except (ValueError, OSError, KeyError) as error:
        raise EstimateError(
            f"{path} is not a configuration that transformers supports: {_first_line(error)}"
        ) from error
    kinds = [getattr(transformers, name, None) for name in config.architectures or ()]
    kind = next((each for each in kinds if each is not None), transformers.AutoModelForCausalLM)
    with torch.device("meta"):
        model: Any = kind.from_config(config) if hasattr(kind, "from_config") else kind(config)
    return cast(nn.Module, model)


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
