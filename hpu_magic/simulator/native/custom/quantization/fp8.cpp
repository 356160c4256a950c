#include "custom/quantization/fp8.h"

#include "calls/dtypes.h"
#include "custom/define.h"

#include <numeric>

namespace hpu::custom {

namespace {

/// Reshapes a scale that has an element for each channel, so that it broadcasts.
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
      " inputs must be of float8_e5m2 or float8_e4m3fn dtype, but got ", toString(a.scalar_type()),
      " and ", toString(b.scalar_type()), ".");
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type() || float8_e4m3fn_limit() > kGaudi2Float8Limit, name,
      " inputs must have the same dtype on this generation, but got ", toString(a.scalar_type()),
      " and ", toString(b.scalar_type()), ".");
}

at::Tensor scaled(const at::Tensor& values, const Scale& scale, ScaleShape shape) {
  if (!is_defined(scale)) {
    return values;
  }
  const at::Tensor factor = shaped(scale->to(values.scalar_type()), shape);
  const at::Tensor product = values * (factor.sym_numel() == 1 ? factor.reshape({}) : factor);
  TORCH_CHECK(
      product.sym_sizes() == values.sym_sizes(), "A scale must broadcast to the shape ",
      values.sym_sizes(), " of the values, but got shape ", factor.sym_sizes(), ".");
  return product;
}

at::Tensor in_blocks(const at::Tensor& values, c10::SymIntArrayRef blocks) {
  std::vector<c10::SymInt> sizes = values.sym_sizes().slice(0, values.dim() - 2).vec();
  sizes.insert(sizes.end(), blocks.begin(), blocks.end());
  return values.reshape_symint(sizes);
}

}  // namespace hpu::custom
