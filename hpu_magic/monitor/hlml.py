"""Real cards, through the vendor's HLML library and its binding `pyhlml`."""

from __future__ import annotations

import ctypes
import inspect
import threading
import warnings
from typing import Any

from hpu_magic.monitor.processes import DeviceHolders, device_holders
from hpu_magic.monitor.reading import UNKNOWN, CardReading, generation

# Return codes of HLML.
_UNINITIALIZED = 1
_INVALID_ARGUMENT = 2  # also what pyhlml makes of a function that the library lacks
_NOT_SUPPORTED = 3
_ALREADY_INITIALIZED = 5
_NOT_FOUND = 6
_DRIVER_NOT_LOADED = 9
_TIMED_OUT = 10
_LOST = 15
_NO_DATA = 21
_ABSENT = (_INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_FOUND, _NO_DATA)

# What other codes mean to a user.
_MEANINGS = {
    _DRIVER_NOT_LOADED: "The Gaudi driver is not loaded",
    _TIMED_OUT: "The Gaudi driver did not answer in time",
    _LOST: "The card is lost: the driver does not reach it any more",
}

_ON_AIP = 0
"""The temperature sensor on the chip."""
_SOC = 0
"""The clock of the chip as a whole."""


class HlmlUnavailable(Exception):
    """HLML does not answer; the text says why in one sentence, `code` is HLML's own."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


_serial = threading.Lock()
_binding: Any = None


def read() -> tuple[tuple[CardReading, ...], DeviceHolders]:
    """Read all cards that HLML knows, and who holds them. Acquires none.

    Raises
    ------
    HlmlUnavailable
        The binding, the library or the driver is missing, or answers with an error.
    """
    with _serial:
        binding = _connect()
        count = _ask(binding, "hlmlDeviceGetCount")
        seen = device_holders() if count else DeviceHolders({})
        return tuple(_read_card(binding, index, seen) for index in range(count)), seen


def _read_card(binding: Any, index: int, seen: DeviceHolders) -> CardReading:
    try:
        device = _ask(binding, "hlmlDeviceGetHandleByIndex", index)
        name = (_value(binding, "hlmlDeviceGetName", device) or b"").decode(errors="replace")
        module_id = _value(binding, "hlmlDeviceGetModuleID", device)
        minor = _value(binding, "hlmlDeviceGetMinorNumber", device)
        memory = _value(binding, "hlmlDeviceGetMemoryInfo", device)
        rates = _value(binding, "hlmlDeviceGetUtilizationRates", device)
        milliwatts = _value(binding, "hlmlDeviceGetPowerUsage", device)
        temperature = _value(binding, "hlmlDeviceGetTemperature", device, _ON_AIP)
        megahertz = _value(binding, "hlmlDeviceGetClockInfo", device, _SOC)
    except HlmlUnavailable as lost:
        # One card that fell off the bus must not hide the others.
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
        holders=seen.by_minor.get(minor, ()) if minor is not None else (),
    )


def _connect() -> Any:
    """Return the binding with HLML initialised, once per process."""
    global _binding
    if _binding is not None:
        return _binding
    try:
        with warnings.catch_warnings():
            # pyhlml imports a module of its own that it has deprecated.
            warnings.simplefilter("ignore", DeprecationWarning)
            import pyhlml
            from pyhlml.hlml_lib import LibHLML
    except ModuleNotFoundError:
        raise HlmlUnavailable(
            "The HLML binding is missing; on a Gaudi machine install it with "
            "`pip install habana-pyhlml`."
        ) from None
    library = inspect.signature(LibHLML).parameters["path"].default
    try:
        # pyhlml prints a line of its own when this fails, so it must not get to try.
        ctypes.CDLL(library)
    except OSError:
        raise HlmlUnavailable(
            f"The driver's library {library} cannot be loaded; it comes with the Gaudi driver."
        ) from None
    try:
        _ask(pyhlml, "hlmlInit")
    except HlmlUnavailable as refused:
        if refused.code != _ALREADY_INITIALIZED:
            raise
    _binding = pyhlml
    return pyhlml


def _value(binding: Any, function: str, *arguments: object) -> Any:
    """Ask for something that a card may not have; None then."""
    try:
        return _ask(binding, function, *arguments)
    except HlmlUnavailable as refused:
        if refused.code in _ABSENT:
            return None
        raise


def _ask(binding: Any, function: str, *arguments: object) -> Any:
    """Call one HLML function; every error of the binding ends here.

    Raises
    ------
    HlmlUnavailable
        HLML answers with an error.
    """
    global _binding
    try:
        return getattr(binding, function)(*arguments)
    except binding.HLMLError as error:
        code = error.value
    if code == _UNINITIALIZED:
        _binding = None
    if code in _MEANINGS:
        raise HlmlUnavailable(f"{_MEANINGS[code]} ({function}: code {code}).", code)
    raise HlmlUnavailable(f"HLML answered {function} with code {code}.", code)
