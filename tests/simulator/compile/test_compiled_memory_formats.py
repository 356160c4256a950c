"""Compiled graphs keep the strides of eager mode."""

import pytest

from hpu_magic.simulator import engine

LAST = {1: None, 2: "channels_last", 3: "channels_last_3d"}


def _models(torch):
    nn = torch.nn
    convolutions = {
        f"{name}{dim}d": (dim, lambda kind=kind, options=options: [kind(4, 8, 3, **options)])
        for dim in (1, 2, 3)
        for name, kind, options in (
            ("conv", getattr(nn, f"Conv{dim}d"), {}),
            ("grouped", getattr(nn, f"Conv{dim}d"), {"groups": 2, "padding": 1}),
            ("depthwise", getattr(nn, f"Conv{dim}d"), {"groups": 4, "bias": False}),
            ("strided", getattr(nn, f"Conv{dim}d"), {"stride": 2, "dilation": 2}),
            ("transposed", getattr(nn, f"ConvTranspose{dim}d"), {"stride": 2}),
        )
    }
    return {
        **convolutions,
        "pointwise": (2, lambda: [nn.Conv2d(4, 8, 1)]),
        "one_channel": (2, lambda: [nn.Conv2d(4, 1, 3)]),
        "batch_norm": (2, lambda: [nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU()]),
        "batch_norm3d": (3, lambda: [nn.Conv3d(4, 8, 3, bias=False), nn.BatchNorm3d(8)]),
        "group_norm": (2, lambda: [nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8)]),
        "max_pool": (2, lambda: [nn.Conv2d(4, 8, 3), nn.MaxPool2d(2)]),
        "average_pool": (2, lambda: [nn.AvgPool2d(2), nn.Conv2d(4, 8, 3)]),
        "adaptive_pool": (2, lambda: [nn.Conv2d(4, 8, 3), nn.AdaptiveAvgPool2d(2)]),
        "upsample": (2, lambda: [nn.Conv2d(4, 8, 3), nn.Upsample(scale_factor=2)]),
        "pad": (2, lambda: [nn.ZeroPad2d(1), nn.Conv2d(4, 8, 3)]),
        "dropout": (2, lambda: [nn.Conv2d(4, 8, 3), nn.Dropout(0.5), nn.GELU()]),
    }


def _input(torch, shape, layout, dtype, dim):
    x = torch.randn(shape, device="hpu").to(dtype)
    if layout == "permuted":  # NHWC, the layout of image files
        x = x.permute(0, *range(2, dim + 2), 1).contiguous().movedim(-1, 1)
    elif layout == "last" and LAST[dim]:
        x = x.to(memory_format=getattr(torch, LAST[dim]))
    return x.detach().requires_grad_()


SIZES = ((2, 9), (3, 10), (2, 11))  # the second compilation is for dynamic shapes


def _check(torch, compile_on_hpu, names, layout="last", dtype="float32", dynamic=None, sizes=SIZES):
    """Compile models together, and compare them with eager mode."""
    torch.manual_seed(0)
    dtype = getattr(torch, dtype)
    dims, models = {}, {}
    for name in names:
        dims[name], layers = _models(torch)[name]
        models[name] = torch.nn.Sequential(*layers()).to("hpu", dtype)
        if layout == "last" and LAST[dims[name]]:
            models[name].to(memory_format=getattr(torch, LAST[dims[name]]))

    def run(inputs):
        results = {name: model(inputs[name]) for name, model in models.items()}
        return {
            name: (y.flatten(1), y.movedim(1, -1).reshape(y.shape[0], -1, y.shape[1]), y)
            for name, y in results.items()
        }

    def seen(run, inputs):
        """Return the results and gradients of each model."""
        torch.manual_seed(0)
        results = run(inputs)
        loss = sum(flat.float().sin().sum() for flat, *_ in results.values())
        leaves = [(name, leaf) for name in models for leaf in models[name].parameters()]
        leaves += inputs.items()
        gradients = torch.autograd.grad(loss, [leaf for _, leaf in leaves])
        outcome = {name: list(results[name]) for name in models}
        for (name, _), gradient in zip(leaves, gradients, strict=True):
            outcome[name].append(gradient)
        return outcome

    compiled = compile_on_hpu(run, dynamic=dynamic)
    close = 0.02 if dtype == torch.bfloat16 else 1e-3
    for n, size in sizes:
        inputs = {
            name: _input(torch, (n, 4, *[size] * dim), layout, dtype, dim)
            for name, dim in dims.items()
        }
        actual, expected = seen(compiled, inputs), seen(run, inputs)
        assert {
            name: [tensor.stride() for tensor in tensors] for name, tensors in actual.items()
        } == {name: [tensor.stride() for tensor in tensors] for name, tensors in expected.items()}
        torch.testing.assert_close(actual, expected, rtol=close, atol=close)


