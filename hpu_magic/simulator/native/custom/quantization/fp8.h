// Shared by the operators on 8-bit floating-point types: formats, rounding, scales and conversions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>

#include <optional>

namespace hpu::custom {

using Scale = std::optional<at::Tensor>;
using ScaleShape = c10::OptionalIntArrayRef;

constexpr at::ScalarType kE5M2 = at::ScalarType::Float8_e5m2;
constexpr at::ScalarType kE4M3 = at::ScalarType::Float8_e4m3fn;

/// The largest value of a format on this generation.
double largest_fp8(at::ScalarType fp8);

bool is_fp8(at::ScalarType dtype);
bool is_float_or_bfloat16(at::ScalarType dtype);

/// Checks the types of a product's operands: two formats in one product need Gaudi3.
void check_formats(const char* name, const at::Tensor& a, const at::Tensor& b);

/// Rounds to nearest, ties to even; saturates at the generation's largest value.
at::Tensor to_fp8(const at::Tensor& values, at::ScalarType fp8);

/// Rounds up or down at random, so that the expected result is the value itself; saturates.
at::Tensor stochastic_fp8(const at::Tensor& values, at::ScalarType fp8);

/// `values` times a scale, in the type of `values`. A scale with one element per channel is
/// reshaped so that it broadcasts.
at::Tensor scaled(const at::Tensor& values, const Scale& scale, ScaleShape shape = std::nullopt);

/// Converts 8-bit values to float32 or bfloat16 exactly, and other values with PyTorch's kernels.
at::Tensor widened(const at::Tensor& values, at::ScalarType dtype);

/// `to_fp8` or `stochastic_fp8` of the values times a scale.
at::Tensor scaled_to_fp8(
    const at::Tensor& values, const Scale& scale, ScaleShape shape, at::ScalarType fp8,
    bool stochastic);

/// `A @ B * A_scale * B_scale + bias` in bfloat16, or nothing if float32 is faster or needed.
///
/// bfloat16 represents every 8-bit value, and products are summed in float32, so the result and a
/// bias are rounded once. Processors with bfloat16 instructions need less than half of the time of
/// float32; other processors need more.
std::optional<at::Tensor> matmul_in_bfloat16(
    const at::Tensor& A, bool trans_A, const at::Tensor& B, bool trans_B, const Scale& A_scale,
    const Scale& B_scale, const std::optional<at::Tensor>& bias);

/// A view of the last two dimensions as blocks of these four sizes: rows, height, columns, width.
at::Tensor in_blocks(const at::Tensor& values, c10::SymIntArrayRef blocks);

/// A tensor of scales on the device of `like`.
at::Tensor tensor_of(const at::Tensor& like, at::ArrayRef<double> scales);

}  // namespace hpu::custom
