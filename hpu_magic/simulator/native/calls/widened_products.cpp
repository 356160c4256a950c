#include "calls/widened_products.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace hpu {
namespace {

/// The result of PyTorch's own rule for oneDNN, if PyTorch was built with oneDNN.
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

// Products with fewer rows or terms finish before their operands could be widened.
constexpr int64_t kRows = 16;
constexpr int64_t kTerms = int64_t{1} << 13;

}  // namespace

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
  if (dtype == c10::ScalarType::BFloat16) {
    static const bool takes = onednn_rule("mkldnn::_is_mkldnn_bf16_supported");
    return takes;
  }
  static const bool takes = onednn_rule("mkldnn::_is_mkldnn_fp16_supported");
  return takes;
}

bool multiplies_slowly(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::BFloat16) {
    static const bool slowly = is_slow(dtype);
    return slowly;
  }
  if (dtype == c10::ScalarType::Half) {
    static const bool slowly = is_slow(dtype);
    return slowly;
  }
  return false;
}

}  // namespace hpu
