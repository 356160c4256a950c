#include "compile/layout.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>

namespace hpu {
namespace {

bool is_in_order(const at::Tensor& tensor, const Order& order) {
  int64_t expected = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const int64_t size = tensor.size(*dim);
    if (size > 1 && tensor.stride(*dim) != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

std::vector<int64_t> strides_in(const Order& order, c10::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    const auto i = static_cast<size_t>(*dim);
    strides[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

}  // namespace

at::Tensor in_order(const at::Tensor& result, const Order& order) {
  if (result.dim() != static_cast<int64_t>(order.size()) || result.numel() == 0 ||
      is_in_order(result, order)) {
    return result;
  }
  at::Tensor ordered =
      at::empty_strided(result.sizes(), strides_in(order, result.sizes()), result.options());
  return ordered.copy_(result);
}

void check_traced(
    const c10::OperatorName& op, const std::string& which, const Traced& traced,
    const at::Tensor& result) {
  Geometry expected = geometry_of(result);
  expected.dtype = c10::scalarTypeToTypeMeta(traced.dtype);
  expected.sizes.resize(traced.sizes.size(), 0);
  expected.strides.resize(traced.sizes.size(), 0);
  for (size_t i = 0; i < traced.sizes.size(); ++i) {
    if (traced.sizes[i] >= 0) {
      expected.sizes[i] = traced.sizes[i];
    }
    // The stride of a dimension of one element, or of an empty tensor, has no effect.
    if (traced.strides[i] >= 0 && expected.sizes[i] > 1 && result.numel() > 0) {
      expected.strides[i] = traced.strides[i];
    }
  }
  check_geometry(op, which, expected, result);
}

}  // namespace hpu
