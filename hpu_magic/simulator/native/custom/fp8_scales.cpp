// Scales of casts to the 8-bit floating-point types, taken from the values that are to be cast.
#include "custom/define.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <limits>

namespace hpu::custom {
namespace {

using at::ScalarType;

enum MaxMode : int64_t { kNoMax, kMaxOfTensor, kMaxOfChannels };
enum ScaleMode : int64_t { kNoRounding, kToPowerOfTwo };

// A channel of zeros has a scale, too: the inverse of zero would make it no number.
constexpr float kSmallest = std::numeric_limits<float>::min();

/// The next power of two that is not smaller, exactly.
at::Tensor to_power_of_two(const at::Tensor& scale) {
  if (scale.is_meta()) {
    return at::empty_like(scale);
  }
  const auto [mantissa, exponent] = at::frexp(scale.to(ScalarType::Float));
  const at::Tensor power = exponent - mantissa.eq(0.5).to(exponent.scalar_type());
  return at::ldexp(at::ones_like(mantissa), power).to(scale.scalar_type());
}

at::Tensor calculate_scale_for_cast(
    const at::Tensor& input, int64_t max_mode, int64_t scale_mode, int64_t reduce_axis,
    bool reduce_keepdim, double fullscale, double backoff) {
  TORCH_CHECK(
      max_mode >= kNoMax && max_mode <= kMaxOfChannels,
      "CalculateScaleForCast maxMode must be 0 (none), 1 (of the tensor) or 2 (of each channel), "
      "but is ", max_mode, ".");
  TORCH_CHECK(
      scale_mode == kNoRounding || scale_mode == kToPowerOfTwo,
      "CalculateScaleForCast scaleMode must be 0 (no rounding) or 1 (to a power of two), but is ",
      scale_mode, ".");
  TORCH_CHECK(
      fullscale * backoff > 0, "CalculateScaleForCast fullscale and backoff must be positive, but "
      "are ", fullscale, " and ", backoff, ".");
  at::Tensor scale = input;
  if (max_mode != kNoMax) {
    const at::Tensor magnitudes = input.abs();
    const at::Tensor largest = max_mode == kMaxOfTensor
        ? magnitudes.max()
        : at::amax(magnitudes, reduce_axis, reduce_keepdim);
    scale = (largest.to(ScalarType::Float) / (fullscale * backoff)).clamp_min(kSmallest);
  }
  return scale_mode == kToPowerOfTwo ? to_power_of_two(scale) : scale.clone();
}

const Operators scales([](Operators& define) {
  define(
      "calculate_scale_for_cast(Tensor input, int maxMode, int scaleMode, int reduceAxis=-1, "
      "bool reduceKeepdim=False, float fullscale=1.0, float backoff=1.0) -> Tensor",
      &calculate_scale_for_cast);
});

}  // namespace
}  // namespace hpu::custom
