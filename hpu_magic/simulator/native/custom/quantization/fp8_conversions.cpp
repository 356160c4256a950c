// Conversions between FP8 and wider dtypes, which are much faster than PyTorch's kernels.
#include "calls/generator.h"
#include "custom/define.h"
#include "custom/parallel.h"
#include "custom/quantization/fp8.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hpu::custom {
namespace {

// The number of elements that one thread converts in one call.
constexpr int64_t kGrain = 1 << 16;

// The dynamic loader chooses the version for the processor.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HPU_VECTORIZED __attribute__((optimize("O3"), target_clones("avx512f", "avx2", "default")))
#else
#define HPU_VECTORIZED
#endif
#define HPU_INLINE inline __attribute__((always_inline))

template <class To, class From>
HPU_INLINE To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

/// Scales a float32 value.
HPU_INLINE float scaled_value(float value, float factor) {
  return value * factor;
}

/// Scales a bfloat16 value, and rounds the result to bfloat16.
HPU_INLINE float scaled_value(uint16_t value, float factor) {
  const float product = same_bits<float>(static_cast<uint32_t>(value) << 16) * factor;
  const uint32_t bits = same_bits<uint32_t>(product);
  return same_bits<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
}

/// Returns `first` if `chosen` is true, and `second` otherwise. A branch would prevent
/// vectorization.
HPU_INLINE uint32_t select(bool chosen, uint32_t first, uint32_t second) {
  const uint32_t mask = 0U - static_cast<uint32_t>(chosen);
  return (first & mask) | (second & ~mask);
}

/// The exponent bias of an FP8 format with `kMantissa` mantissa bits.
template <int kMantissa>
constexpr uint32_t kBias = kMantissa == 2 ? 15 : 7;

/// Returns the float32 bits of an FP8 value.
template <int kMantissa>
HPU_INLINE uint32_t float_bits(uint8_t narrow) {
  constexpr uint32_t kUnit = (127 - kBias<kMantissa> + 1 - kMantissa) << 23;
  constexpr uint32_t kInfinity = kMantissa == 2 ? 0x7cU : 0x7fU;  // the first special value
  const uint32_t magnitude = narrow & 0x7fU;
  const uint32_t normal = (magnitude << (23 - kMantissa)) + ((127 - kBias<kMantissa>) << 23);
  const float small = static_cast<float>(static_cast<int32_t>(magnitude));
  const uint32_t subnormal = same_bits<uint32_t>(small * same_bits<float>(kUnit));
  // Special values have the largest exponent in float32. E4M3 has NaN, but no infinity.
  const uint32_t special = normal | 0x7f800000U;
  const uint32_t finite = select(magnitude < (1U << kMantissa), subnormal, normal);
  const uint32_t sign = uint32_t{narrow & 0x80U} << 24;
  return select(magnitude >= kInfinity, special, finite) | sign;
}

template <int kMantissa, class Wide>
HPU_VECTORIZED void widen_range(
    const uint8_t* narrow, int64_t begin, int64_t end, Wide* __restrict wide) {
  for (int64_t i = begin; i < end; ++i) {
    wide[i] = static_cast<Wide>(float_bits<kMantissa>(narrow[i]) >> (32 - 8 * sizeof(Wide)));
  }
}

template <int kMantissa, class Wide>
void widen(const at::Tensor& from, const at::Tensor& to) {
  const auto* narrow = static_cast<const uint8_t*>(from.const_data_ptr());
  auto* wide = static_cast<Wide*>(to.mutable_data_ptr());
  each_range(from.numel(), kGrain, [&](int64_t begin, int64_t end) {
    widen_range<kMantissa>(narrow, begin, end, wide);
  });
}

/// Returns the bits of `value` in an FP8 format with `kMantissa` mantissa bits, saturated at
/// `limit`. Rounds to nearest, with ties to even. With `kStochastic`, rounds up or down at random
/// instead, so that the expected result is the value itself. `draw` is a random 16-bit number.
template <int kMantissa, bool kStochastic>
HPU_INLINE uint8_t fp8_bits(float value, float limit, uint16_t draw) {
  constexpr int kDropped = 23 - kMantissa;
  constexpr uint32_t kRebias = (127 - kBias<kMantissa>) << kMantissa;
  constexpr uint32_t kSmallestNormal = (127 - kBias<kMantissa> + 1) << 23;
  constexpr uint32_t kUnit = kSmallestNormal - (uint32_t{kMantissa} << 23);  // of subnormal values
  const uint32_t bits = same_bits<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffU;
  // Nonnegative floating-point numbers sort in the same order as their bit patterns.
  const uint32_t size = std::min(magnitude, same_bits<uint32_t>(limit));
  const bool is_subnormal = size < kSmallestNormal;
  uint32_t normal;
  uint32_t subnormal;
  if constexpr (kStochastic) {
    normal = size + (uint32_t{draw} << (kDropped - 16)) + (1U << (kDropped - 17));
    const float small = same_bits<float>(select(is_subnormal, size, 0));  // fits in an integer
    const float units = small * same_bits<float>((254U << 23) - kUnit);
    subnormal = static_cast<uint32_t>(
        static_cast<int32_t>(units + (static_cast<float>(draw) + 0.5F) * (1.0F / 65536.0F)));
  } else {
    normal = size + (1U << (kDropped - 1)) - 1U + ((size >> kDropped) & 1U);
    constexpr uint32_t kAligned = kUnit + (23U << 23);  // the last bit of the sum is the unit
    subnormal = same_bits<uint32_t>(same_bits<float>(size) + same_bits<float>(kAligned)) - kAligned;
  }
  normal = std::min(normal >> kDropped, same_bits<uint32_t>(limit) >> kDropped) - kRebias;
  const uint32_t rounded = select(is_subnormal, subnormal, normal) | ((bits >> 24) & 0x80U);
  return static_cast<uint8_t>(select(magnitude > 0x7f800000U, 0x7fU, rounded));
}

/// How values are converted to an FP8 format.
struct Narrowing {
  float factor;
  float limit;
  uint64_t seed;  // of stochastic rounding
};

/// Returns 16 random bits for the element at `index`, as an integer hash of the index and the seed.
/// Unlike a stateful generator, this function can be vectorized and run on several threads.
HPU_INLINE uint16_t random_bits(uint64_t seed, int64_t index) {
  auto bits = static_cast<uint32_t>(index) + static_cast<uint32_t>(seed);
  bits = (bits ^ (bits >> 16)) * 0x7feb352dU + static_cast<uint32_t>(seed >> 32);
  bits = (bits ^ (bits >> 15)) * 0x846ca68bU;
  return static_cast<uint16_t>(bits ^ (bits >> 16));
}

template <int kMantissa, bool kStochastic, class Wide>
HPU_VECTORIZED void narrow_range(
    const Wide* wide, Narrowing by, int64_t begin, int64_t end, uint8_t* __restrict narrow) {
  for (int64_t i = begin; i < end; ++i) {
    const float value = scaled_value(wide[i], by.factor);
    const uint16_t draw = kStochastic ? random_bits(by.seed, i) : 0;
    narrow[i] = fp8_bits<kMantissa, kStochastic>(value, by.limit, draw);
  }
}

template <int kMantissa, bool kStochastic, class Wide>
void narrow_all(const at::Tensor& values, const Narrowing& by, const at::Tensor& result) {
  const auto* wide = static_cast<const Wide*>(values.const_data_ptr());
  auto* narrow = static_cast<uint8_t*>(result.mutable_data_ptr());
  each_range(values.numel(), kGrain, [&](int64_t begin, int64_t end) {
    narrow_range<kMantissa, kStochastic>(wide, by, begin, end, narrow);
  });
}

template <bool kStochastic, class Wide>
void narrow_to(
    ScalarType fp8, const at::Tensor& values, const Narrowing& by, const at::Tensor& result) {
  fp8 == kE5M2 ? narrow_all<2, kStochastic, Wide>(values, by, result)
               : narrow_all<3, kStochastic, Wide>(values, by, result);
}

/// Converts values in memory order.
at::Tensor narrowed(const at::Tensor& input, float factor, ScalarType fp8, bool stochastic) {
  const at::Tensor dense = input.is_non_overlapping_and_dense() ? input : input.contiguous();
  const bool is_bfloat16 = dense.scalar_type() == ScalarType::BFloat16;
  const at::Tensor values = is_bfloat16 ? dense : dense.to(ScalarType::Float);
  const at::Tensor result = at::empty_like(values, values.options().dtype(fp8));
  if (values.is_meta()) {
    return result;
  }
  Narrowing by{factor, static_cast<float>(largest_fp8(fp8)), 0};
  if (stochastic) {
    const at::Tensor seed = at::empty({}, values.options().dtype(at::kLong));
    seed.random_(
        std::numeric_limits<int64_t>::min(), std::nullopt, host_generator(at::Generator()));
    by.seed = static_cast<uint64_t>(seed.item<int64_t>());
    is_bfloat16 ? narrow_to<true, uint16_t>(fp8, values, by, result)
                : narrow_to<true, float>(fp8, values, by, result);
  } else {
    is_bfloat16 ? narrow_to<false, uint16_t>(fp8, values, by, result)
                : narrow_to<false, float>(fp8, values, by, result);
  }
  return result;
}

}  // namespace

