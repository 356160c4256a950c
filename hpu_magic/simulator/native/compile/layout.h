// The memory order and geometry that a compiled graph expects of a result.
#pragma once

#include "calls/geometry.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace hpu {

/// Dimensions of a dense tensor, by decreasing stride.
using Order = std::vector<int64_t>;

/// The result in the expected order. A graph's views depend on the strides at tracing, but the
/// strides of a kernel's result may depend on the processor.
at::Tensor in_order(const at::Tensor& result, const Order& order);

/// Type, sizes and strides of a tensor at tracing; -1 if a size or stride varies between calls.
struct Traced {
  c10::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

/// Raises an error with the operator and both geometries, unless the tensor is as traced. Call it
/// only if `checks_geometry` is true.
void check_traced(
    const c10::OperatorName& op, const std::string& which, const Traced& traced,
    const at::Tensor& result);

}  // namespace hpu
