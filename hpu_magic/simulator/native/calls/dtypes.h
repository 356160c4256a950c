// Types of reduced precision, which the device supports and CPU kernels may not.
#pragma once

#include <ATen/core/Tensor.h>

namespace hpu {

/// Largest finite float8_e4m3fn of Gaudi2; Gaudi3 has PyTorch's 448.
constexpr double kGaudi2Float8Limit = 240.0;

/// bfloat16, float16, float8 and complex half.
bool is_reduced(c10::ScalarType dtype);

/// The type in which the CPU computes instead of a reduced type.
c10::ScalarType wider(c10::ScalarType dtype);

/// Converts CPU `values` to `dtype` like the device: float8_e4m3fn saturates at the generation's
/// largest value, where the CPU returns NaN.
at::Tensor narrow(const at::Tensor& values, c10::ScalarType dtype);

/// Largest finite float8_e4m3fn of the card's generation: 240 on Gaudi2, 448 on Gaudi3.
void set_float8_e4m3fn_limit(double limit);
double float8_e4m3fn_limit();

}  // namespace hpu
