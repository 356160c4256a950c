"""Formatting of numbers with units, for all of the package's output."""

from __future__ import annotations

import re

_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def size(count: int | float) -> str:
    """Format a number of bytes, for example ``14.2 MiB``; negative numbers keep their sign."""
    sign, magnitude = ("-" if count < 0 else ""), abs(count)
    scale, unit = size_unit(magnitude)
    number = f"{round(magnitude)}" if scale == 1 else _three_digits(magnitude / scale)
    return f"{sign}{number} {unit}"


def size_unit(most: int | float) -> tuple[int, str]:
    """Return the size and name of the unit for byte counts up to `most`, for example on an axis."""
    for scale, unit in _BINARY:
        # 1023.9996 KiB must not be printed as "1024 KiB".
        if most >= scale * 0.9995:
            return scale, unit
    return 1, "B"


def capacity(count: int | float) -> str:
    """Format a memory size without trailing zeros, for example ``96 GiB`` or ``64 MiB``."""
    return re.sub(r"(\.\d*?)0+ ", r"\1 ", size(count)).replace(". ", " ")


def usage(used: int | float, total: int | float) -> str:
    """Format the memory in use and the total memory, for example ``12.3 / 96 GiB``."""
    part, whole = size(used), capacity(total)
    number, unit = part.split()
    # If both units are the same, write the unit only once.
    return f"{number} / {whole}" if whole.endswith(f" {unit}") else f"{part} / {whole}"


def share(part: int | float, whole: int | float) -> str:
    """Format a share of memory as a percentage, for example ``45 %`` or ``0.01 %``."""
    percent = 100 * part / whole
    if 0 < percent < 0.005:
        return "under 0.01 %"
    digits = 0 if percent >= 9.95 or percent == 0 else 1 if percent >= 0.095 else 2
    return f"{percent:.{digits}f} %"


def duration(seconds: float) -> str:
    """Format a time in seconds, for example ``3.10 ms`` or ``2 min 5 s``."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds >= 59.95:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
    for scale, unit in _SECONDS:
        if seconds >= scale * 0.9995:
            return f"{_three_digits(seconds / scale)} {unit}"
    return "0 s" if seconds == 0 else f"{_three_digits(seconds / 1e-9)} ns"


def rough(seconds: float) -> str:
    """Format an estimated time with reduced precision: ``40 s``, ``2 min 5 s`` or ``42 min``."""
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    text = duration(max(60, seconds))
    return text if round(seconds) < 600 or " h " in text else text.partition(" min ")[0] + " min"


def value(number: float) -> str:
    """Format a value with four significant digits: ``0.1494``, ``22,570`` or ``8.905e+08``."""
    if not 9999.5 <= abs(number) < 1e7:
        return f"{number:.4g}"
    return f"{float(f'{number:.4g}'):,.0f}"


def rate(per_second: float, what: str = "steps") -> str:
    """Format a rate, for example ``412 steps/s`` or ``169,000 samples/s``."""
    if per_second >= 999.5:
        return f"{float(f'{per_second:.3g}'):,.0f} {what}/s"
    return f"{_three_digits(per_second)} {what}/s"


def _three_digits(number: float) -> str:
    if number >= 99.95:
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
