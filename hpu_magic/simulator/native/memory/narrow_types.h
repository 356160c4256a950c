// What a card keeps of 64-bit numbers. It has no float64, and in some modes no int64: their elements
// take 32 bits on it. A program sees the 64-bit type all the while. Here too: elements keep their
// 8 bytes of the host's memory, hold only values that 32 bits can hold, and are booked with 4.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/complex.h>

#include <cstddef>

namespace hpu::narrow_types {

/// Which types the card narrows, and whether copies from the host are looked through for values
/// that do not fit.
struct Rules {
  bool float64 = false;
  bool int64 = false;
  bool check_range = false;
};

void set(const Rules& rules);

/// Whether the card keeps a type in half its size.
bool include(c10::ScalarType dtype);
bool include(const at::Tensor& tensor);

/// Whether it does so because of float64, which both parts of a complex128 are.
bool includes_float64(c10::ScalarType dtype);

/// Bytes of the card for bytes of the host that hold a narrowed type.
inline size_t booked(size_t bytes) {
  return (bytes + 1) / 2;
}

/// How values that a card would have drawn in 32 bits are brought to them: numbers from [0, 1) stay
/// below 1, and whole numbers that are not negative stay so.
enum class Values { computed, drawn };

/// Brings a CPU tensor's values to what the card keeps of them: the nearest float32, or the low 32
/// bits of an int64. Tensors of other types stay as they are.
void apply(const at::Tensor& tensor, Values values = Values::computed);

/// A host's number, as a 0-dim CPU tensor, as the card takes it beside its own.
at::Tensor as_taken(const at::Tensor& number);
double as_taken(double number);
c10::complex<double> as_taken(c10::complex<double> number);

/// Raises the vendor's error for a CPU tensor with values that the card cannot keep. As there,
/// infinities and NaN pass.
void check_range(const at::Tensor& tensor);

}  // namespace hpu::narrow_types
