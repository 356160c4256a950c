"""Test compiled attention with sequence lengths that change between calls."""

import pytest


def _attention(torch, **options):
    return lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)


def _masked(torch, boolean):
    def attend(q, k, v):
        mask = torch.ones(q.shape[-2], k.shape[-2], device=q.device).tril()
        mask = mask.bool() if boolean else (1 - mask) * -5
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return attend


FUNCTIONS = {
    "plain": lambda torch: _attention(torch),
    "causal": lambda torch: _attention(torch, is_causal=True),
    "scaled": lambda torch: _attention(torch, scale=0.3),
    "bool_mask": lambda torch: _masked(torch, True),
    "float_mask": lambda torch: _masked(torch, False),
}


def _gradients(torch, result, inputs):
    return torch.autograd.grad(result.square().sum(), inputs, allow_unused=True)


def _agree(torch, compiled, module, shapes, ways=("training", "inference")):
    """Compare results, and gradients in training, for inputs of each shape."""
    for shape in shapes:
        inputs = [torch.randn(shape, device="hpu", requires_grad=True) for _ in range(3)]
        for way in ways:
            with torch.set_grad_enabled(way == "training"):
                actual, expected = compiled(*inputs), module(*inputs)
            torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
            assert actual.stride() == expected.stride()
            if way == "training":
                gradients = [_gradients(torch, each, inputs) for each in (actual, expected)]
                torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [None, True])
def test_attention_supports_changing_sequence_lengths(torch, compile_on_hpu, dynamic):
    forms = [form(torch) for form in FUNCTIONS.values()]

    def function(q, k, v):
        return torch.stack([form(q, k, v) for form in forms])

    compiled = compile_on_hpu(function, dynamic=dynamic)
    _agree(torch, compiled, function, [(2, 2, 5, 8), (2, 2, 7, 8), (3, 2, 9, 8)])


@pytest.mark.parametrize(("way", "dynamic"), [("training", None), ("inference", True)])
def test_transformer_layer_supports_changing_sequence_lengths(torch, compile_on_hpu, way, dynamic):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    layer = layer.to("hpu").train(way == "training")
    compiled = compile_on_hpu(layer, dynamic=dynamic)
    _agree(
        torch,
        lambda x, *_: compiled(x),
        lambda x, *_: layer(x),
        [(2, 5, 16), (2, 7, 16), (3, 9, 16)],
        [way],
    )


def test_multihead_attention_supports_changing_sequence_lengths(torch, compile_on_hpu):
    torch.manual_seed(0)
    attention = torch.nn.MultiheadAttention(16, 2, batch_first=True).to("hpu")
    compiled = compile_on_hpu(attention)
    _agree(
        torch,
        lambda *inputs: compiled(*inputs, need_weights=False)[0],
        lambda *inputs: attention(*inputs, need_weights=False)[0],
        [(2, 5, 16), (2, 7, 16), (3, 9, 16)],
        ["training"],
    )


def _in_slices(torch, size):
    """Attention that merges the results of slices of the keys, like vLLM's Gaudi plugin."""

    def attend(q, k, v, mask):
        merged = None
        for start in range(0, k.shape[-2], size):
            keys, values, hidden = (
                each.narrow(dim, start, size).contiguous()
                for each, dim in ((k, -2), (v, -2), (mask, -1))
            )
            options = hidden, 0.0, 0.5, False, True, "fast", None, "right"
            out, largest, inverse, _ = torch.ops.hpu.sdpa_recomp_fwd(q, keys, values, *options)
            if merged is None:
                merged = out, largest, 1 / inverse
                continue
            maximum = torch.maximum(merged[1], largest)
            old = merged[2] * torch.exp(merged[1] - maximum)
            new = torch.exp(largest - maximum) / inverse
            merged = (old * merged[0] + new * out) / (old + new), maximum, old + new
        return merged[0]

    return attend


def test_attention_in_slices_is_compiled_to_one_graph(torch, compile_on_hpu, compilations):
    compiled = compile_on_hpu(_in_slices(torch, 4), fullgraph=True, dynamic=False)
    for number, length in enumerate((8, 12, 8), 1):
        q, k, v = (torch.randn(2, 3, size, 8, device="hpu") for size in (4, length, length))
        mask = torch.zeros(4, length, device="hpu")
        mask[:, -1] = -torch.inf
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.5)
        torch.testing.assert_close(compiled(q, k, v, mask), expected, rtol=1e-5, atol=1e-6)
        assert compilations() == min(number, 2)  # one graph per shape
