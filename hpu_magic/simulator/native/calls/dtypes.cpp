#include "calls/dtypes.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clamp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

namespace hpu {
namespace {

std::atomic<double> e4m3fn_limit{kGaudi2Float8Limit};

/// Calls `rule`, a PyTorch operator that returns whether oneDNN can be used. Returns false if
/// PyTorch was built without oneDNN.
bool onednn_rule(const char* rule) {
  const auto op = c10::Dispatcher::singleton().findSchema({rule, ""});
  if (!op) {
    return false;
  }
  torch::jit::Stack stack;
  op->callBoxed(&stack);
  return stack.back().toBool();
}

bool is_slow(c10::ScalarType dtype) {
  const char* setting = std::getenv("HPU_MAGIC_WIDE_PRODUCTS");
  if (setting && (std::string_view(setting) == "0" || std::string_view(setting) == "1")) {
    return *setting == '1';
  }
  return !onednn_supports(dtype);
}

// If a matmul has fewer rows and terms than this, converting its operands to a wider dtype takes
// longer than the matmul.
constexpr int64_t kRows = 16;
constexpr int64_t kTerms = int64_t{1} << 13;

}  // namespace

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

bool is_quick(const at::Tensor& left, const at::Tensor& right) {
  if (left.dim() < 2 || right.dim() < 2) {
    return false;
  }
  const bool along_both = left.stride(-1) == 1 && right.stride(-2) == 1;
  return left.numel() * right.size(-1) < kTerms ||
      (along_both && std::min(left.size(-2), right.size(-1)) < kRows) ||
      (left.stride(-2) == 1 && right.size(-1) < kRows);
}

bool onednn_supports(c10::ScalarType dtype) {
  static const bool bfloat16 = onednn_rule("mkldnn::_is_mkldnn_bf16_supported");
  static const bool half = onednn_rule("mkldnn::_is_mkldnn_fp16_supported");
  return dtype == c10::ScalarType::BFloat16 ? bfloat16 : half;
}

bool multiplies_slowly(c10::ScalarType dtype) {
  static const bool bfloat16 = is_slow(c10::ScalarType::BFloat16);
  static const bool half = is_slow(c10::ScalarType::Half);
  return (dtype == c10::ScalarType::BFloat16 && bfloat16) ||
      (dtype == c10::ScalarType::Half && half);
}

}  // namespace hpu
