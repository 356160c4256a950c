// Products of 16-bit operands on processors that have no instructions for them. A card sums them in
// float32. So do PyTorch's own kernels, up to a hundred times more slowly than oneDNN's for float32.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string_view>

namespace hpu {

/// Whether an operator is a convolution or its gradients.
constexpr bool is_convolution(std::string_view name) {
  return name == "aten::convolution" || name == "aten::convolution_backward";
}

/// Whether an operator multiplies matrices or convolves, whatever its overload.
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

/// Whether PyTorch's own kernel is quick for two matrices, or stacks of them: for small ones, for a
/// few rows where it sums along the contiguous dimension of both, and for a few columns where those
/// of the left one are contiguous.
bool is_quick(const at::Tensor& left, const at::Tensor& right);

/// Whether PyTorch has oneDNN compute in a 16-bit type on this processor.
bool onednn_takes(c10::ScalarType dtype);

/// Whether float32 shall compute the products of a type.
/// HPU_MAGIC_WIDE_PRODUCTS=0 or 1, read at the first product, decides for every processor.
bool multiplies_slowly(c10::ScalarType dtype);

}  // namespace hpu
