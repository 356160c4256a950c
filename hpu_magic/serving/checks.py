"""Checks before a server starts."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from pathlib import Path

import psutil

from hpu_magic import requirements, units
from hpu_magic.backend import is_simulated
from hpu_magic.errors import HPUError

HOST = "127.0.0.1"
_OURS = {
    "--host": "the server listens only on this machine",
    "--port": "write --port before vLLM's options, for example --port 8000",
    "--tensor-parallel-size": "pass --cards N",
    "-tp": "pass --cards N",
}


def check_options(options: Sequence[str]) -> None:
    """Raise HPUError if an option for vLLM conflicts with an option of this command."""
    for option in options:
        written = option.partition("=")[0]
        name = written.replace("_", "-")  # vLLM accepts both
        if name in _OURS:
            raise HPUError(f"{written} cannot be passed to vLLM: {_OURS[name]}.")


def check_versions() -> None:
    """Raise HPUError if vLLM's Gaudi plugin was made for another release of vLLM."""
    if conflict := requirements.vllm_conflict(requirements.installed_version):
        raise HPUError(conflict)


def check_host_memory(model: str, options: Sequence[str] = ()) -> None:
    """Raise HPUError if a local model's weights do not fit in the host memory of simulated cards.

    ``options`` are those for vLLM; with ``--load-format dummy``, the model has no files of weights.
    vLLM's Gaudi plugin converts float32 weights to bfloat16.
    """
    folder = _folder(model)
    if folder is None or not is_simulated():
        return
    written = " ".join(options).replace("=", " ").replace("_", "-")
    if "--load-format dummy" in written:
        needed = 2 * _number_of_parameters(folder)
    else:
        needed = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        needed = needed or sum(file.stat().st_size for file in folder.glob("*.bin"))
        if _dtype(folder) == "float32":
            needed //= 2
    available = psutil.virtual_memory().available
    if needed > available:
        raise HPUError(
            f"The weights of {model!r} require {units.size(needed)}, but this machine has only "
            f"{units.size(available)} of free memory, which simulated cards use: serve a smaller "
            "model, or close other programs."
        )


def _folder(model: str) -> Path | None:
    """Return the folder that contains the model, if it is on this machine."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if Path(model).is_dir():
        return Path(model)
    try:
        config = try_to_load_from_cache(model, "config.json")
    except HFValidationError:
        return None
    return Path(config).parent if isinstance(config, str) else None


def _number_of_parameters(folder: Path) -> int:
    """Return the number of a model's parameters, or 0 if transformers cannot create the model."""
    import torch
    from transformers import AutoConfig, AutoModel

    try:
        with torch.device("meta"):
            built = AutoModel.from_config(AutoConfig.from_pretrained(folder))
    except Exception:  # noqa: BLE001 (any error of the model, which vLLM reports with its cause)
        return 0
    return sum(each.numel() for each in built.parameters())


def _dtype(folder: Path) -> str | None:
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return None
    return config.get("dtype") or config.get("torch_dtype")


def free_port(port: int) -> int:
    """Return `port` if it is free, or any free port if `port` is 0.

    Raises
    ------
    HPUError
        The port is in use or not between 0 and 65535.
    """
    if not 0 <= port <= 65_535:
        raise HPUError(f"--port must be between 0 and 65535, got {port}.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise HPUError(
                f"Port {port} cannot be used ({error.strerror}): pass another number, or --port 0 "
                "for any free port."
            ) from None
        return int(probe.getsockname()[1])
