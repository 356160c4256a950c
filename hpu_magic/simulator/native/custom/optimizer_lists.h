// What an optimizer's operator asks of its lists of tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace hpu::custom {

inline void check_not_empty(const char* name, at::TensorList weights) {
  TORCH_CHECK(!weights.empty(), name, " : can not process empty weight vector");
}

/// Every tensor of the second list has the shape of its counterpart.
inline void check_shapes_agree(
    const char* name, at::TensorList weights, at::TensorList others) {
  for (size_t i = 0; i < weights.size(); ++i) {
    TORCH_CHECK(
        others[i].sym_sizes() == weights[i].sym_sizes(), name,
        " : expects tensors of the weight's shape ", weights[i].sym_sizes(), ", but has ",
        others[i].sym_sizes(), ".");
  }
}

}  // namespace hpu::custom
