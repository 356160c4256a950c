"""Writes docs/vendor_api.md from the tables of the vendor's names: ``make tables``."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

from hpu_magic.simulator.vendor_names import Name, Operator, State, names, operators

_ROOT = Path(__file__).parent.parent
PAGE = _ROOT / "docs" / "vendor_api.md"
_FACE = _ROOT / "hpu_magic" / "simulator" / "face" / "habana_frameworks" / "torch"

_HEAD = """\
# The vendor's names

Written by `make tables` from the tables in `hpu_magic/simulator/vendor_names/`; a test compares
both with what the simulator defines, signatures and schemas word for word.

**complete** does what is documented; **accepted** takes the call and has no effect, for the reason
given; **absent** is not there, for the reason given. The names are those of the bridge's release
1.19, with what its documentation up to release 1.23 adds; of packages that are not open, what that
documentation names.
"""


_MIGRATION = """\
## `torch.cuda`, with GPU migration

**hpu_match** is the same call of the device, **hpu_modified** reaches its effect by other means,
**hpu_mismatch** has no counterpart: a value stands in for it, or it raises an error. Devices are of
the type `hpu`: what compares `device.type` with `"cuda"` goes the other way.
"""


def page() -> str:
    """Return the page's text."""
    parts = [_HEAD, _counts(), "## Python names\n"]
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
    lines = ["| name | state | why, or what is particular |", "|---|---|---|"]
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
        found = dict.fromkeys(f"`{each.name}`" for each in absent if each.note == reason)
        lines += [f"Absent. {reason}", "", ", ".join(found) + ".", ""]
    return "\n".join(lines).rstrip() + "\n"


def _torch_cuda() -> str:
    lines = ["| name | class | counterpart or value | why |", "|---|---|---|---|"]
    table = (_FACE / "gpu_migration" / "cuda.tsv").read_text(encoding="utf-8").splitlines()
    for line in table:
        if not line.startswith("#"):
            name, kind, counterpart, why = line.split("\t")
            shown = f"`{counterpart}`" if counterpart else ""
            lines.append(f"| `{name}` | {kind} | {shown} | {why} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE} is written.")
