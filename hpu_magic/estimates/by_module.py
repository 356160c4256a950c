"""Break down the time and memory of a step by module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

OPTIMIZER = "the optimizer"
"""Name under which the optimizer's operations appear in the module tree."""

_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")
_Path = tuple[str, ...]


@dataclass
class ModuleShare:
    """A module and its submodules, with their share of time and memory."""

    name: str
    """Name of the module within its parent; empty for the root module."""
    kind: str
    """Name of the module's class."""
    seconds: float = 0.0
    bytes: int = 0
    """Bytes of the module's activations and temporary tensors at peak memory usage."""
    limits: dict[str, float] = field(default_factory=dict)
    """Seconds spent in operations, keyed by the resource that limits them."""
    parts: dict[str, ModuleShare] = field(default_factory=dict)

    @property
    def limit(self) -> str:
        """The resource that limits most of the module's time; empty if the module takes no time."""
        return max(self.limits, key=self.limits.__getitem__) if self.limits else ""

    def walk(self, path: str = "") -> Iterator[tuple[str, ModuleShare]]:
        """Yield this module and all of its submodules along with their paths."""
        yield path, self
        for name, part in self.parts.items():
            yield from part.walk(f"{path}.{name}" if path else name)


def shares(
    classes: Mapping[str, str],
    times: Sequence[tuple[str, float, str]],
    memory: Mapping[str, int],
) -> ModuleShare:
    """Build a tree of the model's modules.

    ``classes`` and ``memory`` map the path of each module to its class name and its memory usage in
    bytes. ``times`` contains the module path, time and limiting resource of each operation.
    """
    root = ModuleShare("", classes.get("", ""))
    for path, seconds, limit in times:
        for module in _along(root, path, classes):
            module.seconds += seconds
            module.limits[limit] = module.limits.get(limit, 0.0) + seconds
    for path, count in memory.items():
        for module in _along(root, path, classes):
            module.bytes += count
    return root


def _along(root: ModuleShare, path: str, classes: Mapping[str, str]) -> Iterator[ModuleShare]:
    """Yield the modules along a path, starting with the model, and create any that are missing."""
    yield root
    module, prefix = root, ""
    for name in filter(None, path.split(".")):
        prefix = f"{prefix}.{name}" if prefix else name
        if name not in module.parts:
            module.parts[name] = ModuleShare(name, classes.get(prefix, ""))
        module = module.parts[name]
        yield module


def alike(model: ModuleShare) -> dict[str, ModuleShare]:
    """Return the time and memory of each module excluding its submodules, slowest first.

    Modules of the same class whose paths differ only in the numbers of layers are merged. The
    merged module's name has asterisks for these numbers, for example ``layers.*.mlp.up_proj``, and
    is followed by the class if it ends with a number, for example ``head.* (Linear)``. If the paths
    consist only of numbers, the name states how many modules were merged, for example ``2 x
    Linear``.
    """
    found: dict[str, ModuleShare] = {}
    paths: dict[str, list[str]] = {}
    for names, patterns, module in _with_patterns(model):
        path, pattern = ".".join(names), ".".join(patterns)
        key = f"{pattern} {module.kind}"
        total = found.setdefault(key, ModuleShare(pattern, module.kind))
        paths.setdefault(key, []).append(path)
        total.name = _name_of(paths[key], pattern, module.kind)
        _add(total, module)
        for part in module.parts.values():
            _add(total, part, times=-1)
    own = {key: total for key, total in found.items() if total.seconds > 1e-9 * model.seconds}
    return dict(sorted(own.items(), key=lambda item: -item[1].seconds))


def _with_patterns(
    module: ModuleShare, path: _Path = (), pattern: _Path = ()
) -> Iterator[tuple[_Path, _Path, ModuleShare]]:
    """Yield a module and its submodules with their paths, and with paths that merge layers."""
    yield path, pattern, module
    layers = Counter((_stem(part), part.kind) for part in module.parts.values())
    for name, part in module.parts.items():
        stem = _stem(part)
        is_layer = stem == "" or (stem is not None and layers[stem, part.kind] > 1)
        merged_name = f"{stem}*" if is_layer else name
        yield from _with_patterns(part, (*path, name), (*pattern, merged_name))


def _stem(module: ModuleShare) -> str | None:
    """Return the name of a numbered layer without its number, or None for other modules.

    A number at the end of a name is that of a layer only after an underscore, as in
    ``encoder_layer_0``, and if the module contains others. Modules such as ``fc1`` and ``fc2``,
    ``attn1`` and ``attn2``, or the stages ``layer1`` and ``layer2`` of a ResNet have different
    roles.
    """
    stem = module.name.rstrip("0123456789")
    is_block = module.parts and module.kind not in _CONTAINERS
    is_layer = not stem or (is_block and stem.endswith("_"))
    return stem if stem != module.name and is_layer else None


def _name_of(paths: Sequence[str], pattern: str, kind: str) -> str:
    """Return one name for all modules with these paths."""
    if len(paths) > 1:
        if not pattern.strip("*."):
            return f"{len(paths)} x {kind}"
        return f"{pattern} ({kind})" if pattern.endswith("*") else pattern
    return paths[0] if paths[0].strip("0123456789.") else f"{kind} {paths[0]}".rstrip()


def merged(module: ModuleShare) -> ModuleShare:
    """Return the tree with consecutive numbered layers of the same class merged into one.

    The name of a merged module contains the range of numbers, such as ``0 to 31``.
    """
    found = ModuleShare(module.name, module.kind, module.seconds, module.bytes, dict(module.limits))
    runs: list[list[ModuleShare]] = []
    for part in module.parts.values():
        last = runs[-1][-1] if runs else None
        follows = last is not None and _stem(part) is not None and _stem(last) == _stem(part)
        if last is not None and follows and last.kind == part.kind:
            runs[-1].append(part)
        else:
            runs.append([part])
    for run in runs:
        part = merged(_sum(run))
        found.parts[part.name] = part
    return found


def _sum(modules: Sequence[ModuleShare]) -> ModuleShare:
    if len(modules) == 1:
        return modules[0]
    first, last = modules[0], modules[-1]
    name = first.name if first.name == last.name else f"{first.name} to {last.name}"
    total = ModuleShare(name, first.kind)
    parts: dict[str, list[ModuleShare]] = {}
    for module in modules:
        _add(total, module)
        for part in module.parts.values():
            parts.setdefault(part.name, []).append(part)
    total.parts = {name: _sum(several) for name, several in parts.items()}
    return total


def _add(total: ModuleShare, module: ModuleShare, *, times: int = 1) -> None:
    total.seconds += times * module.seconds
    total.bytes += times * module.bytes
    for limit, seconds in module.limits.items():
        total.limits[limit] = total.limits.get(limit, 0.0) + times * seconds
