#include "custom/quantization/fp8.h"

#include "calls/dtypes.h"
#include "calls/generator.h"
#include "custom/define.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <numeric>

namespace hpu::custom {

using at::ScalarType;

namespace {

/// Rounds up or down at random, so that the expected result is the value itself. Below the smallest
/// subnormal number, one of the neighbors is 0.
at::Tensor round_stochastically(const at::Tensor& values, ScalarType fp8) {
  const int64_t mantissa_bits = fp8 == kE5M2 ? 2 : 3;
  const int64_t smallest_exponent = fp8 == kE5M2 ? -14 : -6;
  const at::Tensor exponent = std::get<1>(at::frexp(values)) - 1;
  const auto quantum =
      at::exp2((exponent.clamp_min(smallest_exponent) - mantissa_bits).to(ScalarType::Float));
  const auto draw = values.is_meta() ? at::empty_like(values)
                                     : at::rand(
                                           values.sizes(), host_generator(at::Generator()),
                                           values.options());
  return at::copysign(at::floor(at::abs(values) / quantum + draw) * quantum, values);
}

/// A scale per channel, in a shape that broadcasts.
at::Tensor shaped(const at::Tensor& scale, ScaleShape shape) {
  if (!shape || scale.sym_numel() <= 1) {
    return scale;
  }
  const auto elements =
      std::accumulate(shape->begin(), shape->end(), int64_t{1}, std::multiplies<>());
  TORCH_CHECK(
      scale.sym_numel() == elements, "Number of scale elements (", scale.sym_numel(),
      ") is not equal to number of scale_shape elements (", elements, ").");
  return scale.reshape(*shape);
}

}  // namespace

double largest_fp8(ScalarType fp8) {
  return fp8 == kE5M2 ? 57344.0 : float8_e4m3fn_limit();
}

bool is_fp8(ScalarType dtype) {
  return dtype == kE5M2 || dtype == kE4M3;
}

bool is_float_or_bfloat16(ScalarType dtype) {
  return dtype == ScalarType::Float || dtype == ScalarType::BFloat16;
}

void check_formats(const char* name, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(
      is_fp8(a.scalar_type()) && is_fp8(b.scalar_type()), name,
      " inputs must be of float8_e5m2 or float8_e4m3fn dtype, but are ", toString(a.scalar_type()),
      " and ", toString(b.scalar_type()), ".");
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type() || float8_e4m3fn_limit() > kGaudi2Float8Limit, name,
      " inputs must have the same dtype on this generation, but are ", toString(a.scalar_type()),
      " and ", toString(b.scalar_type()), ".");
}

at::Tensor to_fp8(const at::Tensor& values, ScalarType fp8, bool stochastic) {
  const double limit = largest_fp8(fp8);
  const bool as_they_are = !stochastic && values.scalar_type() == ScalarType::BFloat16;
  at::Tensor bounded =
      at::clamp(as_they_are ? values : values.to(ScalarType::Float), -limit, limit);
  if (stochastic) {
    bounded = at::clamp(round_stochastically(bounded, fp8), -limit, limit);
  }
  return bounded.to(fp8);
}

at::Tensor scaled(const at::Tensor& values, const Scale& scale, ScaleShape shape) {
  if (!is_defined(scale)) {
    return values;
  }
  const at::Tensor factor = shaped(scale->to(values.scalar_type()), shape);
  const at::Tensor product = values * (factor.sym_numel() == 1 ? factor.reshape({}) : factor);
  TORCH_CHECK(
      product.sym_sizes() == values.sym_sizes(), "A scale must broadcast to the shape ",
      values.sym_sizes(), " of the values, but has shape ", factor.sym_sizes(), ".");
  return product;
}

at::Tensor in_blocks(const at::Tensor& values, c10::SymIntArrayRef blocks) {
  std::vector<c10::SymInt> sizes = values.sym_sizes().slice(0, values.dim() - 2).vec();
  sizes.insert(sizes.end(), blocks.begin(), blocks.end());
  return values.reshape_symint(sizes);
}

at::Tensor tensor_of(const at::Tensor& like, at::ArrayRef<double> scales) {
  return at::tensor(scales, at::dtype(ScalarType::Float)).to(like.device());
}

}  // namespace hpu::custom
