// Casts to and from the FP8 formats E5M2 and E4M3.
//
// `cast_to_fp8` multiplies by a scale, rounds and saturates. `cast_from_fp8` also multiplies by its
// scale, so it needs the inverse scale.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

namespace hpu::custom {
namespace {

/// Returns the largest magnitude if it is requested, otherwise an empty tensor.
at::Tensor amax_of(const at::Tensor& input, bool requested) {
  const auto options = input.options().dtype(ScalarType::Float);
  if (!requested) {
    return at::empty({0}, options);
  }
  if (input.is_meta()) {
    return at::empty({}, options);
  }
  if (input.numel() == 0) {
    return at::zeros({}, options);
  }
  const auto [least, most] = at::aminmax(input);
  return at::maximum(least.abs(), most.abs()).to(ScalarType::Float);
}

TwoTensors cast_to_fp8_v2(
    const at::Tensor& input, const Scale& scale, bool stochastic_rounding, bool is_amax,
    ScalarType dtype, ScaleShape scale_shape) {
  TORCH_CHECK(
      is_fp8(dtype), "CastToFp8V2 dtype must be one of [float8_e5m2, float8_e4m3fn], but is ",
      toString(dtype), ".");
  const ScalarType input_type = input.scalar_type();
  TORCH_CHECK(
      is_float_or_bfloat16(input_type) || is_fp8(input_type),
      "CastToFp8V2 input dtype must be one of [float, bfloat16, float8_e5m2, float8_e4m3fn].");
  if (is_fp8(input_type)) {
    TORCH_CHECK(!is_amax, "CastToFp8V2 must have no amax for float8.");
    TORCH_CHECK(
        input_type == dtype,
        "CastToFp8V2 input and output must have the same dtype for float8, but are ",
        toString(input_type), " and ", toString(dtype));
    return {input.clone(), amax_of(input, false)};
  }
  return {
      scaled_to_fp8(input, scale, scale_shape, dtype, stochastic_rounding),
      amax_of(input, is_amax)};
}

TwoTensors cast_to_fp8(
    const at::Tensor& input, const Scale& scale, bool stochastic_rounding, at::Tensor out,
    at::Tensor amax) {
  TORCH_CHECK(
      is_float_or_bfloat16(input.scalar_type()),
      "CastToFp8 input must be of float or bfloat16 dtype.");
  TORCH_CHECK(
      is_fp8(out.scalar_type()), "CastToFp8 out must be float8_e5m2 or float8_e4m3fn, but is ",
      toString(out.scalar_type()), ".");
  TORCH_CHECK(input.sym_sizes() == out.sym_sizes(), "Input and output must have the same shape");
  out.copy_(
      scaled_to_fp8(input, scale, std::nullopt, out.scalar_type(), stochastic_rounding));
  if (amax.sym_numel() > 0) {
    amax.copy_(amax_of(input, true));
  }
  return {out, amax};
}

TwoTensors traced_cast_to_fp8(
    const at::Tensor& input, const Scale& scale, bool stochastic_rounding, at::Tensor out,
    at::Tensor amax) {
  static const auto cast = vendor_operator<decltype(cast_to_fp8_v2)>("cast_to_fp8_v2");
  TORCH_CHECK(input.sym_sizes() == out.sym_sizes(), "Input and output must have the same shape");
  const bool is_amax = amax.sym_numel() > 0;
  const auto [values, largest] =
      cast.call(input, scale, stochastic_rounding, is_amax, out.scalar_type(), std::nullopt);
  return {
      written(out, values),
      is_amax ? written(amax, largest.to(amax.scalar_type()).reshape_symint(amax.sym_sizes()))
              : amax};
}

ThreeTensors cast_to_fp8_hybrid(
    const at::Tensor& input, const Scale& scale_152, const Scale& scale_143,
    bool stochastic_rounding, bool is_amax) {
  TORCH_CHECK(
      is_float_or_bfloat16(input.scalar_type()),
      "CastToFp8Hybrid input must be of float or bfloat16 dtype.");
  return {
      scaled_to_fp8(input, scale_152, std::nullopt, kE5M2, stochastic_rounding),
      scaled_to_fp8(input, scale_143, std::nullopt, kE4M3, false), amax_of(input, is_amax)};
}

at::Tensor cast_from_fp8(
    const at::Tensor& input, const Scale& scale, ScalarType out_dtype, ScaleShape scale_shape) {
  TORCH_CHECK(
      is_float_or_bfloat16(out_dtype),
      "CastFromFp8 output dtype must be equal to float or bfloat16.");
  return scaled(widened(input, out_dtype), scale, scale_shape);
}

const Operators casts([](Operators& define) {
  define(
      "cast_to_fp8(Tensor input, Tensor? scale, bool stochastic_rounding, Tensor(a!) out, "
      "Tensor(b!) amax) -> (Tensor(a!), Tensor(b!))",
      &cast_to_fp8);
  define.compiled_as("cast_to_fp8", &traced_cast_to_fp8);
  const std::string options =
      ", bool stochastic_rounding=False, bool is_amax=False, ScalarType dtype=None, "
      "int[]? scale_shape=None) -> (Tensor, Tensor)";
  define("cast_to_fp8_v2(Tensor input, Tensor? scale=None" + options, &cast_to_fp8_v2);
  define.with_numbers(
      "cast_to_fp8_v2.scalar(Tensor input, float scale" + options, "cast_to_fp8_v2");
  define.with_numbers(
      "cast_to_fp8_v2.scalar_list(Tensor input, float[] scale" + options, "cast_to_fp8_v2");
  define(
      "cast_to_fp8_hybrid(Tensor input, Tensor? scale_152=None, Tensor? scale_143=None, "
      "bool stochastic_rounding=False, bool is_amax=False) -> (Tensor, Tensor, Tensor)",
      &cast_to_fp8_hybrid);
  const std::string out = ", ScalarType out_dtype, int[]? scale_shape=None) -> Tensor";
  define("cast_from_fp8(Tensor input, Tensor? scale" + out, &cast_from_fp8);
  define.with_numbers("cast_from_fp8.scalar(Tensor input, float scale" + out, "cast_from_fp8");
  define.with_numbers(
      "cast_from_fp8.scalar_list(Tensor input, float[] scale" + out, "cast_from_fp8");
});

}  // namespace
}  // namespace hpu::custom
