// Root mean square normalization, and the clipping of gradients by their common norm. Arithmetic is
// in float32. What the vendor calls fast is the same here: its approximations are not published.
#include "custom/define.h"
#include "custom/norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <numeric>

namespace hpu::custom {
namespace {

using at::ScalarType;

bool is_normalized(ScalarType dtype) {
  return dtype == ScalarType::Float || dtype == ScalarType::BFloat16 || dtype == ScalarType::Half;
}

void check_rms_norm(const at::Tensor& data_in, const at::Tensor& gamma) {
  for (const at::Tensor* given : {&data_in, &gamma}) {
    TORCH_CHECK(
        is_normalized(given->scalar_type()),
        "RmsNorm inputs must be of float, bfloat16 or half dtype, but one is ",
        toString(given->scalar_type()), ".");
  }
  TORCH_CHECK(
      data_in.dim() > 0 && gamma.dim() == 1 && gamma.sym_size(0) == data_in.sym_size(-1),
      "RmsNorm gamma must be 1D of the size of the last dimension of its input, but they have "
      "shapes ", gamma.sym_sizes(), " and ", data_in.sym_sizes(), ".");
}

std::tuple<at::Tensor, at::Tensor> rms_norm(
    const at::Tensor& data_in, const at::Tensor& gamma, double epsilon) {
  check_rms_norm(data_in, gamma);
  const bool same = data_in.scalar_type() == gamma.scalar_type();
  const ScalarType dtype = same ? gamma.scalar_type() : ScalarType::Float;
  const at::Tensor data = data_in.to(ScalarType::Float);
  const at::Tensor inverse_rms = at::square(data).mean(-1, /*keepdim=*/true).add_(epsilon).rsqrt_();
  return {(data * inverse_rms).mul_(gamma).to(dtype), inverse_rms.to(dtype)};
}

std::tuple<at::Tensor, at::Tensor> rms_norm_backward(
    const at::Tensor& grad_in, const at::Tensor& data_in, const at::Tensor& gamma,
    const at::Tensor& inverse_rms, bool /*use_stages*/, int64_t /*bwd_mode*/) {
  check_rms_norm(data_in, gamma);
  TORCH_CHECK(
      grad_in.sym_sizes() == data_in.sym_sizes(),
      "RmsNorm gradient must have the shape of the input, ", data_in.sym_sizes(), ", but has ",
      grad_in.sym_sizes(), ".");
  c10::SymDimVector of_rows(data_in.sym_sizes().begin(), data_in.sym_sizes().end());
  of_rows.back() = 1;
  TORCH_CHECK(
      inverse_rms.sym_sizes() == c10::SymIntArrayRef(of_rows),
      "RmsNorm backward needs an inverse_rms of shape ", c10::SymIntArrayRef(of_rows),
      ", but its shape is ", inverse_rms.sym_sizes(), ".");
  ScalarType dtype = gamma.scalar_type();
  for (const at::Tensor* given : {&grad_in, &data_in, &inverse_rms}) {
    dtype = given->scalar_type() == dtype ? dtype : ScalarType::Float;
  }
  const at::Tensor grad = grad_in.to(ScalarType::Float);
  const at::Tensor normalized = data_in.to(ScalarType::Float) * inverse_rms;
  const at::Tensor weighted = grad * gamma;
  const at::Tensor along = (weighted * normalized).mean(-1, /*keepdim=*/true);
  const at::Tensor of_data = (weighted - normalized * along).mul_(inverse_rms);
  std::vector<int64_t> leading(static_cast<size_t>(data_in.dim() - 1));
  std::iota(leading.begin(), leading.end(), 0);
  const at::Tensor each = grad * normalized;
  const at::Tensor of_gamma = leading.empty() ? each : each.sum(leading);
  return {of_data.to(dtype), of_gamma.to(dtype)};
}

/// Multiplies all but the last of `grad`, and puts their common norm into the last.
template <class Coefficient>
at::Tensor clip(at::TensorList grad, double norm_type, const Coefficient& coefficient) {
  TORCH_CHECK(norm_type == 2.0, "unsupported norm_type for FusedClipNorm");
  TORCH_CHECK(
      !grad.empty(), "fused_clip_norm : can not process empty grad vector (eager)");
  const at::TensorList clipped = grad.slice(0, grad.size() - 1);
  const at::Tensor total =
      clipped.empty() ? at::zeros({1}, grad.back().options().dtype(ScalarType::Float))
                      : norm_of(clipped);
  const at::Tensor factor = coefficient(total);
  for (const at::Tensor& gradient : clipped) {
    gradient.mul_(factor.reshape({}));
  }
  grad.back().copy_(total);
  return total.to(grad.back().scalar_type());
}

constexpr double kAgainstZero = 1e-6;

at::Tensor fused_clip_norm(at::TensorList grad, const at::Tensor& max_norm, double norm_type) {
  return clip(grad, norm_type, [&](const at::Tensor& total) {
    return at::clamp_max(max_norm / (total + kAgainstZero), 1.0);
  });
}

/// Lazy mode's form leaves a norm that is at most the largest as it is.
at::Tensor fused_norm_lazy(at::TensorList grad, const at::Tensor& max_norm, double norm_type) {
  return clip(grad, norm_type, [&](const at::Tensor& total) {
    return at::where(total > max_norm, max_norm / (total + kAgainstZero), 1.0);
  });
}

const Operators norms([](Operators& define) {
  const std::string forward = "(Tensor data_in, Tensor gamma, float epsilon) -> (Tensor, Tensor)";
  const std::string backward =
      "(Tensor grad_in, Tensor data_in, Tensor gamma, Tensor inverse_rms, bool use_stages, "
      "int bwd_mode) -> (Tensor, Tensor)";
  define("rms_norm" + forward, &rms_norm);
  define("rms_norm_fast" + forward, &rms_norm);
  define("rms_norm_backward" + backward, &rms_norm_backward);
  define("rms_norm_fast_backward" + backward, &rms_norm_backward);
  define.in_eager_mode(
      "fused_clip_norm(Tensor(a!)[] grad, Tensor max_norm, float norm_type) -> Tensor",
      &fused_clip_norm);
  define.in_lazy_mode(
      "fused_norm_lazy(Tensor(a!)[] grad, Tensor max_norm, float norm_type) -> Tensor",
      &fused_norm_lazy);
});

}  // namespace
}  // namespace hpu::custom
