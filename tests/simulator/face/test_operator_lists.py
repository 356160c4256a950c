"""Test autocast's operator lists from files that environment variables name."""

import json

import pytest

COMPUTED = """
import json, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import habana_frameworks.torch
import torch
from torch.nn import functional as F
a = torch.rand(4, 4, device="hpu")
target = torch.tensor([1, 2, 0, 3], device="hpu")
with torch.autocast("hpu", dtype=torch.bfloat16):
    found = [(a @ a).dtype, a.exp().dtype, F.linear(a, a).dtype, F.cross_entropy(a, target).dtype]
print(json.dumps([[str(each)[6:] for each in found], [str(each.message) for each in caught]]))
"""
DEFAULT = ["bfloat16", "float32", "bfloat16", "float32"]
LINEAR = ["float32", "float32", "bfloat16", "float32"]
BOTH = ["float32", "bfloat16", "bfloat16", "float32"]
LOSS = ["float32", "float32", "float32", "bfloat16"]


@pytest.mark.parametrize(
    ("mode", "lists", "expected"),
    [
        ("0", {}, DEFAULT),
        ("0", {"PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST": "linear\n"}, LINEAR),
        ("0", {"LOWER_LIST": "\ufefflinear\r\n"}, LINEAR),
        ("1", {"LOWER_LIST": "cross_entropy\n"}, LOSS),
        (
            "0",
            {"LOWER_LIST": "exp", "PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST": "\n linear \n"},
            LINEAR,
        ),
        ("1", {"LOWER_LIST": "exp\nlinear", "FP32_LIST": "matmul"}, BOTH),
        ("0", {"FP32_LIST": "softmax"}, DEFAULT),
    ],
)
def test_lists_come_from_the_environment_variables(forked_script, tmp_path, mode, lists, expected):
    environment = {"PT_HPU_LAZY_MODE": mode}
    for name, text in lists.items():
        (tmp_path / name).write_text(text)
        environment[name] = str(tmp_path / name)
    out = forked_script(COMPUTED, simulated=True, **environment)
    assert json.loads(out.splitlines()[-1]) == [expected, []]


REFUSED = """
import importlib
from hpu_magic.simulator.finder import install_finder
install_finder()
try:
    importlib.import_module("habana_frameworks.torch")
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("FP32_LIST", "exp\nlineer\n", "{}, line 2: operator 'lineer' does not exist; did you"),
        (
            "PT_HPU_AUTOCAST_FP32_OPS_LIST",
            "exp, log",
            "{}, line 1: 'exp, log' is not an operator name; write one name per",
        ),
    ],
)
def test_malformed_list_is_refused_when_the_bridge_loads(
    forked_script, tmp_path, variable, text, message
):
    (tmp_path / "list").write_text(text)
    out = forked_script(REFUSED, **{variable: str(tmp_path / "list")})
    assert out.startswith(message.format(tmp_path / "list"))


def test_unreadable_list_keeps_the_default(forked_script, tmp_path):
    code = COMPUTED.replace(
        "import json, warnings", REFUSED.partition("try:")[0] + "import json, warnings"
    )
    out = forked_script(code, LOWER_LIST=str(tmp_path / "missing"))
    types, (warning,) = json.loads(out.splitlines()[-1])
    assert types == DEFAULT
    assert warning.startswith("LOWER_LIST: [Errno 2] No such file or directory")
    assert warning.endswith("using the default list.")


IN_FORCE = """
import os
from hpu_magic.runtime.precision import operators
print(sorted(operators.in_force().lower), operators.in_force().fp32 == operators.FP32)
operators.ensure(operators.OperatorLists())
print(operators.in_force() == operators.OperatorLists())
print(sorted(operators.requested(os.environ["LOWER_LIST"]).lower))
print(operators.LOWER_VARIABLE in os.environ, operators.FP32_VARIABLE in os.environ)
"""


@pytest.mark.parametrize("text", ["exp\nlinear\n", "\ufeffexp\r\nlinear"], ids=["plain", "BOM"])
def test_runtime_supports_the_older_variable_names(script, tmp_path, text):
    (tmp_path / "list").write_text(text, encoding="utf-8")
    out = script(IN_FORCE, LOWER_LIST=str(tmp_path / "list"))
    assert out.splitlines() == ["['exp', 'linear'] True", "True", "['exp', 'linear']", "True False"]
