#include "custom/norm.h"

#include <ATen/Functions.h>

namespace hpu::custom {

at::Tensor norm_of(at::TensorList tensors) {
  std::vector<at::Tensor> norms;
  norms.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    norms.push_back(
        at::linalg_vector_norm(tensor, 2, std::nullopt, false, at::ScalarType::Float));
  }
  return at::linalg_vector_norm(at::stack(norms), 2, std::nullopt, /*keepdim=*/true);
}

}  // namespace hpu::custom
