"""Test Habana Mixed Precision: dtypes of operators, and files with operator lists."""

import json

import pytest
import torch
from habana_frameworks.torch.hpex.hmp import _rules as rules
from habana_frameworks.torch.hpex.hmp._convert import _requested as requested
from torch_functions import SEEN


@pytest.mark.parametrize(
    ("name", "inputs", "in_place", "dtype"),
    [
        ("mm", "ff", False, "b"),
        ("softmax", "b", False, "f"),
        ("relu", "b", False, "b"),
        ("relu", "f", False, "f"),
        ("dist", "bf", False, "b"),
        ("dist", "fb", False, "f"),
        ("add", "bf", False, "f"),
        ("add", "bb", False, "b"),
        ("radd", "bf", False, "f"),
        ("cat", "bbf", False, "f"),
        ("truediv", "bf", False, "f"),
        ("linear", "fff", False, "b"),
        ("matmul", "ff", False, "b"),
        ("iadd", "bf", True, "b"),
        ("mm", "ff", True, "f"),
        ("softmax", "b", True, "b"),
    ],
)
def test_operator_computes_in_the_dtype_of_its_rule(name, inputs, in_place, dtype):
    types = {"f": torch.float32, "b": torch.bfloat16}
    chosen, why = rules.Rules().dtype(name, [types[each] for each in inputs], in_place)
    assert chosen == types[dtype]
    assert why


def test_lists_override_widening_and_the_operators_of_products():
    lists = rules.Rules(frozenset({"add", "addmm"}), frozenset({"linear"}))
    both = [torch.bfloat16, torch.float32]
    assert lists.dtype("add", both, False) == (torch.bfloat16, "bf16 list")
    assert lists.dtype("linear", both, False) == (torch.float32, "fp32 list")


def test_level_o2_computes_products_in_bf16_and_others_in_fp32():
    o2 = requested("O2", "no such file", "")
    for name in ("mm", "linear", "matmul", "baddbmm", "conv2d", "conv_transpose3d"):
        assert o2.dtype(name, [torch.float32], False)[0] == torch.bfloat16
    for name in ("relu", "add", "layer_norm", "softmax"):
        assert o2.dtype(name, [torch.bfloat16], False)[0] == torch.float32
    assert o2.dtype("add", [torch.bfloat16], True)[0] == torch.bfloat16
    assert requested("02", "", "") == o2


def test_files_replace_the_lists_of_o1(tmp_path):
    bf16, fp32 = tmp_path / "bf16.txt", tmp_path / "fp32.txt"
    bf16.write_text("linear\n\n  softmax \nt\n")
    fp32.write_text("nll_loss\n")
    assert requested("O1", str(bf16), str(fp32)) == rules.Rules(
        frozenset({"linear", "softmax", "t"}), frozenset({"nll_loss"})
    )
    alone = requested("O1", str(bf16), "")
    assert alone.fp32 == rules.FP32 - {"softmax"}
    assert requested("O1", "", str(fp32)).bf16 == rules.BF16


@pytest.mark.parametrize(
    ("bf16", "fp32", "message"),
    [
        ("mm\nmm bmm\n", "", "{bf16}, line 2: 'mm bmm' is not an operator name; write one"),
        ("mm,bmm", "", "{bf16}, line 1: 'mm,bmm' is not an operator name; write one"),
        ("# products\n", "", "{bf16}, line 1: '# products' is not an operator name"),
        (
            "mm\n\nsofmax",
            "",
            "{bf16}, line 3: operator 'sofmax' does not exist; did you mean 'softmax",
        ),
        (
            "",
            "zzzzzz",
            "{fp32}, line 1: operator 'zzzzzz' does not exist; use names such as linear",
        ),
        ("mm\n\xff", "", "{bf16}, line 2 is not UTF-8 text; write the names as plain text"),
        ("mm\nbmm\n", "mm\n", "mm cannot be in both lists, {bf16} and {fp32}; remove it from one"),
    ],
)
def test_malformed_list_is_refused_with_file_line_and_fix(tmp_path, bf16, fp32, message):
    files = {"bf16": tmp_path / "bf16.txt", "fp32": tmp_path / "fp32.txt"}
    files["bf16"].write_text(bf16, encoding="latin-1")
    files["fp32"].write_text(fp32)
    with pytest.raises(ValueError, match="; ") as refused:
        requested("O1", str(files["bf16"]), str(files["fp32"]))
    assert str(refused.value).startswith(message.format(**files))


