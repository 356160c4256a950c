"""Check for versions that are known to be incompatible or that have not been tested together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpu_magic import requirements
from hpu_magic.health.finding import Finding
from hpu_magic.health.machine import Machine, Version, numbers

# Maps releases of the vendor's software to the PyTorch releases that their bridge requires. A row
# with three numbers describes a release whose PyTorch differs from that of its predecessor.
_TORCH_OF_RELEASE: dict[Version, Version] = {
    (1, 16): (2, 2),
    (1, 17): (2, 3),
    (1, 18): (2, 4),
    (1, 19): (2, 5),
    (1, 20): (2, 6),
    (1, 21): (2, 6),
    (1, 22): (2, 7),
    (1, 23): (2, 9),
    (1, 24, 0): (2, 10),
    (1, 24, 1): (2, 11),
}
_UNSURE = (1, 20)
_WITHOUT_FIRST_GENERATION = (1, 22)
# Keep these versions in sync with the rows of docs/versions.md.
_OLDEST_TORCH, _NEWEST_TORCH = (2, 6), (2, 15)
_LIGHTNING_WITHOUT_HPU, _LIGHTNING_FAILS = (2, 5, 6), (2, 6)
_OPTIMUM, _TRANSFORMERS = (1, 21), (4, 55)
_DEEPSPEED = (0, 19, 8)
_FORK = re.compile(r"\+hpu\.synapse\.v([\d.]+)")  # the version of the vendor's DeepSpeed


def torch_for_hpu_magic(machine: Machine) -> Iterator[Finding]:
    """Compare the PyTorch release with those that hpu_magic is tested with."""
    version = machine.version("torch")
    if not version:
        return
    release = numbers(version)[:2]
    values = {"torch": version, "oldest": _dotted(_OLDEST_TORCH), "newest": _dotted(_NEWEST_TORCH)}
    tested = f"hpu_magic is tested with {values['oldest']} to {values['newest']}"
    if release < _OLDEST_TORCH:
        text = f"torch {version} is too old: {tested}."
        yield Finding("torch", "red", text, "Install a newer torch.", values)
    elif release > _NEWEST_TORCH:
        text = f"torch {version} is newer than all tested releases and may fail: {tested}."
        fix = f"If a command fails, try torch {values['newest']}."
        yield Finding("torch", "amber", text, fix, values)
    else:
        yield Finding("torch", "green", f"torch {version} is supported: {tested}.", values=values)


def torch_for_plugin(machine: Machine) -> Iterator[Finding]:
    """Compare the PyTorch release with the one that the vendor's bridge requires at import."""
    plugin, version = _vendors(machine), machine.version("torch")
    if not plugin or not version:
        return
    release = numbers(plugin)[:2]
    wanted = _TORCH_OF_RELEASE.get(numbers(plugin)[:3]) or _TORCH_OF_RELEASE.get(release)
    values = {"plugin": plugin, "torch": version, "wanted": _dotted(wanted) if wanted else None}
    about = "torch and plug-in"
    if wanted is None:
        text = (
            f"The torch release that habana-torch-plugin {plugin} requires is unknown; the plug-in "
            f"may refuse to load with torch {version}."
        )
        fix = "Check the support matrix of that release."
        yield Finding(about, "amber", text, fix, values)
    elif numbers(version)[:2] == wanted:
        text = f"torch {version} is the release that habana-torch-plugin {plugin} requires."
        yield Finding(about, "green", text, values=values)
    else:
        refuses = "may refuse" if release == _UNSURE else "refuses"
        yield Finding(
            about,
            "amber" if release == _UNSURE else "red",
            f"habana-torch-plugin {plugin} {refuses} to load with torch {version}; it requires "
            f"torch {_dotted(wanted)}.",
            f"Install torch {_dotted(wanted)} from that release, or a different plug-in.",
            values,
        )


