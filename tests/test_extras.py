"""Test the contents of extras, and messages about missing modules."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

from hpu_magic import extras

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT / "tools"))
import requirements  # noqa: E402

DESCRIBED = tomllib.loads((PROJECT / "pyproject.toml").read_text())
JUPYTER = ("anywidget", "bokeh", "ipykernel", "ipyparallel", "IPython", "ipywidgets")
JUPYTER += ("jupyter_client", "jupyter_core", "jupyter_server", "jupyterlab", "traitlets")
LIBRARIES = (*JUPYTER, "accelerate", "cloudpickle", "lightning", "sklearn", "transformers")


def names(lines):
    return {line.partition(">")[0].partition("[")[0].partition("=")[0] for line in lines}


def test_plain_installation_has_torch_but_not_jupyter():
    base = names(DESCRIBED["project"]["dependencies"])
    assert base == {"ninja", "numpy", "packaging", "psutil", "torch"}


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        ("notebook", {"bokeh", "ipykernel", "ipywidgets"}),
        ("lab", {"bokeh", "ipywidgets", "jupyterlab", "jupyter_server"}),
        ("lightning", {"lightning"}),
        ("huggingface", {"transformers", "accelerate"}),
        ("gaudi", {"habana-pyhlml"}),
        ("quickstart", {"jupyterlab", "lightning", "pillow"}),
        ("notebooks", {"jupyterlab", "lightning", "peft", "scikit-learn"}),
    ],
)
def test_extras_and_all_contain_their_packages(extra, packages):
    assert packages <= names(requirements.of_extras(DESCRIBED, extra))
    assert packages <= names(requirements.of_extras(DESCRIBED, "all"))


def test_quickstart_has_no_libraries_of_later_notebooks():
    first = names(requirements.of_extras(DESCRIBED, "quickstart"))
    later = {"accelerate", "neural-compressor-pt", "peft", "scikit-learn", "transformers"}
    assert not first & later
    assert later <= names(requirements.of_extras(DESCRIBED, "notebooks"))


def test_all_does_not_replace_the_vendors_torch():
    assert not names(requirements.of_extras(DESCRIBED, "all")) & {"torch", "hpu_magic_engine"}
    [engine] = requirements.of_extras(DESCRIBED, "engine")
    assert engine == f"hpu_magic_engine=={DESCRIBED['project']['version']}"


def test_device_and_functions_need_no_extra(script):
    out = script(
        f"""
        import sys
        for absent in {LIBRARIES!r}:
            sys.modules[absent] = None
        import habana_frameworks.torch
        import hpu_magic, torch
        model = torch.nn.Linear(4, 2)
        hpu_magic.to(model)
        with hpu_magic.autocast():
            loss = model(torch.ones(3, 4, device="hpu")).sum()
        loss.backward()
        estimate = hpu_magic.estimate(model, torch.ones(3, 4, device="hpu"))
        hpu_magic.memory(), hpu_magic.status(), hpu_magic.doctor()
        print(model.weight.grad.device, type(estimate).__name__)
        """,
        HPU_MAGIC_SIMULATOR="1",
    )
    assert out == "hpu:0 Estimate\n"


@pytest.mark.parametrize(
    ("absent", "needs"),
    [
        (["bokeh"], "needs bokeh, which is not installed"),
        (["ipywidgets", "bokeh"], "needs ipywidgets and bokeh, which are not installed"),
    ],
)
def test_load_ext_names_the_missing_extra(run, shell, monkeypatch, absent, needs):
    for module in absent:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(shell.extension_manager, "loaded", set())
    cell = run("%load_ext hpu_magic")
    assert cell.out + cell.err == (
        f'UsageError: %load_ext hpu_magic {needs}: run pip install "hpu_magic[notebook]" '
        "(in a notebook, use %pip install).\n"
    )


def test_lightning_classes_name_the_missing_extra(monkeypatch):
    from hpu_magic.lightning import namespaces

    monkeypatch.setattr(namespaces, "loaded_namespaces", lambda names: [])
    for module in ("lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "hpu_magic\[lightning\]"'):
        namespaces.default_namespace()


def test_no_message_if_all_modules_are_installed():
    assert extras.absence("This", "notebook", ["json", "email.message"]) is None


def test_versions_of_dependent_packages_are_equal():
    import hpu_magic

    assert DESCRIBED["project"]["version"] == hpu_magic.__version__
    assert importlib.metadata.version("hpu_magic") == hpu_magic.__version__