def test_missing_list_and_wrong_level_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"bf16_file_path='.*missing' cannot be read \(No such"):
        requested("O1", str(tmp_path / "missing"), "")
    with pytest.raises(ValueError, match="opt_level='O3' is not supported; use 'O1'"):
        requested("O3", "", "")


CONVERTED = """
import json, logging, threading
import torch
from torch import nn
from torch.nn import functional as F
from habana_frameworks.torch.hpex import hmp

found = {}

def types(**calls):
    for name, call in calls.items():
        found[name] = str(call().dtype).removeprefix("torch.")

hmp.convert()
torch.manual_seed(0)
a = torch.rand(4, 4, device="hpu")
b = a.bfloat16()
written = torch.empty(4, 4, device="hpu")
types(
    operator=lambda: a @ a,
    function=lambda: torch.mm(a, a),
    method=lambda: a.mm(a),
    layer=lambda: nn.Linear(4, 4).to("hpu")(a),
    softmax=lambda: b.softmax(0),
    reflected=lambda: 2 - b,
    widened=lambda: b + a,
    stacked=lambda: torch.stack([b, a]),
    first=lambda: torch.dist(b, a),
    view=lambda: b.t(),
    made=lambda: torch.zeros_like(b),
    host=lambda: a.cpu() @ a.cpu(),
    double=lambda: (a.double() @ a.double()),
    out=lambda: torch.add(b, a, out=written),
)
found["written"] = bool((written > 0).all())
c = b.clone()
c += a
types(added=lambda: c)
with hmp.disable_casts(), hmp.disable_casts():
    types(disabled=lambda: a @ a)
    thread = threading.Thread(target=lambda: types(thread=lambda: a @ a))
    thread.start()
    thread.join()
types(enabled=lambda: a @ a)

plain = nn.Sequential(
    nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8, 3)
).to("hpu")
loss = F.cross_entropy(plain(a[None, None]), torch.tensor([1], device="hpu"))
loss.backward()
types(loss=lambda: loss, gradient=lambda: plain[0].weight.grad)
found["statistics"] = bool((plain[1].running_mean != 0).all())

hmp.convert("O2")
d = b.clone()
F.relu(d.neg_(), inplace=True)
found["in place"] = d.abs().sum().item()
half = nn.BatchNorm1d(4).to("hpu").bfloat16()
half(b + 1)
found["half statistics"] = bool((half.running_mean != 0).all())
types(o2=lambda: torch.relu(b), o2_function=lambda: F.silu(b), o2_product=lambda: F.linear(a, a))
print(json.dumps(found))
"""
TYPES = {
    "bfloat16": (
        *("operator", "function", "method", "layer", "reflected", "first", "view", "made"),
        *("added", "thread", "enabled", "o2_product"),
    ),
    "float32": (
        *("softmax", "widened", "stacked", "host", "out", "disabled", "loss", "gradient"),
        *("o2", "o2_function"),
    ),
    "float64": ("double",),
    True: ("written", "statistics", "half statistics"),
    0.0: ("in place",),
}


@pytest.mark.parametrize("mode", ["0", "1"])
def test_functions_methods_and_operators_cast_by_the_lists(forked_script, mode):
    out = forked_script(CONVERTED, simulated=True, PT_HPU_LAZY_MODE=mode)
    expected = {name: value for value, names in TYPES.items() for name in names}
    assert json.loads(out.splitlines()[-1]) == expected


