"""Rotary position embedding against float64, at the vendor's tolerances: 1e-3 for float32 (here
1e-5), 1.2e-2 for reduced types."""

import pytest
import torch

from hpu_magic.simulator import activate

activate(announce=False)

from habana_frameworks.torch.hpex.kernels import (  # noqa: E402
    RotaryPosEmbeddingHelper,
    RotaryPosEmbeddingHelperV1,
    RotaryPosEmbeddingHelperV2,
    RotaryPosEmbeddingHelperV3,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)
from habana_frameworks.torch.utils.internal import is_lazy  # noqa: E402
from in_modes import assert_compiles, assert_replays, run  # noqa: E402

hpu_ops = torch.ops.hpu
BLOCKWISE, PAIRWISE = RotaryPosEmbeddingMode.BLOCKWISE, RotaryPosEmbeddingMode.PAIRWISE
MODES = pytest.mark.parametrize("mode", [BLOCKWISE, PAIRWISE], ids=lambda mode: mode.name)
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def turned(x, mode):
    if mode is BLOCKWISE:
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def reference(p, cos, sin, mode=BLOCKWISE):
    p, cos, sin = p.double(), cos.double(), sin.double()
    return p * cos + turned(p, mode) * sin


def gradient(function, p, grad):
    leaf = p.double().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, grad.double())[0]


def assert_near(found, expected, dtype):
    assert (found.dtype, found.shape, found.device.type) == (dtype, expected.shape, "hpu")
    tolerance = 1e-5 if dtype is torch.float32 else 1.2e-2
    torch.testing.assert_close(found.cpu().double(), expected, rtol=tolerance, atol=tolerance)


def samples(*shapes, dtype=torch.float32, seed=0):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=made).to(dtype) for shape in shapes]


@MODES
@TYPES
def test_the_operator_turns_pairs_and_its_backward_is_that_of_autograd(mode, dtype):
    p, grad, cos, sin = samples((2, 3, 5, 8), (2, 3, 5, 8), (1, 1, 5, 8), (5, 8), dtype=dtype)
    on_device = sin.to("hpu"), cos.to("hpu"), None, 0, mode.value
    found = hpu_ops.rotary_pos_embedding(p.to("hpu"), *on_device)
    assert_near(found, reference(p, cos, sin, mode), dtype)
    backward = hpu_ops.rotary_pos_embedding_backward(grad.to("hpu"), *on_device)
    exact = gradient(lambda leaf: reference(leaf, cos, sin, mode), p, grad)
    assert_near(backward, exact, dtype)


def test_the_operators_result_has_the_inputs_type_whatever_the_angles_have():
    p, cos, sin = samples((3, 4), (3, 4), (3, 4))
    found = hpu_ops.rotary_pos_embedding(
        p.bfloat16().to("hpu"), sin.to("hpu"), cos.to("hpu"), None, 0, 0
    )
    assert_near(found, reference(p.bfloat16(), cos, sin), torch.bfloat16)


@pytest.mark.parametrize("table", [(1, 1, 16, 8), (16, 8)], ids=str)
@TYPES
def test_positions_choose_rows(table, dtype):
    p, cos, sin = samples((2, 3, 5, 8), table, table, dtype=dtype)
    positions = torch.randint(0, 16, (2, 5))
    rows = [each.reshape(16, 8)[positions].unsqueeze(1) for each in (cos, sin)]
    found = hpu_ops.rotary_pos_embedding(
        p.to("hpu"), sin.to("hpu"), cos.to("hpu"), positions.to("hpu"), 0, 0
    )
    assert_near(found, reference(p, *rows), dtype)


def test_an_offset_chooses_columns():
    p, cos, sin = samples((5, 3, 8), (5, 1, 20), (5, 1, 20))
    expected = reference(p, cos[..., 4:12], sin[..., 4:12])
    found = hpu_ops.rotary_pos_embedding(p.to("hpu"), sin.to("hpu"), cos.to("hpu"), None, 4, 0)
    assert_near(found, expected, torch.float32)


