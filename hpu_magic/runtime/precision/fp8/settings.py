"""Settings of fp8 inference: those of the JSON files that Neural Compressor reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpu_magic.errors import RefusedError, suggestion
from hpu_magic.runtime.precision.fp8.json_file import SettingsFile

VARIABLE = "QUANT_CONFIG"
"""Environment variable that names the settings file."""

STATS = "hpu_fp8/measure"
"""Folder and beginning of the names of measurement files, where nothing else is asked for."""

SCALE_METHODS = (
    *("maxabs_hw", "maxabs_pow2", "maxabs_arbitrary", "unit_scale", "hw_aligned_single_scale"),
    *("maxabs_hw_opt_weight", "maxabs_pow2_opt_weight"),
    *("act_maxabs_hw_weights_pcs_maxabs_pow2", "act_maxabs_hw_weights_pcs_opt_pow2"),
    *("act_maxabs_pow2_weights_pcs_maxabs_pow2", "act_maxabs_pow2_weights_pcs_opt_pow2"),
    *("act_maxabs_pcs_pow2_weight_maxabs_pts_pow2_hw", "maxabs_pcs_pow2"),
)
CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("MEASURE", "QUANTIZE", "AUTO"),
    "observer": ("maxabs", "save"),
    "scale_method": SCALE_METHODS,
    "scale_format": ("scalar", "const"),
    "device_for_scales": ("GAUDI2", "GAUDI3"),
    "fp8_config": ("E4M3", "E5M2"),
    "hp_dtype": ("BF16", "FP32"),
    "measure_exclude": ("OUTPUT", "NONE", "INPUT", "PARAMS", "ALL"),
}
SWITCHES = (
    *("dynamic_quantization", "fake_quant", "use_qdq", "recalc_scales", "measure_on_hpu"),
    *("ignore_modules_wo_measures", "seperate_measure_files"),
    "row_parallel_linear_allreduce_quantization",
)
_LISTS = {"allowlist": "allowlist", "blocklist": "blocklist"}
_LISTS |= {"whitelist": "allowlist", "blacklist": "blocklist"}  # of older releases
_OTHERS = (
    *("dump_stats_path", "scale_params", "mod_dict", "calibration_sample_interval"),
    *("method", "quantize_weight", "dump_stats_xlsx_path"),  # without effect, yet in many files
)
KEYS = (*CHOICES, *SWITCHES, *_LISTS, *_OTHERS)

_DTYPES = {"BF16": "bfloat16", "FP32": "float32"}
_FIXED = ("unit_scale", "hw_aligned_single_scale")
_ONLY_DYNAMIC = ("act_maxabs_pcs_pow2_weight_maxabs_pts_pow2_hw", "maxabs_pcs_pow2")
_WITH_SCALES_OF_HARDWARE = tuple(
    method for method in SCALE_METHODS if method.startswith(("maxabs_hw", "act_maxabs_hw"))
)
_WITHOUT_CHANNELS = ("Conv2d", "LoRACompatibleConv")


@dataclass(frozen=True)
class Settings:
    """What is asked of Neural Compressor.

    Attributes
    ----------
    values : dict
        As its JSON files have them, checked.
    source : str
        The file that they come from, empty if none.
    """

    values: dict[str, Any]
    source: str = ""

    @property
    def stats(self) -> str:
        """Folder and beginning of the names of the measurement files."""
        return str(self.values["dump_stats_path"])

    @property
    def observer(self) -> str:
        """What is measured."""
        return str(self.values.get("observer", "maxabs"))

    @property
    def fp8(self) -> str:
        """The 8-bit format, E4M3 or E5M2."""
        return str(self.values.get("fp8_config", "E4M3")).upper()

    @property
    def high_precision(self) -> str:
        """The type that weights have before, bfloat16 or float32."""
        return _DTYPES[self.values.get("hp_dtype", "BF16")]

    @property
    def scale_method(self) -> str:
        """How scales come from measurements, "own" where layers have methods of their own."""
        method = self.values.get("scale_method", "maxabs_hw")
        return str(method).lower() if isinstance(method, str) else "own"

    @property
    def needs_measurements(self) -> bool:
        """Whether the scales come from files."""
        return not self.values.get("dynamic_quantization") and self.scale_method not in _FIXED

    @property
    def takes_what_was_not_measured(self) -> bool:
        """Whether layers without measurements stay as they are."""
        return bool(self.values.get("ignore_modules_wo_measures"))

    def selected(self, layers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those of the layers, by name and class, that the lists let through."""
        allowed, blocked = self.values["allowlist"], self.values["blocklist"]
        every = not allowed["types"] and not allowed["names"]

        def named(names: Sequence[str], name: str) -> bool:
            return any(re.search(one, name) for one in names)

        return [
            (name, kind)
            for name, kind in layers
            if kind not in blocked["types"]
            and not named(blocked["names"], name)
            and (every or kind in allowed["types"] or named(allowed["names"], name))
        ]

    def check_method(self, layers: Iterable[tuple[str, str]], generation: str | None) -> None:
        """Refuse a scale method that the layers, the card or other settings rule out.

        Parameters
        ----------
        layers : iterable of (str, str)
            Name and class of what is to be quantized.
        generation : str or None
            Of the card.

        Raises
        ------
        RefusedError
            Says which method to take, or what to leave out.
        """
        method = self.scale_method
        if self.values.get("dynamic_quantization"):
            if method in (*_WITH_SCALES_OF_HARDWARE, *_FIXED):
                raise RefusedError(
                    f"The scale method {method} has scales of the hardware, or fixed ones, and "
                    "dynamic quantization calculates them: take maxabs_pow2 or maxabs_arbitrary."
                )
        elif method in _ONLY_DYNAMIC:
            raise RefusedError(
                f"The scale method {method} is for dynamic quantization: ask for that as well, or "
                "take another method."
            )
        wanted = self.values.get("device_for_scales")
        if wanted not in (None, generation) and not (
            (wanted, generation) == ("GAUDI2", "GAUDI3") and method == "maxabs_hw"
        ):
            raise RefusedError(
                f"Scales of {wanted} with the method {method} are not for a {generation}: a GAUDI3 "
                "takes those of a GAUDI2 with maxabs_hw; leave device_for_scales out."
            )
        if "weights_pcs" in method or method == "maxabs_pcs_pow2":
            without = [name for name, kind in layers if kind in _WITHOUT_CHANNELS]
            if without:
                raise RefusedError(
                    f"The scale method {method} has a scale for each channel of the weights, which "
                    f"the convolution {without[0]!r} cannot have: block Conv2d, or take another "
                    "method."
                )

    def check_lists(self, modules: Mapping[str, str], quantizable: Sequence[str]) -> None:
        """Refuse names and classes that mean nothing in a model.

        Parameters
        ----------
        modules : mapping of str to str
            Name to class of all modules of the model.
        quantizable : sequence of str
            Classes that Neural Compressor knows.

        Raises
        ------
        RefusedError
            A name fits no module, or a class is no class of the model; close ones are suggested.
        """
        for which in ("allowlist", "blocklist"):
            for name in self.values[which]["names"]:
                if not any(re.search(name, one) for one in modules if one):
                    there = [*modules, *modules.values()]
                    mend = suggestion(name, there) or _some("its modules are", modules)
                    raise RefusedError(f"The {which} names {name!r}, which no module has: {mend}")
            known = {*modules.values(), *quantizable}
            for kind in self.values[which]["types"]:
                if kind not in known:
                    mend = suggestion(kind, known) or _some("those of the model are", known)
                    raise RefusedError(
                        f"The {which} names the class {kind!r}, which no module has: {mend}"
                    )
        for kind in self.values["allowlist"]["types"]:
            if kind not in quantizable:
                here = sorted(set(quantizable) & set(modules.values()))
                raise RefusedError(
                    f"The allowlist names the class {kind!r}, which cannot be quantized: in this "
                    f"model {', '.join(here) or 'nothing'} can."
                )


