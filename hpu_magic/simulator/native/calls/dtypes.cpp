#include "calls/dtypes.h"

#include <ATen/ops/clamp.h>

#include <atomic>

namespace hpu {
namespace {
std::atomic<double> e4m3fn_limit{kGaudi2Float8Limit};
}

bool is_reduced(c10::ScalarType dtype) {
  return c10::isReducedFloatingType(dtype) || dtype == c10::ScalarType::ComplexHalf;
}

c10::ScalarType wider(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::ComplexHalf ? c10::ScalarType::ComplexFloat
                                               : c10::ScalarType::Float;
}

at::Tensor narrow(const at::Tensor& values, c10::ScalarType dtype) {
  if (dtype != c10::ScalarType::Float8_e4m3fn || values.scalar_type() == dtype) {
    return values.to(dtype);
  }
  const double limit = e4m3fn_limit.load(std::memory_order_relaxed);
  return at::clamp(values.to(c10::ScalarType::Float), -limit, limit).to(dtype);
}

void set_float8_e4m3fn_limit(double limit) {
  e4m3fn_limit.store(limit);
}

double float8_e4m3fn_limit() {
  return e4m3fn_limit.load();
}

}  // namespace hpu
