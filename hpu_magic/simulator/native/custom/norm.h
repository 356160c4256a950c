// The common norm of a list of tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace hpu::custom {

/// The square root of the sum of all squares, of one element: float64 where a tensor is, else
/// float32. The list has tensors.
at::Tensor norm_of(at::TensorList tensors);

}  // namespace hpu::custom