def settings(step: str, config: str | None = None, **given: Any) -> Settings:
    """Return what is asked for, by a file and by single settings, which win.

    Parameters
    ----------
    step : {"MEASURE", "QUANTIZE"}
        What is to be done.
    config : str, optional
        A JSON file; by default the one that ``QUANT_CONFIG`` names, if any.
    **given
        Single settings by their JSON names; None leaves one to the file.

    Raises
    ------
    RefusedError
        An unreadable or malformed file, an unknown setting or value, or a file for another step.
    """
    path = config or os.environ.get(VARIABLE) or ""
    file = SettingsFile(path) if path else None
    values = dict(file.values) if file else {}

    def refused(sentence: str, *keys: str) -> RefusedError:
        if file and keys[0] in file.values:
            return RefusedError(f"{file.place(*keys)}: {sentence}")
        return RefusedError(sentence[0].upper() + sentence[1:])

    for key, value in given.items():
        if value is not None:
            for name in _names(key):
                values.pop(name, None)
                if file:
                    file.values.pop(name, None)  # what is wrong with it is not the file's
            values[key] = value
    for key, value in list(values.items()):
        values[key] = _checked(key, value, refused)
    mode = values.get("mode", "AUTO")
    if mode not in (step, "AUTO"):
        raise refused(
            f"the mode is {mode}, and this is the step {step}: give the file of that step.", "mode"
        )
    values["mode"] = step
    lists: dict[str, dict[str, list[str]]] = {name: _empty() for name in _LISTS.values()}
    for key, name in _LISTS.items():
        for part, entries in values.pop(key, {}).items():
            lists[name][part] += entries
    values |= lists
    values["dump_stats_path"] = _stats_path(values.get("dump_stats_path", STATS))
    return Settings(values, path)


