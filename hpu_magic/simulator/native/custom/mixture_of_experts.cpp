// A layer of experts: each token goes through those that its row of the routing table names.
#include "custom/define.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace hpu::custom {
namespace {

using at::ScalarType;

/// The weights of one expert in float32, of [in, out].
struct Expert {
  at::Tensor gate;
  at::Tensor up;
  at::Tensor down;
};

at::Tensor activated(const at::Tensor& values, const std::string& activation) {
  if (activation == "gelu") {
    return at::gelu(values);
  }
  return activation == "relu" ? at::relu(values) : at::silu(values);
}

at::Tensor laid_out(const at::Tensor& weight, bool permuted) {
  const at::Tensor wide = weight.to(ScalarType::Float);
  return permuted ? wide.t() : wide;
}

/// Experts of three matrices each, or of two where the first is gate and up side by side.
struct Experts {
  at::TensorList first;
  at::TensorList second;  // none where the first has both
  at::TensorList down;
  bool permuted;

  Expert operator[](size_t i) const {
    if (!second.empty()) {
      return {
          laid_out(first[i], permuted), laid_out(second[i], permuted),
          laid_out(down[i], permuted)};
    }
    const auto halves = laid_out(first[i], permuted).chunk(2, 1);
    return {halves[0], halves[1], laid_out(down[i], permuted)};
  }
};

struct Routing {
  at::Tensor table;
  at::Tensor weights;
  int64_t first_expert;
  int64_t last_expert;
};

void check(
    const at::Tensor& hidden, const Experts& experts, const Routing& routing,
    const std::string& activation) {
  TORCH_CHECK(
      activation == "gelu" || activation == "relu" || activation == "silu", "Activation \"",
      activation, "\" not found among MoeActivationMode_t enum values.");
  TORCH_CHECK(
      hidden.dim() == 2 && c10::isFloatingType(hidden.scalar_type()) &&
          routing.weights.scalar_type() == hidden.scalar_type(),
      "MixtureOfExperts hidden_states must be 2D of a floating-point dtype that router_weights "
      "have too, but they are ", hidden.dim(), "D of ", toString(hidden.scalar_type()), " and ",
      toString(routing.weights.scalar_type()), ".");
  TORCH_CHECK(
      routing.table.dim() == 2 && routing.table.sym_sizes() == routing.weights.sym_sizes() &&
          routing.table.sym_size(0) == hidden.sym_size(0),
      "MixtureOfExperts routing table and router weights must be of one row for each of ",
      hidden.sym_size(0), " tokens, but have shapes ", routing.table.sym_sizes(), " and ",
      routing.weights.sym_sizes(), ".");
  const auto count = routing.last_expert - routing.first_expert + 1;
  for (const at::TensorList list : {experts.first, experts.second, experts.down}) {
    TORCH_CHECK(
        (list.empty() && list.data() == experts.second.data()) ||
            static_cast<int64_t>(list.size()) == count,
        "MixtureOfExperts needs the weights of experts ", routing.first_expert, " to ",
        routing.last_expert, ", ", count, " tensors in each list, but one has ", list.size(), ".");
  }
}

/// What an expert makes of tokens before its last product.
at::Tensor inner(const at::Tensor& tokens, const Expert& expert, const std::string& activation) {
  return activated(at::matmul(tokens, expert.gate), activation) * at::matmul(tokens, expert.up);
}

/// An expert named twice for a token counts twice, and one that is not among `experts` not at all.
at::Tensor mixture(
    const at::Tensor& hidden, const Experts& experts, const Routing& routing,
    const std::string& activation) {
  check(hidden, experts, routing, activation);
  if (hidden.is_meta()) {
    return at::empty_symint(hidden.sym_sizes(), hidden.options());
  }
  const at::Tensor tokens = hidden.to(ScalarType::Float);
  const at::Tensor weights = routing.weights.to(ScalarType::Float);
  at::Tensor mixed = at::zeros(tokens.sizes(), tokens.options());
  for (size_t i = 0; i < experts.down.size(); ++i) {
    const at::Tensor named = routing.table == routing.first_expert + static_cast<int64_t>(i);
    const at::Tensor its = named.any(1).nonzero().squeeze(1);
    if (its.numel() == 0) {
      continue;
    }
    const at::Tensor share = (weights * named).sum(1, /*keepdim=*/true).index_select(0, its);
    const Expert expert = experts[i];
    const at::Tensor made =
        at::matmul(inner(tokens.index_select(0, its), expert, activation), expert.down);
    mixed.index_add_(0, its, made * share);
  }
  return mixed.to(hidden.scalar_type());
}

/// Each expert's largest inner value, over all tokens whether or not they go there.
at::Tensor largest_inner(
    const at::Tensor& hidden, const Experts& experts, const std::string& activation) {
  const auto count = static_cast<int64_t>(experts.down.size());
  at::Tensor largest = at::zeros({count}, hidden.options().dtype(ScalarType::Float));
  if (hidden.is_meta() || hidden.numel() == 0) {
    return largest;
  }
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor of_all =
        inner(hidden.to(ScalarType::Float), experts[static_cast<size_t>(i)], activation);
    largest.select(0, i).copy_(of_all.max());
  }
  return largest;
}

at::Tensor mixture_of_experts(
    const at::Tensor& hidden_states, const at::Tensor& expert_routing_table,
    const at::Tensor& router_weights, at::TensorList w1, at::TensorList w2, at::TensorList w3,
    bool permuted_weights, c10::string_view activation, int64_t experts_min, int64_t experts_max) {
  TORCH_CHECK(
      w2.size() == w1.size(), "MixtureOfExperts w1 and w2 must be lists of as many tensors, but "
      "have ", w1.size(), " and ", w2.size(), ".");
  return mixture(
      hidden_states, {w1, w2, w3, permuted_weights},
      {expert_routing_table, router_weights, experts_min, experts_max}, std::string(activation));
}

at::Tensor mixture_of_experts_fused(
    const at::Tensor& hidden_states, const at::Tensor& expert_routing_table,
    const at::Tensor& router_weights, at::TensorList w12, at::TensorList w3, bool permuted_weights,
    c10::string_view activation, int64_t experts_min, int64_t experts_max) {
  return mixture(
      hidden_states, {w12, {}, w3, permuted_weights},
      {expert_routing_table, router_weights, experts_min, experts_max}, std::string(activation));
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
      largest_inner(hidden_states, {w1, w2, w3, permuted_weights}, std::string(activation))};
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
      largest_inner(hidden_states, {w12, {}, w3, permuted_weights}, std::string(activation))};
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
});

}  // namespace
}  // namespace hpu::custom
