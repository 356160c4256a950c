"""What is installed, and versions against each other."""

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
    [(found, text)] = made.ask(installed.python)
    assert found == state
    assert text.startswith(f"Python is {'.'.join(map(str, version))}")


def test_hpu_magic_itself(made):
    assert made.ask(installed.itself) == [("green", f"hpu_magic is {hpu_magic.__version__}.")]


def test_torch_is_there_or_missed(made):
    assert made.ask(installed.torch) == [
        ("red", "torch is not installed, and there is no device without it.")
    ]
    made.install("torch==2.13.0+cpu")
    assert made.ask(installed.torch) == [("green", "torch is 2.13.0+cpu.")]


def test_packages_that_are_needed_and_others(made):
    made.install("lightning==2.6.6", "bokeh==3.9.2", "transformers==5.23.0")
    assert made.ask(installed.packages) == [
        ("green", "lightning is 2.6.6."),
        ("amber", "ipywidgets is not installed: there are no live panels."),
        ("amber", "anywidget is not installed: there are no live panels."),
        ("green", "bokeh is 3.9.2."),
        ("amber", "jupyterlab is not installed: the sidebar is missing."),
        ("amber", "ipyparallel is not installed: there are no cells on several cards."),
        ("green", "transformers is 5.23.0."),
        ("green", "accelerate is not installed, nor needed."),
        ("green", "optimum-habana is not installed, nor needed."),
    ]


def test_whose_bridge(made):
    [(state, text)] = made.ask(installed.bridge)
    assert (state, "simulated by hpu_magic" in text) == ("green", True)
    made.simulated = False
    [(state, text)] = made.ask(installed.bridge)
    assert state == "amber"
    assert text.startswith("habana_frameworks is here, but no distribution habana-torch-plugin")
    made.install("habana-torch-plugin==1.22.0.740")
    said = "habana_frameworks is the vendor's, of habana-torch-plugin 1.22.0.740."
    assert made.ask(installed.bridge) == [("green", said)]


def test_two_torches_in_two_folders(made, tmp_path):
    assert made.ask(installed.one_torch) == []
    made.install("torch==2.9.0")
    made.folders += [made.site, tmp_path / "user"]
    assert made.ask(installed.one_torch) == []
    made.install("torch==2.13.0", into=tmp_path / "user")
    said = (
        f"torch is installed 2 times: 2.9.0 in {made.site}, 2.13.0 in {tmp_path / 'user'}; "
        "Python takes the first, other programs may not."
    )
    assert made.ask(installed.one_torch) == [("amber", said)]


def test_two_torches_in_one_folder(made):
    made.install("torch==2.9.0", "torch==2.13.0")
    [(state, text)] = made.ask(installed.one_torch)
    assert state == "red"
    assert text.endswith("; files of both are mixed.")


def test_what_a_broken_removal_leaves_is_no_torch(made):
    made.install("torch==2.13.0")
    (made.site / "torch-2.9.0.dist-info").mkdir()
    assert made.ask(installed.one_torch) == []
    assert made.ask(installed.torch) == [("green", "torch is 2.13.0.")]


def test_the_releases_of_torch_are_those_of_the_page():
    table = VERSIONS.read_text().partition("| combination | torch |")[2].partition("\n\n")[0]
    tried = sorted(map(numbers, re.findall(r"^\| \S+ \| (\d+\.\d+)\.", table, re.MULTILINE)))
    assert (tried[0], tried[-1]) == (versions._OLDEST_TORCH, versions._NEWEST_TORCH)


@pytest.mark.parametrize(
    ("torch", "state", "said"),
    [
        ("2.5.1", "red", "torch 2.5.1 is too old: hpu_magic is tested with 2.6 to 2.15."),
        ("2.6.0", "green", "torch 2.6.0 is supported: hpu_magic is tested with 2.6 to 2.15."),
        ("2.15.0", "green", "torch 2.15.0 is supported: hpu_magic is tested with 2.6 to 2.15."),
        (
            "3.0.0a0",
            "amber",
            "torch 3.0.0a0 is newer than any that was tried and may fail: hpu_magic is tested with "
            "2.6 to 2.15.",
        ),
    ],
)
def test_torch_against_the_releases_that_are_tested(made, torch, state, said):
    assert made.ask(versions.torch_for_hpu_magic) == []
    made.install(f"torch=={torch}")
    assert made.ask(versions.torch_for_hpu_magic) == [(state, said)]


