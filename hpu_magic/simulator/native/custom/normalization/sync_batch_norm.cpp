// The operators of torch.nn.SyncBatchNorm, for which PyTorch has no CPU kernels. All of them compute
// in float32 or in the input's type, if that is wider.
#include "custom/define.h"

namespace hpu::custom {
namespace {

ScalarType wide(const at::Tensor& tensor) {
  return at::promote_types(tensor.scalar_type(), ScalarType::Float);
}

/// Returns all dimensions but the channels.
std::vector<int64_t> reduced(const at::Tensor& input) {
  TORCH_CHECK(
      input.dim() >= 2, "SyncBatchNorm input must have at least 2 dimensions, but got ",
      input.dim(), ".");
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) {
    dims.push_back(dim);
  }
  return dims;
}

/// Returns a value for each channel in a shape that broadcasts over the input.
at::Tensor of_channels(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = -1;
  return values.to(wide(input)).reshape(sizes);
}

at::Tensor centred(const at::Tensor& input, const at::Tensor& mean) {
  return input.to(wide(input)) - of_channels(mean, input);
}

/// Returns the mean and the inverse standard deviation of each channel.
TwoTensors batch_norm_stats(const at::Tensor& input, double eps) {
  const auto [variance, mean] =
      at::var_mean(input.to(wide(input)), reduced(input), /*unbiased=*/false);
  return {mean, (variance + eps).rsqrt()};
}

at::Tensor batch_norm_elemt(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const at::Tensor& mean, const at::Tensor& invstd, double /*eps*/) {
  at::Tensor out = centred(input, mean) * of_channels(invstd, input);
  if (is_defined(weight)) {
    out = out * of_channels(*weight, input);
  }
  if (is_defined(bias)) {
    out = out + of_channels(*bias, input);
  }
  return out.to(input.scalar_type());
}

void update(const OptionalTensor& running, const at::Tensor& value, double momentum) {
  if (is_defined(running)) {
    running->copy_(*running * (1 - momentum) + value * momentum);
  }
}

/// Combines the statistics of all ranks, one row each, and updates the running statistics.
TwoTensors batch_norm_gather_stats_with_counts(
    const at::Tensor& /*input*/, const at::Tensor& mean, const at::Tensor& invstd,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, double momentum,
    double eps, const at::Tensor& counts) {
  const at::Tensor weights = counts.to(wide(mean)).unsqueeze(-1);
  const at::Tensor total = weights.sum();
  const at::Tensor common = (mean * weights).sum(0) / total;
  const at::Tensor squares =
      ((invstd.pow(-2) - eps + (mean - common).square()) * weights).sum(0);
  update(running_mean, common, momentum);
  update(running_var, squares / (total - 1), momentum);
  return {common, (squares / total + eps).rsqrt()};
}

/// Returns the sums of the gradient and of its product with the centred input, and the gradients of
/// the weight and the bias. Results that are not requested are undefined.
FourTensors batch_norm_backward_reduce(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& invstd, const OptionalTensor& weight, bool input_g, bool weight_g,
    bool bias_g) {
  const at::Tensor grad = grad_out.to(wide(input));
  const at::Tensor sum = grad.sum(reduced(input));
  const at::Tensor product = (grad * centred(input, mean)).sum(reduced(input));
  const ScalarType type = is_defined(weight) ? weight->scalar_type() : wide(input);
  return {
      input_g ? sum : at::Tensor(), input_g ? product : at::Tensor(),
      weight_g ? (product * invstd).to(type) : at::Tensor(),
      bias_g ? sum.to(type, /*non_blocking=*/false, /*copy=*/true) : at::Tensor()};
}

at::Tensor batch_norm_backward_elemt(
    const at::Tensor& grad_out, const at::Tensor& input, const at::Tensor& mean,
    const at::Tensor& invstd, const OptionalTensor& weight, const at::Tensor& sum_dy,
    const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  const at::Tensor total = count.sum().to(wide(input));
  const at::Tensor slope = invstd.square() * sum_dy_xmu / total;
  at::Tensor grad = grad_out.to(wide(input)) - of_channels(sum_dy / total, input) -
      centred(input, mean) * of_channels(slope, input);
  grad = grad * of_channels(is_defined(weight) ? invstd * *weight : invstd, input);
  return grad.to(input.scalar_type());
}

const Operators sync_batch_norms([](Operators& define) {
  define.in_place_of("batch_norm_stats", &batch_norm_stats);
  define.in_place_of("batch_norm_elemt", &batch_norm_elemt);
  define.in_place_of("batch_norm_gather_stats_with_counts", &batch_norm_gather_stats_with_counts);
  define.in_place_of("batch_norm_backward_reduce", &batch_norm_backward_reduce);
  define.in_place_of("batch_norm_backward_elemt", &batch_norm_backward_elemt);
});

}  // namespace
}  // namespace hpu::custom
