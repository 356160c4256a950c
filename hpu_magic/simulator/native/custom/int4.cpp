// Weights of four bits, eight in an int32 with the lowest first. The vendor's eager mode does not
// have these operators; here they compute in it too, as a compiled graph's do.
#include "custom/define.h"
#include "custom/fp8.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace hpu::custom {
namespace {

using at::ScalarType;

constexpr int64_t kInOne = 8;

/// The values of the last dimension, eight for one: int8 in two's complement, or uint8.
at::Tensor unpacked(const at::Tensor& packed, bool is_signed) {
  const at::Tensor shifts = at::arange(0, 4 * kInOne, 4, packed.options());
  const at::Tensor shifted = at::bitwise_right_shift(packed.unsqueeze(-1), shifts);
  const at::Tensor values = at::bitwise_and(shifted, 15).flatten(-2);
  return is_signed ? ((values ^ 8) - 8).to(ScalarType::Char) : values.to(ScalarType::Byte);
}

/// What is given for each row of `values`, or for each group of them.
at::Tensor for_each_row(const char* name, const at::Tensor& given, const at::Tensor& values) {
  if (given.sizes() == values.sizes() || given.dim() == 0) {
    return given;
  }
  const int64_t groups = given.dim() > 1 ? given.size(-2) : 1;
  TORCH_CHECK(
      given.dim() <= 2 && values.dim() == 2 && given.size(-1) == values.size(-1) && groups > 0 &&
          values.size(0) % groups == 0,
      "ConvertFromInt4 ", name, " must have the result's shape ", values.sizes(),
      " or a row for each group of its rows, but has shape ", given.sizes(), ".");
  return given.reshape({groups, -1}).repeat_interleave(values.size(0) / groups, 0);
}

at::Tensor convert(
    const at::Tensor& input, const at::Tensor& scale, const std::optional<at::Tensor>& zero_point,
    ScalarType out_dtype, bool is_signed) {
  TORCH_CHECK(
      input.scalar_type() == ScalarType::Int && input.dim() > 0,
      "ConvertFromInt4 input must be of int32 with a dimension at least, but is ",
      toString(input.scalar_type()), " of ", input.dim(), " dimensions.");
  TORCH_CHECK(
      c10::isFloatingType(out_dtype), "ConvertFromInt4 out_dtype must be a floating-point dtype, "
      "but is ", toString(out_dtype), ".");
  if (input.is_meta()) {
    std::vector<c10::SymInt> sizes = input.sym_sizes().vec();
    sizes.back() = sizes.back() * kInOne;
    return at::empty_symint(sizes, input.options().dtype(out_dtype));
  }
  at::Tensor values = unpacked(input, is_signed);
  const at::Tensor factor = for_each_row("scale", scale.to(ScalarType::Float), values);
  if (zero_point && zero_point->defined()) {
    const bool packed = zero_point->scalar_type() == ScalarType::Int;
    const at::Tensor zero = for_each_row(
        "zero_point", packed ? unpacked(*zero_point, is_signed) : *zero_point, values);
    values = packed ? values - zero : values.to(ScalarType::Float) - zero;
  }
  const at::Tensor result = values.to(ScalarType::Float) * factor;
  return is_fp8(out_dtype) ? to_fp8(result, out_dtype) : result.to(out_dtype);
}

at::Tensor convert_from_int4(
    const at::Tensor& input, const at::Tensor& scale, const std::optional<at::Tensor>& zero_point,
    ScalarType out_dtype) {
  return convert(input, scale, zero_point, out_dtype, true);
}

at::Tensor convert_from_uint4(
    const at::Tensor& input, const at::Tensor& scale, const std::optional<at::Tensor>& zero_point,
    ScalarType out_dtype) {
  return convert(input, scale, zero_point, out_dtype, false);
}

const Operators conversions([](Operators& define) {
  const std::string schema =
      "(Tensor input, Tensor scale, Tensor? zero_point, ScalarType out_dtype) -> Tensor";
  define("convert_from_int4" + schema, &convert_from_int4);
  define("convert_from_uint4" + schema, &convert_from_uint4);
});

}  // namespace
}  // namespace hpu::custom
