"""Installed packages and their versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hpu_magic
from hpu_magic.health.checks import installed, versions
from hpu_magic.health.machine import numbers
from hpu_magic.monitor import hlsmi

VERSIONS = Path(__file__).parents[2] / "docs" / "versions.md"


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10, 0), "green"), ((3, 13, 9), "green"), ((3, 9, 1), "amber")]
)
def test_python(made, version, state):
    made.python = version
    [(found, text)] = made.check(installed.python)
    assert found == state
    assert text.startswith(f"Python is {'.'.join(map(str, version))}")


def test_hpu_magic_itself(made):
    assert made.check(installed.itself) == [("green", f"hpu_magic is {hpu_magic.__version__}.")]


def test_torch_is_installed_or_missing(made):
    assert made.check(installed.torch) == [
        ("red", "torch is not installed; the device requires it.")
    ]
    made.install("torch==2.13.0+cpu")
    assert made.check(installed.torch) == [("green", "torch is 2.13.0+cpu.")]


def test_required_and_optional_packages(made):
    made.install("lightning==2.6.6", "bokeh==3.9.2", "transformers==5.23.0")
    assert made.check(installed.packages) == [
        ("green", "lightning is 2.6.6."),
        ("amber", "ipywidgets is not installed: live panels are missing."),
        ("amber", "anywidget is not installed: live panels are missing."),
        ("green", "bokeh is 3.9.2."),
        ("amber", "jupyterlab is not installed: the sidebar is missing."),
        ("amber", "ipyparallel is not installed: cells on several cards are missing."),
        ("green", "transformers is 5.23.0."),
        ("green", "accelerate is optional and not installed."),
        ("green", "optimum-habana is optional and not installed."),
    ]


def test_bridge_of_vendor_or_simulator(made):
    [(state, text)] = made.check(installed.bridge)
    assert (state, "simulated by hpu_magic" in text) == ("green", True)
    made.simulated = False
    [(state, text)] = made.check(installed.bridge)
    assert state == "amber"
    assert text.startswith("habana_frameworks is present, but its distribution habana-torch-plugin")
    made.install("habana-torch-plugin==1.22.0.740")
    message = "habana_frameworks is the vendor's, from habana-torch-plugin 1.22.0.740."
    assert made.check(installed.bridge) == [("green", message)]


def test_two_torches_in_two_folders(made, tmp_path):
    assert made.check(installed.one_torch) == []
    made.install("torch==2.9.0")
    made.folders += [made.site, tmp_path / "user"]
    assert made.check(installed.one_torch) == []
    made.install("torch==2.13.0", into=tmp_path / "user")
    message = (
        f"torch is installed 2 times: 2.9.0 in {made.site}, 2.13.0 in {tmp_path / 'user'}; "
        "Python uses the first, other programs may not."
    )
    assert made.check(installed.one_torch) == [("amber", message)]


def test_two_torches_in_one_folder(made):
    made.install("torch==2.9.0", "torch==2.13.0")
    [(state, text)] = made.check(installed.one_torch)
    assert state == "red"
    assert text.endswith("; their files are mixed.")


def test_remains_of_a_broken_removal_are_ignored(made):
    made.install("torch==2.13.0")
    (made.site / "torch-2.9.0.dist-info").mkdir()
    assert made.check(installed.one_torch) == []
    assert made.check(installed.torch) == [("green", "torch is 2.13.0.")]


def test_releases_of_torch_match_the_documentation():
    table = VERSIONS.read_text().partition("| combination | torch |")[2].partition("\n\n")[0]
    tested = sorted(map(numbers, re.findall(r"^\| \S+ \| (\d+\.\d+)\.", table, re.MULTILINE)))
    assert (tested[0], tested[-1]) == (versions._OLDEST_TORCH, versions._NEWEST_TORCH)


@pytest.mark.parametrize(
    ("torch", "state", "message"),
    [
        ("2.5.1", "red", "torch 2.5.1 is too old: hpu_magic is tested with 2.6 to 2.15."),
        ("2.6.0", "green", "torch 2.6.0 is supported: hpu_magic is tested with 2.6 to 2.15."),
        ("2.15.0", "green", "torch 2.15.0 is supported: hpu_magic is tested with 2.6 to 2.15."),
        (
            "3.0.0a0",
            "amber",
            "torch 3.0.0a0 is newer than all tested releases and may fail: hpu_magic is tested "
            "with 2.6 to 2.15.",
        ),
    ],
)
def test_torch_and_the_tested_releases(made, torch, state, message):
    assert made.check(versions.torch_for_hpu_magic) == []
    made.install(f"torch=={torch}")
    assert made.check(versions.torch_for_hpu_magic) == [(state, message)]


@pytest.mark.parametrize(
    ("plugin", "torch", "state", "part"),
    [
        ("1.22.0.740", "2.7.1+hpu_1.22.0", "green", "torch 2.7.1+hpu_1.22.0 is the release that"),
        ("1.22.0.740", "2.9.0", "red", "refuses to load with torch 2.9.0"),
        ("1.20.0.1", "2.5.1", "amber", "may refuse to load with torch 2.5.1"),
        ("1.24.0.1007", "2.11.0", "amber", "unknown to hpu_magic"),
    ],
)
def test_torch_and_plug_in(made, plugin, torch, state, part):
    made.install(f"torch=={torch}")
    assert made.check(versions.torch_for_plugin) == []
    made.with_gaudi(plugin)
    [(found, text)] = made.check(versions.torch_for_plugin)
    assert (found, part in text) == (state, True)


def test_plug_in_and_driver(made):
    assert made.check(versions.plugin_and_driver) == []
    made.with_gaudi("1.22.0.740")
    made.driver = hlsmi.Versions("1.22.1-ab12", ())
    message = "habana-torch-plugin 1.22.0.740 and the driver 1.22.1-ab12 have the same release."
    assert made.check(versions.plugin_and_driver) == [("green", message)]
    made.driver = hlsmi.Versions("1.21.0-ab12", ())
    [(state, text)] = made.check(versions.plugin_and_driver)
    assert state == "red"
    assert "the driver 1.21.0-ab12 have different releases" in text
    # The version of the module.
    made.driver = None
    message = "habana-torch-plugin 1.22.0.740 and the driver 1.22.0-5b2c1a have the same release."
    assert made.check(versions.plugin_and_driver) == [("green", message)]
    made.file("/sys/module/habanalabs/version", "")
    [(state, text)] = made.check(versions.plugin_and_driver)
    assert (state, "is unknown" in text) == ("amber", True)


@pytest.mark.parametrize(
    ("firmware", "state", "part"),
    [
        (("1.22.0",), "green", "Firmware 1.22.0 and driver 1.22.0-ab12 have the same release."),
        (("1.22.0", "1.20.1"), "amber", "The firmware has release 1.20.1"),
        ((), "amber", "does not report the firmware's release"),
    ],
)
def test_firmware_and_driver(made, firmware, state, part):
    assert made.check(versions.firmware_and_driver) == []
    made.driver = hlsmi.Versions("1.22.0-ab12", firmware)
    [(found, text)] = made.check(versions.firmware_and_driver)
    assert (found, part in text) == (state, True)


@pytest.mark.parametrize(
    ("lightning", "state", "part"),
    [("2.4.0", "green", "supports"), ("2.5.6", "amber", "may fail"), ("2.6.6", "red", "fails")],
)
def test_lightning_habana(made, lightning, state, part):
    made.install(f"lightning=={lightning}")
    assert made.check(versions.lightning_habana) == []
    made.install("lightning-habana==1.6.0")
    [(found, text)] = made.check(versions.lightning_habana)
    assert (found, part in text) == (state, True)


@pytest.mark.parametrize(
    ("optimum", "transformers", "state", "part"),
    [
        ("1.21.0", "4.55.4", "green", "match"),
        ("1.21.0", "4.49.0", "amber", "may fail with 4.49.0"),
        ("1.21.0", "5.23.0", "red", "fails with 5.23.0"),
        ("1.30.0", "5.23.0", "amber", "unknown to hpu_magic"),
    ],
)
def test_optimum_habana(made, optimum, transformers, state, part):
    made.install(f"transformers=={transformers}")
    assert made.check(versions.optimum_habana) == []
    made.install(f"optimum-habana=={optimum}")
    [(found, text)] = made.check(versions.optimum_habana)
    assert (found, part in text) == (state, True)


def test_gpu_that_pytorch_prefers_to_the_simulator(made):
    made.install("torch==2.13.0+cu128")
    assert made.check(versions.gpu) == []
    made.file("/dev/nvidia0")
    [(state, text)] = made.check(versions.gpu)
    assert state == "amber"
    assert text.startswith("This machine has a GPU (/dev/nvidia0), and torch 2.13.0+cu128 may be")
    made.environment["CUDA_VISIBLE_DEVICES"] = ""
    [(state, text)] = made.check(versions.gpu)
    assert (state, "is hidden" in text) == ("green", True)
