// Dtypes that the card stores at half their size, and dtypes that its generation does not support.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/complex.h>

#include <cstdint>
#include <map>
#include <string>

/// A card does not support float64 or, in some modes, int64, but programs still see the 64-bit
/// dtype. The simulator does the same: each element uses 8 bytes of host memory, holds only values
/// that fit in 32 bits, and counts as 4 bytes of device memory.
namespace hpu::narrow_types {

/// The dtypes that the card narrows, and whether copies from the host check the range of the
/// values.
struct Rules {
  bool float64 = false;
  bool int64 = false;
  bool check_range = false;
};

void set(const Rules& rules);

/// Returns whether the card stores a dtype at half its size.
bool include(c10::ScalarType dtype);
bool include(const at::Tensor& tensor);

/// Like `include`, but only for float64 and complex128.
bool includes_float64(c10::ScalarType dtype);

/// The origin of values. A card draws random values in 32 bits, so numbers in [0, 1) must stay
/// below 1 after the conversion, and non-negative integers must stay non-negative.
enum class Values { computed, drawn };

/// Converts the values of a CPU tensor to those that the card stores: the nearest float32 value, or
/// the low 32 bits of an int64 value. Tensors of other dtypes are not changed.
void apply(const at::Tensor& tensor, Values values = Values::computed);

/// Returns a number from the host, or a 0-dim CPU tensor, rounded to the precision that the card
/// uses for it.
at::Tensor narrowed(const at::Tensor& number);
double narrowed(double number);
c10::complex<double> narrowed(c10::complex<double> number);

/// Raises the vendor's error for a CPU tensor with values outside the card's range. As on a card,
/// infinities and NaN are accepted.
void check_range(const at::Tensor& tensor);

}  // namespace hpu::narrow_types

namespace hpu::unsupported_types {

/// Sets the error message for each unsupported dtype. The keys are PyTorch's dtype names. Must be
/// called before the first tensor is created.
void set(const std::map<std::string, std::string>& texts);

static_assert(static_cast<unsigned>(c10::ScalarType::NumOptions) <= 64);
extern uint64_t unsupported;  // one bit per dtype
[[noreturn]] void refuse(c10::ScalarType type);

/// Raises an error for an unsupported dtype.
inline void check(c10::ScalarType type) {
  if (unsupported & (uint64_t{1} << static_cast<unsigned>(type))) {
    refuse(type);
  }
}

}  // namespace hpu::unsupported_types
