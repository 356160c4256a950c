// Scales for casts to FP8, computed from the values.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <limits>

namespace hpu::custom {
namespace {

enum MaxMode : int64_t { kNoMax, kMaxOfTensor, kMaxOfChannels };
enum ScaleMode : int64_t { kNoRounding, kToPowerOfTwo };

// The scale for a channel of zeros, because the inverse of zero is not finite.
constexpr float kSmallest = std::numeric_limits<float>::min();

/// Returns the smallest power of two that is not less than the scale.
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
      "but got ", max_mode, ".");
  TORCH_CHECK(
      scale_mode == kNoRounding || scale_mode == kToPowerOfTwo,
      "CalculateScaleForCast scaleMode must be 0 (no rounding) or 1 (to a power of two), but got ",
      scale_mode, ".");
  TORCH_CHECK(
      fullscale * backoff > 0, "CalculateScaleForCast fullscale and backoff must be positive, but "
      "got ", fullscale, " and ", backoff, ".");
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

/// Returns the values cast with one scale per block of the last two dimensions, and the factors
/// that dequantize them. Blocks at the edges may be smaller.
TwoTensors cast_to_fp8_just_in_time(
    const at::Tensor& input, at::IntArrayRef block_size, ScalarType out_dtype,
    ScalarType scale_dtype) {
  TORCH_CHECK(
      is_float_or_bfloat16(input.scalar_type()) && input.dim() >= 2,
      "CastToFp8JustInTime input must be float or bfloat16 with at least two dimensions, but got ",
      toString(input.scalar_type()), " of shape ", input.sym_sizes(), ".");
  TORCH_CHECK(
      block_size.size() == 2 && block_size[0] > 0 && block_size[1] > 0,
      "CastToFp8JustInTime block_size must be two positive numbers, but got ", block_size, ".");
  TORCH_CHECK(
      is_fp8(out_dtype) && is_float_or_bfloat16(scale_dtype),
      "CastToFp8JustInTime out_dtype must be float8_e5m2 or float8_e4m3fn and scale_dtype float or "
      "bfloat16, but got ", toString(out_dtype), " and ", toString(scale_dtype), ".");
  const c10::SymInt height = input.sym_size(-2), width = input.sym_size(-1);
  const c10::SymInt rows = (height + block_size[0] - 1) / block_size[0];
  const c10::SymInt columns = (width + block_size[1] - 1) / block_size[1];
  const at::Tensor whole = at::constant_pad_nd_symint(
      input.to(ScalarType::Float),
      {0, columns * block_size[1] - width, 0, rows * block_size[0] - height});
  const at::Tensor blocks = in_blocks(whole, {rows, block_size[0], columns, block_size[1]});
  const at::Tensor largest = at::amax(blocks.abs(), {-3, -1}, /*keepdim=*/true);
  const at::Tensor scale = (largest / largest_fp8(out_dtype)).clamp_min(kSmallest).to(scale_dtype);
  const at::Tensor cast = to_fp8(blocks / scale.to(ScalarType::Float), out_dtype);
  const at::Tensor values = cast.reshape_symint(whole.sym_sizes())
                                .slice_symint(-2, 0, height)
                                .slice_symint(-1, 0, width)
                                .contiguous();
  return {values, scale.squeeze(-1).squeeze(-2)};
}

const Operators scales([](Operators& define) {
  define(
      "calculate_scale_for_cast(Tensor input, int maxMode, int scaleMode, int reduceAxis=-1, "
      "bool reduceKeepdim=False, float fullscale=1.0, float backoff=1.0) -> Tensor",
      &calculate_scale_for_cast);
  define(
      "cast_to_fp8_just_in_time(Tensor input, int[] block_size, ScalarType out_dtype, "
      "ScalarType scale_dtype) -> (Tensor, Tensor)",
      &cast_to_fp8_just_in_time);
});

}  // namespace
}  // namespace hpu::custom
