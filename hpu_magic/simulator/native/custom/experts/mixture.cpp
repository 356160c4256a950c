#include "custom/experts/mixture.h"

#include "custom/corrections/gelu.h"
#include "custom/experts/mxfp4.h"
#include "custom/quantization/fp8.h"

namespace hpu::custom {
namespace {

/// The weights of one expert in float32, with shape [in, out].
struct Expert {
  at::Tensor gate;
  at::Tensor up;
  at::Tensor down;
};

at::Tensor in_float32(const at::Tensor& weight, size_t i, const Tensors* scales, int64_t block_size) {
  return scales ? from_mxfp4(weight, (*scales)[i], block_size) : weight.to(ScalarType::Float);
}

at::Tensor laid_out(
    const at::Tensor& weight, size_t i, bool permuted, const Tensors* scales) {
  const at::Tensor turned = permuted ? weight.t() : weight;
  return scales ? scaled(turned, (*scales)[i].flatten()) : turned;
}

Expert expert_at(const Experts& experts, size_t i, const ExpertScales* scales) {
  const bool permuted = experts.permuted;
  const auto& blocks = experts.blocks;
  const int64_t block_size = blocks ? blocks->block_size : 0;
  const at::Tensor gate = laid_out(
      in_float32(experts.gates[i], i, blocks ? &blocks->gates : nullptr, block_size), i, permuted,
      scales ? &scales->gates : nullptr);
  const at::Tensor down = laid_out(
      in_float32(experts.downs[i], i, blocks ? &blocks->downs : nullptr, block_size), i, permuted,
      scales ? &scales->downs : nullptr);
  if (!experts.ups.empty()) {
    const at::Tensor up = experts.ups[i].to(ScalarType::Float);
    return {gate, laid_out(up, i, permuted, scales ? &scales->ups : nullptr), down};
  }
  if (experts.biases) {
    return {gate.slice(1, 0, std::nullopt, 2), gate.slice(1, 1, std::nullopt, 2), down};
  }
  const auto halves = gate.chunk(2, 1);
  TORCH_CHECK(
      halves.size() == 2, "MixtureOfExperts w12 must contain gate and up side by side, but got "
      "shape ", experts.gates[i].sizes(), ".");
  return {halves[0], halves[1], down};
}

/// In eager mode, the GELU flag selects the card's tanh approximation. The approximation used in
/// graphs is not public, so GELU is exact unless the flag is set.
at::Tensor activated(const at::Tensor& values, const std::string& activation) {
  if (activation == "gelu") {
    return at::gelu(values, tanh_gelu_is_set() ? "tanh" : "none");
  }
  return activation == "relu" ? at::relu(values) : at::silu(values);
}

/// Returns an expert's intermediate values before the last matmul.
at::Tensor inner(
    const at::Tensor& tokens, const Expert& expert, const Experts& experts, size_t i) {
  const at::Tensor gate = at::matmul(tokens, expert.gate);
  const at::Tensor up = at::matmul(tokens, expert.up);
  if (!experts.biases) {
    return activated(gate, experts.activation) * up;
  }
  const Biases& biases = *experts.biases;
  const at::Tensor bias = biases.gates[i].to(ScalarType::Float).flatten();
  const at::Tensor clamped =
      (gate + bias.slice(0, 0, std::nullopt, 2)).clamp_max(biases.limit);
  const at::Tensor factor =
      (up + bias.slice(0, 1, std::nullopt, 2)).clamp(-biases.limit, biases.limit) + 1;
  return factor * clamped * at::sigmoid(clamped * biases.alpha);
}

at::Tensor outer(
    const at::Tensor& values, const Expert& expert, const Experts& experts, size_t i) {
  const at::Tensor result = at::matmul(values, expert.down);
  return experts.biases ? result + experts.biases->downs[i].to(ScalarType::Float).flatten()
                        : result;
}

/// Converts intermediate values to FP8 and back.
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

void check_routing(const at::Tensor& hidden, const Routing& routing) {
  TORCH_CHECK(
      hidden.dim() == 2, "MixtureOfExperts hidden_states must be 2D, but got ", hidden.dim(), "D.");
  TORCH_CHECK(
      at::isIntegralType(routing.table.scalar_type(), /*includeBool=*/false),
      "MixtureOfExperts routing table must contain integers, but got ",
      toString(routing.table.scalar_type()), ".");
  TORCH_CHECK(
      routing.table.dim() == 2 && routing.table.sym_sizes() == routing.weights.sym_sizes() &&
          routing.table.sym_size(0) == hidden.sym_size(0),
      "MixtureOfExperts routing table and router weights must have one row for each of ",
      hidden.sym_size(0), " tokens, but got shapes ", routing.table.sym_sizes(), " and ",
      routing.weights.sym_sizes(), ".");
}

void check_experts(const Experts& experts) {
  const std::string& activation = experts.activation;
  TORCH_CHECK(
      activation == "gelu" || activation == "relu" || activation == "silu", "Activation \"",
      activation, "\" not found among MoeActivationMode_t enum values.");
  const int64_t count = experts.last_id - experts.first_id + 1;
  for (const Tensors* list : {&experts.gates, &experts.ups, &experts.downs}) {
    TORCH_CHECK(
        static_cast<int64_t>(list->size()) == count || (list == &experts.ups && list->empty()),
        "MixtureOfExperts requires the weights of experts ", experts.first_id, " to ",
        experts.last_id, ", ", count, " tensors in each list, but got a list of ",
        list->size(), ".");
    for (const at::Tensor& weight : *list) {
      TORCH_CHECK(
          weight.dim() == 2, "MixtureOfExperts weights must be 2D, but got ", weight.dim(),
          "D.");
    }
  }
}

void check_biases(
    const char* name, const Tensors& biases, const Tensors& weights, bool permuted) {
  TORCH_CHECK(
      biases.size() == weights.size(), "MixtureOfExperts ", name, " must have a bias for each of ",
      weights.size(), " experts, but got ", biases.size(), ".");
  for (size_t i = 0; i < biases.size(); ++i) {
    const c10::SymInt channels = weights[i].sym_size(permuted ? 0 : 1);
    TORCH_CHECK(
        biases[i].sym_numel() == channels, "MixtureOfExperts ", name, " must have an element for "
        "each of ", channels, " output channels, but got ", biases[i].sym_numel(), ".");
  }
}

void check_blocks(
    const char* name, const Tensors& scales, const Tensors& weights, int64_t block_size) {
  TORCH_CHECK(
      scales.size() == weights.size(), "MixtureOfExperts ", name, " must have the scales of ",
      weights.size(), " experts, but got ", scales.size(), ".");
  for (size_t i = 0; i < scales.size(); ++i) {
    check_mxfp4(weights[i], scales[i], block_size);
  }
}

void check(const at::Tensor& hidden, const Routing& routing, const Experts& experts) {
  check_routing(hidden, routing);
  check_experts(experts);
  if (const auto& biases = experts.biases) {
    check_biases("w12_bias", biases->gates, experts.gates, experts.permuted);
    check_biases("w3_bias", biases->downs, experts.downs, experts.permuted);
  }
  if (const auto& blocks = experts.blocks) {
    TORCH_CHECK(
        experts.permuted, "MixtureOfExperts supports MXFP4 weights only as [out, in]; set "
        "permuted_weights to True.");
    check_blocks("d_scale_w12", blocks->gates, experts.gates, blocks->block_size);
    check_blocks("d_scale_w3", blocks->downs, experts.downs, blocks->block_size);
  }
}

}  // namespace

at::Tensor mixture(
    const at::Tensor& hidden, const Routing& routing, const Experts& experts,
    const ExpertScales* scales) {
  check(hidden, routing, experts);
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
    const at::Tensor routed = routing.table == experts.first_id + static_cast<int64_t>(i);
    const at::Tensor rows = routed.any(1).nonzero().squeeze(1);
    if (rows.numel() == 0) {
      continue;
    }
    const Expert expert = expert_at(experts, i, scales);
    at::Tensor values = inner(tokens.index_select(0, rows), expert, experts, i);
    values = scales ? through_fp8(values, i, *scales, input_type) : values;
    const at::Tensor share = (weights * routed).sum(1, /*keepdim=*/true).index_select(0, rows);
    mixed.index_add_(0, rows, outer(values, expert, experts, i) * share);
  }
  return mixed.to(dtype);
}

at::Tensor largest_inner(const at::Tensor& hidden, const Experts& experts) {
  const auto count = static_cast<int64_t>(experts.downs.size());
  at::Tensor largest = at::zeros({count}, hidden.options().dtype(ScalarType::Float));
  if (hidden.is_meta() || hidden.numel() == 0) {
    return largest;
  }
  const at::Tensor tokens = hidden.to(ScalarType::Float);
  for (int64_t i = 0; i < count; ++i) {
    const Expert expert = expert_at(experts, static_cast<size_t>(i), nullptr);
    largest.select(0, i).copy_(inner(tokens, expert, experts, static_cast<size_t>(i)).max());
  }
  return largest;
}

}  // namespace hpu::custom
