"""Read real cards through the vendor's HLML library and its Python binding `pyhlml`."""

from __future__ import annotations

import ctypes
import inspect
import threading
import warnings
from typing import Any

from hpu_magic.errors import HPUError
from hpu_magic.monitor.processes import DeviceHolders, device_holders
from hpu_magic.monitor.reading import UNKNOWN, CardReading, generation

# Return codes of HLML.
_UNINITIALIZED = 1
_INVALID_ARGUMENT = 2  # pyhlml also returns this code for functions missing from the library
_NOT_SUPPORTED = 3
_ALREADY_INITIALIZED = 5
_NOT_FOUND = 6
_DRIVER_NOT_LOADED = 9
_TIMED_OUT = 10
_LOST = 15
_NO_DATA = 21
_ABSENT = (_INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND, _NO_DATA)

# Descriptions of the other return codes.
_MEANINGS = {
    _DRIVER_NOT_LOADED: "The Gaudi driver is not loaded",
    _TIMED_OUT: "The Gaudi driver did not answer in time",
    _LOST: "The card is lost: the driver cannot reach it",
}

_ON_AIP = 0
"""Index of the on-chip temperature sensor."""
_SOC = 0
"""Index of the chip's clock."""


class HlmlUnavailableError(HPUError):
    """Raised if HLML fails; the message states the reason, and `code` is HLML's return code."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


_serial = threading.Lock()
_binding: Any = None


def read() -> tuple[tuple[CardReading, ...], DeviceHolders]:
    """Return the cards that HLML reports and their holders, without acquiring a card.

    Raises HlmlUnavailableError if the binding, library or driver is missing or returns an error.
    """
    with _serial:
        binding = _connect()
        count = _call(binding, "hlmlDeviceGetCount")
        processes = device_holders() if count else DeviceHolders({})
        return tuple(_read_card(binding, i, processes) for i in range(count)), processes


def _read_card(binding: Any, index: int, processes: DeviceHolders) -> CardReading:
    try:
        device = _call(binding, "hlmlDeviceGetHandleByIndex", index)
        name = (_value(binding, "hlmlDeviceGetName", device) or b"").decode(errors="replace")
        module_id = _value(binding, "hlmlDeviceGetModuleID", device)
        minor = _value(binding, "hlmlDeviceGetMinorNumber", device)
        memory = _value(binding, "hlmlDeviceGetMemoryInfo", device)
        rates = _value(binding, "hlmlDeviceGetUtilizationRates", device)
        milliwatts = _value(binding, "hlmlDeviceGetPowerUsage", device)
        temperature = _value(binding, "hlmlDeviceGetTemperature", device, _ON_AIP)
        megahertz = _value(binding, "hlmlDeviceGetClockInfo", device, _SOC)
    except HlmlUnavailableError as lost:
        # A card that is no longer on the bus must not prevent the others from being read.
        return CardReading(index, UNKNOWN, "", None, False, None, None, error=str(lost))
    return CardReading(
        index=index,
        module_id=UNKNOWN if module_id is None else module_id,
        name=name,
        generation=generation(name),
        simulated=False,
        memory_used=memory and memory.used,
        memory_total=memory and memory.total,
        utilization=rates and float(rates.aip),
        temperature=None if temperature is None else float(temperature),
        power=None if milliwatts is None else milliwatts / 1000,
        clock=None if megahertz is None else float(megahertz),
        holders=processes.by_minor.get(minor, ()) if minor is not None else (),
    )


def _connect() -> Any:
    """Return the binding; the first call also initializes HLML."""
    global _binding
    if _binding is not None:
        return _binding
    try:
        with warnings.catch_warnings():
            # pyhlml imports a deprecated module of its own.
            warnings.simplefilter("ignore", DeprecationWarning)
            import pyhlml
            from pyhlml.hlml_lib import LibHLML
    except ModuleNotFoundError:
        raise HlmlUnavailableError(
            "The HLML binding is missing; on a Gaudi machine, install it with `pip install "
            "habana-pyhlml`."
        ) from None
    library = inspect.signature(LibHLML).parameters["path"].default
    try:
        # pyhlml prints a message if it cannot load the library, so try to load it here first.
        ctypes.CDLL(library)
    except OSError:
        raise HlmlUnavailableError(
            f"The driver's library {library} cannot be loaded; it comes with the Gaudi driver."
        ) from None
    try:
        _call(pyhlml, "hlmlInit")
    except HlmlUnavailableError as error:
        if error.code != _ALREADY_INITIALIZED:
            raise
    _binding = pyhlml
    return pyhlml


def _value(binding: Any, function: str, *arguments: object) -> Any:
    """Return a value, or None if the card does not provide it."""
    try:
        return _call(binding, function, *arguments)
    except HlmlUnavailableError as error:
        if error.code in _ABSENT:
            return None
        raise


def _call(binding: Any, function: str, *arguments: object) -> Any:
    """Call an HLML function and convert the binding's errors to HlmlUnavailableError."""
    global _binding
    try:
        return getattr(binding, function)(*arguments)
    except binding.HLMLError as error:
        code = error.value
    if code == _UNINITIALIZED:
        _binding = None
    if code in _MEANINGS:
        raise HlmlUnavailableError(f"{_MEANINGS[code]} ({function}: code {code}).", code)
    raise HlmlUnavailableError(f"HLML returned code {code} from {function}.", code)