WRITTEN = """
import json
import torch
from habana_frameworks.torch.hpex import hmp
hmp.convert()
a = torch.rand(4, 4, device="hpu")
b = a.bfloat16()

def empty(dtype, *shape):
    return torch.empty(shape or (4, 4), dtype=dtype, device="hpu")

full, half = torch.float32, torch.bfloat16
results = {
    "mm": (torch.mm(a, a, out=empty(full)), a.cpu() @ a.cpu()),
    "half mm": (torch.mm(a, a, out=empty(half)), (b.cpu() @ b.cpu())),
    "mixed mm": (torch.mm(b, a, out=empty(full)), b.cpu().float() @ a.cpu()),
    "mv": (torch.mv(a, a[0], out=empty(full, 4)), a.cpu() @ a[0].cpu()),
    "softmax": (torch.softmax(b, -1, out=empty(half)), b.cpu().softmax(-1)),
    "topk": (
        torch.topk(b, 2, out=(empty(half, 0), empty(torch.long, 0)))[0], b.cpu().topk(2)[0]
    ),
    "double": (torch.add(a, a, out=empty(torch.double)), (a + a).cpu().double()),
    "none": (torch.softmax(b, -1, out=None), b.cpu().float().softmax(-1)),
}
for name, (found, expected) in results.items():
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-2, atol=1e-2)
print(json.dumps({name: str(found.dtype)[6:] for name, (found, _) in results.items()}))
"""


@pytest.mark.parametrize("mode", ["0", "1"])
def test_out_tensor_determines_the_dtype_of_an_operator(forked_script, mode):
    out = forked_script(WRITTEN, simulated=True, PT_HPU_LAZY_MODE=mode)
    assert json.loads(out.splitlines()[-1]) == {
        "mm": "float32",
        "half mm": "bfloat16",
        "mixed mm": "float32",
        "mv": "float32",
        "softmax": "bfloat16",
        "topk": "bfloat16",
        "double": "float64",
        "none": "float32",
    }


LOOKED_UP = f"""
import copy, pickle
import torch
from torch import nn
from torch.nn import functional as F
from habana_frameworks.torch.hpex import hmp
hmp.convert()
a = torch.rand(4, 4, device="hpu")
{SEEN}

def of_sub():
    sub = a.as_subclass(Seen)
    return [
        (torch.mm, torch.mm(a, sub)), (torch.cat, torch.cat([a, sub])),
        (F.softmax, F.softmax(sub, -1)), (torch.Tensor.mm, sub.mm(a)),
        (torch.add, torch.add(a, other=sub)),
    ]

expected = of_sub()
print([function in seen for function, _ in expected])
print([str(result.dtype)[6:] for _, result in expected])
seen.clear()
with Mode():
    product = torch.mm(a, a)
print(seen[0] is torch.mm, product.dtype)

def scripted(x):
    return torch.mm(x, x).relu() + F.softmax(x, -1) + F.max_pool2d(x[None, None], 1)[0, 0]

layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)).to("hpu")
with hmp.disable_casts():
    for function in (scripted, layers):
        torch.testing.assert_close(torch.jit.script(function)(a), function(a))
print([
    pickle.loads(pickle.dumps(each)) is each is copy.deepcopy(each)
    for each in (torch.mm, F.relu, torch.einsum, torch.Tensor.mm, torch.Tensor.__add__)
])
graph = torch.fx.symbolic_trace(scripted)
print(graph(a).dtype, torch.compile(scripted, backend="hpu_backend")(a).dtype)
"""


def test_replacements_are_found_by_name(forked_script, tmp_path):
    (tmp_path / "script.py").write_text(LOOKED_UP)  # TorchScript reads sources
    code = f"import runpy\nrunpy.run_path({str(tmp_path / 'script.py')!r})"
    assert forked_script(code, simulated=True).splitlines()[-5:] == [
        str([True] * 5),
        "['bfloat16', 'float32', 'float32', 'bfloat16', 'float32']",
        "True torch.bfloat16",
        str([True] * 5),
        "torch.float32 torch.float32",
    ]


VERBOSE = """
import logging, sys
import torch
from habana_frameworks.torch.hpex import hmp
logging.getLogger("habana_frameworks.torch.hpex.hmp").addHandler(logging.StreamHandler(sys.stdout))
a = torch.ones(2, 2, device="hpu")
hmp.convert(isVerbose=True)
a.mm(a).bfloat16() + a
hmp.convert({lists})
print(torch.nn.functional.silu(a).dtype)
"""


def test_verbose_log_contains_type_and_rule_of_each_call(forked_script, tmp_path):
    (tmp_path / "list").write_text("silu\n")
    lists = f"bf16_file_path={str(tmp_path / 'list')!r}"
    assert forked_script(VERBOSE.format(lists=lists), simulated=True).splitlines() == [
        "mm computes in torch.bfloat16 (bf16 list)",
        "add computes in torch.float32 (several tensors: the widest type)",
        "torch.bfloat16",
    ]
