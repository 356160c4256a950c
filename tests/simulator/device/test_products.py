"""Test products of 16-bit operands on processors with and without 16-bit instructions."""

import json

import pytest

PROGRAM = """
import json, os
import torch
import torch.nn.functional as F
from hpu_magic.simulator import activate

activate(announce=False)
import habana_frameworks.torch as ht

torch.manual_seed(0)
dtype = getattr(torch, os.environ["DTYPE"])
graphs = os.environ["MODE"] == "graphs"


def random(*shape):
    return torch.randn(shape).to(dtype)


a, b, c, v = random(24, 40), random(40, 24), random(24, 24), random(24)
many, others = random(3, 20, 40), random(3, 40, 20)
image, kernels, bias = random(2, 6, 9, 9), random(4, 6, 3, 3), random(4)
rows, filters = random(2, 6, 20), random(6, 2, 3)


def into_a_view(x, y):
    whole = torch.zeros(48, 48, dtype=x.dtype, device=x.device)
    torch.mm(x, y, out=whole[::2, ::2])
    return whole


def trained(*operands):
    leaves = [each.detach().clone().requires_grad_() for each in operands]
    result = F.conv2d(*leaves, padding=1)
    return [result.detach(), *torch.autograd.grad(result, leaves, torch.ones_like(result))]


def frozen(x, w, z):
    x, z = (each.detach().clone().requires_grad_() for each in (x, z))
    result = F.conv2d(x, w, z, padding=1)
    return list(torch.autograd.grad(result, [x, z], torch.ones_like(result)))


def in_volumes(x, w):
    # In each memory format; a kernel with one element has both.
    last = {"memory_format": torch.channels_last_3d}
    pairs = [(x.to(**last), w), (x, w.to(**last)), (x.to(**last), w.to(**last))]
    pairs += [(x, w[..., :1, :1, :1].contiguous().to(**last))]
    results = []
    for one, other in pairs:
        leaves = [each.detach().requires_grad_() for each in (one, other)]
        result = F.conv3d(*leaves, padding=1)
        results += [result.detach(), *torch.autograd.grad(result, leaves, torch.ones_like(result))]
        results.append(F.conv_transpose3d(one, other.transpose(0, 1).contiguous()))
    return results


def in_groups(x, w):
    x = x.to(memory_format=torch.channels_last)
    return F.conv2d(x, w[:, :3], dilation=4, groups=2)


CALLS = {
    "mm": (torch.mm, a, b),
    "mm.transposed": (lambda x, y: torch.mm(x.t(), y.t()), a, b),
    "mm.out": (into_a_view, a, b),
    "addmm": (lambda x, y, z: torch.addmm(z, x, y, beta=0.5, alpha=2), a, b, c),
    "addmm.bias": (lambda x, y, z: torch.addmm(z, x, y), a, b, v),
    "addmm_": (lambda x, y, z: z.clone().addmm_(x, y), a, b, c),
    "bmm": (torch.bmm, many, others),
    "baddbmm": (lambda x, y, z: torch.baddbmm(z, x, y), many, others, random(3, 20, 20)),
    "addbmm": (lambda x, y, z: torch.addbmm(z, x, y), many, others, random(20, 20)),
    "linear": (F.linear, a, random(17, 40), random(17)),
    "empty": (torch.mm, random(0, 40), b),
    "conv2d": (lambda x, w, z: F.conv2d(x, w, z, stride=2), image, kernels, bias),
    "conv2d.channels_last": (
        lambda x, w: F.conv2d(x.to(memory_format=torch.channels_last), w), image, kernels
    ),
    "conv1d.groups": (lambda x, w: F.conv1d(x, w, groups=3), rows, filters),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2), random(2, 4, 5, 5), kernels
    ),
}
if not graphs:
    CALLS["conv2d.trained"] = (trained, image, kernels, bias)
    CALLS["conv2d.frozen"] = (frozen, image, kernels, bias)


def on_hpu(function, *operands):
    operands = [each.to("hpu") for each in operands]
    if not graphs:
        return function(*operands)
    function(*operands)
    graph = ht.hpu.HPUGraph()
    with ht.hpu.graph(graph):
        result = function(*operands)
    graph.replay()
    return result


def listed(value):
    return value if isinstance(value, list) else [value]


differ = {"from the CPU": [], "from float32": [], "in strides": []}
for name, (function, *operands) in CALLS.items():
    results = [each.cpu() for each in listed(on_hpu(function, *operands))]
    of_cpu = listed(function(*operands))
    wide = [each.to(dtype) for each in listed(function(*(each.float() for each in operands)))]
    for one, cpu, float32 in zip(results, of_cpu, wide, strict=True):
        torch.testing.assert_close(one, cpu, rtol=0.02, atol=0.05)
        if not torch.equal(one, cpu):
            differ["from the CPU"].append(name)
        if not torch.equal(one, float32):
            differ["from float32"].append(name)
        if one.stride() != cpu.stride():
            differ["in strides"].append(name)

volumes = random(2, 4, 6, 6, 6), random(8, 4, 3, 3, 3)
if not graphs:
    for one, cpu in zip(on_hpu(in_volumes, *volumes), in_volumes(*volumes), strict=True):
        torch.testing.assert_close(one.cpu(), cpu, rtol=0.02, atol=0.6)
        if one.stride() != cpu.stride():
            differ["in strides"].append("conv3d.in_volumes")

if on_hpu(in_groups, image, kernels).cpu().stride() != in_groups(image, kernels).stride():
    differ["in strides"].append("conv2d.in_groups")

errors = []
for function in (torch.mm, lambda x, y: torch.mm(x, y, out=torch.empty(24, 24, device="hpu"))):
    try:
        # In lazy mode, PyTorch 2.6 checks the dtypes only when the product is computed.
        function(a.to("hpu"), b.to("hpu").float()).cpu()
    except RuntimeError as error:
        errors.append(str(error).partition(":")[0])
# A CPU scalar stays on the CPU.
number = torch.tensor(0.5, dtype=dtype)
added = torch.addmm(number, a.to("hpu"), b.to("hpu")).cpu()
torch.testing.assert_close(added, torch.addmm(number, a, b), rtol=0.02, atol=0.05)
print(json.dumps([differ, errors]))
"""


