"""Test the checks of installed packages and their versions."""

import dataclasses
import re
from pathlib import Path

import pytest
from made_machine import card

import hpu_magic
from hpu_magic.health.checks import installed, versions
from hpu_magic.health.machine import numbers
from hpu_magic.monitor import Snapshot, hlsmi

VERSIONS = Path(__file__).parents[2] / "docs" / "versions.md"


@pytest.mark.parametrize(
    ("version", "state"), [((3, 10, 0), "green"), ((3, 13, 9), "green"), ((3, 9, 1), "amber")]
)
def test_untested_python_is_amber(made, version, state):
    made.python = version
    assert made.check(installed.python) == [state]


def test_version_of_hpu_magic_is_reported(made):
    assert made.check(installed.itself) == ["green"]
    assert hpu_magic.__version__ in made.texts[0]


def test_missing_torch_is_red(made):
    assert made.check(installed.torch) == ["red"]
    made.install("torch==2.13.0+cpu")
    assert made.check(installed.torch) == ["green"]


def test_missing_required_packages_are_amber(made):
    made.install("lightning==2.6.6", "bokeh==3.9.2", "transformers==5.23.0")
    states = {finding.about: finding.state for finding in installed.packages(made.machine)}
    assert states == {
        **dict.fromkeys(("lightning", "bokeh", "transformers"), "green"),
        **dict.fromkeys(("ipywidgets", "anywidget", "jupyterlab", "ipyparallel"), "amber"),
        **dict.fromkeys(("accelerate", "optimum-habana"), "green"),
    }
    made.check(installed.packages)


def test_bridge_without_a_distribution_is_amber(made):
    assert made.check(installed.bridge) == ["green"]
    made.simulated = False
    assert made.check(installed.bridge) == ["amber"]
    made.install("habana-torch-plugin==1.22.0.740")
    assert made.check(installed.bridge) == ["green"]


def test_torch_in_two_folders_is_amber(made, tmp_path):
    assert made.check(installed.one_torch) == []
    made.install("torch==2.9.0")
    made.folders += [made.site, tmp_path / "user"]
    assert made.check(installed.one_torch) == []
    made.install("torch==2.13.0", into=tmp_path / "user")
    assert made.check(installed.one_torch) == ["amber"]


def test_two_releases_of_torch_in_one_folder_are_red(made):
    made.install("torch==2.9.0", "torch==2.13.0")
    assert made.check(installed.one_torch) == ["red"]


def test_folder_without_metadata_is_ignored(made):
    made.install("torch==2.13.0")
    (made.site / "torch-2.9.0.dist-info").mkdir()
    assert made.check(installed.one_torch) == []
    assert made.check(installed.torch) == ["green"]


def test_releases_of_torch_match_the_documentation():
    table = VERSIONS.read_text().partition("| combination | torch |")[2].partition("\n\n")[0]
    tested = sorted(map(numbers, re.findall(r"^\| \S+ \| (\d+\.\d+)\.", table, re.MULTILINE)))
    assert (tested[0], tested[-1]) == (versions._OLDEST_TORCH, versions._NEWEST_TORCH)


@pytest.mark.parametrize(
    ("torch", "state"),
    [("2.5.1", "red"), ("2.6.0", "green"), ("2.15.0", "green"), ("3.0.0a0", "amber")],
)
def test_torch_is_compared_with_the_tested_releases(made, torch, state):
    assert made.check(versions.torch_for_hpu_magic) == []
    made.install(f"torch=={torch}")
    assert made.check(versions.torch_for_hpu_magic) == [state]


@pytest.mark.parametrize(
    ("plugin", "torch", "state"),
    [
        ("1.22.0.740", "2.7.1+hpu_1.22.0", "green"),
        ("1.22.0.740", "2.9.0", "red"),
        ("1.20.0.1", "2.5.1", "amber"),
        ("1.24.0.1007", "2.10.0", "green"),
        ("1.24.0.1007", "2.11.0", "red"),
        ("1.24.1.482", "2.11.0", "green"),
        ("1.24.2.481", "2.11.0", "amber"),
    ],
)
def test_torch_must_match_the_vendors_plugin(made, plugin, torch, state):
    made.install(f"torch=={torch}")
    assert made.check(versions.torch_for_plugin) == []
    made.with_gaudi(plugin)
    assert made.check(versions.torch_for_plugin) == [state]


def test_plugin_and_driver_must_have_the_same_release(made):
    assert made.check(versions.plugin_and_driver) == []
    made.with_gaudi("1.22.0.740")
    made.driver = hlsmi.Versions("1.22.1-ab12", ())
    assert made.check(versions.plugin_and_driver) == ["green"]
    made.driver = hlsmi.Versions("1.21.0-ab12", ())
    assert made.check(versions.plugin_and_driver) == ["red"]
    made.driver = None  # the version of the kernel module
    assert made.check(versions.plugin_and_driver) == ["green"]
    made.file("/sys/module/habanalabs/version", "")
    assert made.check(versions.plugin_and_driver) == ["amber"]


