// Checks and the norm of the lists of tensors that an optimizer's operators get.
#pragma once

#include <ATen/core/Tensor.h>

namespace hpu::custom {

inline void check_not_empty(const char* name, at::TensorList weights) {
  TORCH_CHECK(!weights.empty(), name, " : can not process empty weight vector");
}

/// Raises unless tensors of the second list have the same shapes as those of the first.
inline void check_shapes_agree(
    const char* name, at::TensorList weights, at::TensorList others) {
  for (size_t i = 0; i < weights.size(); ++i) {
    TORCH_CHECK(
        others[i].sym_sizes() == weights[i].sym_sizes(), name,
        " : expects tensors of the weight's shape ", weights[i].sym_sizes(), ", but has ",
        others[i].sym_sizes(), ".");
  }
}

/// The square root of the sum of all squares, as one element: float64 if a tensor is float64, else
/// float32. The list must not be empty.
at::Tensor norm_of(at::TensorList tensors);

}  // namespace hpu::custom