@pytest.mark.once
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("mode", ["eager", "lazy", "graphs"])
def test_wide_products_are_float32_products_rounded_once(forked_script, dtype, mode):
    lazy = str(int(mode != "eager"))
    environment = {"DTYPE": dtype, "MODE": mode, "PT_HPU_LAZY_MODE": lazy}
    (narrow, narrow_errors), (wide, wide_errors) = (
        json.loads(
            forked_script(PROGRAM, **environment, HPU_MAGIC_WIDE_PRODUCTS=flag).splitlines()[-1]
        )
        for flag in "01"
    )
    assert wide["from float32"] == []
    assert narrow["from the CPU"] == []
    assert wide["in strides"] == narrow["in strides"] == []
    assert wide_errors == narrow_errors != []


def test_products_are_wide_on_processors_without_instructions(forked_script):
    program = """
import torch
from hpu_magic.simulator import activate

activate(announce=False)
rules = torch.ops.mkldnn._is_mkldnn_bf16_supported, torch.ops.mkldnn._is_mkldnn_fp16_supported
torch.manual_seed(0)
for dtype, rule in zip((torch.bfloat16, torch.float16), rules):
    # A sum of many terms differs if it is rounded on the way.
    a, b = torch.randn(64, 4096).to(dtype), torch.randn(4096, 64).to(dtype)
    wide = (a.float() @ b.float()).to(dtype)
    print(torch.equal((a.to("hpu") @ b.to("hpu")).cpu(), a @ b if rule() else wide))
"""
    assert forked_script(program).split()[-2:] == ["True", "True"]
