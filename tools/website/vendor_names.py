"""Tables of the vendor's names, which the site appends to ``docs/vendor_api.md``."""

from __future__ import annotations

import itertools
from collections import Counter

from vendor_names import Name, Operator, State, names, operators

from hpu_magic import torch_cuda

_MIGRATION = """\
## `torch.cuda`, with GPU migration

- **hpu_match**: the device has the same function.
- **hpu_modified**: another function of the device has the same effect.
- **hpu_mismatch**: there is no counterpart. The function returns a dummy value or raises an error.

Devices have the type `hpu`, so a comparison of `device.type` with `"cuda"` is False.
"""


def tables() -> str:
    """Return the tables in Markdown."""
    parts = ["## Numbers\n", _counts(), "## Python names\n"]
    parts += [
        f"### {group}\n\n{_rows(list(rows))}"
        for group, rows in itertools.groupby(names(), lambda name: name.group)
    ]
    parts += ["## Operators: `torch.ops`\n", _operators(operators())]
    parts += [_MIGRATION, _torch_cuda()]
    return "\n".join(parts)


def _counts() -> str:
    lines = ["| | complete | accepted | absent |", "|---|---|---|---|"]
    kinds: dict[str, list[Name] | list[Operator]] = {
        "Python names": names(),
        "operators": operators(),
    }
    for kind, entries in kinds.items():
        count = Counter(entry.state for entry in entries)
        lines.append(f"| {kind} | " + " | ".join(str(count[state]) for state in State) + " |")
    return "\n".join(lines) + "\n"


def _rows(group: list[Name]) -> str:
    lines = ["| name | state | reason or note |", "|---|---|---|"]
    lines += [f"| `{name.name}` | {name.state.value} | {name.note} |" for name in group]
    return "\n".join(lines) + "\n"


def _operators(all_operators: list[Operator]) -> str:
    complete = [each for each in all_operators if each.state is not State.ABSENT]
    lines = []
    for note in sorted({each.note for each in complete}):
        lines += [f"Complete. {note}".strip(), "", "```text"]
        lines += [each.schema for each in complete if each.note == note]
        lines += ["```", ""]
    absent = [each for each in all_operators if each.state is State.ABSENT]
    for reason in dict.fromkeys(each.note for each in absent):
        listed = dict.fromkeys(f"`{each.name}`" for each in absent if each.note == reason)
        lines += [f"Absent. {reason}", "", ", ".join(listed) + ".", ""]
    return "\n".join(lines).rstrip() + "\n"


def _torch_cuda() -> str:
    lines = ["| name | category | counterpart or value | reason |", "|---|---|---|---|"]
    for name, category, counterpart, reason, *_ in torch_cuda.names():
        code = f"`{counterpart}`" if counterpart else ""
        lines.append(f"| `{name}` | {category} | {code} | {reason} |")
    return "\n".join(lines) + "\n"
