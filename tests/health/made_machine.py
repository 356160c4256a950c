"""A machine whose files, environment, distributions and cards a test defines."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpu_magic.health import Finding, Machine
from hpu_magic.monitor import CardReading, Holder, Snapshot, hlsmi

GIB = 1 << 30


class MadeMachine:
    """The parts of `machine`, which is the input of the doctor's checks."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home = folder / "root", folder / "home" / "ada"
        self.prefix, self.site = folder / "prefix", folder / "site"
        for place in (self.root, self.home, self.prefix, self.site):
            place.mkdir(parents=True)
        self.environment: dict[str, str] = {}
        self.folders = [self.site]
        self.simulated = True
        self.cards = Snapshot((card(0, simulated=True),), "simulator")
        self.driver: hlsmi.Versions | None = None
        self.python = (3, 11, 7)
        self.texts: list[str] = []

    def file(self, path: str, text: str = "") -> Path:
        """Write a file below the machine's root."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def json_file(self, path: str, content: Any) -> None:
        """Write a file next to `root`, `home`, `prefix` and `site`."""
        place = self.root.parent / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(content))

    def install(self, *distributions: str, into: Path | None = None) -> None:
        """Install distributions, each as ``name==version``."""
        for distribution in distributions:
            name, _, version = distribution.partition("==")
            folder = (into or self.site) / f"{name.replace('-', '_')}-{version}.dist-info"
            folder.mkdir(parents=True)
            (folder / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )

    def with_gaudi(self, plugin: str | None = "1.22.0.740", cards: int = 1) -> None:
        """Add cards on the bus, a loaded driver and the vendor's software."""
        self.simulated = False
        self.file("/sys/module/habanalabs/version", "1.22.0-5b2c1a")
        for index in range(cards):
            self.file(f"/sys/bus/pci/devices/0000:0{index}:00.0/vendor", "0x1da3\n")
        self.file("/sys/bus/pci/devices/0000:0f:00.0/vendor", "0x8086\n")
        self.cards = Snapshot(tuple(map(card, range(cards))), "hlml")
        if plugin:
            self.install(f"habana-torch-plugin=={plugin}")

    @property
    def machine(self) -> Machine:
        return Machine(
            environment=self.environment,
            root=self.root,
            home=self.home,
            prefix=self.prefix,
            search_path=tuple(map(str, self.folders)),
            python=self.python,
            simulated=self.simulated,
            cards=self.cards,
            driver=self.driver,
        )

    def check(self, check: Callable[[Machine], Iterator[Finding]]) -> list[str]:
        """Return the states of a check's findings and record their texts.

        Green findings have no fix; all others have one.
        """
        findings = list(check(self.machine))
        assert all(bool(finding.fix) == (finding.state != "green") for finding in findings)
        for finding in findings:
            self.texts.append(f"{finding.state}: {finding.filled()[0]}")
        return [finding.state for finding in findings]


def card(
    index: int,
    *,
    used: int = GIB // 2,
    holders: tuple[Holder, ...] = (),
    simulated: bool = False,
    error: str | None = None,
) -> CardReading:
    return CardReading(
        index=index,
        module_id=index,
        name="HL-225",
        generation="GAUDI2",
        simulated=simulated,
        memory_used=None if error else used,
        memory_total=None if error else 96 * GIB,
        holders=holders,
        error=error,
    )
