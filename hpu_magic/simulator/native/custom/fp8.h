// What the operators on the 8-bit floating-point types share: the formats, rounding and scales.
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

/// Checks the types of a product's operands: two formats in one need the third generation.
void check_formats(const char* name, const at::Tensor& a, const at::Tensor& b);

/// Rounds to the nearest value, ties to even, or by chance to one of the two next to it, and
/// saturates at the generation's largest.
at::Tensor to_fp8(const at::Tensor& values, at::ScalarType fp8, bool stochastic = false);

/// `values` times a scale, in the type of `values`. A scale of several elements, one for each
/// channel, gets the shape that broadcasts.
at::Tensor scaled(const at::Tensor& values, const Scale& scale, ScaleShape shape = std::nullopt);

/// A view of the last two dimensions as blocks of these four sizes: rows, height, columns, width.
at::Tensor in_blocks(const at::Tensor& values, c10::SymIntArrayRef blocks);

/// Scales given as numbers, where `like` lies.
at::Tensor tensor_of(const at::Tensor& like, at::ArrayRef<double> scales);

}  // namespace hpu::custom
