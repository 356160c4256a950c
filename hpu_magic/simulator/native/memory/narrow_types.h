// 64-bit types that the card stores in 32 bits. A card has no float64, and in some modes no int64,
// but programs see the 64-bit type. The simulator does the same: elements use 8 bytes of the host's
// memory, hold only values that fit into 32 bits, and are booked with 4 bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/complex.h>

#include <cstddef>

namespace hpu::narrow_types {

/// The types that the card narrows, and whether copies from the host check for values out of range.
struct Rules {
  bool float64 = false;
  bool int64 = false;
  bool check_range = false;
};

void set(const Rules& rules);

/// Whether the card stores a type in half its size.
bool include(c10::ScalarType dtype);
bool include(const at::Tensor& tensor);

/// Whether this is because of float64, which both parts of complex128 are.
bool includes_float64(c10::ScalarType dtype);

/// Bytes on the card for bytes on the host of a narrowed type.
inline size_t booked(size_t bytes) {
  return (bytes + 1) / 2;
}

/// How to convert values that a card would have drawn in 32 bits: numbers in [0, 1) stay below 1,
/// and non-negative integers stay non-negative.
enum class Values { computed, drawn };

/// Converts the values of a CPU tensor to those of the card: the nearest float32, or the low 32
/// bits of an int64. Does not change other types.
void apply(const at::Tensor& tensor, Values values = Values::computed);

/// A number of the host, as a 0-dim CPU tensor, with the precision that the card uses for it.
at::Tensor narrowed(const at::Tensor& number);
double narrowed(double number);
c10::complex<double> narrowed(c10::complex<double> number);

/// Raises the vendor's error for a CPU tensor with values out of the card's range. As on a card,
/// infinities and NaN are accepted.
void check_range(const at::Tensor& tensor);

}  // namespace hpu::narrow_types
