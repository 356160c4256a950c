// Tensor metadata (dtype, sizes, strides and offset), and a check that a kernel's results match it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/operator_name.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace hpu {

struct Geometry {
  bool defined = false;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  caffe2::TypeMeta dtype;
};

bool operator==(const Geometry& left, const Geometry& right);
std::ostream& operator<<(std::ostream& stream, const Geometry& geometry);

Geometry geometry_of(const at::Tensor& tensor);

/// An out= argument that a call resizes and writes to.
struct Resized {
  size_t argument;
  size_t item;  // index in a list of tensors, otherwise 0
  Geometry geometry;
};

/// Returns whether the dtypes, sizes and strides of results are checked, which
/// HPU_MAGIC_CHECK_GEOMETRY=1 enables.
bool checks_geometry();

/// Raises an error if the dtype, sizes or strides of a result differ from the expected ones.
/// `which` names the result, such as "result 0". Call this only if `checks_geometry` returns true.
void check_geometry(
    const c10::OperatorName& op, const std::string& which, const Geometry& expected,
    const at::Tensor& result);

}  // namespace hpu