@pytest.mark.parametrize(
    ("p", "angles", "rest", "said"),
    [
        ((3, 4), (3, 4), (0, 2), "mode must be 0 (BLOCKWISE) or 1 (PAIRWISE), but is 2."),
        ((3, 5), (3, 5), (0, 0), "an even number of channels, but is Float of shape [3, 5]."),
        ((3, 4), (3, 6), (3, 0), "4 channels of the input from offset 3 on, but have shape [3, 6]"),
        ((3, 4), (2, 3, 4), (0, 0), "to the input's shape [3, 4], but result in [2, 3, 4]."),
    ],
    ids=["mode", "odd", "offset", "shape"],
)
def test_what_the_operator_does_not_take_is_refused(p, angles, rest, said):
    p, angles = (torch.ones(shape, device="hpu") for shape in (p, angles))
    with pytest.raises(RuntimeError) as refused:
        run(hpu_ops.rotary_pos_embedding, p, angles, angles, None, *rest)
    assert said in str(refused.value)


def test_a_position_outside_the_table_is_refused():
    p, table = torch.ones(1, 1, 2, 4, device="hpu"), torch.ones(3, 4, device="hpu")
    positions = torch.tensor([[0, 3]]).to("hpu")
    with pytest.raises((IndexError, RuntimeError), match="index out of range"):
        run(hpu_ops.rotary_pos_embedding, p, table, table, positions, 0, 0)


