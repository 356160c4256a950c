// Matmul of FP8 matrices, computed in bfloat16.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace hpu::custom {
namespace {

// Matmuls with fewer elements take about the same time in both dtypes.
constexpr int64_t kFewestProducts = int64_t{1} << 20;
// Processors with bfloat16 instructions are more than twice as fast in bfloat16. A smaller
// difference may be noise, and the choice affects the last bits of the results.
constexpr double kNoticeable = 1.4;

double seconds_of_product(ScalarType dtype) {
  const at::Tensor a = at::ones({256, 512}, dtype);
  const at::Tensor b = at::ones({512, 512}, dtype);
  at::mm(a, b);
  double shortest = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    at::mm(a, b);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    shortest = std::min(shortest, taken.count());
  }
  return shortest;
}

/// Returns whether bfloat16 is faster, as measured once per process.
bool bfloat16_is_faster() {
  static const bool faster =
      seconds_of_product(ScalarType::BFloat16) * kNoticeable < seconds_of_product(ScalarType::Float);
  return faster;
}

/// Returns the only element of a scale, or NaN if it has several.
double only_element(const Scale& scale) {
  if (!is_defined(scale)) {
    return 1.0;
  }
  return scale->numel() == 1 ? scale->item<double>() : std::numeric_limits<double>::quiet_NaN();
}

at::Tensor matrix(const at::Tensor& tensor, bool transposed) {
  const at::Tensor wide = widened(tensor, ScalarType::BFloat16);
  return transposed ? wide.t() : wide;
}

}  // namespace

OptionalTensor matmul_in_bfloat16(
    const at::Tensor& A, bool trans_A, const at::Tensor& B, bool trans_B, const Scale& A_scale,
    const Scale& B_scale, const OptionalTensor& bias) {
  if (A.is_meta() || A.dim() != 2 || B.dim() != 2) {
    return std::nullopt;
  }
  const int64_t inner = A.size(trans_A ? 0 : 1);
  const int64_t columns = B.size(trans_B ? 0 : 1);
  const bool has_bias = is_defined(bias);
  if (inner != B.size(trans_B ? 1 : 0) || A.numel() * columns < kFewestProducts ||
      (has_bias && (bias->dim() != 1 || bias->size(0) != columns))) {
    return std::nullopt;
  }
  const double scale = only_element(A_scale) * only_element(B_scale);
  if (!std::isnormal(static_cast<float>(scale)) || !bfloat16_is_faster()) {
    return std::nullopt;
  }
  const at::Tensor a = matrix(A, trans_A);
  const at::Tensor b = matrix(B, trans_B);
  const at::Tensor term = has_bias ? bias->to(ScalarType::BFloat16) : at::empty({1}, a.options());
  return at::addmm(term, a, b, has_bias ? 1.0 : 0.0, scale);
}

}  // namespace hpu::custom