def plugin_and_driver(machine: Machine) -> Iterator[Finding]:
    """Check that the bridge and the driver come from the same release."""
    plugin = _vendors(machine)
    if not plugin:
        return
    driver = machine.driver.driver if machine.driver else None
    # Use the version of the kernel module if hl-smi does not report one.
    driver = driver or (machine.text("/sys/module/habanalabs/version") or "").strip() or None
    values = {"plugin": plugin, "driver": driver}
    about = "plug-in and driver"
    if driver is None:
        text = f"The driver's version is unknown and may not match habana-torch-plugin {plugin}."
        fix = "Run `hl-smi` on the host: driver and plug-in should be from the same release."
        yield Finding(about, "amber", text, fix, values)
    elif numbers(driver)[:2] == numbers(plugin)[:2]:
        text = f"habana-torch-plugin {plugin} and the driver {driver} are from the same release."
        yield Finding(about, "green", text, values=values)
    else:
        release = _dotted(numbers(driver)[:2])
        yield Finding(
            about,
            "red",
            f"habana-torch-plugin {plugin} and the driver {driver} are from different releases: "
            "acquiring a card or the first operation fails, for example with "
            '"synStatus=26 [Generic failure]".',
            f"Use the container or the packages of release {release}, or install the driver of "
            f"release {_dotted(numbers(plugin)[:2])} on the host.",
            values,
        )


def firmware_and_driver(machine: Machine) -> Iterator[Finding]:
    """Check that the firmware of the cards and the driver come from the same release."""
    if machine.driver is None or not machine.driver.driver:
        return
    driver, firmware = machine.driver.driver, machine.driver.firmware
    values = {"driver": driver, "firmware": ", ".join(firmware)}
    about = "firmware and driver"
    others = [release for release in firmware if numbers(release)[:2] != numbers(driver)[:2]]
    if not firmware:
        yield Finding(
            about,
            "amber",
            f"hl-smi does not report the firmware's release, which may not match driver {driver}.",
            "Compare `hl-smi --fw-versions` with the driver's release.",
            values,
        )
    elif others:
        yield Finding(
            about,
            "amber",
            f"The firmware is from release {', '.join(others)}, but the driver is {driver}: they "
            "may be incompatible.",
            "Update the firmware to the driver's release, as described in its installation guide.",
            values,
        )
    else:
        text = f"Firmware {', '.join(firmware)} and driver {driver} are from the same release."
        yield Finding(about, "green", text, values=values)


def first_generation(machine: Machine) -> Iterator[Finding]:
    """Check whether first-generation cards are used with a release that does not support them."""
    cards = [card.module_id for card in machine.cards.cards if card.generation == "GAUDI"]
    if not cards:
        return
    plugin = machine.version("habana-torch-plugin")
    values = {"cards": ", ".join(map(str, cards)), "plugin": plugin}
    about, oldest = "first generation", _dotted(_WITHOUT_FIRST_GENERATION)
    if plugin and numbers(plugin)[:2] < _WITHOUT_FIRST_GENERATION:
        text = f"habana-torch-plugin {plugin} supports first-generation Gaudi."
        yield Finding(about, "green", text, values=values)
        return
    simulated = machine.cards.source == "simulator"
    kind = "simulated" if simulated else "this machine's"
    yield Finding(
        about,
        "amber",
        f"The vendor's releases from {oldest} on do not support first-generation Gaudi, the "
        f"generation of {kind} cards.",
        "Set HPU_MAGIC_CARD=gaudi2 or gaudi3, unless your cards are first-generation Gaudi."
        if simulated
        else "Use release 1.21 or older on these cards.",
        values,
    )


def lightning_habana(machine: Machine) -> Iterator[Finding]:
    """Check whether lightning-habana is used with a Lightning release that removed HPU support."""
    plugin, lightning = machine.version("lightning-habana"), machine.version("lightning")
    if not plugin or not lightning:
        return
    values = {"lightning-habana": plugin, "lightning": lightning}
    release = numbers(lightning)
    fix = "Run `pip uninstall lightning-habana`; hpu_magic.lightning provides its classes."
    if release[:2] >= _LIGHTNING_FAILS:
        text = f"lightning-habana {plugin} cannot be imported with Lightning {lightning}."
        yield Finding("lightning-habana", "red", text, fix, values)
    elif release >= _LIGHTNING_WITHOUT_HPU:
        text = (
            f"Lightning {lightning} no longer supports HPU, so lightning-habana {plugin} may fail."
        )
        yield Finding("lightning-habana", "amber", text, fix, values)
    else:
        text = f"lightning-habana {plugin} supports Lightning {lightning}."
        yield Finding("lightning-habana", "green", text, values=values)


