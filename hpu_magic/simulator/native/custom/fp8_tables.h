// Conversions between 8-bit floating point and wider types by tables, many times as fast as one
// after the other.
#pragma once

#include "custom/fp8.h"

namespace hpu::custom {

/// 8-bit values in float32 or bfloat16, exactly; others converted.
at::Tensor widened(const at::Tensor& values, at::ScalarType dtype);

/// `to_fp8` of the values times a scale.
at::Tensor scaled_to_fp8(
    const at::Tensor& values, const Scale& scale, ScaleShape shape, at::ScalarType fp8,
    bool stochastic);

}  // namespace hpu::custom
