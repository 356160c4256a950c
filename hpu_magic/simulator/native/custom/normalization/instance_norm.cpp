// Normalizes each channel of each sample, in float32.
#include "custom/define.h"

namespace hpu::custom {
namespace {

void check_channels(
    const char* name, const at::Tensor& input, const OptionalTensor& of) {
  TORCH_CHECK(
      input.dim() >= 3 && at::isFloatingType(input.scalar_type()),
      "InstanceNorm input must be floating-point numbers of shape [N, C, ...], but got ",
      toString(input.scalar_type()), " of ", input.sym_sizes(), ".");
  TORCH_CHECK(
      !is_defined(of) || (of->dim() == 1 && of->sym_size(0) == input.sym_size(1)),
      "InstanceNorm ", name, " must have one element for each of ", input.sym_size(1),
      " channels, but got shape ", of->sym_sizes(), ".");
}

/// Converts values of shape [N, C] or [C] to a shape that broadcasts over [N, C, positions].
at::Tensor over_positions(const at::Tensor& values) {
  return values.to(ScalarType::Float).unsqueeze(-1);
}

at::Tensor positions_of(const at::Tensor& tensor) {
  return tensor.to(ScalarType::Float).flatten(2);
}

ThreeTensors instance_norm(
    const at::Tensor& input, const OptionalTensor& weight,
    const OptionalTensor& bias, double eps) {
  check_channels("weight", input, weight);
  check_channels("bias", input, bias);
  const at::Tensor wide = positions_of(input);
  const at::Tensor mean = wide.mean(-1);
  const at::Tensor centred = wide - over_positions(mean);
  const at::Tensor istd = (centred.square().mean(-1) + eps).rsqrt();
  at::Tensor out = centred * over_positions(istd);
  if (is_defined(weight)) {
    out = out * over_positions(*weight);
  }
  if (is_defined(bias)) {
    out = out + over_positions(*bias);
  }
  return {out.reshape_symint(input.sym_sizes()).to(input.scalar_type()), mean, istd};
}

/// Returns the gradients of the input, bias and weight, in float32.
ThreeTensors instance_norm_backward(
    const at::Tensor& input, const at::Tensor& grad_in, const at::Tensor& mean,
    const at::Tensor& istd, const OptionalTensor& gamma) {
  check_channels("gamma", input, gamma);
  TORCH_CHECK(
      grad_in.sym_sizes() == input.sym_sizes(), "InstanceNorm backward needs a gradient of shape ",
      input.sym_sizes(), ", but got ", grad_in.sym_sizes(), ".");
  for (const at::Tensor* kept : {&mean, &istd}) {
    TORCH_CHECK(
        kept->dim() == 2 && kept->sym_size(0) == input.sym_size(0) &&
            kept->sym_size(1) == input.sym_size(1),
        "InstanceNorm backward needs mean and istd of shape [N, C] for an input of ",
        input.sym_sizes(), ", but got ", kept->sym_sizes(), ".");
  }
  const at::Tensor grad = positions_of(grad_in);
  const at::Tensor normalized = (positions_of(input) - over_positions(mean)) * over_positions(istd);
  const at::Tensor scaled_grad =
      is_defined(gamma) ? grad * over_positions(*gamma) : grad;
  const at::Tensor along = (scaled_grad * normalized).mean(-1, /*keepdim=*/true);
  const at::Tensor of_input =
      (scaled_grad - scaled_grad.mean(-1, /*keepdim=*/true) - normalized * along) *
      over_positions(istd);
  return {
      of_input.reshape_symint(input.sym_sizes()), grad.sum(c10::IntArrayRef{0, 2}),
      (grad * normalized).sum(c10::IntArrayRef{0, 2})};
}

const Operators instance_norms([](Operators& define) {
  define.in_eager_mode(
      "instance_norm(Tensor input, Tensor? weight, Tensor? bias, float eps) -> "
      "(Tensor, Tensor, Tensor)",
      &instance_norm);
  define.in_eager_mode(
      "instance_norm_backward(Tensor input, Tensor grad_in, Tensor mean, Tensor istd, "
      "Tensor? gamma) -> (Tensor, Tensor, Tensor)",
      &instance_norm_backward);
});

}  // namespace
}  // namespace hpu::custom
