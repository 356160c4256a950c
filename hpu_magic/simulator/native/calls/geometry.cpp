#include "calls/geometry.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>

namespace hpu {

bool operator==(const Geometry& left, const Geometry& right) {
  if (!left.defined || !right.defined) {
    return left.defined == right.defined;
  }
  return left.sizes == right.sizes && left.strides == right.strides &&
      left.offset == right.offset && left.dtype == right.dtype;
}

std::ostream& operator<<(std::ostream& stream, const Geometry& geometry) {
  if (!geometry.defined) {
    return stream << "no tensor";
  }
  return stream << geometry.dtype.name() << " of sizes " << c10::IntArrayRef(geometry.sizes)
                << ", strides " << c10::IntArrayRef(geometry.strides) << " and offset "
                << geometry.offset;
}

Geometry geometry_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return {};
  }
  return {
      true, tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset(), tensor.dtype()};
}

bool checks_geometry() {
  static const bool checks = [] {
    const char* setting = std::getenv("HPU_MAGIC_CHECK_GEOMETRY");
    return setting && std::strcmp(setting, "1") == 0;
  }();
  return checks;
}

void check_geometry(
    const c10::OperatorName& op, const std::string& which, const Geometry& expected,
    const at::Tensor& result) {
  const Geometry actual = geometry_of(result);
  TORCH_CHECK(
      expected == actual, "The type, sizes or strides of ", which, " of ", op,
      " are not as expected. Expected: ", expected, ". Actual: ", actual,
      ". (Checked because HPU_MAGIC_CHECK_GEOMETRY=1.)");
}

}  // namespace hpu
