"""Test rotary position embedding against float64.

Tolerances: 1e-5 for float32 (the vendor's is 1e-3), 1.2e-2 for reduced types like the vendor's.
"""

from functools import partial

import pytest
import torch
from habana_frameworks.torch.hpex.kernels import (
    RotaryPosEmbeddingHelper,
    RotaryPosEmbeddingHelperV1,
    RotaryPosEmbeddingHelperV2,
    RotaryPosEmbeddingHelperV3,
    RotaryPosEmbeddingMode,
    apply_rotary_pos_emb,
)
from in_modes import run
from operator_tensors import (
    assert_differentiates,
    assert_matches,
    on_device,
    random_tensors,
    rejects,
)

hpu_ops = torch.ops.hpu
BLOCKWISE, PAIRWISE = RotaryPosEmbeddingMode.BLOCKWISE, RotaryPosEmbeddingMode.PAIRWISE
assert_near = partial(assert_matches, reduced=1.2e-2)
MODES = pytest.mark.parametrize("mode", [BLOCKWISE, PAIRWISE], ids=lambda mode: mode.name)
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def rotated(x, mode):
    if mode is BLOCKWISE:
        first, second = x.chunk(2, -1)
        return torch.cat([-second, first], -1)
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def reference(p, cos, sin, mode=BLOCKWISE):
    p, cos, sin = p.double(), cos.double(), sin.double()
    return p * cos + rotated(p, mode) * sin


def gradient(function, p, grad):
    leaf = p.double().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, grad.double())[0]


@MODES
@TYPES
def test_operator_rotates_pairs_and_its_backward_matches_autograd(mode, dtype):
    shapes = (2, 3, 5, 8), (2, 3, 5, 8), (1, 1, 5, 8), (5, 8)
    p, grad, cos, sin = random_tensors(*shapes, dtype=dtype)
    rest = *on_device((sin, cos)), None, 0, mode.value
    actual = hpu_ops.rotary_pos_embedding(p.to("hpu"), *rest)
    assert_near(actual, reference(p, cos, sin, mode), dtype)
    backward = hpu_ops.rotary_pos_embedding_backward(grad.to("hpu"), *rest)
    exact = gradient(lambda leaf: reference(leaf, cos, sin, mode), p, grad)
    assert_near(backward, exact, dtype)


@MODES
@TYPES
@pytest.mark.parametrize("of_angles", [torch.float32, torch.bfloat16], ids=str)
def test_large_results_are_those_of_float32_rounded_once(mode, dtype, of_angles):
    p, cos, sin = random_tensors((3, 5, 257, 128), (257, 128), (1, 5, 257, 128))
    p, cos, sin = p.to(dtype), cos.to(of_angles), sin.to(of_angles)
    angles = *on_device((sin, cos)), None, 0, mode.value
    for layout in (p, p.transpose(0, 2).contiguous().transpose(0, 2), p[::2, 1:]):
        cosines = cos.float()
        sines = sin[:, : layout.shape[1]].float()
        rest = angles[0][:, : layout.shape[1]], *angles[1:]
        wide = layout.float()
        expected = wide * cosines + rotated(wide, mode) * sines
        actual = run(hpu_ops.rotary_pos_embedding, layout.to("hpu"), *rest)
        assert torch.equal(actual.cpu(), expected.to(dtype))
        expected = wide * cosines - rotated(wide * sines, mode)
        actual = run(hpu_ops.rotary_pos_embedding_backward, layout.to("hpu"), *rest)
        assert torch.equal(actual.cpu(), expected.to(dtype))


LARGE = """
import resource
import torch
from habana_frameworks.torch import core as htcore
from habana_frameworks.torch.hpex.kernels import *

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

ops = torch.ops.hpu
compiled = ops.rotary_pos_embedding
if not htcore.is_lazy():
    compiled = torch.compile(compiled, backend="hpu_backend", dynamic=True)
positions = torch.arange(256, device="hpu").expand(8, 256)

def rotate(p, table):
    yield ops.rotary_pos_embedding(p, table, table, None, 0, 0)
    yield ops.rotary_pos_embedding(p, p, p, None, 0, 1)
    yield ops.rotary_pos_embedding_backward(p, table, table, None, 0, 1)
    yield ops.rotary_pos_embedding(p.transpose(0, 1), table, table, None, 0, 0)
    yield compiled(p, table, table, None, 0, 0)
    yield RotaryPosEmbeddingHelperV1.apply(p, table, table, 0)
    yield RotaryPosEmbeddingHelperV2.apply(p, table, table, positions)
    yield RotaryPosEmbeddingHelperV3.apply(p.permute(2, 0, 1, 3), table.unflatten(1, (64, 2)))

def run(heads):
    p, table = (
        torch.ones(shape, dtype=torch.bfloat16, device="hpu")
        for shape in ((8, heads, 256, 128), (256, 128))
    )
    htcore.mark_step()
    before = peak()
    for number, result in enumerate(rotate(p, table)):
        htcore.mark_step()
        assert result.shape.numel() == p.numel(), number
        del result
    return (peak() - before) / p.nbytes

run(2)  # includes the memory of compilations
print(run(128))
"""


