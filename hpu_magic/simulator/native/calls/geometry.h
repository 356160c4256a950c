// Shape, layout and type of tensors, and the check of a kernel's results against expected ones.
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

bool operator==(const Geometry& one, const Geometry& other);
std::ostream& operator<<(std::ostream& stream, const Geometry& geometry);

Geometry geometry_of(const at::Tensor& tensor);

/// A written argument (out=) whose size the call changes.
struct Resized {
  size_t argument;
  size_t item;  // index in a list of tensors, else 0
  Geometry geometry;
};

/// Whether results are compared with expected geometries: HPU_MAGIC_CHECK_GEOMETRY=1 when the
/// engine is loaded.
bool checks_geometry();

/// Raises an error with the operator, the tensor (`which`: "result 0") and both geometries, unless
/// they are equal. Call it only if `checks_geometry` is true.
void check_geometry(
    const c10::OperatorName& op, const std::string& which, const Geometry& expected,
    const at::Tensor& result);

}  // namespace hpu
