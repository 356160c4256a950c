// Checks and norms for an optimizer's lists of tensors.
#pragma once

#include "custom/define.h"

#include <algorithm>
#include <vector>

namespace hpu::custom {

inline void check_not_empty(const char* name, at::TensorList weights) {
  TORCH_CHECK(!weights.empty(), name, " : can not process empty weight vector");
}

/// Raises an error unless the tensors in both lists have the same shapes.
inline void check_shapes_agree(
    const char* name, at::TensorList weights, at::TensorList others) {
  for (size_t i = 0; i < weights.size(); ++i) {
    TORCH_CHECK(
        others[i].sym_sizes() == weights[i].sym_sizes(), name,
        " : expects tensors of the weight's shape ", weights[i].sym_sizes(), ", but got ",
        others[i].sym_sizes(), ".");
  }
}

/// Returns the square root of the sum of all squares, as a tensor with one element. The result is
/// float64 if any tensor is float64, and float32 otherwise. The list must not be empty.
inline at::Tensor norm_of(at::TensorList tensors) {
  const bool doubles = std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::ScalarType::Double;
  });
  const at::ScalarType dtype = doubles ? at::ScalarType::Double : at::ScalarType::Float;
  std::vector<at::Tensor> norms;
  norms.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    norms.push_back(at::linalg_vector_norm(tensor, 2, std::nullopt, false, dtype));
  }
  return at::linalg_vector_norm(at::stack(norms), 2, std::nullopt, /*keepdim=*/true);
}

}  // namespace hpu::custom
