// Clips gradients by their total norm.
#include "custom/define.h"
#include "custom/optimizers/lists.h"

namespace hpu::custom {
namespace {

/// Scales all tensors except the last one, and stores their total norm in the last one.
template <class Coefficient>
at::Tensor clip(at::TensorList grad, double norm_type, const Coefficient& coefficient) {
  TORCH_CHECK(norm_type == 2.0, "unsupported norm_type for FusedClipNorm");
  TORCH_CHECK(
      !grad.empty(), "fused_clip_norm : can not process empty grad vector (eager)");
  const at::TensorList clipped = grad.slice(0, grad.size() - 1);
  const at::Tensor total =
      clipped.empty() ? at::zeros({1}, grad.back().options().dtype(at::ScalarType::Float))
                      : norm_of(clipped);
  const at::Tensor factor = coefficient(total);
  for (const at::Tensor& gradient : clipped) {
    gradient.mul_(factor.reshape({}));
  }
  grad.back().copy_(total);
  return total.to(grad.back().scalar_type());
}

constexpr double kNormEpsilon = 1e-6;

at::Tensor fused_clip_norm(at::TensorList grad, const at::Tensor& max_norm, double norm_type) {
  return clip(grad, norm_type, [&](const at::Tensor& total) {
    return at::clamp_max(max_norm / (total + kNormEpsilon), 1.0);
  });
}

/// Implements the lazy-mode operator, which leaves gradients with a small norm unchanged.
at::Tensor fused_norm_lazy(at::TensorList grad, const at::Tensor& max_norm, double norm_type) {
  return clip(grad, norm_type, [&](const at::Tensor& total) {
    return at::where(total > max_norm, max_norm / (total + kNormEpsilon), 1.0);
  });
}

const Operators clip_norms([](Operators& define) {
  define.in_eager_mode(
      "fused_clip_norm(Tensor(a!)[] grad, Tensor max_norm, float norm_type) -> Tensor",
      &fused_clip_norm);
  define.in_lazy_mode(
      "fused_norm_lazy(Tensor(a!)[] grad, Tensor max_norm, float norm_type) -> Tensor",
      &fused_norm_lazy);
});

}  // namespace
}  // namespace hpu::custom
