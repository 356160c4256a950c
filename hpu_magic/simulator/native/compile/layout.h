// The order in memory that a compiled graph promises of a result, and what else it was traced with.
#pragma once

#include "calls/geometry.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace hpu {

/// Dimensions of a result without gaps, the one of the largest stride first.
using Order = std::vector<int64_t>;

/// The result in the promised order. The views that a graph takes of it were chosen for the
/// strides that it was traced with, and which strides a kernel gives may depend on the processor.
at::Tensor in_order(const at::Tensor& result, const Order& order);

/// What a tensor looked like when the graph was traced; -1 for a size or stride that changes from
/// call to call.
struct Traced {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

/// Raises an error that names the operator and both geometries, unless the tensor is as traced. For
/// callers that asked `checks_geometry`.
void check_traced(
    const c10::OperatorName& op, const std::string& which, const Traced& traced,
    const at::Tensor& given);

}  // namespace hpu
