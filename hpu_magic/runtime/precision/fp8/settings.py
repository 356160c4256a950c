"""Settings for FP8 inference, as in the JSON files that Neural Compressor reads."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpu_magic.errors import HPUError, suggestion
from hpu_magic.runtime.precision.fp8.json_file import SettingsFile

VARIABLE = "QUANT_CONFIG"
"""The environment variable that contains the path of the settings file."""

STATS = "hpu_fp8/measure"
"""The default folder and name prefix of measurement files."""

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
_LISTS |= {"whitelist": "allowlist", "blacklist": "blocklist"}  # used by older releases
_OTHERS = (
    *("dump_stats_path", "scale_params", "mod_dict", "calibration_sample_interval"),
    # These settings have no effect, but are common in files.
    *("method", "quantize_weight", "dump_stats_xlsx_path"),
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
    """Settings for Neural Compressor."""

    values: dict[str, Any]  # validated values, keyed by their JSON names
    source: str = ""  # the settings file; empty if there is none

    @property
    def stats(self) -> str:
        """The folder and name prefix of the measurement files."""
        return str(self.values["dump_stats_path"])

    @property
    def observer(self) -> str:
        """The kind of measurement."""
        return str(self.values.get("observer", "maxabs"))

    @property
    def fp8(self) -> str:
        """The FP8 format, E4M3 or E5M2."""
        return str(self.values.get("fp8_config", "E4M3")).upper()

    @property
    def high_precision(self) -> str:
        """The dtype of the weights before quantization, bfloat16 or float32."""
        return _DTYPES[self.values.get("hp_dtype", "BF16")]

    @property
    def scale_method(self) -> str:
        """The method for calculating scales from measurements; "own" if it varies by layer."""
        method = self.values.get("scale_method", "maxabs_hw")
        return str(method).lower() if isinstance(method, str) else "own"

    @property
    def needs_measurements(self) -> bool:
        """Whether scales are calculated from measurement files."""
        return not self.values.get("dynamic_quantization") and self.scale_method not in _FIXED

    @property
    def skips_unmeasured(self) -> bool:
        """Whether layers without measurements are left unquantized instead of raising an error."""
        return bool(self.values.get("ignore_modules_wo_measures"))

    def selected(self, layers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the layers selected by the allowlist and blocklist as (name, class) pairs."""
        allowed, blocked = self.values["allowlist"], self.values["blocklist"]
        every = not allowed["types"] and not allowed["names"]

        def named(patterns: Sequence[str], name: str) -> bool:
            return any(re.search(pattern, name) for pattern in patterns)

        return [
            (name, kind)
            for name, kind in layers
            if kind not in blocked["types"]
            and not named(blocked["names"], name)
            and (every or kind in allowed["types"] or named(allowed["names"], name))
        ]

    def check_method(self, layers: Iterable[tuple[str, str]], generation: str | None) -> None:
        """Raise `HPUError` if layers, card or other settings do not support the scale method."""
        method = self.scale_method
        if self.values.get("dynamic_quantization"):
            if method in (*_WITH_SCALES_OF_HARDWARE, *_FIXED):
                raise HPUError(
                    f"The scale method {method} uses fixed or hardware scales, but dynamic "
                    f"quantization calculates its own scales: use maxabs_pow2 or maxabs_arbitrary."
                )
        elif method in _ONLY_DYNAMIC:
            raise HPUError(
                f"The scale method {method} supports only dynamic quantization: set "
                f"dynamic_quantization, or use another method."
            )
        wanted = self.values.get("device_for_scales")
        if wanted not in (None, generation) and not (
            (wanted, generation) == ("GAUDI2", "GAUDI3") and method == "maxabs_hw"
        ):
            raise HPUError(
                f"A {generation} does not support {wanted} scales with the method {method}; only "
                f"a GAUDI3 supports GAUDI2 scales, with maxabs_hw: remove device_for_scales."
            )
        if "weights_pcs" in method or method == "maxabs_pcs_pow2":
            without = [name for name, kind in layers if kind in _WITHOUT_CHANNELS]
            if without:
                raise HPUError(
                    f"The scale method {method} uses per-channel weight scales, which the "
                    f"convolution {without[0]!r} does not support: block Conv2d, or use another "
                    f"method."
                )

    def check_lists(self, modules: Mapping[str, str], quantizable: Sequence[str]) -> None:
        """Raise `HPUError` for names and classes that are not in the model, and suggest others.

        ``modules`` maps the name of each module to its class, and ``quantizable`` lists the classes
        that Neural Compressor supports.
        """
        for which in ("allowlist", "blocklist"):
            for name in self.values[which]["names"]:
                if not any(re.search(name, module) for module in modules if module):
                    known = [*modules, *modules.values()]
                    fix = suggestion(name, known) or _some("its modules are", modules)
                    raise HPUError(
                        f"The {which} contains the name {name!r}, but no module matches it: {fix}"
                    )
            kinds = {*modules.values(), *quantizable}
            for kind in self.values[which]["types"]:
                if kind not in kinds:
                    fix = suggestion(kind, kinds) or _some("the classes of the model are", kinds)
                    raise HPUError(
                        f"The {which} contains the class {kind!r}, but no module is of this "
                        f"class: {fix}"
                    )
        for kind in self.values["allowlist"]["types"]:
            if kind not in quantizable:
                here = sorted(set(quantizable) & set(modules.values()))
                raise HPUError(
                    f"The allowlist contains the class {kind!r}, which cannot be quantized: in "
                    f"this model, {', '.join(here) or 'no class'} can be quantized."
                )


