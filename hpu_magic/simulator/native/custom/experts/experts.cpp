// Mixture-of-experts layers: a routing table selects the experts for each token. Tokens and weights
// may be FP8, with scales that are tensors or numbers, and weights may be MXFP4, as in later releases
// of the vendor's bridge.
#include "custom/define.h"
#include "custom/experts/mixture.h"
#include "custom/quantization/fp8.h"

namespace hpu::custom {
namespace {

void check_dtypes(const at::Tensor& hidden, const at::Tensor& router_weights) {
  TORCH_CHECK(
      c10::isFloatingType(hidden.scalar_type()) && !is_fp8(hidden.scalar_type()) &&
          router_weights.scalar_type() == hidden.scalar_type(),
      "MixtureOfExperts hidden_states and router_weights must have the same floating-point dtype "
      "of more than 8 bits, but got ", toString(hidden.scalar_type()), " and ",
      toString(router_weights.scalar_type()), ".");
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

Experts experts_of(const Arguments& of) {
  const bool fused = of.has("w12");
  Experts experts{
      list_of(of, fused ? "w12" : "w1"), list_of(of, "w2"), list_of(of, "w3"),
      of["permuted_weights"].toBool(),
      of.has("activation") ? of["activation"].toStringRef() : "silu", of["experts_min"].toInt(),
      of["experts_max"].toInt()};
  TORCH_CHECK(
      fused || experts.ups.size() == experts.gates.size(), "MixtureOfExperts w1 and w2 must be "
      "lists of equal length, but got ", experts.gates.size(), " and ", experts.ups.size(), ".");
  if (of.has("w12_bias")) {
    experts.biases = Biases{
        list_of(of, "w12_bias"), list_of(of, "w3_bias"), of["alpha"].toDouble(),
        of["limit"].toDouble()};
  }
  if (of.has("is_fp4")) {
    TORCH_CHECK(
        of["is_fp4"].toBool(), "MixtureOfExperts supports only FP4 weights in blocks, but is_fp4 is "
        "False; set it to True.");
    experts.blocks = BlockScales{
        list_of(of, "d_scale_w12"), list_of(of, "d_scale_w3"), of["block_size"].toInt()};
  }
  return experts;
}

/// Implements all overloads. Size hints have no effect. The measurement overloads also return the
/// largest intermediate values.
void mixture_of_experts(
    const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Arguments of(op, *stack);
  const at::Tensor hidden = of["hidden_states"].toTensor();
  const Routing routing{
      of["expert_routing_table"].toTensor(), of["router_weights"].toTensor()};
  const Experts experts = experts_of(of);
  at::Tensor mixed;
  if (of.has("d_scale_hidden_states")) {
    ExpertScales scales = scales_of(of, of.has("w12"));
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
  const std::string hints = ", int chunk_size=0, int total_experts=0) -> Tensor";
  define.boxed<&mixture_of_experts>(schema("", three, hints));
  define.boxed<&mixture_of_experts>(schema(".fused_weights", two, hints));
  const std::string measured = ", bool measurement_mode) -> (Tensor, Tensor)";
  define.boxed_in_eager_mode<&mixture_of_experts>(schema(".fp8_measurement", three, measured));
  define.boxed_in_eager_mode<&mixture_of_experts>(
      schema(".fp8_measurement_fused_weights", two, measured));
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
  const std::string routed =
      "(Tensor hidden_states, Tensor expert_routing_table, Tensor router_weights, " + two;
  const std::string biases = "Tensor[] w12_bias, Tensor[] w3_bias, ";
  const std::string of_blocks = "Tensor[] d_scale_w12, Tensor[] d_scale_w3, int block_size, ";
  const std::string ids = "int experts_min, int experts_max, ";
  const std::string constants = "float alpha=1.702, float limit=7.0) -> Tensor";
  const std::string of_fp4 = "bool is_fp4=True, int chunk_size=0, int total_experts=0";
  define.boxed<&mixture_of_experts>(
      "mixture_of_experts.bias_fused_weights" + routed + biases + "bool permuted_weights, " + ids +
      constants);
  define.boxed<&mixture_of_experts>(
      "mixture_of_experts.mxfp4_fused_weights" + routed + of_blocks +
      "bool permuted_weights, str activation, " + ids + of_fp4 + ") -> Tensor");
  define.boxed<&mixture_of_experts>(
      "mixture_of_experts.bias_mxfp4_fused_weights" + routed + biases + of_blocks +
      "bool permuted_weights, " + ids + of_fp4 + ", " + constants);
});

}  // namespace
}  // namespace hpu::custom
