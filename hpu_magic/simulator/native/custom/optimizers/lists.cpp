#include "custom/optimizers/lists.h"

#include <ATen/Functions.h>

#include <algorithm>

namespace hpu::custom {

at::Tensor norm_of(at::TensorList tensors) {
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
