"""Check environment variables; ``flags.tsv`` lists harmful values."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

from hpu_magic.health.finding import Finding
from hpu_magic.health.machine import Machine, numbers

_ON, _OFF = {"1", "true", "on", "yes", "y", "t"}, {"0", "false", "off", "no", "n", "f"}
_EAGER_BY_DEFAULT, _LAZY_KNOWN = (1, 21), (1, 23)
# These libraries read PT_HPU_LAZY_MODE and assume lazy mode if it is unset.
_ASSUME_LAZY = ("optimum-habana", "accelerate")
_MOST_CARDS = 8
# Importing the compile backend fails if the value of one of these flags is neither in _ON nor in
# _OFF.
_STRICT = (
    *("PT_HPU_COMPILE_USE_RECIPES", "PT_HPU_KEEP_INPUT_MUTATIONS", "PT_HPU_USE_EAGER_FALLBACK"),
    *("PT_HPU_COMPILE_REMOVE_UNNECESSARY_CLONES", "PT_HPU_USE_INPLACE_COLLECTIVE"),
    *("PT_HPU_USE_INPLACE_INDEX_COPY", "PT_HPU_USE_INFERENCE_COMPILER"),
    *("PT_HPU_USE_CPP_PARTITIONER", "PT_HPU_ENABLE_ALLREDUCE_GRAPH_SPLIT"),
    "PT_HPU_FORCE_STATIC_COMPILE",
)
_FILES = {
    "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST": "autocast uses its default list",
    "PT_HPU_AUTOCAST_FP32_OPS_LIST": "autocast uses its default list",
    "QUANT_CONFIG": "scripts that use it for quantization fail",
}


def harmful(machine: Machine) -> Iterator[Finding]:
    """Check for flags that slow down programs, fill disks or change results."""
    for row in _table():
        value = machine.environment.get(row["name"])
        if value is None or not _means(value.strip().lower(), row["values"]):
            continue
        if row["where"] == "vendor" and machine.simulated:
            continue
        ignored = row["where"] == "card" and machine.simulated
        text = f"{row['name']}={_short(value)}: {row['why']}."
        yield Finding(
            row["name"],
            "red" if row["state"] == "red" and not ignored else "amber",
            f"{text} This affects only real cards; the simulator ignores it." if ignored else text,
            row["fix"],
            {"value": _short(value)},
        )
    for name, value in sorted(machine.environment.items()):
        if re.fullmatch(r"LOG_LEVEL_\w+", name) and name != "LOG_LEVEL_ALL" and value == "0":
            text = f"{name}=0: this component logs everything, which fills disks and slows it down."
            yield Finding(name, "amber", text, "Unset it, or set it to 2.", {"value": value})


def lazy_mode(machine: Machine) -> Iterator[Finding]:
    """Check the execution mode set in the environment, and libraries that assume another one."""
    name = "PT_HPU_LAZY_MODE"
    value = machine.environment.get(name)
    release = _release(machine)
    values = {"value": value}
    if value is None:
        libraries = [name for name in _ASSUME_LAZY if machine.version(name)]
        if libraries and release and release >= _EAGER_BY_DEFAULT:
            text = (
                f"{name} is not set: the bridge uses eager mode, but {' and '.join(libraries)} "
                "may assume lazy mode."
            )
            fix = f"Set {name}=0 before Python starts (%hpu_mode eager in a notebook)."
            yield Finding(name, "amber", text, fix, values)
        else:
            text = f"{name} is not set: the release's default mode is used."
            yield Finding(name, "green", text, values=values)
    elif value not in ("0", "1"):
        text = (
            f"{name}={_short(value)} is not a documented value: values other than 0 may mean lazy "
            "mode."
        )
        fix = f"Set {name} to 0 (eager) or 1 (lazy)."
        yield Finding(name, "amber", text, fix, {"value": _short(value)})
    elif value == "1" and not machine.simulated and _is_stock(machine):
        text = (
            f"{name}=1, but torch {machine.version('torch')} is not Intel's build, which lazy mode "
            "requires."
        )
        fix = f"Set {name}=0, or install the torch that comes with the vendor's release."
        yield Finding(name, "red", text, fix, values)
    elif value == "1" and release and release > _LAZY_KNOWN:
        dotted = ".".join(map(str, release))
        text = f"{name}=1 selects lazy mode, a legacy mode that release {dotted} may not include."
        yield Finding(name, "amber", text, f"Set {name}=0 and use torch.compile.", values)
    else:
        mode = "lazy mode, a legacy mode" if value == "1" else "eager mode"
        yield Finding(name, "green", f"{name}={value} selects {mode}.", values=values)


def integers(machine: Machine) -> Iterator[Finding]:
    """Check the flag that keeps 64-bit integers in lazy mode."""
    name = "PT_ENABLE_INT64_SUPPORT"
    value = machine.environment.get(name, "")
    if value.lower() in _ON and not machine.simulated:
        text = f"{name}={value}: users reported that this makes some models hang in lazy mode."
        fix = "Unset it if a step hangs."
        yield Finding(name, "amber", text, fix, {"value": value})


def fallbacks(machine: Machine) -> Iterator[Finding]:
    """Check which operators may fall back to the CPU."""
    name = "PT_HPU_PLACE_ON_CPU"
    value = machine.environment.get(name, "")
    if value:
        which = "no operator" if "none" in value else f"only {_short(value)}"
        text = (
            f"{name}={_short(value)}: {which} may fall back to the CPU; other operators that the "
            'card does not support raise "is not yet supported on HPU".'
        )
        fix = "Unset it to allow all operators."
        yield Finding(name, "amber", text, fix, {"value": _short(value)})


def pool(machine: Machine) -> Iterator[Finding]:
    """Check how much of the card's memory the bridge is allowed to use."""
    name = "PT_HPU_POOL_MEM_ACQUIRE_PERC"
    value = machine.environment.get(name, "")
    if value.isdecimal() and int(value) < 100:
        text = f"{name}={value}: models can use only {value} % of a card's memory."
        yield Finding(name, "amber", text, "Unset it to use all memory.", {"value": value})


