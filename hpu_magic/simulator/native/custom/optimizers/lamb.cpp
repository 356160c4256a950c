// LAMB in three operators. The first computes the divisor that clips all gradients. The second
// computes Adam's direction, the norm of this direction, and the norm of the weight. The third
// applies the update, scaled by the ratio of the norms.
#include "custom/define.h"
#include "custom/optimizers/lists.h"

#include <initializer_list>

namespace hpu::custom {
namespace {

/// Returns the divisor that limits the total norm of the gradients. PyTorch rejects a call without
/// gradients, because such a call has no device.
at::Tensor optimizer_lamb_fused_norm(at::TensorList grad, double max_norm) {
  return at::clamp_min(norm_of(grad) / max_norm, 1.0).to(grad[0].scalar_type());
}

void check_sizes_agree(
    const char* name, at::TensorList weights, std::initializer_list<at::TensorList> lists) {
  for (const at::TensorList list : lists) {
    TORCH_CHECK(
        list.size() == weights.size(), name, " : expects lists with one tensor per weight, ",
        weights.size(), ", but got ", list.size(), ".");
  }
}

void optimizer_lamb_phase1(
    at::TensorList gradients, at::TensorList weights, at::TensorList exp_avg,
    at::TensorList exp_avg_sq, at::TensorList out_weight_norms, at::TensorList out_adam_norms,
    at::TensorList out_adam_steps, const at::Tensor& clip_global_grad_norm, int64_t grad_averaging,
    double beta1, double beta2, double epsilon, const at::Tensor& bias_correction1,
    const at::Tensor& bias_correction2, double weight_decay) {
  check_sizes_agree(
      "optimizer_lamb_phase1", weights,
      {gradients, exp_avg, exp_avg_sq, out_weight_norms, out_adam_norms, out_adam_steps});
  for (const at::TensorList list : {gradients, exp_avg, exp_avg_sq, out_adam_steps}) {
    check_shapes_agree("optimizer_lamb_phase1", weights, list);
  }
  if (clip_global_grad_norm.is_meta()) {
    return;
  }
  const double share = grad_averaging != 0 ? 1.0 - beta1 : 1.0;
  const double clip = clip_global_grad_norm.item<double>();
  const double correction1 = bias_correction1.item<double>();
  const double correction2 = bias_correction2.item<double>();
  for (size_t i = 0; i < weights.size(); ++i) {
    const at::Tensor gradient = gradients[i] / clip;
    exp_avg[i].mul_(beta1).add_(gradient, share);
    exp_avg_sq[i].mul_(beta2).addcmul_(gradient, gradient, 1.0 - beta2);
    at::Tensor direction =
        (exp_avg[i] / correction1).div_((exp_avg_sq[i] / correction2).sqrt_().add_(epsilon));
    if (weight_decay != 0.0) {
      direction.add_(weights[i], weight_decay);
    }
    out_adam_steps[i].copy_(direction);
    out_weight_norms[i].copy_(norm_of({weights[i]}));
    out_adam_norms[i].copy_(norm_of({direction}));
  }
}

void optimizer_lamb_phase2(
    at::TensorList weights, at::TensorList adam_norms, at::TensorList weight_norms,
    at::TensorList adam_steps, const at::Tensor& neg_step, double wd, bool use_lamb) {
  check_sizes_agree("optimizer_lamb_phase2", weights, {adam_norms, weight_norms, adam_steps});
  check_shapes_agree("optimizer_lamb_phase2", weights, adam_steps);
  if (neg_step.is_meta()) {
    return;
  }
  const double step = neg_step.item<double>();
  for (size_t i = 0; i < weights.size(); ++i) {
    double trust = 1.0;
    if (wd != 0.0 || use_lamb) {
      const double of_step = adam_norms[i].item<double>();
      trust = of_step > 0.0 ? weight_norms[i].item<double>() / of_step : 1.0;
    }
    weights[i].add_(adam_steps[i], step * trust);
  }
}

const Operators lamb([](Operators& define) {
  define(
      "optimizer_lamb_fused_norm(Tensor[] grad, float max_norm) -> Tensor",
      &optimizer_lamb_fused_norm);
  define(
      "optimizer_lamb_phase1(Tensor[] gradients, Tensor[] weights, Tensor(a!)[] exp_avg, "
      "Tensor(b!)[] exp_avg_sq, Tensor(c!)[] out_weight_norms, Tensor(d!)[] out_adam_norms, "
      "Tensor(e!)[] out_adam_steps, Tensor clip_global_grad_norm, int grad_averaging, float beta1, "
      "float beta2, float epsilon, Tensor bias_correction1, Tensor bias_correction2, "
      "float weight_decay) -> ()",
      &optimizer_lamb_phase1);
  define(
      "optimizer_lamb_phase2(Tensor(a!)[] weights, Tensor[] adam_norms, Tensor[] weight_norms, "
      "Tensor[] adam_steps, Tensor neg_step, float wd, bool use_lamb) -> ()",
      &optimizer_lamb_phase2);
});

}  // namespace
}  // namespace hpu::custom
