// The common norm of a list of tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace hpu::custom {

/// The square root of the sum of all squares, float32 of one element. The list has tensors.
at::Tensor norm_of(at::TensorList tensors);

}  // namespace hpu::custom
