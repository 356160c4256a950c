// Quantization and dequantization operators, `torch.ops.quantized_decomposed`. The operators work
// like PyTorch's decompositions, except that casts to FP8 round only once and saturate.
#include "custom/define.h"
#include "custom/quantization/fp8.h"

namespace hpu::custom {
namespace {

void check_quantized(ScalarType dtype) {
  TORCH_CHECK(
      is_fp8(dtype) || at::isIntegralType(dtype, /*includeBool=*/false),
      "The dtype of quantized values must be an integer type, float8_e5m2 or float8_e4m3fn, but "
      "got ", toString(dtype), ".");
}

/// Quantizes `units`, which is the input divided by its scale.
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
      "The input to quantize must have a floating-point dtype, but got ",
      toString(input.scalar_type()), ".");
  check_quantized(dtype);
}

/// Returns a scale or zero point with one element, in the dtype of the values.
at::Tensor one_element(const char* name, const at::Tensor& value, ScalarType dtype) {
  TORCH_CHECK(
      value.sym_numel() == 1, "Quantization per tensor needs one ", name, ", but got ",
      value.sym_numel(), ".");
  return value.reshape({}).to(dtype);
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

/// Returns a scale, zero point or bound, converted to the dtype `wide`. The argument is a number, a
/// tensor with one element, or a tensor with an element for each channel. If the argument is None,
/// the result is an undefined tensor.
at::Tensor parameter(
    const Arguments& of, const char* name, const at::Tensor& input, ScalarType wide) {
  const c10::IValue& value = of[name];
  if (value.isInt() || value.isDouble()) {
    return at::scalar_tensor(value.toScalar(), input.options().dtype(wide));
  }
  const OptionalTensor tensor = of.optional(name);
  if (!tensor) {
    return {};
  }
  return of.has("axis") ? for_each_channel(name, tensor->to(wide), input, of["axis"].toInt())
                        : one_element(name, *tensor, wide);
}

void return_result(const c10::OperatorHandle& op, torch::jit::Stack* stack, at::Tensor result) {
  torch::jit::drop(*stack, op.schema().arguments().size());
  torch::jit::push(*stack, std::move(result));
}

/// Implements quantize_per_channel and all overloads of quantize_per_tensor.
void quantize(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Arguments of(op, *stack);
  const at::Tensor input = of["input"].toTensor();
  const ScalarType dtype = of["dtype"].toScalarType(), wide = input.scalar_type();
  const bool per_channel = of.has("axis");
  const char* scale = per_channel ? "scales" : "scale";
  check_input(input, dtype);
  const at::Tensor units = of[scale].isDouble()
      ? input * (1.0 / of[scale].toDouble())
      : input * parameter(of, scale, input, wide).reciprocal();
  const at::Tensor zero_point =
      parameter(of, per_channel ? "zero_points" : "zero_point", input, wide);
  const at::Tensor result = of["quant_min"].isInt()
      ? quantized(
            units, zero_point, at::Scalar(of["quant_min"].toInt()),
            at::Scalar(of["quant_max"].toInt()), dtype)
      : quantized(
            units, zero_point, parameter(of, "quant_min", input, wide),
            parameter(of, "quant_max", input, wide), dtype);
  return_result(op, stack, result);
}

/// Implements dequantize_per_channel and all overloads of dequantize_per_tensor.
void dequantize(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Arguments of(op, *stack);
  const at::Tensor input = of["input"].toTensor();
  const ScalarType declared = of["dtype"].toScalarType();
  const c10::IValue& out_dtype = of["out_dtype"];
  const ScalarType wide = out_dtype.isNone() ? ScalarType::Float : out_dtype.toScalarType();
  check_quantized(declared);
  TORCH_CHECK(
      input.scalar_type() == declared, "The input to dequantize must have the dtype argument ",
      toString(declared), ", but got ", toString(input.scalar_type()), ".");
  TORCH_CHECK(
      at::isFloatingType(wide), "out_dtype must be a floating-point dtype, but got ",
      toString(wide), ".");
  const bool per_channel = of.has("axis");
  const at::Tensor scale = parameter(of, per_channel ? "scales" : "scale", input, wide);
  const at::Tensor zero_point =
      parameter(of, per_channel ? "zero_points" : "zero_point", input, wide);
  const at::Tensor values = input.to(wide);
  return_result(op, stack, (zero_point.defined() ? values - zero_point : values) * scale);
}

const Operators quantization([](Operators& define) {
  const std::string bounds = "int quant_min, int quant_max, ScalarType dtype";
  const std::string tensor_bounds = "Tensor quant_min, Tensor quant_max, ScalarType dtype";
  const std::vector<std::pair<std::string, std::string>> overloads{
      {"per_tensor", "(Tensor input, float scale, int zero_point, " + bounds},
      {"per_tensor.tensor", "(Tensor input, Tensor scale, Tensor zero_point, " + bounds},
      {"per_tensor.tensor2", "(Tensor input, Tensor scale, Tensor zero_point, " + tensor_bounds},
      {"per_channel", "(Tensor input, Tensor scales, Tensor zero_points, int axis, " + bounds}};
  for (const auto& [overload, arguments] : overloads) {
    const std::string schema = overload + arguments + ") -> Tensor";
    define.declared_by<&quantize>("quantized_decomposed", "quantize_" + schema);
  }
  for (auto [overload, arguments] : overloads) {
    if (overload == "per_channel") {
      arguments.replace(arguments.find("Tensor zero_points"), 6, "Tensor?");
    }
    const std::string schema = overload + arguments + ", *, ScalarType? out_dtype=None) -> Tensor";
    define.declared_by<&dequantize>("quantized_decomposed", "dequantize_" + schema);
  }
});

}  // namespace
}  // namespace hpu::custom