def metrics_file(machine: Machine) -> Iterator[Finding]:
    """Check whether the bridge can create the folder for its metrics file."""
    name = "PT_HPU_METRICS_FILE"
    value = machine.environment.get(name)
    if value and not os.path.dirname(value):
        text = f"{name} does not contain a folder; the bridge fails when it creates the folder."
        fix = f"Add a folder: {name}=./{{file}}."
        yield Finding(name, "amber", text, fix, private={"file": value})


def files(machine: Machine) -> Iterator[Finding]:
    """Check that files specified by environment variables can be read."""
    for name, effect in _FILES.items():
        value = machine.environment.get(name)
        if not value:
            continue
        if os.access(value, os.R_OK) and os.path.isfile(value):
            yield Finding(name, "green", f"{name} specifies a file that can be read.")
        else:
            text = f"{name} specifies {{file}}, which cannot be read: {effect}."
            fix = "Use an absolute path, because kernels start in the folder of their notebook."
            yield Finding(name, "amber", text, fix, private={"file": value})


def strict(machine: Machine) -> Iterator[Finding]:
    """Check the ``torch.compile`` flags that must be boolean."""
    for name in _STRICT:
        value = machine.environment.get(name)
        if value is not None and value.strip().lower() not in _ON | _OFF:
            text = f"{name}={_short(value)} is neither 1 nor 0: the compile backend fails to load."
            yield Finding(name, "red", text, "Set it to 1 or 0.", {"value": _short(value)})


