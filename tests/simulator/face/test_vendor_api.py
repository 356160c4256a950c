"""The tables of the vendor's names match the simulator."""

import inspect
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from vendor_names import Name, State, names, operators

TOOLS = sys.path[0]

# Names whose import does not agree with their state; runs in both modes.
WRONG_STATES = f"""
import sys, warnings
sys.path.insert(0, {TOOLS!r})
from vendor_names import State, names

warnings.simplefilter("ignore")  # some names are deprecated

def is_there(name):
    try:
        name.find()
    except (ImportError, AttributeError):
        return False
    return True

wrong = [each.name for each in names() if is_there(each) is (each.state is State.ABSENT)]
"""


@pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
def test_names_exist_as_listed_in_the_table(forked_script, lazy):
    # In a separate process, because the import of gpu_migration enables it.
    printed = forked_script(WRONG_STATES + "\nprint(wrong)", simulated=True, PT_HPU_LAZY_MODE=lazy)
    assert printed.splitlines()[-1] == "[]"


def documented(signature):
    made = {"torch": torch}
    exec(f"def function{signature}: ...", made)
    return [
        (each.name, each.default)
        for each in inspect.signature(made["function"]).parameters.values()
    ]


def defined(function):
    """Return the positional parameters; keyword-only ones must have a default."""
    if isinstance(function, type) and issubclass(function, torch.autograd.Function):
        function = function.forward  # the parameters of apply()
    parameters = list(inspect.signature(function).parameters.values())
    if parameters and parameters[0].name in ("self", "ctx"):
        parameters = parameters[1:]
    by_name = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    assert all(each.default is not each.empty for each in by_name)
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return [(each.name, each.default) for each in parameters if each.kind not in kinds]


def test_signatures_are_the_documented_ones():
    rows = [each for each in names() if each.signature and each.state is not State.ABSENT]
    differing = {
        each.name: defined(each.find())
        for each in rows
        if defined(each.find()) != documented(each.signature)
    }
    assert differing == {}
    assert len(rows) > 150


def test_signatures_differ_by_name_order_or_default():
    def function(a, b=1, *, c=2, **others): ...

    assert defined(function) == documented("(a, b=1)")
    for other in ("(b=1, a=0)", "(a, b=2)", "(a, x=1)", "(a)", "(a, b=1, c=2)", "(a, b)"):
        assert defined(function) != documented(other)


# Differences between the operators of the engine and the table for this mode.
WRONG_OPERATORS = f"""
import os, sys
sys.path.insert(0, {TOOLS!r})
from habana_frameworks.torch.core import is_lazy
from vendor_names import operators

own_linear = "PT_HPU_OVERRIDE_LINEAR_MATMUL_EAGER" in os.environ
is_here = [each.is_defined(is_lazy(), own_linear) for each in operators()]
tables = [each for each, here in zip(operators(), is_here) if each.is_own and here]
declared = {{str(torch._C.parse_schema(each.schema)): each.name for each in tables}}
defined = {{str(each) for each in torch._C._jit_get_all_schemas() if each.name.startswith("hpu::")}}
wrong = sorted(defined ^ declared.keys())
for schema, name in declared.items():
    packet, _, overload = name.removeprefix("hpu::").partition(".")
    if str(getattr(getattr(torch.ops.hpu, packet), overload or "default")._schema) != schema:
        wrong.append(name)
"""
FIX = "fix the operator's line in vendor_names/operators.tsv"


def test_operators_are_declared_like_the_vendors():
    found = {"torch": torch}
    exec(WRONG_OPERATORS, found)
    assert found["wrong"] == [], FIX
    assert len(found["declared"]) > 30


def test_operators_of_lazy_mode_are_declared_like_the_vendors(lazy_process):
    assert lazy_process(WRONG_OPERATORS + "\nprint(wrong)") == ["[]"], FIX


def test_missing_operators_are_explained():
    here, missing = set(), set()
    for each in operators():
        if each.is_own:
            name = each.name.removeprefix("hpu::").partition(".")[0]
            (missing if each.state is State.ABSENT else here).add(name)
    assert "softmax_fa2" in missing
    for name in missing - here:
        assert not hasattr(torch.ops.hpu, name)  # libraries use their own code in this case
        with pytest.raises(AttributeError, match=rf"has no operator torch\.ops\.hpu\.{name}; the"):
            getattr(torch.ops.hpu, name)


def test_operators_declared_by_pytorch_have_device_kernels():
    import torch.ao.quantization.fx._decomposed

    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    declared = [each for each in operators() if not each.is_own and each.state is State.COMPLETE]
    assert len(declared) == 8
    assert [each.name for each in declared if not has_kernel(each.name, "HPU")] == []


def test_rows_are_unique_and_have_a_reason_if_incomplete():
    rows = [*names(), *operators()]
    assert len({each.name for each in names()}) == len(names())
    assert len({each.schema for each in operators()}) == len(operators())
    assert [each for each in rows if each.state is not State.COMPLETE and not each.note] == []


def test_missing_names_are_not_found():
    for missing in ("hpu.no_such_name", "no_such_module.name", "hpu.HPUGraph.no_such_method"):
        with pytest.raises((ImportError, AttributeError)):
            Name("", missing, "", State.COMPLETE, "").find()
    assert (
        Name("", "hpu.HPUGraph.replay", "", State.COMPLETE, "").find() is torch.hpu.HPUGraph.replay
    )
