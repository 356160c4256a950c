// Optimizers over lists of tensors (SGD, LARS, momentum and Adagrad), and the moving average of a
// model. Most of these operators have different names in lazy mode.
#include "custom/define.h"
#include "custom/optimizers/lists.h"

namespace hpu::custom {
namespace {

at::Tensor decayed(const at::Tensor& gradient, const at::Tensor& weight, double decay) {
  return decay != 0.0 ? gradient.add(weight, decay) : gradient;
}

/// Raises an error unless the three lists contain tensors of the same shapes.
void check_three_lists(
    const char* name, at::TensorList gradients, at::TensorList weights, at::TensorList states) {
  check_not_empty(name, weights);
  TORCH_CHECK(
      gradients.size() == weights.size() && states.size() == weights.size(),
      "All vector inputs must have the same number of elements but they respectively have: ",
      gradients.size(), ", ", weights.size(), ", ", states.size());
  check_shapes_agree(name, weights, gradients);
  check_shapes_agree(name, weights, states);
}

void optimizer_sgd(
    at::TensorList gradients, at::TensorList weights_in, at::Tensor learning_rate, double wd,
    double /*mom*/, double /*damp*/, bool /*nesterov*/) {
  check_not_empty("optimizer_sgd", weights_in);
  TORCH_CHECK(
      gradients.size() == weights_in.size(),
      "Both vector inputs must have the same number of elements but they respectively have: ",
      gradients.size(), ", ", weights_in.size());
  check_shapes_agree("optimizer_sgd", weights_in, gradients);
  if (learning_rate.is_meta()) {
    return;
  }
  const double rate = learning_rate.item<double>();
  for (size_t i = 0; i < weights_in.size(); ++i) {
    weights_in[i].add_(decayed(gradients[i], weights_in[i], wd), -rate);
  }
}

void optimizer_sgd_momentum(
    at::TensorList gradients, at::TensorList weights_in, at::TensorList momentum_in,
    const at::Tensor& /*epoch_num*/, at::Tensor learning_rate, at::Tensor mom, double wd,
    double damp, bool nesterov) {
  check_three_lists("optimizer_sgd_momentum", gradients, weights_in, momentum_in);
  if (learning_rate.is_meta()) {
    return;
  }
  const double rate = learning_rate.item<double>();
  const double momentum = mom.item<double>();
  for (size_t i = 0; i < weights_in.size(); ++i) {
    const at::Tensor gradient = decayed(gradients[i], weights_in[i], wd);
    const at::Tensor& buffer = momentum_in[i];
    buffer.mul_(momentum).add_(gradient, 1.0 - damp);
    weights_in[i].add_(nesterov ? gradient.add(buffer, momentum) : buffer, -rate);
  }
}

void optimizer_lars(
    at::TensorList params, at::TensorList grads, at::IntArrayRef skip_masks, double eeta,
    double weight_decay, double eps, const at::Tensor& lr) {
  TORCH_CHECK(
      params.size() == grads.size() && params.size() == skip_masks.size(),
      "params, grads and skip_masks vector inputs must have the same number of elements but they "
      "respectively have: ", params.size(), ", ", grads.size(), ", ", skip_masks.size());
  check_shapes_agree("optimizer_lars", params, grads);
  if (lr.is_meta()) {
    return;
  }
  const double rate = lr.item<double>();
  for (size_t i = 0; i < params.size(); ++i) {
    double trust = 1.0;
    if (skip_masks[i] != 0) {
      const double of_weight = norm_of({params[i]}).item<double>();
      const double of_grad = norm_of({grads[i]}).item<double>();
      if (of_weight > 0.0 && of_grad > 0.0) {
        trust = eeta * of_weight / (of_grad + weight_decay * of_weight + eps);
      }
      grads[i].add_(params[i], weight_decay);
    }
    grads[i].mul_(rate * trust);
  }
}

void optimizer_lars_lazy(
    at::TensorList params, at::TensorList grads, const at::Tensor& lr_t, at::IntArrayRef skip_masks,
    double eeta, double weight_decay, double eps) {
  optimizer_lars(params, grads, skip_masks, eeta, weight_decay, eps, lr_t);
}

void optimizer_resource_apply_momentum(
    at::TensorList params_momentum_buf_list, at::TensorList dp_list, double momentum) {
  TORCH_CHECK(
      params_momentum_buf_list.size() == 2 * dp_list.size(),
      "params_momentum_buf_list must have twice as many elements as dp_list but they respectively "
      "have: ", params_momentum_buf_list.size(), ", ", dp_list.size());
  for (size_t i = 0; i < dp_list.size(); ++i) {
    const at::Tensor& weight = params_momentum_buf_list[2 * i];
    const at::Tensor& buffer = params_momentum_buf_list[2 * i + 1];
    check_shapes_agree("optimizer_resource_apply_momentum", {weight, weight}, {buffer, dp_list[i]});
    weight.add_(buffer.mul_(momentum).sub_(dp_list[i]));
  }
}

void optimizer_adagrad(
    at::TensorList gradients, at::TensorList weights_in, at::TensorList variances_in,
    const at::Tensor& epoch_num, at::Tensor learning_rate, double wd, double lrd, double eps) {
  check_three_lists("optimizer_adagrad", gradients, weights_in, variances_in);
  if (learning_rate.is_meta()) {
    return;
  }
  const double rate = learning_rate.item<double>() / (1.0 + (epoch_num.item<double>() - 1.0) * lrd);
  for (size_t i = 0; i < weights_in.size(); ++i) {
    const at::Tensor gradient = decayed(gradients[i], weights_in[i], wd);
    variances_in[i].addcmul_(gradient, gradient);
    weights_in[i].addcdiv_(gradient, variances_in[i].sqrt().add_(eps), -rate);
  }
}

/// Integer tensors, such as the number of batches, are left unchanged.
void optimizer_ema(
    at::TensorList model_inputs, at::TensorList updated_ema, const at::Tensor& decay) {
  TORCH_CHECK(
      model_inputs.size() == updated_ema.size(),
      "model_inputs and updated_ema vector inputs must have the same number of elements but they "
      "respectively have: ", model_inputs.size(), ", ", updated_ema.size());
  check_shapes_agree("optimizer_ema", updated_ema, model_inputs);
  if (decay.is_meta()) {
    return;
  }
  const double kept = decay.item<double>();
  for (size_t i = 0; i < model_inputs.size(); ++i) {
    if (c10::isFloatingType(updated_ema[i].scalar_type())) {
      updated_ema[i].mul_(kept).add_(model_inputs[i], 1.0 - kept);
    }
  }
}

const Operators optimizers([](Operators& define) {
  const std::string sgd =
      "(Tensor[] gradients, Tensor(a!)[] weights_in, Tensor(b!) learning_rate, float wd, "
      "float mom, float damp, bool nesterov) -> ()";
  const std::string sgd_momentum =
      "(Tensor[] gradients, Tensor(a!)[] weights_in, Tensor(b!)[] momentum_in, Tensor epoch_num, "
      "Tensor(c!) learning_rate, Tensor(d!) mom, float wd, float damp, bool nesterov) -> ()";
  const std::string ema =
      "(Tensor[] model_inputs, Tensor(a!)[] updated_ema, Tensor decay) -> ()";
  define.in_eager_mode("optimizer_sgd" + sgd, &optimizer_sgd);
  define.in_lazy_mode("habanaOptimizerSgd" + sgd, &optimizer_sgd);
  define.in_eager_mode("optimizer_sgd_momentum" + sgd_momentum, &optimizer_sgd_momentum);
  define.in_lazy_mode("habanaOptimizerSgdMomentum" + sgd_momentum, &optimizer_sgd_momentum);
  define.in_eager_mode("optimizer_ema" + ema, &optimizer_ema);
  define.in_lazy_mode("habanaOptimizerFusedEMA" + ema, &optimizer_ema);
  define.in_eager_mode(
      "optimizer_lars(Tensor[] params, Tensor(a!)[] grads, int[] skip_masks, float eeta, "
      "float weight_decay, float eps, Tensor lr) -> ()",
      &optimizer_lars);
  define.in_lazy_mode(
      "habanaOptimizerLars(Tensor[] params, Tensor(a!)[] grads, Tensor lr_t, int[] skip_masks, "
      "float eeta, float weight_decay, float eps) -> ()",
      &optimizer_lars_lazy);
  define.in_lazy_mode(
      "habanaOptimizerFusedAdagrad(Tensor[] gradients, Tensor(a!)[] weights_in, "
      "Tensor(b!)[] variances_in, Tensor epoch_num, Tensor(c!) learning_rate, float wd, float lrd, "
      "float eps) -> ()",
      &optimizer_adagrad);
  define(
      "optimizer_resource_apply_momentum(Tensor(a!)[] params_momentum_buf_list, "
      "Tensor[] dp_list, float momentum) -> ()",
      &optimizer_resource_apply_momentum);
});

}  // namespace
}  // namespace hpu::custom