def visible_modules(machine: Machine) -> Iterator[Finding]:
    """Check the list of cards that this process may use."""
    name = "HABANA_VISIBLE_MODULES"
    value = machine.environment.get(name)
    if value is None:
        return
    words = [word.strip() for word in value.split(",")]
    values = {"value": _short(value)}
    if not all(word.isdecimal() for word in words):
        text = f"{name}={_short(value)!r} is not a list of numbers; the bridge raises a ValueError."
        fix = f"Set it to a list of numbers, such as {name}=0,1, or unset it; it must not be empty."
        yield Finding(name, "red", text, fix, values)
        return
    known = {card.module_id for card in machine.cards.cards}
    absent = [word for word in words if known and int(word) not in known]
    if absent or len(words) > _MOST_CARDS:
        which = ", ".join(absent) or value
        text = f"{name}={_short(value)} contains {which}, which this machine does not have."
        fix = f"Its cards are {', '.join(map(str, sorted(known)))}."
        yield Finding(name, "red", text, fix, values)
    elif len(words) not in (1, 2, 4, _MOST_CARDS):
        text = (
            f"{name}={_short(value)}: collectives on {len(words)} cards may fail; only groups of "
            "2, 4 or 8 cards are supported."
        )
        yield Finding(name, "amber", text, "Use 1, 2, 4 or 8 cards.", values)
    else:
        yield Finding(name, "green", f"{name}={_short(value)} contains only cards of this machine.")


def chosen_module(machine: Machine) -> Iterator[Finding]:
    """Check which card this process is configured to use."""
    name = "HLS_MODULE_ID"
    value = machine.environment.get(name)
    known = {str(card.module_id) for card in machine.cards.cards}
    if not value or not known:
        return
    visible = machine.environment.get("HABANA_VISIBLE_MODULES")
    listed = [word.strip() for word in visible.split(",")] if visible else sorted(known)
    values = {"value": _short(value)}
    if value not in known or value not in listed:
        text = (
            f"{name}={_short(value)} is not one of the cards that this process may use "
            f"({_short(', '.join(listed))}): the process will use a different card or none."
        )
        yield Finding(name, "amber", text, "Unset it, or set it to one of these cards.", values)


def visible_devices(machine: Machine) -> Iterator[Finding]:
    """Check which cards the container was started with."""
    name = "HABANA_VISIBLE_DEVICES"
    value = machine.environment.get(name)
    if value is None or value.strip().lower() == "all" or not machine.cards.cards:
        return
    words = [word.strip() for word in value.split(",") if word.strip()]
    indices = {str(card.index) for card in machine.cards.cards}
    absent = [word for word in words if word.isdecimal() and word not in indices]
    values = {"value": _short(value)}
    if not words or any(not word.isdecimal() for word in words):
        text = f"{name}={_short(value)!r} may hide all cards: it must be `all` or numbers."
        fix = f"Start the container with {name}=all."
        yield Finding(name, "amber", text, fix, values)
    elif absent:
        text = (
            f"{name}={_short(value)} contains {', '.join(absent)}, but only {len(indices)} cards "
            "are visible; the others may be missing or have different numbers in this container."
        )
        fix = f"Compare with `hl-smi -L` on the host; {name}=all selects every card."
        yield Finding(name, "amber", text, fix, values)
    else:
        yield Finding(name, "green", f"{name}={_short(value)} contains only cards of this machine.")


def _table() -> list[dict[str, str]]:
    path = Path(__file__).with_suffix(".tsv")
    with path.open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE))


def _means(value: str, kind: str) -> bool:
    """Return whether a value is ``on``, ``off``, ``set``, ``positive`` or in a list."""
    if kind == "positive":
        return value.isdecimal() and int(value) > 0
    if kind == "set":
        return bool(value)
    return value in {"on": _ON, "off": _OFF}.get(kind, set(kind.split()))


def _short(value: str) -> str:
    """Return a value, or only its length if it might be a path, an address or a secret."""
    return value if re.fullmatch(r"[\w.,+ -]{0,40}", value) else f"({len(value)} characters)"


def _release(machine: Machine) -> tuple[int, ...]:
    plugin = None if machine.simulated else machine.version("habana-torch-plugin")
    return numbers(plugin)[:2] if plugin else ()


def _is_stock(machine: Machine) -> bool:
    version = machine.version("torch")
    return bool(version) and not (version or "").partition("+")[2].startswith(("git", "hpu"))
