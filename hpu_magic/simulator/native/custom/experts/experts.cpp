// Mixture-of-experts layers: a routing table selects the experts for each token. Tokens and weights
// may be FP8, with scales that are tensors or numbers, as in later releases of the vendor's bridge.
#include "custom/corrections/gelu.h"
#include "custom/define.h"
#include "custom/quantization/fp8.h"

namespace hpu::custom {
namespace {

using Tensors = std::vector<at::Tensor>;

struct Routing {
  at::Tensor table;  // [tokens, experts per token]
  at::Tensor weights;  // weights of the experts in the table
};

/// The weights of experts with ids from `first_id` to `last_id`.
struct Experts {
  Tensors gates;  // or gates and ups side by side
  Tensors ups;  // empty if the gates contain them
  Tensors downs;
  bool permuted;  // [out, in] like nn.Linear, otherwise [in, out]
  std::string activation;
  int64_t first_id;
  int64_t last_id;
};

/// Factors that dequantize FP8 values: one per tensor, per token or per output channel.
struct ExpertScales {
  at::Tensor hidden;
  Tensors gates;
  Tensors ups;
  Tensors downs;
  Tensors inner;  // empty: computed from the largest magnitude
};

/// The weights of one expert in float32, as [in, out].
struct Expert {
  at::Tensor gate;
  at::Tensor up;
  at::Tensor down;
};

at::Tensor laid_out(
    const Tensors& weights, size_t i, bool permuted, const Tensors* scales) {
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
        halves.size() == 2, "MixtureOfExperts w12 must contain gate and up side by side, but got "
        "shape ", experts.gates[i].sizes(), ".");
    return {halves[0], halves[1], down};
  }
  return {gate, laid_out(experts.ups, i, permuted, scales ? &scales->ups : nullptr), down};
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
at::Tensor inner(const at::Tensor& tokens, const Expert& expert, const std::string& activation) {
  return activated(at::matmul(tokens, expert.gate), activation) * at::matmul(tokens, expert.up);
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

void check_experts(
    const at::Tensor& hidden, const Routing& routing, const Experts& experts) {
  const std::string& activation = experts.activation;
  TORCH_CHECK(
      activation == "gelu" || activation == "relu" || activation == "silu", "Activation \"",
      activation, "\" not found among MoeActivationMode_t enum values.");
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

/// An expert that is listed twice for a token counts twice. Experts that are not part of this call
/// are ignored. With scales, intermediate values are converted to FP8 and back, and the result is
/// bfloat16. Otherwise, the result has the dtype of the tokens.
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
    const at::Tensor routed = routing.table == experts.first_id + static_cast<int64_t>(i);
    const at::Tensor rows = routed.any(1).nonzero().squeeze(1);
    if (rows.numel() == 0) {
      continue;
    }
    const Expert expert = expert_at(experts, i, scales);
    at::Tensor values = inner(tokens.index_select(0, rows), expert, experts.activation);
    values = scales ? through_fp8(values, i, *scales, input_type) : values;
    const at::Tensor share = (weights * routed).sum(1, /*keepdim=*/true).index_select(0, rows);
    mixed.index_add_(0, rows, at::matmul(values, expert.down) * share);
  }
  return mixed.to(dtype);
}

void check_dtypes(const at::Tensor& hidden, const at::Tensor& router_weights) {
  TORCH_CHECK(
      c10::isFloatingType(hidden.scalar_type()) && !is_fp8(hidden.scalar_type()) &&
          router_weights.scalar_type() == hidden.scalar_type(),
      "MixtureOfExperts hidden_states and router_weights must have the same floating-point dtype "
      "of more than 8 bits, but got ", toString(hidden.scalar_type()), " and ",
      toString(router_weights.scalar_type()), ".");
}

/// Returns each expert's largest intermediate value over all tokens, including tokens that are
/// routed to other experts.
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

void check_scales(
    const char* name, const Tensors& scales, const Tensors& weights,
    bool permuted) {
  TORCH_CHECK(
      scales.size() == weights.size(), "MixtureOfExperts ", name, " must have a scale for each of ",
      weights.size(), " experts, but got ", scales.size(), ".");
  for (size_t i = 0; i < scales.size(); ++i) {
    const at::Tensor& weight = weights[i];
    TORCH_CHECK(
        weight.dim() == 2 && is_fp8(weight.scalar_type()),
        "MixtureOfExperts weights must be 2D of float8_e5m2 or float8_e4m3fn, but got ",
        weight.dim(), "D of ", toString(weight.scalar_type()), ".");
    TORCH_CHECK(
        scales[i].sym_numel() == 1 || scales[i].sym_numel() == weight.sym_size(permuted ? 0 : 1),
        "MixtureOfExperts ", name, " must have one element or one for each of ",
        weight.sym_size(permuted ? 0 : 1), " output channels, but got ",
        scales[i].sym_numel(), ".");
  }
}

void check_fp8(const at::Tensor& hidden, const Experts& experts, const ExpertScales& scales) {
  TORCH_CHECK(
      is_fp8(hidden.scalar_type()), "MixtureOfExperts hidden_states must be of float8_e5m2 or "
      "float8_e4m3fn, but got ", toString(hidden.scalar_type()), ".");
  TORCH_CHECK(
      hidden.dim() == 2 && (scales.hidden.sym_numel() == 1 ||
                            scales.hidden.sym_numel() == hidden.sym_size(0)),
      "MixtureOfExperts d_scale_hidden_states must have one element or one for each token of ",
      hidden.sym_sizes(), ", but got ", scales.hidden.sym_numel(), ".");
  check_scales("d_scale_w1", scales.gates, experts.gates, experts.permuted);
  check_scales("d_scale_w2", scales.ups, experts.ups, experts.permuted);
  check_scales("d_scale_w3", scales.downs, experts.downs, experts.permuted);
  TORCH_CHECK(
      scales.inner.empty() || scales.inner.size() == experts.downs.size(),
      "MixtureOfExperts d_scale_intermediate_hidden_states must have a scale for each of ",
      experts.downs.size(), " experts, but got ", scales.inner.size(), ".");
  for (const at::Tensor& scale : scales.inner) {
    TORCH_CHECK(
        scale.sym_numel() == 1, "MixtureOfExperts d_scale_intermediate_hidden_states must have "
        "one element for each expert, but got ", scale.sym_numel(), ".");
  }
}

/// Returns a list of tensors, converting numbers to tensors. The list is empty if the overload does
/// not have the argument.
Tensors list_of(const Arguments& arguments, const char* name) {
  if (!arguments.has(name)) {
    return {};
  }
  const c10::IValue& value = arguments[name];
  if (value.isTensorList()) {
    return value.toTensorVector();
  }
  Tensors numbers;
  for (const double number : value.toDoubleVector()) {
    numbers.push_back(tensor_of(arguments["hidden_states"].toTensor(), number));
  }
  return numbers;
}

ExpertScales scales_of(const Arguments& of, bool fused) {
  const c10::IValue& hidden = of["d_scale_hidden_states"];
  ExpertScales scales{
      hidden.isTensor() ? hidden.toTensor()
                        : tensor_of(of["hidden_states"].toTensor(), hidden.toDouble()),
      list_of(of, fused ? "d_scale_w12" : "d_scale_w1"), list_of(of, "d_scale_w2"), list_of(of, "d_scale_w3"),
      list_of(of, "d_scale_intermediate_hidden_states")};
  TORCH_CHECK(
      !scales.inner.empty() || !of.has("d_scale_intermediate_hidden_states"),
      "MixtureOfExperts needs d_scale_intermediate_hidden_states.");
  return scales;
}

/// Implements all overloads. Size hints have no effect. The measurement overloads also return the
/// largest intermediate values.
void mixture_of_experts(
    const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Arguments of(op, *stack);
  const at::Tensor hidden = of["hidden_states"].toTensor();
  const Routing routing{
      of["expert_routing_table"].toTensor(), of["router_weights"].toTensor()};
  const bool fused = of.has("w12");
  const Experts experts{
      list_of(of, fused ? "w12" : "w1"), list_of(of, "w2"), list_of(of, "w3"), of["permuted_weights"].toBool(),
      of["activation"].toStringRef(), of["experts_min"].toInt(), of["experts_max"].toInt()};
  TORCH_CHECK(
      fused || experts.ups.size() == experts.gates.size(), "MixtureOfExperts w1 and w2 must be "
      "lists of equal length, but got ", experts.gates.size(), " and ", experts.ups.size(), ".");
  at::Tensor mixed;
  if (of.has("d_scale_hidden_states")) {
    ExpertScales scales = scales_of(of, fused);
    check_fp8(hidden, experts, scales);
    scales.hidden = scales.hidden.reshape_symint({-1, 1});
    mixed = mixture(hidden, routing, experts, &scales);
  } else {
    check_dtypes(hidden, routing.weights);
    mixed = mixture(hidden, routing, experts, nullptr);
  }
  const bool measures = of.has("measurement_mode");
  torch::jit::drop(*stack, op.schema().arguments().size());
  stack->emplace_back(mixed);
  if (measures) {
    stack->emplace_back(largest_inner(hidden, experts));
  }
}

// A call that does not name an overload uses the first one that matches, and PyTorch converts
// numbers to tensors to find a match. Therefore, overloads with numbers are defined after the
// corresponding overloads with tensors.
const Operators experts([](Operators& define) {
  const auto schema = [](const std::string& overload, const std::string& operands,
                         const std::string& rest) {
    return "mixture_of_experts" + overload +
        "(Tensor hidden_states, Tensor expert_routing_table, Tensor router_weights, " + operands +
        "bool permuted_weights, str activation, int experts_min, int experts_max" + rest;
  };
  const std::string three = "Tensor[] w1, Tensor[] w2, Tensor[] w3, ";
  const std::string two = "Tensor[] w12, Tensor[] w3, ";
  define.boxed<&mixture_of_experts>(schema("", three, ") -> Tensor"));
  define.boxed<&mixture_of_experts>(schema(".fused_weights", two, ") -> Tensor"));
  const std::string measured = ", bool measurement_mode) -> (Tensor, Tensor)";
  define.boxed_in_eager_mode<&mixture_of_experts>(schema(".fp8_measurement", three, measured));
  define.boxed_in_eager_mode<&mixture_of_experts>(
      schema(".fp8_measurement_fused_weights", two, measured));
  const std::string hints = ", int chunk_size=0, int total_experts=0) -> Tensor";
  const std::string hidden = "Tensor d_scale_hidden_states, ";
  const std::string inner_scales = "Tensor[] d_scale_intermediate_hidden_states, ";
  const std::string of_three = "Tensor[] d_scale_w1, Tensor[] d_scale_w2, Tensor[] d_scale_w3, ";
  const std::string of_two = "Tensor[] d_scale_w12, Tensor[] d_scale_w3, ";
  const std::string numbers =
      "float d_scale_hidden_states, float[] d_scale_intermediate_hidden_states, ";
  const std::vector<std::pair<std::string, std::string>> fp8{
      {".fp8", three + hidden + inner_scales + of_three},
      {".fp8_fused_weights", two + hidden + inner_scales + of_two},
      {".fp8_scalars",
       three + numbers + "float[] d_scale_w1, float[] d_scale_w2, float[] d_scale_w3, "},
      {".fp8_fused_weights_scalars", two + numbers + "float[] d_scale_w12, float[] d_scale_w3, "},
      {".fp8_dynamic", three + hidden + of_three},
      {".fp8_fused_weights_dynamic", two + hidden + of_two}};
  for (const auto& [overload, operands] : fp8) {
    define.boxed<&mixture_of_experts>(schema(overload, operands, hints));
  }
});

}  // namespace
}  // namespace hpu::custom
