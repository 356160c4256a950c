// AdamW over lists of tensors. `neg_step` is the negative step size, including the bias correction.
// Weights are multiplied by `weight_decay`.
#include "calls/dtypes.h"
#include "custom/define.h"
#include "custom/optimizers/lists.h"
#include "custom/quantization/fp8.h"

#include <cmath>

namespace hpu::custom {
namespace {

using OptionalList = std::optional<at::TensorList>;

struct AdamW {
  double neg_step;
  double decay;
  double beta1;
  double beta2;
  double epsilon;
};

/// The tensors for one weight. Scales are undefined if the moments are not FP8.
struct Weight {
  at::Tensor grad;
  at::Tensor weight;
  at::Tensor first;
  at::Tensor second;
  at::Tensor first_scale;
  at::Tensor second_scale;
};

ScalarType arithmetic(const at::Tensor& grad, const at::Tensor& moment) {
  return is_fp8(moment.scalar_type())
      ? ScalarType::Float
      : c10::promoteTypes(grad.scalar_type(), moment.scalar_type());
}

at::Tensor loaded(const at::Tensor& moment, const at::Tensor& scale, ScalarType dtype) {
  const at::Tensor value = moment.to(dtype);
  return scale.defined() ? value / scale.to(dtype) : value;
}

/// Stores a moment. An FP8 moment is scaled by the largest power of two that keeps it in range.
void store(const at::Tensor& moment, const at::Tensor& value, const at::Tensor& scale) {
  if (!scale.defined() || value.numel() == 0) {
    moment.copy_(value);
    return;
  }
  const double largest =
      moment.scalar_type() == kE4M3 ? kGaudi2Float8Limit : largest_fp8(kE5M2);
  const double fitting = largest / value.abs().max().item<double>();
  if (std::isfinite(fitting) && fitting > 0.0) {  // otherwise all values are zero: keep the scale
    scale.fill_(std::exp2(std::floor(std::log2(fitting))));
  }
  moment.copy_(stochastic_fp8(value * scale.to(value.scalar_type()), moment.scalar_type()));
}

void step(const Weight& of, const AdamW& by) {
  const ScalarType first_type = arithmetic(of.grad, of.first);
  const ScalarType second_type = arithmetic(of.grad, of.second);
  const at::Tensor first = loaded(of.first, of.first_scale, first_type) * by.beta1 +
      of.grad.to(first_type) * (1.0 - by.beta1);
  const at::Tensor second = loaded(of.second, of.second_scale, second_type) * by.beta2 +
      at::square(of.grad.to(second_type)) * (1.0 - by.beta2);
  if (by.decay != 1.0) {
    of.weight.mul_(by.decay);
  }
  of.weight.copy_(of.weight + first / (second.sqrt() + by.epsilon) * by.neg_step);
  store(of.first, first, of.first_scale);
  store(of.second, second, of.second_scale);
}

/// Returns whether PyTorch's fused kernel supports these lists of tensors. The kernel requires a
/// single dtype, equal strides and a nonzero step.
bool can_fuse(
    at::TensorList grads, at::TensorList weights, at::TensorList firsts, at::TensorList seconds,
    const AdamW& by) {
  const ScalarType dtype = weights[0].scalar_type();
  for (const at::TensorList list : {grads, weights, firsts, seconds}) {
    for (const at::Tensor& tensor : list) {
      if (tensor.scalar_type() != dtype || !tensor.is_non_overlapping_and_dense() ||
          tensor.strides() != weights[static_cast<size_t>(&tensor - list.data())].strides()) {
        return false;
      }
    }
  }
  return by.neg_step != 0.0 && c10::isFloatingType(dtype) && !is_fp8(dtype);
}

/// Uses a very large step count, so that the bias correction in PyTorch's kernel has no effect.
void step_fused(
    at::TensorList grads, at::TensorList weights, at::TensorList firsts, at::TensorList seconds,
    const AdamW& by) {
  constexpr double kEndOfTime = 1e30;
  const std::vector<at::Tensor> steps(
      weights.size(), at::full({}, kEndOfTime, at::dtype(ScalarType::Float)));
  const double rate = -by.neg_step;
  at::_fused_adamw_(
      weights, grads, firsts, seconds, {}, steps, rate, by.beta1, by.beta2,
      (1.0 - by.decay) / rate, by.epsilon, /*amsgrad=*/false, /*maximize=*/false);
}

/// Returns the factors, rounded to the dtype of a weight.
AdamW rounded(const AdamW& by, const at::Tensor& weight) {
  const auto in_its_type = [&weight](double value) {
    return at::scalar_tensor(value, weight.options()).item<double>();
  };
  AdamW of_weight = by;
  of_weight.neg_step = in_its_type(by.neg_step);
  of_weight.decay = in_its_type(by.decay);
  return of_weight;
}

void check_lists(
    at::TensorList grads, at::TensorList weights, at::TensorList firsts, at::TensorList seconds,
    const OptionalList& first_scales, const OptionalList& second_scales) {
  check_not_empty("optimizer_adamw", weights);
  TORCH_CHECK(
      grads.size() == weights.size() && firsts.size() == weights.size() &&
          seconds.size() == weights.size(),
      "All 4 vector inputs must have the same number of elements but they respectively have: ",
      grads.size(), ", ", weights.size(), ", ", firsts.size(), ", ", seconds.size());
  TORCH_CHECK(
      first_scales.has_value() == second_scales.has_value(),
      "optimizer_adamw : expects both or neighter scales to be set");
  for (const OptionalList* scales : {&first_scales, &second_scales}) {
    TORCH_CHECK(
        !*scales || (*scales)->size() == weights.size(), "optimizer_adamw : expects a scale for "
        "each of ", weights.size(), " weights, but got ", (*scales)->size(), ".");
  }
  for (const at::TensorList list : {grads, firsts, seconds}) {
    check_shapes_agree("optimizer_adamw", weights, list);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    for (const at::Tensor* each : {&firsts[i], &seconds[i]}) {
      TORCH_CHECK(
          first_scales || !is_fp8(each->scalar_type()),
          "optimizer_adamw : expects scales with moments of dtype ",
          toString(each->scalar_type()), ".");
    }
  }
}

void adamw(
    at::TensorList grads, at::TensorList weights, at::TensorList firsts, at::TensorList seconds,
    const AdamW& by, const OptionalList& first_scales, const OptionalList& second_scales) {
  const AdamW of_first = rounded(by, weights[0]);
  if (!first_scales && can_fuse(grads, weights, firsts, seconds, of_first)) {
    step_fused(grads, weights, firsts, seconds, of_first);
    return;
  }
  const auto scale_of = [](const OptionalList& scales, size_t i, const at::Tensor& moment) {
    // A scale of shape [1] would add a dimension to 0-dim moments.
    return scales && is_fp8(moment.scalar_type()) ? (*scales)[i].view(at::IntArrayRef{}) : at::Tensor();
  };
  for (size_t i = 0; i < weights.size(); ++i) {
    step(
        {grads[i], weights[i], firsts[i], seconds[i], scale_of(first_scales, i, firsts[i]),
         scale_of(second_scales, i, seconds[i])},
        rounded(by, weights[i]));
  }
}

void optimizer_adamw(
    at::TensorList gradient_vec, at::TensorList weight_vec, at::TensorList exp_avg_vec,
    at::TensorList exp_avg_sq_vec, const at::Tensor& neg_step_t, double beta1, double beta2,
    double epsilon, const at::Tensor& weight_decay, bool has_weight_decay,
    OptionalList exp_avg_scales, OptionalList exp_avg_sq_scales) {
  check_lists(
      gradient_vec, weight_vec, exp_avg_vec, exp_avg_sq_vec, exp_avg_scales, exp_avg_sq_scales);
  if (!neg_step_t.is_meta()) {
    const double decay = has_weight_decay ? weight_decay.item<double>() : 1.0;
    adamw(
        gradient_vec, weight_vec, exp_avg_vec, exp_avg_sq_vec,
        {neg_step_t.item<double>(), decay, beta1, beta2, epsilon}, exp_avg_scales,
        exp_avg_sq_scales);
  }
}

void optimizer_adamw_lazy(
    at::TensorList gradient_vec, at::TensorList weight_vec, at::TensorList exp_avg_vec,
    at::TensorList exp_avg_sq_vec, const at::Tensor& neg_step_t, double beta1, double beta2,
    double epsilon, double weight_decay, OptionalList exp_avg_scales,
    OptionalList exp_avg_sq_scales) {
  check_lists(
      gradient_vec, weight_vec, exp_avg_vec, exp_avg_sq_vec, exp_avg_scales, exp_avg_sq_scales);
  if (!neg_step_t.is_meta()) {
    adamw(
        gradient_vec, weight_vec, exp_avg_vec, exp_avg_sq_vec,
        {neg_step_t.item<double>(), weight_decay, beta1, beta2, epsilon}, exp_avg_scales,
        exp_avg_sq_scales);
  }
}

const Operators adamw_operators([](Operators& define) {
  const std::string lists =
      "optimizer_adamw(Tensor[] gradient_vec, Tensor(a!)[] weight_vec, Tensor(b!)[] exp_avg_vec, "
      "Tensor(c!)[] exp_avg_sq_vec, Tensor neg_step_t, float beta1, float beta2, float epsilon, ";
  const std::string scales =
      "Tensor(d!)[]? exp_avg_scales = None, Tensor(e!)[]? exp_avg_sq_scales = None) -> ()";
  define.in_eager_mode(
      lists + "Tensor weight_decay, bool has_weight_decay, " + scales, &optimizer_adamw);
  define.in_lazy_mode(lists + "float weight_decay, " + scales, &optimizer_adamw_lazy);
});

}  // namespace
}  // namespace hpu::custom
