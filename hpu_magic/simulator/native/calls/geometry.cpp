#include "calls/geometry.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>

namespace hpu {

bool operator==(const Geometry& one, const Geometry& other) {
  if (!one.defined || !other.defined) {
    return one.defined == other.defined;
  }
  return one.sizes == other.sizes && one.strides == other.strides && one.offset == other.offset &&
      one.dtype == other.dtype;
}

bool operator!=(const Geometry& one, const Geometry& other) {
  return !(one == other);
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
    const c10::OperatorName& op, const std::string& which, const Geometry& promised,
    const at::Tensor& given) {
  const Geometry actual = geometry_of(given);
  TORCH_CHECK(
      promised == actual, "The geometry that was promised for ", which, " of ", op, " is not the ",
      "kernel's. Promised: ", promised, ". Given: ", actual,
      ". (Compared because HPU_MAGIC_CHECK_GEOMETRY=1.)");
}

}  // namespace hpu