@pytest.mark.parametrize(
    ("firmware", "state"),
    [(("1.22.0",), "green"), (("1.22.0", "1.20.1"), "amber"), ((), "amber")],
)
def test_firmware_and_driver_must_have_the_same_release(made, firmware, state):
    assert made.check(versions.firmware_and_driver) == []
    made.driver = hlsmi.Versions("1.22.0-ab12", firmware)
    assert made.check(versions.firmware_and_driver) == [state]


@pytest.mark.parametrize(
    ("plugin", "state"), [("1.21.0.555", "green"), ("1.22.0.740", "amber"), (None, "amber")]
)
def test_first_generation_cards_need_an_old_release(made, plugin, state):
    assert made.check(versions.first_generation) == []
    made.with_gaudi(plugin)
    assert made.check(versions.first_generation) == []
    first = dataclasses.replace(card(0), name="HL-205", generation="GAUDI")
    made.cards = Snapshot((first, card(1)), "hlml")
    assert made.check(versions.first_generation) == [state]


def test_simulated_first_generation_cards_are_amber(made):
    first = dataclasses.replace(card(0, simulated=True), name="GAUDI", generation="GAUDI")
    made.cards = Snapshot((first,), "simulator")
    assert made.check(versions.first_generation) == ["amber"]


@pytest.mark.parametrize(
    ("lightning", "state"), [("2.4.0", "green"), ("2.5.6", "amber"), ("2.6.6", "red")]
)
def test_lightning_habana_is_compared_with_lightning(made, lightning, state):
    made.install(f"lightning=={lightning}")
    assert made.check(versions.lightning_habana) == []
    made.install("lightning-habana==1.6.0")
    assert made.check(versions.lightning_habana) == [state]


@pytest.mark.parametrize(
    ("optimum", "transformers", "state"),
    [
        ("1.21.0", "4.55.4", "green"),
        ("1.21.0", "4.49.0", "amber"),
        ("1.21.0", "5.23.0", "red"),
        ("1.30.0", "5.23.0", "amber"),
    ],
)
def test_optimum_habana_is_compared_with_transformers(made, optimum, transformers, state):
    made.install(f"transformers=={transformers}")
    assert made.check(versions.optimum_habana) == []
    made.install(f"optimum-habana=={optimum}")
    assert made.check(versions.optimum_habana) == [state]


def test_gpu_that_pytorch_prefers_is_amber(made):
    made.install("torch==2.13.0+cu128")
    assert made.check(versions.gpu) == []
    made.file("/dev/nvidia0")
    assert made.check(versions.gpu) == ["amber"]
    made.environment["CUDA_VISIBLE_DEVICES"] = ""
    assert made.check(versions.gpu) == ["green"]


@pytest.mark.parametrize(
    ("plugin", "state"), [("0.26.0", "green"), ("0.24.0", "red"), ("0.27.0.dev2", "green")]
)
def test_vllm_is_compared_with_its_plugin(made, plugin, state):
    made.install("vllm==0.26.0+empty")
    assert made.check(versions.vllm_plugin) == []
    made.install(f"vllm-gaudi=={plugin}")
    made.install("neural-compressor-pt==3.10")
    assert made.check(versions.vllm_plugin) == [state]


def test_vllm_plugin_without_neural_compressor_is_red(made):
    made.install("vllm==0.26.0")
    made.install("vllm-gaudi==0.26.0")
    assert made.check(versions.vllm_plugin) == ["red"]


@pytest.mark.parametrize(
    ("release", "accelerator", "state"),
    [
        ("0.19.8", "hpu", "green"),
        ("0.19.8", "cpu", "amber"),
        ("0.14.4+hpu.synapse.v1.24.1", "hpu", "amber"),
    ],
)
def test_deepspeed_is_compared_with_the_tested_release(made, release, accelerator, state):
    assert made.check(versions.deepspeed) == []
    made.install(f"deepspeed=={release}")
    made.environment["DS_ACCELERATOR"] = accelerator
    assert made.check(versions.deepspeed) == [state]


@pytest.mark.parametrize(("release", "state"), [("1.24.1", "amber"), ("1.20.0", "red")])
def test_vendors_deepspeed_is_compared_with_its_plugin(made, release, state):
    made.with_gaudi("1.24.1.482")
    made.install(f"deepspeed==0.14.4+hpu.synapse.v{release}")
    assert made.check(versions.deepspeed) == [state]


def test_tested_deepspeed_is_the_documented_and_the_pinned_release():
    tested = ".".join(map(str, versions._DEEPSPEED))
    for file in ("constraints.txt", "tools/environments/deepspeed.txt"):
        assert f"deepspeed=={tested}" in (VERSIONS.parents[1] / file).read_text().splitlines()
    for page in ("versions.md", "deepspeed.md", "../README.md"):
        assert f"DeepSpeed {tested}" in (VERSIONS.parent / page).read_text()
