// FP8 formats, rounding, scales and conversions.
#pragma once

#include "custom/define.h"

#include <c10/util/OptionalArrayRef.h>

#include <optional>

namespace hpu::custom {

using Scale = OptionalTensor;
using ScaleShape = c10::OptionalIntArrayRef;

constexpr at::ScalarType kE5M2 = at::ScalarType::Float8_e5m2;
constexpr at::ScalarType kE4M3 = at::ScalarType::Float8_e4m3fn;

/// Returns the largest value of an FP8 format on the card's generation.
double largest_fp8(at::ScalarType fp8);

bool is_fp8(at::ScalarType dtype);
bool is_float_or_bfloat16(at::ScalarType dtype);

/// Checks the dtypes of a matmul's operands. Mixing the two FP8 formats in one matmul requires
/// Gaudi3.
void check_formats(const char* name, const at::Tensor& a, const at::Tensor& b);

/// Rounds to nearest, with ties to even. Saturates at the largest value that the card supports.
at::Tensor to_fp8(const at::Tensor& values, at::ScalarType fp8);

/// Rounds up or down at random, so that the expected result is the value itself. Saturates like
/// `to_fp8`.
at::Tensor stochastic_fp8(const at::Tensor& values, at::ScalarType fp8);

/// Returns `values` multiplied by a scale, in the dtype of `values`. A scale with one element per
/// channel is reshaped so that it broadcasts.
at::Tensor scaled(const at::Tensor& values, const Scale& scale, ScaleShape shape = std::nullopt);

/// Converts FP8 values to float32 or bfloat16 exactly, and other values with PyTorch's kernels.
at::Tensor widened(const at::Tensor& values, at::ScalarType dtype);

/// Applies `to_fp8` or `stochastic_fp8` to the values multiplied by a scale.
at::Tensor scaled_to_fp8(
    const at::Tensor& values, const Scale& scale, ScaleShape shape, at::ScalarType fp8,
    bool stochastic);

/// `A @ B * A_scale * B_scale + bias` in bfloat16, or nullopt if float32 is faster or required.
///
/// bfloat16 can represent every FP8 value, and products are accumulated in float32, so the result
/// and a bias are each rounded once. On processors with bfloat16 instructions, this takes less than
/// half as long as float32. On other processors, it takes longer than float32.
std::optional<at::Tensor> matmul_in_bfloat16(
    const at::Tensor& A, bool trans_A, const at::Tensor& B, bool trans_B, const Scale& A_scale,
    const Scale& B_scale, const OptionalTensor& bias);

/// Splits the last two dimensions into blocks. The four sizes are the number of block rows, the
/// block height, the number of block columns and the block width.
at::Tensor in_blocks(const at::Tensor& values, c10::SymIntArrayRef blocks);

}  // namespace hpu::custom
