"""Time and memory of a step by the modules that a model is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

OPTIMIZER = "the optimizer"
"""Where the optimizer's operations are in the tree, beside the model's own modules."""


@dataclass
class ModuleShare:
    """A module with all that is below it."""

    name: str
    """Its own name; the model's is empty."""
    kind: str
    """Name of its class."""
    seconds: float = 0.0
    bytes: int = 0
    """What it makes of the memory in use at the peak: activations and temporary results."""
    limits: dict[str, float] = field(default_factory=dict)
    """Seconds by what bounds its operations."""
    parts: dict[str, ModuleShare] = field(default_factory=dict)

    @property
    def limit(self) -> str:
        """What bounds most of its time; empty without any."""
        return max(self.limits, key=self.limits.__getitem__) if self.limits else ""

    def walk(self, path: str = "") -> Iterator[tuple[str, ModuleShare]]:
        """Yield the module and all below it, each with its path."""
        yield path, self
        for name, part in self.parts.items():
            yield from part.walk(f"{path}.{name}" if path else name)


def shares(
    classes: Mapping[str, str],
    times: Sequence[tuple[str, float, str]],
    memory: Mapping[str, int],
) -> ModuleShare:
    """Return the model as a tree.

    Parameters
    ----------
    classes : mapping
        Class of each module, by path.
    times : sequence of (path, seconds, limit)
        What each operation takes.
    memory : mapping
        Bytes by path.
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
    """Yield the modules from the model down to a path; those that are not there are made."""
    yield root
    here, so_far = root, ""
    for name in filter(None, path.split(".")):
        so_far = f"{so_far}.{name}" if so_far else name
        if name not in here.parts:
            here.parts[name] = ModuleShare(name, classes.get(so_far, ""))
        here = here.parts[name]
        yield here


def alike(model: ModuleShare) -> dict[str, ModuleShare]:
    """Return what each module does by itself, without its parts; the slowest first.

    Modules of one class whose paths differ only in a number are together: ``layers.*.mlp.up_proj``
    with an asterisk for the number, and ``2 x Linear`` where the path is nothing but a number.
    """
    found: dict[str, ModuleShare] = {}
    paths: dict[str, list[str]] = {}
    for path, one in model.walk():
        pattern = ".".join("*" if name.isdecimal() else name for name in path.split("."))
        key = f"{pattern} {one.kind}"
        together = found.setdefault(key, ModuleShare(pattern, one.kind))
        paths.setdefault(key, []).append(path)
        together.name = _name_of(paths[key], pattern, one.kind)
        _add(together, one)
        for part in one.parts.values():
            _add(together, part, times=-1)
    own = {path: one for path, one in found.items() if one.seconds > 1e-9 * model.seconds}
    return dict(sorted(own.items(), key=lambda one: -one[1].seconds))


def _name_of(paths: Sequence[str], pattern: str, kind: str) -> str:
    """Name the modules with these paths for people who know the model."""
    if len(paths) > 1:
        return pattern if pattern.strip("*.") else f"{len(paths)} x {kind}"
    return paths[0] if paths[0].strip("0123456789.") else f"{kind} {paths[0]}".rstrip()


def merged(module: ModuleShare) -> ModuleShare:
    """Return the tree with parts of one class that have numbers for names as one, added up.

    Their name says which they are, such as ``0 to 31``.
    """
    found = ModuleShare(module.name, module.kind, module.seconds, module.bytes, dict(module.limits))
    runs: list[list[ModuleShare]] = []
    for part in module.parts.values():
        follows = runs and part.name.isdecimal() and runs[-1][-1].name.isdecimal()
        if follows and runs[-1][-1].kind == part.kind:
            runs[-1].append(part)
        else:
            runs.append([part])
    for run in runs:
        one = merged(_sum(run))
        found.parts[one.name] = one
    return found


def _sum(modules: Sequence[ModuleShare]) -> ModuleShare:
    if len(modules) == 1:
        return modules[0]
    first, last = modules[0], modules[-1]
    name = first.name if first.name == last.name else f"{first.name} to {last.name}"
    total = ModuleShare(name, first.kind)
    parts: dict[str, list[ModuleShare]] = {}
    for one in modules:
        _add(total, one)
        for part in one.parts.values():
            parts.setdefault(part.name, []).append(part)
    total.parts = {name: _sum(several) for name, several in parts.items()}
    return total


def _add(total: ModuleShare, one: ModuleShare, *, times: int = 1) -> None:
    total.seconds += times * one.seconds
    total.bytes += times * one.bytes
    for limit, seconds in one.limits.items():
        total.limits[limit] = total.limits.get(limit, 0.0) + times * seconds