@pytest.mark.once
@pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
def test_large_inputs_need_little_memory_besides_their_results(forked_script, lazy):
    printed = forked_script(LARGE, simulated=True, PT_HPU_LAZY_MODE=lazy)
    assert float(printed.splitlines()[-1]) < 4  # V3 copies the rotated copy once more


def test_result_has_the_input_type_for_angles_of_any_type():
    p, cos, sin = random_tensors((3, 4), (3, 4), (3, 4))
    actual = hpu_ops.rotary_pos_embedding(
        p.bfloat16().to("hpu"), sin.to("hpu"), cos.to("hpu"), None, 0, 0
    )
    assert_near(actual, reference(p.bfloat16(), cos, sin), torch.bfloat16)


@pytest.mark.parametrize("table", [(1, 1, 16, 8), (16, 8)], ids=str)
@TYPES
def test_positions_select_rows_of_the_table(table, dtype):
    p, cos, sin = random_tensors((2, 3, 5, 8), table, table, dtype=dtype)
    positions = torch.randint(0, 16, (2, 5))
    rows = [each.reshape(16, 8)[positions].unsqueeze(1) for each in (cos, sin)]
    actual = hpu_ops.rotary_pos_embedding(
        p.to("hpu"), sin.to("hpu"), cos.to("hpu"), positions.to("hpu"), 0, 0
    )
    assert_near(actual, reference(p, *rows), dtype)


def test_offset_selects_columns_of_the_table():
    p, cos, sin = random_tensors((5, 3, 8), (5, 1, 20), (5, 1, 20))
    expected = reference(p, cos[..., 4:12], sin[..., 4:12])
    actual = hpu_ops.rotary_pos_embedding(p.to("hpu"), sin.to("hpu"), cos.to("hpu"), None, 4, 0)
    assert_near(actual, expected, torch.float32)


@pytest.mark.parametrize(
    ("p", "angles", "rest", "message"),
    [
        ((3, 4), (3, 4), (0, 2), "mode must be 0 (BLOCKWISE) or 1 (PAIRWISE), but got 2."),
        ((3, 5), (3, 5), (0, 0), "an even number of channels, but got Float of shape [3, 5]."),
        (
            (3, 4),
            (3, 6),
            (3, 0),
            "4 channels of the input, starting at offset 3, but got shape [3, 6]",
        ),
        ((3, 4), (2, 3, 4), (0, 0), "to the input's shape [3, 4], but result in [2, 3, 4]."),
    ],
    ids=["mode", "odd", "offset", "shape"],
)
def test_invalid_call_is_rejected(p, angles, rest, message):
    p, angles = (torch.ones(shape, device="hpu") for shape in (p, angles))
    with rejects(message):
        run(hpu_ops.rotary_pos_embedding, p, angles, angles, None, *rest)


def test_position_outside_the_table_is_rejected():
    p, table = torch.ones(1, 1, 2, 4, device="hpu"), torch.ones(3, 4, device="hpu")
    positions = torch.tensor([[0, 3]]).to("hpu")
    with pytest.raises((IndexError, RuntimeError), match="index out of range"):
        run(hpu_ops.rotary_pos_embedding, p, table, table, positions, 0, 0)