def _names(key: str) -> list[str]:
    """Return the names that a setting goes by."""
    same = [name for name, one in _LISTS.items() if one == _LISTS.get(key)]
    return same or [key]


def _empty() -> dict[str, list[str]]:
    return {"types": [], "names": []}


def _checked(key: str, value: Any, refused: Any) -> Any:
    """Return a setting in the form that Neural Compressor takes."""
    if key not in KEYS:
        mend = suggestion(key, KEYS)
        if mend:
            raise refused(f"there is no setting {key!r}: {mend}", key)
        return value  # of a later release, perhaps
    if key in SWITCHES:
        if str(value).lower() not in ("true", "false"):
            raise refused(f"{key} is {value!r}: write true or false.", key)
        return str(value).lower() == "true"
    if key in _LISTS:
        return _list(key, value, refused)
    if key == "scale_method" and isinstance(value, dict):
        return value
    if key in CHOICES:
        return _choice(key, value, refused)
    if key == "dump_stats_path" and not (isinstance(value, str) and value):
        raise refused(f"dump_stats_path is {value!r}: write a path.", key)
    return value


def _choice(key: str, value: Any, refused: Any) -> str:
    known = {one.lower(): one for one in CHOICES[key]}
    if not isinstance(value, str) or value.lower() not in known:
        mend = suggestion(str(value), CHOICES[key]) or f"there are {', '.join(CHOICES[key])}."
        raise refused(f"there is no {key} {value!r}: {mend}", key)
    return known[value.lower()]


def _list(key: str, value: Any, refused: Any) -> dict[str, list[str]]:
    mend = 'write {"types": ["Linear"], "names": ["layer"]}.'
    if not isinstance(value, Mapping):
        raise refused(f"{key} is {value!r}: {mend}", key)
    for part, entries in value.items():
        if part not in ("types", "names"):
            close = suggestion(part, ("types", "names")) or mend
            raise refused(f"{key} has no part {part!r}: {close}", key, part)
        if not isinstance(entries, list | tuple) or not all(isinstance(e, str) for e in entries):
            raise refused(f"{part} of the {key} is {entries!r}: {mend}", key, part)
    for name in value.get("names", ()):
        try:
            re.compile(name)
        except re.error as error:
            raise refused(
                f"{name!r} is no regular expression ({error}): write a module's name.", key, "names"
            ) from None
    return {**_empty(), **{part: list(entries) for part, entries in value.items()}}


def _stats_path(path: str) -> str:
    """Neural Compressor asks for a folder in the path."""
    path = os.path.expanduser(path)
    return path if os.path.dirname(path) else os.path.join(".", path)


def _some(words: str, names: Iterable[str]) -> str:
    shown = [name for name in names if name]
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return f"{words} {', '.join(sorted(shown)[:8])}{more}." if shown else "it has none."
