// Conversions between 8-bit floating point and wider types by tables, which are much faster than
// PyTorch's kernels.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <ATen/Functions.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

namespace hpu::custom {
namespace {

using at::ScalarType;

// For fewer elements, loading the table takes longer than the conversion.
constexpr int64_t kFewestElements = 4096;

/// All values of an 8-bit type in a wider type, indexed by their bits.
template <class Narrow, class Wide>
const std::array<Wide, 256>& wide_values() {
  static const std::array<Wide, 256> values = [] {
    std::array<Wide, 256> made;
    for (size_t bits = 0; bits < made.size(); ++bits) {
      made[bits] = Wide(static_cast<float>(Narrow(static_cast<uint8_t>(bits), Narrow::from_bits())));
    }
    return made;
  }();
  return values;
}

template <class Narrow, class Wide>
void widen(const at::Tensor& from, const at::Tensor& to) {
  const auto& values = wide_values<Narrow, Wide>();
  const auto* bits = static_cast<const uint8_t*>(from.const_data_ptr());
  auto* wide = static_cast<Wide*>(to.mutable_data_ptr());
  const int64_t elements = from.numel();
  for (int64_t i = 0; i < elements; ++i) {
    wide[i] = values[bits[i]];
  }
}

using NarrowValues = std::array<uint8_t, 65536>;

const NarrowValues* made_narrow_values(ScalarType fp8) {
  auto made = std::make_unique<NarrowValues>();
  std::vector<uint16_t> bits(made->size());
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  const at::Tensor every = at::from_blob(
      bits.data(), {static_cast<int64_t>(bits.size())}, at::dtype(ScalarType::BFloat16));
  const at::Tensor narrow = to_fp8(every, fp8);
  std::memcpy(made->data(), narrow.const_data_ptr(), made->size());
  return made.release();
}

/// All values of bfloat16 in an 8-bit type of this generation, indexed by their bits. If two
/// threads build a table at once, one table is discarded.
const NarrowValues& narrow_values(ScalarType fp8) {
  static std::atomic<const NarrowValues*> of_e5m2{nullptr};
  static std::atomic<const NarrowValues*> of_e4m3{nullptr};
  std::atomic<const NarrowValues*>& table = fp8 == kE5M2 ? of_e5m2 : of_e4m3;
  const NarrowValues* known = table.load(std::memory_order_acquire);
  if (known == nullptr) {
    const NarrowValues* made = made_narrow_values(fp8);
    if (table.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
      known = made;
    } else {
      delete made;
    }
  }
  return *known;
}

/// The bits of a product, rounded to bfloat16.
inline uint16_t product_bits(uint16_t bits, float factor) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  value *= factor;
  uint32_t product;
  std::memcpy(&product, &value, sizeof(product));
  const uint32_t rounded = (product + 0x7fffU + ((product >> 16) & 1U)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7fc0U : rounded);
}

// Compilers vectorize loops with a constant number of products.
constexpr int64_t kBlock = 256;

at::Tensor bfloat16_to_fp8(const at::Tensor& values, float factor, ScalarType fp8) {
  const at::Tensor result = at::empty_like(values, values.options().dtype(fp8));
  const NarrowValues& table = narrow_values(fp8);
  const auto* bits = static_cast<const uint16_t*>(values.const_data_ptr());
  auto* narrow = static_cast<uint8_t*>(result.mutable_data_ptr());
  const int64_t elements = values.numel();
  const int64_t in_blocks = elements - elements % kBlock;
  std::array<uint16_t, kBlock> products;
  for (int64_t first = 0; first < in_blocks; first += kBlock) {
    for (int64_t i = 0; i < kBlock; ++i) {
      products[i] = product_bits(bits[first + i], factor);
    }
    for (int64_t i = 0; i < kBlock; ++i) {
      narrow[first + i] = table[products[i]];
    }
  }
  for (int64_t i = in_blocks; i < elements; ++i) {
    narrow[i] = table[product_bits(bits[i], factor)];
  }
  return result;
}

}  // namespace

// Without gaps, elements are converted in memory order.
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
    to_float ? widen<c10::Float8_e5m2, float>(from, to)
             : widen<c10::Float8_e5m2, c10::BFloat16>(from, to);
  } else {
    to_float ? widen<c10::Float8_e4m3fn, float>(from, to)
             : widen<c10::Float8_e4m3fn, c10::BFloat16>(from, to);
  }
  return to;
}

at::Tensor scaled_to_fp8(
    const at::Tensor& values, const Scale& scale, ScaleShape shape, ScalarType fp8,
    bool stochastic) {
  const bool has_scale = is_defined(scale);
  if (stochastic || values.is_meta() || values.scalar_type() != ScalarType::BFloat16 ||
      values.numel() < kFewestElements || !values.is_non_overlapping_and_dense() ||
      (has_scale && scale->numel() != 1)) {
    return to_fp8(scaled(values, scale, shape), fp8, stochastic);
  }
  const float factor = has_scale ? scale->to(ScalarType::BFloat16).item<float>() : 1.0F;
  return bfloat16_to_fp8(values, factor, fp8);
}

}  // namespace hpu::custom
