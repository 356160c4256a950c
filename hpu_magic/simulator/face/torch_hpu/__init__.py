"""Three functions of ``torch.hpu`` under names that the vendor deprecated; each call warns."""

import warnings

from habana_frameworks.torch import hpu


def is_available() -> bool:
    """Deprecated: use `torch.hpu.is_available`."""
    _warn("is_available")
    return hpu.is_available()


def device_count() -> int:
    """Deprecated: use `torch.hpu.device_count`."""
    _warn("device_count")
    return hpu.device_count()


def get_device_name(device: object = None) -> str:
    """Deprecated: use `torch.hpu.get_device_name`."""
    _warn("get_device_name")
    return hpu.get_device_name(device)


def _warn(name: str) -> None:
    warnings.warn(
        f"torch_hpu.{name} is deprecated; use torch.hpu.{name}.", FutureWarning, stacklevel=3
    )