def optimum_habana(machine: Machine) -> Iterator[Finding]:
    """Compare the installed version of transformers with the one that optimum-habana requires."""
    optimum, transformers = machine.version("optimum-habana"), machine.version("transformers")
    if not optimum or not transformers:
        return
    values = {"optimum-habana": optimum, "transformers": transformers}
    wanted = f"optimum-habana {optimum} requires transformers {_dotted(_TRANSFORMERS)}"
    if numbers(optimum)[:2] != _OPTIMUM:
        text = (
            f"The transformers release that optimum-habana {optimum} requires is unknown; "
            f"transformers {transformers} may fail."
        )
        fix = "Run `pip check`."
        yield Finding("optimum-habana", "amber", text, fix, values)
    elif numbers(transformers)[:2] == _TRANSFORMERS:
        text = f"optimum-habana {optimum} and transformers {transformers} are compatible."
        yield Finding("optimum-habana", "green", text, values=values)
    else:
        newer = numbers(transformers)[0] > _TRANSFORMERS[0]
        yield Finding(
            "optimum-habana",
            "red" if newer else "amber",
            f"{wanted} and {'fails' if newer else 'may fail'} with {transformers}.",
            'Run `pip install "transformers>=4.55,<4.56"`, or uninstall optimum-habana.',
            values,
        )


def vllm_plugin(machine: Machine) -> Iterator[Finding]:
    """Check that vLLM's Gaudi plugin was made for the installed release of vLLM."""
    plugin, vllm = machine.version("vllm-gaudi"), machine.version("vllm")
    if not plugin or not vllm:
        return
    values = {"vllm-gaudi": plugin, "vllm": vllm}
    if conflict := requirements.vllm_conflict(machine.version):
        text, _, fix = conflict.partition(": ")
        yield Finding("vLLM", "red", f"{text}.", fix[:1].upper() + fix[1:], values)
    else:
        text = f"vllm-gaudi {plugin} supports vLLM {vllm}."
        yield Finding("vLLM", "green", text, values=values)


def deepspeed(machine: Machine) -> Iterator[Finding]:
    """Check that DeepSpeed uses cards, and compare its release with the tested one."""
    version = machine.version("deepspeed")
    if not version:
        return
    plugin, fork = _vendors(machine), _FORK.search(version)
    chosen = machine.environment.get("DS_ACCELERATOR", "hpu")
    values = {"deepspeed": version, "tested": _dotted(_DEEPSPEED), "accelerator": chosen}
    tested = f"hpu_magic is tested with {values['tested']}"
    if chosen != "hpu":
        text = f"DS_ACCELERATOR={chosen}: DeepSpeed does not use cards."
        yield Finding("DeepSpeed", "amber", text, "Unset DS_ACCELERATOR.", values)
    elif numbers(version)[:2] == _DEEPSPEED[:2]:
        yield Finding("DeepSpeed", "green", f"deepspeed is {version}; {tested}.", values=values)
    elif plugin and fork and numbers(plugin)[:2] != numbers(fork[1])[:2]:
        text = (
            f"deepspeed {version} is the vendor's fork for release {fork[1]}, but "
            f"habana-torch-plugin is {plugin}: they are incompatible."
        )
        fix = (
            f"Run `pip install deepspeed=={values['tested']}`, or install the fork for release "
            f"{_dotted(numbers(plugin)[:3])}."
        )
        yield Finding("DeepSpeed", "red", text, fix, {**values, "plugin": plugin})
    else:
        text = f"deepspeed {version} is not the tested release and may fail: {tested}."
        fix = f"If training fails, run `pip install deepspeed=={values['tested']}`."
        yield Finding("DeepSpeed", "amber", text, fix, values)


def gpu(machine: Machine) -> Iterator[Finding]:
    """Check for a GPU that PyTorch would use instead of the simulator."""
    version = machine.version("torch") or ""
    build = version.partition("+")[2]
    nodes = sorted(machine.path("/dev").glob("nvidia[0-9]*"))
    if not machine.simulated or not nodes or build == "cpu" or not version:
        return
    if machine.environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        text = "This machine's GPU is hidden from PyTorch, so the device can be simulated."
        yield Finding("GPU", "green", text, values={"hidden": True})
        return
    yield Finding(
        "GPU",
        "amber",
        f"This machine has a GPU (/dev/{nodes[0].name}), and torch {version} may be a build for "
        "it: a process can use only one type of accelerator, so no card is simulated.",
        "Start Python with CUDA_VISIBLE_DEVICES= (an empty value).",
        {"hidden": False},
    )


def _vendors(machine: Machine) -> str | None:
    return None if machine.simulated else machine.version("habana-torch-plugin")


def _dotted(release: Version) -> str:
    return ".".join(map(str, release))