@pytest.mark.parametrize(
    ("plugin", "torch", "state", "part"),
    [
        ("1.22.0.740", "2.7.1+hpu_1.22.0", "green", "torch 2.7.1+hpu_1.22.0 is the one that"),
        ("1.22.0.740", "2.9.0", "red", "refuses to load with torch 2.9.0"),
        ("1.20.0.1", "2.5.1", "amber", "may refuse to load with torch 2.5.1"),
        ("1.24.0.1007", "2.11.0", "amber", "is not known here"),
    ],
)
def test_torch_against_the_plug_in(made, plugin, torch, state, part):
    made.install(f"torch=={torch}")
    assert made.ask(versions.torch_for_plugin) == []
    made.with_gaudi(plugin)
    [(found, text)] = made.ask(versions.torch_for_plugin)
    assert (found, part in text) == (state, True)


def test_plug_in_against_driver(made):
    assert made.ask(versions.plugin_and_driver) == []
    made.with_gaudi("1.22.0.740")
    made.driver = hlsmi.Versions("1.22.1-ab12", ())
    said = "habana-torch-plugin 1.22.0.740 and the driver 1.22.1-ab12 are of one release."
    assert made.ask(versions.plugin_and_driver) == [("green", said)]
    made.driver = hlsmi.Versions("1.21.0-ab12", ())
    [(state, text)] = made.ask(versions.plugin_and_driver)
    assert state == "red"
    assert "the driver 1.21.0-ab12 are of two releases" in text
    # The module's own word.
    made.driver = None
    said = "habana-torch-plugin 1.22.0.740 and the driver 1.22.0-5b2c1a are of one release."
    assert made.ask(versions.plugin_and_driver) == [("green", said)]
    made.file("/sys/module/habanalabs/version", "")
    [(state, text)] = made.ask(versions.plugin_and_driver)
    assert (state, "is not told" in text) == ("amber", True)


@pytest.mark.parametrize(
    ("firmware", "state", "part"),
    [
        (("1.22.0",), "green", "Firmware 1.22.0 and driver 1.22.0-ab12 are of one release."),
        (("1.22.0", "1.20.1"), "amber", "The firmware is of release 1.20.1"),
        ((), "amber", "tells no release of the firmware"),
    ],
)
def test_firmware_against_driver(made, firmware, state, part):
    assert made.ask(versions.firmware_and_driver) == []
    made.driver = hlsmi.Versions("1.22.0-ab12", firmware)
    [(found, text)] = made.ask(versions.firmware_and_driver)
    assert (found, part in text) == (state, True)


@pytest.mark.parametrize(
    ("lightning", "state", "part"),
    [("2.4.0", "green", "of one time"), ("2.5.6", "amber", "may fail"), ("2.6.6", "red", "fails")],
)
def test_lightning_habana(made, lightning, state, part):
    made.install(f"lightning=={lightning}")
    assert made.ask(versions.lightning_habana) == []
    made.install("lightning-habana==1.6.0")
    [(found, text)] = made.ask(versions.lightning_habana)
    assert (found, part in text) == (state, True)


@pytest.mark.parametrize(
    ("optimum", "transformers", "state", "part"),
    [
        ("1.21.0", "4.55.4", "green", "go together"),
        ("1.21.0", "4.49.0", "amber", "may fail with 4.49.0"),
        ("1.21.0", "5.23.0", "red", "fails with 5.23.0"),
        ("1.30.0", "5.23.0", "amber", "is not known here"),
    ],
)
def test_optimum_habana(made, optimum, transformers, state, part):
    made.install(f"transformers=={transformers}")
    assert made.ask(versions.optimum_habana) == []
    made.install(f"optimum-habana=={optimum}")
    [(found, text)] = made.ask(versions.optimum_habana)
    assert (found, part in text) == (state, True)


def test_a_gpu_in_the_simulators_way(made):
    made.install("torch==2.13.0+cu128")
    assert made.ask(versions.gpu) == []
    made.file("/dev/nvidia0")
    [(state, text)] = made.ask(versions.gpu)
    assert state == "amber"
    assert text.startswith("This machine has a GPU (/dev/nvidia0), and torch 2.13.0+cu128 may be")
    made.environment["CUDA_VISIBLE_DEVICES"] = ""
    [(state, text)] = made.ask(versions.gpu)
    assert (state, "is hidden" in text) == ("green", True)
