// Products of 16-bit operands on processors without instructions for them. Like a card, PyTorch's
// own kernels sum in float32, but they take up to a hundred times as long as oneDNN's float32
// kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>

namespace hpu {

/// Whether an operator is a convolution or its backward pass.
constexpr bool is_convolution(std::string_view name) {
  return name == "aten::convolution" || name == "aten::convolution_backward";
}

/// Whether an operator multiplies matrices or convolves, for any overload.
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

/// Whether PyTorch's own kernel is fast for two matrices or batches of them: for small ones, for
/// few rows if both are contiguous along the summed dimension, and for few columns if the columns
/// of the left one are contiguous.
bool is_quick(const at::Tensor& left, const at::Tensor& right);

/// Whether PyTorch uses oneDNN for a 16-bit type on this processor.
bool onednn_supports(c10::ScalarType dtype);

/// Whether products of a type are computed in float32. HPU_MAGIC_WIDE_PRODUCTS=0 or 1, read at the
/// first product, overrides the decision.
bool multiplies_slowly(c10::ScalarType dtype);

}  // namespace hpu