@pytest.mark.parametrize("of_p", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("of_angles", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_function_gives_float32_if_any_has_it_and_else_the_type_of_p(of_p, of_angles):
    p, cos, sin = samples((2, 4, 3, 8), (1, 4, 1, 8), (1, 4, 1, 8))
    p, cos, sin = p.to(of_p), cos.to(of_angles), sin.to(of_angles)
    given = p.to("hpu"), cos.to("hpu"), sin.to("hpu")
    dtype = torch.float32 if torch.float32 in (of_p, of_angles) else of_p
    assert_near(apply_rotary_pos_emb(*given), reference(p, cos, sin), dtype)
    pairwise = apply_rotary_pos_emb(*given, None, 0, PAIRWISE)
    assert_near(pairwise, reference(p, cos, sin, PAIRWISE), dtype)
    backward = RotaryPosEmbeddingHelper.apply_rotary_pos_emb_bwd(*given, mode=PAIRWISE)
    exact = gradient(lambda leaf: reference(leaf, cos, sin, PAIRWISE), p, p)
    assert_near(backward, exact, dtype)


def assert_differentiates(helper, expected, p, *rest):
    """A class of autograd gives the reference's values and gradient."""
    leaf = p.to("hpu").requires_grad_()
    found = helper.apply(
        leaf, *(each.to("hpu") if isinstance(each, torch.Tensor) else each for each in rest)
    )
    grad = torch.randn_like(p)
    found.backward(grad.to("hpu"))
    assert_near(found.detach(), expected(p.double()).detach(), p.dtype)
    assert_near(leaf.grad, gradient(expected, p, grad), p.dtype)


@TYPES
def test_the_first_form_takes_columns_from_an_offset(dtype):
    p, cos, sin = samples((6, 2, 3, 8), (6, 1, 1, 12), (6, 1, 1, 12), dtype=dtype)
    assert_differentiates(
        RotaryPosEmbeddingHelperV1,
        lambda leaf: reference(leaf, cos[..., 2:10], sin[..., 2:10]),
        p,
        *(cos, sin, 2),
    )


@TYPES
def test_the_second_form_takes_rows_at_positions(dtype):
    p, cos, sin = samples((2, 3, 5, 8), (1, 1, 16, 8), (1, 1, 16, 8), dtype=dtype)
    positions = torch.randint(0, 16, (2, 5))
    rows = [each[0, 0][positions].unsqueeze(1) for each in (cos, sin)]
    assert_differentiates(
        RotaryPosEmbeddingHelperV2,
        lambda leaf: reference(leaf, *rows),
        p,
        *(cos, sin, positions),
    )


@pytest.mark.parametrize(
    ("cache", "said"),
    [
        ((3, 3, 2), r"\[3, 3, 2\] rotates 6 channels, but p has 4; pass at most 2 pairs"),
        (
            (2, 2, 2),
            r"\[2, 2, 2\] has angles for 2 positions in its first 3 rows, but p has 3 positions in "
            r"a batch of 2; pass 3 or 6",
        ),
        ((3, 2, 3), r"\[3, 2, 3\] does not match p of shape \[3, 2, 1, 4\]; pass a cache"),
        ((3, 2), r"\[3, 2\] does not match p of shape \[3, 2, 1, 4\]; pass a cache"),
        ((3, 3, 2, 2), r"\[3, 3, 2, 2\] has angles for 9 positions in its first 3 rows, but p has"),
    ],
    ids=str,
)
def test_a_cache_that_does_not_fit_is_refused(cache, said):
    p, rope_cache = (torch.ones(shape, device="hpu") for shape in ((3, 2, 1, 4), cache))
    for turn in (RotaryPosEmbeddingHelperV3.apply, apply_rotary_pos_emb):
        with pytest.raises(ValueError, match=said):
            turn(p, rope_cache)


@pytest.mark.parametrize(
    ("shape", "cache_shape"),
    [
        ((2, 4, 2, 8), (1, 2, 4, 2)),  # one sample's positions behind a batch dimension
        ((32, 4, 8, 32), (8192, 8, 2)),  # half of the channels
        ((32, 4, 8, 32), (8192, 16, 2)),
    ],
    ids=str,
)
@TYPES
def test_a_cache_of_chatglm_turns_the_first_channels_pairwise(shape, cache_shape, dtype):
    p, cache = samples(shape, cache_shape, dtype=dtype)
    length, pairs = shape[0], cache_shape[-2]
    x = p.double()[..., : 2 * pairs].unflatten(-1, (pairs, 2))
    cos, sin = cache[:length].double().reshape(length, -1, 1, pairs, 2).unbind(-1)
    even, odd = x.unbind(-1)
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(3)
    expected = torch.cat([turned, p.double()[..., 2 * pairs :]], -1)
    for turn in (apply_rotary_pos_emb, RotaryPosEmbeddingHelperV3.apply):
        assert_near(turn(p.to("hpu"), cache.to("hpu")), expected, dtype)


@pytest.mark.parametrize("batch", [1, 2])
@TYPES
def test_the_third_form_turns_the_channels_that_the_cache_has(batch, dtype):
    p, cache = samples((5, 2, 3, 12), (7, batch, 4, 2), dtype=dtype)

    def expected(leaf):
        cos, sin = cache[:5].reshape(5, batch, 1, 4, 2).double().unbind(-1)
        even, odd = leaf[..., :8:2], leaf[..., 1:8:2]
        pairs = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1)
        return torch.cat([pairs.flatten(-2), leaf[..., 8:]], -1)

    assert_differentiates(RotaryPosEmbeddingHelperV3, expected, p, cache)
    function = apply_rotary_pos_emb(p.to("hpu"), cache.to("hpu"))
    assert_near(function, expected(p.double()), dtype)


def everything(p, cos, sin, positions):
    of_length = [each[..., : p.shape[2], :] for each in (cos, sin)]
    return (
        apply_rotary_pos_emb(p, cos, sin, positions),
        RotaryPosEmbeddingHelper.apply_rotary_pos_emb_bwd(p, cos, sin, positions),
        apply_rotary_pos_emb(p, *of_length, None, 0, PAIRWISE),
    )


def operands(length, seed=0):
    made = samples((2, 3, length, 8), (1, 1, 16, 8), (1, 1, 16, 8), seed=seed)
    positions = torch.arange(length).expand(2, length) + seed
    return [each.to("hpu") for each in (*made, positions)]


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_a_compiled_rotation_is_that_of_eager_mode():
    assert_compiles(everything, operands(3), operands(5))


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_a_replay_turns_what_lies_in_the_captured_inputs():
    assert_replays(everything, operands(3), operands(3, seed=1))