def settings(step: str, config: str | None = None, **overrides: Any) -> Settings:
    """Return the settings from a file and from arguments, which take precedence.

    ``config`` is the path of a JSON file, and defaults to the value of ``QUANT_CONFIG``.
    ``overrides`` are settings, keyed by their JSON names; None keeps the value from the file.
    Raises `HPUError` if the file cannot be read or is for another step, or if a setting or value is
    unknown.
    """
    path = config or os.environ.get(VARIABLE) or ""
    file = SettingsFile(path) if path else None
    values = dict(file.values) if file else {}

    def refused(sentence: str, *keys: str) -> HPUError:
        if file and keys[0] in file.values:
            return HPUError(f"{file.place(*keys)}: {sentence}")
        return HPUError(sentence[0].upper() + sentence[1:])

    for key, value in overrides.items():
        if value is not None:
            for name in _names(key):
                values.pop(name, None)
                if file:
                    file.values.pop(name, None)  # errors must not mention the file
            values[key] = value
    for key, value in list(values.items()):
        values[key] = _checked(key, value, refused)
    mode = values.get("mode", "AUTO")
    if mode not in (step, "AUTO"):
        raise refused(
            f"the mode is {mode}, but this is the {step} step: use a file for this step.", "mode"
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
    """Return the current and former names of a setting."""
    same = [name for name, current in _LISTS.items() if current == _LISTS.get(key)]
    return same or [key]


def _empty() -> dict[str, list[str]]:
    return {"types": [], "names": []}


def _checked(key: str, value: Any, refused: Any) -> Any:
    """Validate a setting and return it in Neural Compressor's format."""
    if key not in KEYS:
        fix = suggestion(key, KEYS)
        if fix:
            raise refused(f"unknown setting {key!r}: {fix}", key)
        return value  # possibly a setting from a later release
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
    known = {choice.lower(): choice for choice in CHOICES[key]}
    if not isinstance(value, str) or value.lower() not in known:
        fix = suggestion(str(value), CHOICES[key]) or f"use {', '.join(CHOICES[key])}."
        raise refused(f"unknown {key} {value!r}: {fix}", key)
    return known[value.lower()]


def _list(key: str, value: Any, refused: Any) -> dict[str, list[str]]:
    fix = 'write {"types": ["Linear"], "names": ["layer"]}.'
    if not isinstance(value, Mapping):
        raise refused(f"{key} is {value!r}: {fix}", key)
    for part, entries in value.items():
        if part not in ("types", "names"):
            close = suggestion(part, ("types", "names")) or fix
            raise refused(f"{key} has no part {part!r}: {close}", key, part)
        if not isinstance(entries, list | tuple) or not all(isinstance(e, str) for e in entries):
            raise refused(f"{part} of the {key} is {entries!r}: {fix}", key, part)
    for name in value.get("names", ()):
        try:
            re.compile(name)
        except re.error as error:
            raise refused(
                f"{name!r} is not a valid regular expression ({error}): use a module name.",
                key,
                "names",
            ) from None
    return {**_empty(), **{part: list(entries) for part, entries in value.items()}}


def _stats_path(path: str) -> str:
    """Return the path, including a folder, because Neural Compressor requires one."""
    path = os.path.expanduser(path)
    return path if os.path.dirname(path) else os.path.join(".", path)


def _some(words: str, names: Iterable[str]) -> str:
    shown = [name for name in names if name]
    more = f" and {len(shown) - 8} more" if len(shown) > 8 else ""
    return f"{words} {', '.join(sorted(shown)[:8])}{more}." if shown else "there are none."


def layer_lists(model: Any, names: str | Sequence[str]) -> dict[str, list[str]]:
    """Convert layer names, parts of names, and classes to the JSON format of a layer list.

    The full name of a layer matches only that layer. Raises `HPUError` if the list is empty.
    """
    entries = names.split(",") if isinstance(names, str) else names
    words = [word.strip() for word in entries if word.strip()]
    if not words:
        raise HPUError("The list is empty: specify layer names, or class names such as Linear.")
    named: Any = getattr(model, "named_modules", None)
    modules = {name: type(module).__name__ for name, module in named()} if callable(named) else {}
    classes = set(modules.values())
    return {
        "types": [word for word in words if word in classes],
        "names": [
            rf"^{re.escape(word)}(\.|$)" if word in modules else word
            for word in words
            if word not in classes
        ],
    }
