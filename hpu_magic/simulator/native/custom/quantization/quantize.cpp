// Quantization and dequantization, `torch.ops.quantized_decomposed`, like PyTorch's decompositions.
// But casts to 8-bit floating point round once and saturate.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace hpu::custom {
namespace {

using at::ScalarType;

void check_quantized(ScalarType dtype) {
  TORCH_CHECK(
      is_fp8(dtype) || at::isIntegralType(dtype, /*includeBool=*/false),
      "The dtype of quantized values must be an integer type, float8_e5m2 or float8_e4m3fn, but is ",
      toString(dtype), ".");
}

/// `units` is the input divided by its scale.
template <class Bound>
at::Tensor quantized(
    const at::Tensor& units, const at::Tensor& zero_point, const Bound& least, const Bound& most,
    ScalarType dtype) {
  const at::Tensor whole = is_fp8(dtype) ? units : at::round(units);
  const at::Tensor bounded = at::clamp(whole + zero_point, least, most);
  return is_fp8(dtype) ? to_fp8(bounded, dtype) : bounded.to(dtype);
}

void check_input(const at::Tensor& input, ScalarType dtype) {
  TORCH_CHECK(
      at::isFloatingType(input.scalar_type()),
      "The input to quantize must have a floating-point dtype, but has ",
      toString(input.scalar_type()), ".");
  check_quantized(dtype);
}

/// A scale or zero point of one element, in the dtype of the values.
at::Tensor one_element(const char* name, const at::Tensor& value, ScalarType dtype) {
  TORCH_CHECK(
      value.sym_numel() == 1, "Quantization per tensor needs one ", name, ", but has ",
      value.sym_numel(), ".");
  return value.reshape({}).to(dtype);
}

at::Tensor number_like(const at::Tensor& like, const at::Scalar& value) {
  return at::scalar_tensor(value, like.options());
}

at::Tensor quantize_per_tensor(
    const at::Tensor& input, double scale, int64_t zero_point, int64_t quant_min,
    int64_t quant_max, ScalarType dtype) {
  check_input(input, dtype);
  return quantized(
      input * (1.0 / scale), number_like(input, zero_point), at::Scalar(quant_min),
      at::Scalar(quant_max), dtype);
}

at::Tensor quantize_per_tensor_tensor(
    const at::Tensor& input, const at::Tensor& scale, const at::Tensor& zero_point,
    int64_t quant_min, int64_t quant_max, ScalarType dtype) {
  check_input(input, dtype);
  const ScalarType wide = input.scalar_type();
  return quantized(
      input * one_element("scale", scale, wide).reciprocal(),
      one_element("zero_point", zero_point, wide), at::Scalar(quant_min), at::Scalar(quant_max),
      dtype);
}

at::Tensor quantize_per_tensor_tensor2(
    const at::Tensor& input, const at::Tensor& scale, const at::Tensor& zero_point,
    const at::Tensor& quant_min, const at::Tensor& quant_max, ScalarType dtype) {
  check_input(input, dtype);
  const ScalarType wide = input.scalar_type();
  return quantized(
      input * one_element("scale", scale, wide).reciprocal(),
      one_element("zero_point", zero_point, wide), one_element("quant_min", quant_min, wide),
      one_element("quant_max", quant_max, wide), dtype);
}

/// Scales or zero points per channel, in a shape that broadcasts over `input`.
at::Tensor for_each_channel(
    const char* name, const at::Tensor& values, const at::Tensor& input, int64_t axis) {
  axis = at::maybe_wrap_dim(axis, input.dim());
  TORCH_CHECK(
      values.dim() == 1 && input.dim() > 0 && values.sym_size(0) == input.sym_size(axis),
      "Quantization per channel needs 1D ", name, " with an element for each channel of ",
      input.sym_sizes(), " along axis ", axis, ", but got shape ", values.sym_sizes(), ".");
  std::vector<c10::SymInt> shape(static_cast<size_t>(input.dim()), 1);
  shape[static_cast<size_t>(axis)] = values.sym_size(0);
  return values.reshape_symint(shape);
}

at::Tensor quantize_per_channel(
    const at::Tensor& input, const at::Tensor& scales, const at::Tensor& zero_points, int64_t axis,
    int64_t quant_min, int64_t quant_max, ScalarType dtype) {
  check_input(input, dtype);
  const ScalarType wide = input.scalar_type();
  const at::Tensor factor = for_each_channel("scales", scales.to(wide).reciprocal(), input, axis);
  return quantized(
      input * factor, for_each_channel("zero_points", zero_points.to(wide), input, axis),
      at::Scalar(quant_min), at::Scalar(quant_max), dtype);
}

at::Tensor dequantized(
    const at::Tensor& input, const at::Tensor& scale, const at::Tensor& zero_point,
    ScalarType declared, ScalarType wide) {
  check_quantized(declared);
  TORCH_CHECK(
      input.scalar_type() == declared, "The input to dequantize must have the dtype argument ",
      toString(declared), ", but has ", toString(input.scalar_type()), ".");
  TORCH_CHECK(
      at::isFloatingType(wide), "out_dtype must be a floating-point dtype, but is ",
      toString(wide), ".");
  const at::Tensor values = input.to(wide);
  return (zero_point.defined() ? values - zero_point.to(wide) : values) * scale.to(wide);
}

at::Tensor dequantize_per_tensor(
    const at::Tensor& input, double scale, int64_t zero_point, int64_t /*quant_min*/,
    int64_t /*quant_max*/, ScalarType dtype, std::optional<ScalarType> out_dtype) {
  const ScalarType wide = out_dtype.value_or(ScalarType::Float);
  const auto options = input.options().dtype(wide);
  return dequantized(
      input, at::scalar_tensor(scale, options), at::scalar_tensor(zero_point, options), dtype,
      wide);
}

at::Tensor dequantize_per_tensor_tensor(
    const at::Tensor& input, const at::Tensor& scale, const at::Tensor& zero_point,
    int64_t /*quant_min*/, int64_t /*quant_max*/, ScalarType dtype,
    std::optional<ScalarType> out_dtype) {
  const ScalarType wide = out_dtype.value_or(ScalarType::Float);
  return dequantized(
      input, one_element("scale", scale, wide), one_element("zero_point", zero_point, wide), dtype,
      wide);
}

at::Tensor dequantize_per_tensor_tensor2(
    const at::Tensor& input, const at::Tensor& scale, const at::Tensor& zero_point,
    const at::Tensor& /*quant_min*/, const at::Tensor& /*quant_max*/, ScalarType dtype,
    std::optional<ScalarType> out_dtype) {
  return dequantize_per_tensor_tensor(input, scale, zero_point, 0, 0, dtype, out_dtype);
}

at::Tensor dequantize_per_channel(
    const at::Tensor& input, const at::Tensor& scales,
    const std::optional<at::Tensor>& zero_points, int64_t axis, int64_t /*quant_min*/,
    int64_t /*quant_max*/, ScalarType dtype, std::optional<ScalarType> out_dtype) {
  const bool shifted = is_defined(zero_points);
  return dequantized(
      input, for_each_channel("scales", scales, input, axis),
      shifted ? for_each_channel("zero_points", *zero_points, input, axis) : at::Tensor(), dtype,
      out_dtype.value_or(ScalarType::Float));
}

const Operators quantization([](Operators& define) {
  const auto declared = [&define](const std::string& schema, auto* function) {
    define.declared_by("quantized_decomposed", schema + ") -> Tensor", function);
  };
  const std::string bounds = "int quant_min, int quant_max, ScalarType dtype";
  const std::string tensor_bounds = "Tensor quant_min, Tensor quant_max, ScalarType dtype";
  const std::string numbers = "(Tensor input, float scale, int zero_point, ";
  const std::string tensors = "(Tensor input, Tensor scale, Tensor zero_point, ";
  const std::string out = ", *, ScalarType? out_dtype=None";
  declared("quantize_per_tensor" + numbers + bounds, &quantize_per_tensor);
  declared("quantize_per_tensor.tensor" + tensors + bounds, &quantize_per_tensor_tensor);
  declared("quantize_per_tensor.tensor2" + tensors + tensor_bounds, &quantize_per_tensor_tensor2);
  declared(
      "quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, " + bounds,
      &quantize_per_channel);
  declared("dequantize_per_tensor" + numbers + bounds + out, &dequantize_per_tensor);
  declared("dequantize_per_tensor.tensor" + tensors + bounds + out, &dequantize_per_tensor_tensor);
  declared(
      "dequantize_per_tensor.tensor2" + tensors + tensor_bounds + out,
      &dequantize_per_tensor_tensor2);
  declared(
      "dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, " +
          bounds + out,
      &dequantize_per_channel);
});

}  // namespace
}  // namespace hpu::custom
