// Which reductions HCCL has, and in which types.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace hpu::collectives {

/// Raises the vendor's error for a reduction that HCCL lacks.
void check_reduction(const c10d::ReduceOp& operation, c10::ScalarType dtype);

/// The type in which tensors of `dtype` are reduced: bfloat16, and float32 for all others. So a
/// sum of bools is their OR, and a product their AND.
c10::ScalarType reduced_as(c10::ScalarType dtype);

/// Reduces the rows of a CPU tensor into `result`.
void reduce_rows(const at::Tensor& rows, const c10d::ReduceOp& operation, const at::Tensor& result);

}  // namespace hpu::collectives