@pytest.mark.parametrize("of_p", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("of_angles", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_function_returns_float32_if_any_operand_has_it_or_else_the_type_of_p(of_p, of_angles):
    p, cos, sin = random_tensors((2, 4, 3, 8), (1, 4, 1, 8), (1, 4, 1, 8))
    p, cos, sin = p.to(of_p), cos.to(of_angles), sin.to(of_angles)
    arguments = p.to("hpu"), cos.to("hpu"), sin.to("hpu")
    dtype = torch.float32 if torch.float32 in (of_p, of_angles) else of_p
    assert_near(apply_rotary_pos_emb(*arguments), reference(p, cos, sin), dtype)
    pairwise = apply_rotary_pos_emb(*arguments, None, 0, PAIRWISE)
    assert_near(pairwise, reference(p, cos, sin, PAIRWISE), dtype)
    backward = RotaryPosEmbeddingHelper.apply_rotary_pos_emb_bwd(*arguments, mode=PAIRWISE)
    exact = gradient(lambda leaf: reference(leaf, cos, sin, PAIRWISE), p, p)
    assert_near(backward, exact, dtype)


def assert_helper_differentiates(helper, expected, p, *rest):
    rest = on_device(rest)
    assert_differentiates(lambda leaf: helper.apply(leaf, *rest), expected, p, reduced=1.2e-2)


@TYPES
def test_helper_v1_reads_columns_from_an_offset(dtype):
    p, cos, sin = random_tensors((6, 2, 3, 8), (6, 1, 1, 12), (6, 1, 1, 12), dtype=dtype)
    assert_helper_differentiates(
        RotaryPosEmbeddingHelperV1,
        lambda leaf: reference(leaf, cos[..., 2:10], sin[..., 2:10]),
        p,
        *(cos, sin, 2),
    )


@TYPES
def test_helper_v2_reads_rows_at_positions(dtype):
    p, cos, sin = random_tensors((2, 3, 5, 8), (1, 1, 16, 8), (1, 1, 16, 8), dtype=dtype)
    positions = torch.randint(0, 16, (2, 5))
    rows = [each[0, 0][positions].unsqueeze(1) for each in (cos, sin)]
    assert_helper_differentiates(
        RotaryPosEmbeddingHelperV2,
        lambda leaf: reference(leaf, *rows),
        p,
        *(cos, sin, positions),
    )


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        ((3, 3, 2), r"\[3, 3, 2\] rotates 6 channels, but p has 4; pass at most 2 pairs"),
        (
            (2, 2, 2),
            r"\[2, 2, 2\] has angles for 2 positions in its first 3 rows, but p has 3 positions in "
            r"a batch of 2; pass angles for 3 or 6",
        ),
        ((3, 2, 3), r"\[3, 2, 3\] does not match p of shape \[3, 2, 1, 4\]; pass a cache"),
        ((3, 2), r"\[3, 2\] does not match p of shape \[3, 2, 1, 4\]; pass a cache"),
        ((3, 3, 2, 2), r"\[3, 3, 2, 2\] has angles for 9 positions in its first 3 rows, but p has"),
    ],
    ids=str,
)
def test_incompatible_cache_is_rejected(cache, message):
    p, rope_cache = (torch.ones(shape, device="hpu") for shape in ((3, 2, 1, 4), cache))
    for rotate in (RotaryPosEmbeddingHelperV3.apply, apply_rotary_pos_emb):
        with pytest.raises(ValueError, match=message):
            rotate(p, rope_cache)


@pytest.mark.parametrize(
    ("shape", "cache_shape"),
    [
        ((2, 4, 2, 8), (1, 2, 4, 2)),  # positions in the second dimension
        ((32, 4, 8, 32), (8192, 8, 2)),  # half of the channels
        ((32, 4, 8, 32), (8192, 16, 2)),
    ],
    ids=str,
)
@TYPES
def test_chatglm_cache_rotates_the_first_channels_pairwise(shape, cache_shape, dtype):
    p, cache = random_tensors(shape, cache_shape, dtype=dtype)
    length, pairs = shape[0], cache_shape[-2]
    x = p.double()[..., : 2 * pairs].unflatten(-1, (pairs, 2))
    cos, sin = cache[:length].double().reshape(length, -1, 1, pairs, 2).unbind(-1)
    even, odd = x.unbind(-1)
    pairs_rotated = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(3)
    expected = torch.cat([pairs_rotated, p.double()[..., 2 * pairs :]], -1)
    for rotate in (apply_rotary_pos_emb, RotaryPosEmbeddingHelperV3.apply):
        assert_near(rotate(p.to("hpu"), cache.to("hpu")), expected, dtype)


@pytest.mark.parametrize("batch", [1, 2])
@TYPES
def test_helper_v3_rotates_only_the_channels_of_the_cache(batch, dtype):
    p, cache = random_tensors((5, 2, 3, 12), (7, batch, 4, 2), dtype=dtype)

    def expected(leaf):
        cos, sin = cache[:5].reshape(5, batch, 1, 4, 2).double().unbind(-1)
        even, odd = leaf[..., :8:2], leaf[..., 1:8:2]
        pairs = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1)
        return torch.cat([pairs.flatten(-2), leaf[..., 8:]], -1)

    assert_helper_differentiates(RotaryPosEmbeddingHelperV3, expected, p, cache)
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
    made = random_tensors((2, 3, length, 8), (1, 1, 16, 8), (1, 1, 16, 8), seed=seed)
    positions = torch.arange(length).expand(2, length) + seed
    return on_device((*made, positions))