KINDS = ("conv", "grouped", "depthwise", "strided", "transposed")
# Compiled together, since each graph has a large fixed cost
TOGETHER = {
    "1d": [f"{kind}1d" for kind in ("conv", "strided", "transposed")],
    "2d": [f"{kind}2d" for kind in KINDS],
    "3d": [f"{kind}3d" for kind in ("conv", "strided", "transposed")],
    "pointwise": ["pointwise", "one_channel", "pad", "upsample"],
    "norm": ["batch_norm", "batch_norm3d", "group_norm"],
    "pool": ["max_pool", "average_pool", "adaptive_pool", "dropout"],
}
FEW = ["conv2d", "conv3d", "batch_norm", "transposed2d"]


@pytest.mark.parametrize("names", TOGETHER.values(), ids=TOGETHER)
def test_images_keep_their_memory_format(torch, compile_on_hpu, names):
    _check(torch, compile_on_hpu, names)


@pytest.mark.parametrize("layout", ["contiguous", "permuted"])
def test_images_may_have_another_layout_than_the_model(torch, compile_on_hpu, layout):
    _check(torch, compile_on_hpu, ["conv1d", *FEW], layout, sizes=SIZES[:1])


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_memory_formats_of_other_types_are_kept(torch, compile_on_hpu, dtype):
    _check(torch, compile_on_hpu, [*FEW, "max_pool"], dtype=dtype, sizes=SIZES[:1])


def test_memory_formats_with_dynamic_shapes_are_kept(torch, compile_on_hpu):
    _check(torch, compile_on_hpu, FEW, dynamic=True, sizes=SIZES[:2])


def test_kernel_with_other_strides_than_traced_is_corrected(torch, compile_on_hpu):
    last = torch.channels_last_3d
    convolution = torch.nn.Conv3d(4, 8, 3).to("hpu").to(memory_format=last)

    def rows(x):
        return convolution(x).movedim(1, -1).reshape(-1, 8)  # no copy for channels_last

    compiled = compile_on_hpu(rows)
    x = torch.randn(2, 4, 7, 7, 7, device="hpu").to(memory_format=last)
    expected = compiled(x)
    # Without oneDNN, another kernel runs, which does not support this memory format.
    with torch.backends.mkldnn.flags(enabled=False):
        assert not convolution(x).is_contiguous(memory_format=last)
        actual = compiled(x)
        (gradient,) = torch.autograd.grad(actual.sum(), convolution.bias)
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(gradient, torch.full((8,), 2.0 * 5**3, device="hpu"))


@pytest.mark.parametrize(
    ("dtype", "sizes", "strides", "agrees"),
    [
        ("float32", [2, 3], [3, 1], True),
        ("float32", [-1, 3], [-1, 1], True),  # -1: a dynamic size
        ("float64", [2, 3], [3, 1], False),
        ("float32", [3, 2], [3, 1], False),
        ("float32", [2, 3], [1, 2], False),
        ("float32", [6], [1], False),
    ],
)
def test_results_are_compared_with_the_traced_layout(torch, dtype, sizes, strides, agrees):
    program = engine.load().Program(1)
    traced = [(getattr(torch, dtype), sizes, strides)]
    program.finish([program.call("aten::relu", "", {"self": program.input(0)}, [None], traced)])
    x = torch.ones(2, 3, device="hpu")
    if agrees:
        assert program.run([x])[0].tolist() == x.tolist()
    else:
        with pytest.raises(RuntimeError, match="strides of result 0 of aten::relu are not"):
            program.run([x])
