// What a tensor looks like, and whether a kernel gave what was promised for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/operator_name.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace hpu {

/// Shape, layout and type of a tensor.
struct Geometry {
  bool defined = false;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;
  caffe2::TypeMeta dtype;
};

bool operator==(const Geometry& one, const Geometry& other);
bool operator!=(const Geometry& one, const Geometry& other);
std::ostream& operator<<(std::ostream& stream, const Geometry& geometry);

Geometry geometry_of(const at::Tensor& tensor);

/// A written argument of a call (out=) that is given another size by it.
struct Resized {
  size_t argument;
  size_t item;  // within a list of tensors, else 0
  Geometry geometry;
};

/// Whether promises are compared with what the kernels give: HPU_MAGIC_CHECK_GEOMETRY=1 when the
/// engine is loaded.
bool checks_geometry();

/// Raises an error that names the operator, the tensor (`which`: "result 0") and both geometries,
/// unless they are equal. For callers that asked `checks_geometry`.
void check_geometry(
    const c10::OperatorName& op, const std::string& which, const Geometry& promised,
    const at::Tensor& given);

}  // namespace hpu
