#include "custom/experts/experts.h"

#include "custom/corrections/gelu.h"
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace hpu::custom {
namespace {

using at::ScalarType;

/// The weights of one expert in float32, as [in, out].
struct Expert {
  at::Tensor gate;
  at::Tensor up;
  at::Tensor down;
};

at::Tensor laid_out(
    at::TensorList weights, size_t i, bool permuted, const std::vector<at::Tensor>* scales) {
  const at::Tensor wide = weights[i].to(ScalarType::Float);
  const at::Tensor weight = permuted ? wide.t() : wide;
  return scales ? scaled(weight, (*scales)[i].flatten()) : weight;
}

Expert expert_at(const Experts& experts, size_t i, const ExpertScales* scales) {
  const bool permuted = experts.permuted;
  const at::Tensor gate = laid_out(experts.gates, i, permuted, scales ? &scales->gates : nullptr);
  const at::Tensor down = laid_out(experts.downs, i, permuted, scales ? &scales->downs : nullptr);
  if (experts.ups.empty()) {
    const auto halves = gate.chunk(2, 1);
    TORCH_CHECK(
        halves.size() == 2, "MixtureOfExperts w12 must have gate and up side by side, but has shape ",
        experts.gates[i].sizes(), ".");
    return {halves[0], halves[1], down};
  }
  return {gate, laid_out(experts.ups, i, permuted, scales ? &scales->ups : nullptr), down};
}

/// In eager mode, a card uses the tanh form depending on the flag; the form in its graphs is not
/// public. So GELU is exact unless the flag is set.
at::Tensor activated(const at::Tensor& values, const std::string& activation) {
  if (activation == "gelu") {
    return at::gelu(values, tanh_gelu_is_set() ? "tanh" : "none");
  }
  return activation == "relu" ? at::relu(values) : at::silu(values);
}

/// The values of an expert before its last product.
at::Tensor inner(const at::Tensor& tokens, const Expert& expert, const std::string& activation) {
  return activated(at::matmul(tokens, expert.gate), activation) * at::matmul(tokens, expert.up);
}

/// Converts inner values to 8 bits and back.
at::Tensor through_fp8(
    const at::Tensor& values, size_t i, const ExpertScales& scales, ScalarType fp8) {
  at::Tensor factor;
  if (scales.inner.empty()) {
    factor = values.abs().max() / largest_fp8(fp8);
    factor = at::where(factor > 0, factor, at::ones_like(factor));
  } else {
    factor = scales.inner[i].to(ScalarType::Float);
  }
  return scaled(to_fp8(scaled(values, factor.reciprocal()), fp8).to(ScalarType::Float), factor);
}

void check_experts(
    const at::Tensor& hidden, const Routing& routing, const Experts& experts) {
  const std::string& activation = experts.activation;
  TORCH_CHECK(
      activation == "gelu" || activation == "relu" || activation == "silu", "Activation \"",
      activation, "\" not found among MoeActivationMode_t enum values.");
  TORCH_CHECK(
      hidden.dim() == 2, "MixtureOfExperts hidden_states must be 2D, but are ", hidden.dim(), "D.");
  TORCH_CHECK(
      at::isIntegralType(routing.table.scalar_type(), /*includeBool=*/false),
      "MixtureOfExperts routing table must have integers, but has ",
      toString(routing.table.scalar_type()), ".");
  TORCH_CHECK(
      routing.table.dim() == 2 && routing.table.sym_sizes() == routing.weights.sym_sizes() &&
          routing.table.sym_size(0) == hidden.sym_size(0),
      "MixtureOfExperts routing table and router weights must have one row for each of ",
      hidden.sym_size(0), " tokens, but have shapes ", routing.table.sym_sizes(), " and ",
      routing.weights.sym_sizes(), ".");
  const int64_t count = experts.last_id - experts.first_id + 1;
  for (const at::TensorList* list : {&experts.gates, &experts.ups, &experts.downs}) {
    TORCH_CHECK(
        static_cast<int64_t>(list->size()) == count || (list == &experts.ups && list->empty()),
        "MixtureOfExperts needs the weights of experts ", experts.first_id, " to ",
        experts.last_id, ", ", count, " tensors in each list, but one has ", list->size(), ".");
    for (const at::Tensor& weight : *list) {
      TORCH_CHECK(
          weight.dim() == 2, "MixtureOfExperts weights must be 2D, but one is ", weight.dim(),
          "D.");
    }
  }
}

}  // namespace

at::Tensor mixture(
    const at::Tensor& hidden, const Routing& routing, const Experts& experts,
    const ExpertScales* scales) {
  check_experts(hidden, routing, experts);
  const ScalarType input_type = hidden.scalar_type();
  const ScalarType dtype = scales ? ScalarType::BFloat16 : input_type;
  if (hidden.is_meta()) {
    return at::empty_symint(hidden.sym_sizes(), hidden.options().dtype(dtype));
  }
  const at::Tensor wide = hidden.to(ScalarType::Float);
  const at::Tensor tokens = scales ? scaled(wide, scales->hidden) : wide;
  const at::Tensor weights = routing.weights.to(ScalarType::Float);
  at::Tensor mixed = at::zeros(tokens.sizes(), tokens.options());
  for (size_t i = 0; i < experts.downs.size(); ++i) {
    const at::Tensor named = routing.table == experts.first_id + static_cast<int64_t>(i);
    const at::Tensor its = named.any(1).nonzero().squeeze(1);
    if (its.numel() == 0) {
      continue;
    }
    const Expert expert = expert_at(experts, i, scales);
    at::Tensor values = inner(tokens.index_select(0, its), expert, experts.activation);
    values = scales ? through_fp8(values, i, *scales, input_type) : values;
    const at::Tensor share = (weights * named).sum(1, /*keepdim=*/true).index_select(0, its);
    mixed.index_add_(0, its, at::matmul(values, expert.down) * share);
  }
  return mixed.to(dtype);
}

namespace {

void check_dtypes(const at::Tensor& hidden, const at::Tensor& router_weights) {
  TORCH_CHECK(
      c10::isFloatingType(hidden.scalar_type()) && !is_fp8(hidden.scalar_type()) &&
          router_weights.scalar_type() == hidden.scalar_type(),
      "MixtureOfExperts hidden_states and router_weights must have the same floating-point dtype "
      "of more than 8 bits, but have ", toString(hidden.scalar_type()), " and ",
      toString(router_weights.scalar_type()), ".");
}

/// Each expert's largest inner value over all tokens, including those that are not routed to it.
at::Tensor largest_inner(const at::Tensor& hidden, const Experts& experts) {
  const auto count = static_cast<int64_t>(experts.downs.size());
  at::Tensor largest = at::zeros({count}, hidden.options().dtype(ScalarType::Float));
  if (hidden.is_meta() || hidden.numel() == 0) {
    return largest;
  }
  const at::Tensor tokens = hidden.to(ScalarType::Float);
  for (int64_t i = 0; i < count; ++i) {
    const Expert expert = expert_at(experts, static_cast<size_t>(i), nullptr);
    largest.select(0, i).copy_(inner(tokens, expert, experts.activation).max());
  }
  return largest;
}

at::Tensor mixture_of_experts(
    const at::Tensor& hidden_states, const at::Tensor& expert_routing_table,
    const at::Tensor& router_weights, at::TensorList w1, at::TensorList w2, at::TensorList w3,
    bool permuted_weights, c10::string_view activation, int64_t experts_min, int64_t experts_max) {
  TORCH_CHECK(
      w2.size() == w1.size(), "MixtureOfExperts w1 and w2 must be lists of equal length, but "
      "have ", w1.size(), " and ", w2.size(), ".");
  check_dtypes(hidden_states, router_weights);
  return mixture(
      hidden_states, {expert_routing_table, router_weights},
      {w1, w2, w3, permuted_weights, std::string(activation), experts_min, experts_max});
}

at::Tensor mixture_of_experts_fused(
    const at::Tensor& hidden_states, const at::Tensor& expert_routing_table,
    const at::Tensor& router_weights, at::TensorList w12, at::TensorList w3, bool permuted_weights,
    c10::string_view activation, int64_t experts_min, int64_t experts_max) {
  check_dtypes(hidden_states, router_weights);
  return mixture(
      hidden_states, {expert_routing_table, router_weights},
      {w12, {}, w3, permuted_weights, std::string(activation), experts_min, experts_max});
}

std::tuple<at::Tensor, at::Tensor> mixture_of_experts_measured(
    const at::Tensor& hidden_states, const at::Tensor& expert_routing_table,
    const at::Tensor& router_weights, at::TensorList w1, at::TensorList w2, at::TensorList w3,
    bool permuted_weights, c10::string_view activation, int64_t experts_min, int64_t experts_max,
    bool /*measurement_mode*/) {
  return {
      mixture_of_experts(
          hidden_states, expert_routing_table, router_weights, w1, w2, w3, permuted_weights,
          activation, experts_min, experts_max),
      largest_inner(
          hidden_states,
          {w1, w2, w3, permuted_weights, std::string(activation), experts_min, experts_max})};
}

std::tuple<at::Tensor, at::Tensor> mixture_of_experts_measured_fused(
    const at::Tensor& hidden_states, const at::Tensor& expert_routing_table,
    const at::Tensor& router_weights, at::TensorList w12, at::TensorList w3, bool permuted_weights,
    c10::string_view activation, int64_t experts_min, int64_t experts_max,
    bool /*measurement_mode*/) {
  return {
      mixture_of_experts_fused(
          hidden_states, expert_routing_table, router_weights, w12, w3, permuted_weights,
          activation, experts_min, experts_max),
      largest_inner(
          hidden_states,
          {w12, {}, w3, permuted_weights, std::string(activation), experts_min, experts_max})};
}

const Operators experts([](Operators& define) {
  const std::string routed =
      "(Tensor hidden_states, Tensor expert_routing_table, Tensor router_weights, ";
  const std::string range =
      "bool permuted_weights, str activation, int experts_min, int experts_max";
  const std::string three = "Tensor[] w1, Tensor[] w2, Tensor[] w3, ";
  const std::string two = "Tensor[] w12, Tensor[] w3, ";
  const std::string measured = ", bool measurement_mode) -> (Tensor, Tensor)";
  define("mixture_of_experts" + routed + three + range + ") -> Tensor", &mixture_of_experts);
  define(
      "mixture_of_experts.fused_weights" + routed + two + range + ") -> Tensor",
      &mixture_of_experts_fused);
  define.in_eager_mode(
      "mixture_of_experts.fp8_measurement" + routed + three + range + measured,
      &mixture_of_experts_measured);
  define.in_eager_mode(
      "mixture_of_experts.fp8_measurement_fused_weights" + routed + two + range + measured,
      &mixture_of_experts_measured_fused);
  define_fp8_experts(define);
});

}  // namespace
}  // namespace hpu::custom
