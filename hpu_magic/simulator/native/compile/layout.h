// The order in memory that a compiled graph promises of a result.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace hpu {

/// Dimensions of a result without gaps, the one of the largest stride first.
using Order = std::vector<int64_t>;

/// The result in the promised order. The views that a graph takes of it were chosen for the
/// strides that it was traced with, and which strides a kernel gives may depend on the processor.
at::Tensor in_order(const at::Tensor& result, const Order& order);

}  // namespace hpu
