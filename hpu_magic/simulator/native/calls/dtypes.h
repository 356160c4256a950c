// Reduced-precision dtypes. The device supports these dtypes, but CPU kernels for them may be
// missing or slow.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>

namespace hpu {

/// The largest finite float8_e4m3fn value on Gaudi2. On Gaudi3, the limit is 448, as in PyTorch.
constexpr double kGaudi2Float8Limit = 240.0;

/// Returns whether a dtype is bfloat16, float16, float8 or complex half.
bool is_reduced(c10::ScalarType dtype);

/// Returns the wider dtype that the CPU uses to compute with a reduced-precision dtype.
c10::ScalarType wider(c10::ScalarType dtype);

/// Converts CPU `values` to `dtype` like the device: float8_e4m3fn saturates at the largest value
/// of the card's generation, whereas the CPU returns NaN.
at::Tensor narrow(const at::Tensor& values, c10::ScalarType dtype);

/// Sets the largest finite float8_e4m3fn value for the card's generation: 240 on Gaudi2, 448 on
/// Gaudi3.
void set_float8_e4m3fn_limit(double limit);
double float8_e4m3fn_limit();

// PyTorch's own matmul kernels for 16-bit operands accumulate in float32, like a card. On
// processors without instructions for 16-bit matmuls, these kernels take up to 100 times as long as
// oneDNN's float32 kernels.

/// Returns whether an operator is a convolution or its backward pass.
constexpr bool is_convolution(std::string_view name) {
  return name == "aten::convolution" || name == "aten::convolution_backward";
}

/// Returns whether an operator, regardless of its overload, is a matmul or a convolution.
constexpr bool is_product(std::string_view name) {
  constexpr std::array<std::string_view, 9> names{
      "aten::mm",      "aten::addmm",    "aten::addmm_", "aten::_addmm_activation", "aten::bmm",
      "aten::baddbmm", "aten::baddbmm_", "aten::addbmm", "aten::addbmm_"};
  for (const std::string_view each : names) {
    if (each == name) {
      return true;
    }
  }
  return is_convolution(name);
}

/// Returns whether PyTorch's own kernel is fast for two matrices or batches of matrices. The kernel
/// is fast for small matrices, for few rows or columns if both matrices are contiguous along the
/// summed dimension, and for few columns if the columns of the left matrix are contiguous.
bool is_quick(const at::Tensor& left, const at::Tensor& right);

/// Returns whether PyTorch uses oneDNN for a 16-bit dtype on this processor.
bool onednn_supports(c10::ScalarType dtype);

/// Returns whether matmuls and convolutions of a dtype are computed in float32. Setting
/// HPU_MAGIC_WIDE_PRODUCTS to 0 or 1 overrides this decision. The variable is read only once.
bool multiplies_slowly(c10::ScalarType dtype);

}  // namespace hpu