at::Tensor to_fp8(const at::Tensor& values, ScalarType fp8) {
  return narrowed(values, 1.0F, fp8, false);
}

at::Tensor stochastic_fp8(const at::Tensor& values, ScalarType fp8) {
  return narrowed(values, 1.0F, fp8, true);
}

// Converts the elements of dense tensors in memory order.
at::Tensor widened(const at::Tensor& values, ScalarType dtype) {
  const ScalarType input_type = values.scalar_type();
  if (values.is_meta() || !is_fp8(input_type) || !is_float_or_bfloat16(dtype)) {
    return values.to(dtype);
  }
  const at::Tensor from =
      values.is_non_overlapping_and_dense() ? values : values.contiguous();
  const at::Tensor to = at::empty_like(from, from.options().dtype(dtype));
  const bool to_float = dtype == ScalarType::Float;
  if (input_type == kE5M2) {
    to_float ? widen<2, uint32_t>(from, to) : widen<2, uint16_t>(from, to);
  } else {
    to_float ? widen<3, uint32_t>(from, to) : widen<3, uint16_t>(from, to);
  }
  return to;
}

at::Tensor scaled_to_fp8(
    const at::Tensor& values, const Scale& scale, ScaleShape shape, ScalarType fp8,
    bool stochastic) {
  const bool has_scale = is_defined(scale);
  if (values.is_meta() || (has_scale && scale->numel() != 1)) {
    return narrowed(scaled(values, scale, shape), 1.0F, fp8, stochastic);
  }
  const float factor = has_scale ? scale->to(values.scalar_type()).item<float>() : 1.0F;
  return narrowed(values, factor, fp8, stochastic);
}

}  // namespace hpu::custom
