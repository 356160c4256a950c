// Reduced-precision types: what the device computes in them and the CPU's kernels may not.
#pragma once

#include <ATen/core/Tensor.h>

namespace hpu {

/// bfloat16, float16, float8 and complex half.
bool is_reduced(c10::ScalarType dtype);

/// The type in which the CPU computes for a reduced type.
c10::ScalarType wider(c10::ScalarType dtype);

/// Converts CPU `values` to `dtype` as the device does: float8_e4m3fn saturates at the
/// generation's largest value where the CPU would make NaN.
at::Tensor narrow(const at::Tensor& values, c10::ScalarType dtype);

/// Largest finite float8_e4m3fn of the card's generation: 240 on Gaudi2, 448 on Gaudi3.
void set_float8_e4m3fn_limit(double limit);
double float8_e4m3fn_limit();

}  // namespace hpu
