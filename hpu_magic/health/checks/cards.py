"""Check the driver and the cards, including visibility, holders, and memory without a holder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hpu_magic import units
from hpu_magic.health.finding import Finding, State
from hpu_magic.health.machine import Machine
from hpu_magic.monitor import CardReading

_VENDOR = "0x1da3"


def driver(machine: Machine) -> Iterator[Finding]:
    """Check for cards on the bus and for the driver's kernel module."""
    on_bus = _on_bus(machine)
    # A container may hide the kernel module even though the driver responds.
    answers = machine.cards.source in ("hlml", "hl-smi") and bool(machine.cards.cards)
    loaded = answers or machine.path("/sys/module/habanalabs").is_dir()
    values = {"cards_on_bus": on_bus, "loaded": loaded}
    count = "1 Gaudi card" if on_bus == 1 else f"{on_bus} Gaudi cards"
    if on_bus and not loaded:
        text = f"The machine has {count} on its bus, but the habanalabs driver is not loaded."
        fix = "Run `sudo modprobe habanalabs` on the host; if it fails, check `dmesg`."
        yield Finding("driver", "red", text, fix, values)
    elif on_bus and machine.simulated:
        text = (
            f"The machine has {count}, but cards are simulated because habana_frameworks is not "
            "installed in this Python environment."
        )
        fix = "Use the environment with the vendor's software, or install habana-torch-plugin."
        yield Finding("driver", "amber", text, fix, values)
    elif on_bus or loaded:
        text = f"The habanalabs driver is loaded, with {count} on the bus."
        yield Finding("driver", "green", text, values=values)
    elif machine.simulated:
        text = "The machine has no Gaudi card on its bus, and the simulator does not need a driver."
        yield Finding("driver", "green", text, values=values)
    else:
        text = "The vendor's software is installed, but the machine has no Gaudi card or driver."
        fix = "Use a machine with cards, or simulate them in an environment without this software."
        yield Finding("driver", "red", text, fix, values)


def visible(machine: Machine) -> Iterator[Finding]:
    """Check which cards are visible and can be read."""
    shot = machine.cards
    simulated = shot.source == "simulator"
    values = {"count": len(shot.cards), "source": shot.source, "on_bus": _on_bus(machine)}
    if not shot.cards:
        fix = (
            "Correct that variable or folder, and start Python again."
            if simulated
            else "Pass the cards to the container (HABANA_VISIBLE_DEVICES=all with the vendor's "
            "runtime), or run `hl-smi` on the host."
        )
        why = f"No card is visible{': {reason}' if shot.reason else '.'}"
        yield Finding("cards", "red", why, fix, values, {"reason": shot.reason or ""})
        return
    kinds = ", ".join(sorted({card.generation or card.name for card in shot.cards}))
    kind = "simulated card" if simulated else "card"
    text = f"{len(shot.cards)} {kind}{'s' if len(shot.cards) > 1 else ''} visible, {kinds}."
    if not simulated and len(shot.cards) < _on_bus(machine):
        text += (
            f" The bus has {_on_bus(machine)} cards: the others may be lost or not available in "
            "this container."
        )
        fix = "If this container should have more cards, check `dmesg`, or run `hl-smi -r` as root."
        yield Finding("cards", "amber", text, fix, values)
    else:
        yield Finding("cards", "green", text, values=values)
    for card in shot.cards:
        if card.error:
            yield Finding(
                card.label,
                "red",
                f"{card.label} cannot be read: {{error}}",
                "Reset the card, or list only the other cards in HABANA_VISIBLE_MODULES.",
                {"card": card.module_id},
                {"error": card.error},
            )


def held(machine: Machine) -> Iterator[Finding]:
    """Check whether any card is free, and list the holders of the others."""
    cards = [card for card in machine.cards.cards if not card.error]
    taken = [card for card in cards if card.holders]
    if not cards:
        return
    free = len(cards) - len(taken) - len(_orphaned(cards))
    values = {"free": free, "held": len(taken)}
    private = {
        f"holders_{card.module_id}": "; ".join(holder.named() for holder in card.holders)
        for card in taken
    }
    holders = "".join(f" {card.label}: {{holders_{card.module_id}}}." for card in taken)
    mine = any(holder.pid == os.getpid() for card in taken for holder in card.holders)
    text = f"{free} of {len(cards)} free.{holders}"
    if free or mine:
        yield Finding("holders", "green", text, values=values, private=private)
        return
    yield Finding(
        "holders",
        "amber",
        f"No card is free for another process.{holders}",
        "Shut down a kernel or program that no longer needs its card; `hpu-magic top` shows how "
        "long each process has been idle.",
        values,
        private,
    )


def orphaned_memory(machine: Machine) -> Iterator[Finding]:
    """Check for device memory that is in use but has no known holder."""
    for card in _orphaned(list(machine.cards.cards)):
        used, total = card.memory_used or 0, card.memory_total or 0
        yield Finding(
            card.label,
            "amber",
            f"{card.label} has {units.usage(used, total)} in use without a visible holder: it may "
            "belong to a process of another user or container, or to a process that crashed.",
            "Run `sudo hpu-magic top` on the host; if the card has no holder, reset it "
            "(`sudo hl-smi -r -i BUS_ID`).",
            {"card": card.module_id, "used": used, "total": total},
        )


def device_files(machine: Machine) -> Iterator[Finding]:
    """Check whether this user can open the device files of the cards."""
    nodes = [
        *machine.path("/dev/accel").glob("accel[0-9]*"),
        *machine.path("/dev").glob("hl[0-9]*"),
    ]
    closed = sorted(node.name for node in nodes if not os.access(node, os.R_OK | os.W_OK))
    values = {"device_files": len(nodes), "closed": len(closed)}
    if not nodes and _on_bus(machine) and machine.path("/sys/module/habanalabs").is_dir():
        text = "The driver is loaded, but /dev/accel contains no device files."
        fix = "Start the container with the vendor's runtime or with `--device /dev/accel`."
        yield Finding("device files", "red", text, fix, values)
    elif closed:
        state: State = "red" if len(closed) == len(nodes) else "amber"
        yield Finding(
            "device files",
            state,
            f"This user does not have read and write access to {', '.join(closed)}.",
            f"Add this user to the group that owns the files (`ls -l {_folder(nodes[0])}`), or add "
            "a udev rule that grants access.",
            values,
        )
    elif nodes:
        text = f"This user can open all {len(nodes)} device files of the cards."
        yield Finding("device files", "green", text, values=values)


def _folder(node: Path) -> str:
    return "/dev/accel" if node.parent.name == "accel" else "/dev"


def _on_bus(machine: Machine) -> int:
    vendors = machine.path("/sys/bus/pci/devices").glob("*/vendor")
    return sum(_VENDOR in vendor.read_text() for vendor in vendors)


def _orphaned(cards: list[CardReading]) -> list[CardReading]:
    return [card for card in cards if card.in_use and not card.holders]
