// Layers of experts over 8-bit tokens and weights, as in later releases of the vendor's bridge.
// Scales are tensors or numbers. Overloads without scales for inner values compute these.
#include "custom/define.h"
#include "custom/experts/experts.h"
#include "custom/quantization/fp8.h"

#include <ATen/Functions.h>

namespace hpu::custom {
namespace {

using at::ScalarType;

std::vector<at::Tensor> tensors_of(const at::Tensor& like, at::ArrayRef<double> scales) {
  std::vector<at::Tensor> tensors;
  for (const double scale : scales) {
    tensors.push_back(tensor_of(like, scale));
  }
  return tensors;
}

void check_scales(
    const char* name, const std::vector<at::Tensor>& scales, at::TensorList weights,
    bool permuted) {
  TORCH_CHECK(
      scales.size() == weights.size(), "MixtureOfExperts ", name, " must have a scale for each of ",
      weights.size(), " experts, but has ", scales.size(), ".");
  for (size_t i = 0; i < scales.size(); ++i) {
    const at::Tensor& weight = weights[i];
    TORCH_CHECK(
        weight.dim() == 2 && is_fp8(weight.scalar_type()),
        "MixtureOfExperts weights must be 2D of float8_e5m2 or float8_e4m3fn, but one is ",
        weight.dim(), "D of ", toString(weight.scalar_type()), ".");
    TORCH_CHECK(
        scales[i].sym_numel() == 1 || scales[i].sym_numel() == weight.sym_size(permuted ? 0 : 1),
        "MixtureOfExperts ", name, " must have one element or one for each of ",
        weight.sym_size(permuted ? 0 : 1), " output channels, but one has ",
        scales[i].sym_numel(), ".");
  }
}

at::Tensor fp8_mixture(
    const at::Tensor& hidden, const Routing& routing, const Experts& experts,
    const ExpertScales& scales) {
  TORCH_CHECK(
      is_fp8(hidden.scalar_type()), "MixtureOfExperts hidden_states must be of float8_e5m2 or "
      "float8_e4m3fn, but are ", toString(hidden.scalar_type()), ".");
  TORCH_CHECK(
      hidden.dim() == 2 && (scales.hidden.sym_numel() == 1 ||
                            scales.hidden.sym_numel() == hidden.sym_size(0)),
      "MixtureOfExperts d_scale_hidden_states must have one element or one for each token of ",
      hidden.sym_sizes(), ", but has ", scales.hidden.sym_numel(), ".");
  check_scales("d_scale_w1", scales.gates, experts.gates, experts.permuted);
  check_scales("d_scale_w2", scales.ups, experts.ups, experts.permuted);
  check_scales("d_scale_w3", scales.downs, experts.downs, experts.permuted);
  TORCH_CHECK(
      scales.inner.empty() || scales.inner.size() == experts.downs.size(),
      "MixtureOfExperts d_scale_intermediate_hidden_states must have a scale for each of ",
      experts.downs.size(), " experts, but has ", scales.inner.size(), ".");
  for (const at::Tensor& scale : scales.inner) {
    TORCH_CHECK(
        scale.sym_numel() == 1, "MixtureOfExperts d_scale_intermediate_hidden_states must have "
        "one element for each expert, but one has ", scale.sym_numel(), ".");
  }
  ExpertScales by_token = scales;
  by_token.hidden = scales.hidden.reshape_symint({-1, 1});
  return mixture(hidden, routing, experts, &by_token);
}

// The last arguments of all overloads; the two size hints have no effect.
struct Ends {
  bool permuted;
  c10::string_view activation;
  int64_t first_id;
  int64_t last_id;

  Experts of(at::TensorList gates, at::TensorList ups, at::TensorList downs) const {
    return {gates, ups, downs, permuted, std::string(activation), first_id, last_id};
  }
};

at::Tensor by_tensors(
    const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& router, at::TensorList w1,
    at::TensorList w2, at::TensorList w3, const at::Tensor& d_hidden, at::TensorList d_inner,
    at::TensorList d_w1, at::TensorList d_w2, at::TensorList d_w3, bool permuted,
    c10::string_view activation, int64_t experts_min, int64_t experts_max, int64_t /*chunk_size*/,
    int64_t /*total_experts*/) {
  TORCH_CHECK(!d_inner.empty(), "MixtureOfExperts needs d_scale_intermediate_hidden_states.");
  return fp8_mixture(
      hidden, {table, router},
      Ends{permuted, activation, experts_min, experts_max}.of(w1, w2, w3),
      {d_hidden, d_w1.vec(), d_w2.vec(), d_w3.vec(), d_inner.vec()});
}

at::Tensor by_tensors_fused(
    const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& router,
    at::TensorList w12, at::TensorList w3, const at::Tensor& d_hidden, at::TensorList d_inner,
    at::TensorList d_w12, at::TensorList d_w3, bool permuted, c10::string_view activation,
    int64_t experts_min, int64_t experts_max, int64_t chunk_size, int64_t total_experts) {
  return by_tensors(
      hidden, table, router, w12, {}, w3, d_hidden, d_inner, d_w12, {}, d_w3, permuted, activation,
      experts_min, experts_max, chunk_size, total_experts);
}

at::Tensor by_numbers(
    const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& router, at::TensorList w1,
    at::TensorList w2, at::TensorList w3, double d_hidden, at::ArrayRef<double> d_inner,
    at::ArrayRef<double> d_w1, at::ArrayRef<double> d_w2, at::ArrayRef<double> d_w3, bool permuted,
    c10::string_view activation, int64_t experts_min, int64_t experts_max, int64_t chunk_size,
    int64_t total_experts) {
  return by_tensors(
      hidden, table, router, w1, w2, w3, tensor_of(hidden, d_hidden), tensors_of(hidden, d_inner),
      tensors_of(hidden, d_w1), tensors_of(hidden, d_w2), tensors_of(hidden, d_w3), permuted,
      activation, experts_min, experts_max, chunk_size, total_experts);
}

at::Tensor by_numbers_fused(
    const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& router,
    at::TensorList w12, at::TensorList w3, double d_hidden, at::ArrayRef<double> d_inner,
    at::ArrayRef<double> d_w12, at::ArrayRef<double> d_w3, bool permuted,
    c10::string_view activation, int64_t experts_min, int64_t experts_max, int64_t chunk_size,
    int64_t total_experts) {
  return by_numbers(
      hidden, table, router, w12, {}, w3, d_hidden, d_inner, d_w12, {}, d_w3, permuted, activation,
      experts_min, experts_max, chunk_size, total_experts);
}

at::Tensor measured(
    const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& router, at::TensorList w1,
    at::TensorList w2, at::TensorList w3, const at::Tensor& d_hidden, at::TensorList d_w1,
    at::TensorList d_w2, at::TensorList d_w3, bool permuted, c10::string_view activation,
    int64_t experts_min, int64_t experts_max, int64_t /*chunk_size*/, int64_t /*total_experts*/) {
  return fp8_mixture(
      hidden, {table, router},
      Ends{permuted, activation, experts_min, experts_max}.of(w1, w2, w3),
      {d_hidden, d_w1.vec(), d_w2.vec(), d_w3.vec(), {}});
}

at::Tensor measured_fused(
    const at::Tensor& hidden, const at::Tensor& table, const at::Tensor& router,
    at::TensorList w12, at::TensorList w3, const at::Tensor& d_hidden, at::TensorList d_w12,
    at::TensorList d_w3, bool permuted, c10::string_view activation, int64_t experts_min,
    int64_t experts_max, int64_t chunk_size, int64_t total_experts) {
  return measured(
      hidden, table, router, w12, {}, w3, d_hidden, d_w12, {}, d_w3, permuted, activation,
      experts_min, experts_max, chunk_size, total_experts);
}

}  // namespace

void define_fp8_experts(Operators& define) {
  const auto form = [](const std::string& name, const std::string& rest) {
    return "mixture_of_experts." + name +
        "(Tensor hidden_states, Tensor expert_routing_table, Tensor router_weights, " + rest +
        "bool permuted_weights, str activation, int experts_min, int experts_max, "
        "int chunk_size=0, int total_experts=0) -> Tensor";
  };
  const std::string three = "Tensor[] w1, Tensor[] w2, Tensor[] w3, ";
  const std::string two = "Tensor[] w12, Tensor[] w3, ";
  const std::string hidden = "Tensor d_scale_hidden_states, ";
  const std::string inner_scales = "Tensor[] d_scale_intermediate_hidden_states, ";
  const std::string of_three = "Tensor[] d_scale_w1, Tensor[] d_scale_w2, Tensor[] d_scale_w3, ";
  const std::string of_two = "Tensor[] d_scale_w12, Tensor[] d_scale_w3, ";
  const std::string numbers =
      "float d_scale_hidden_states, float[] d_scale_intermediate_hidden_states, ";
  define(form("fp8", three + hidden + inner_scales + of_three), &by_tensors);
  define(form("fp8_fused_weights", two + hidden + inner_scales + of_two), &by_tensors_fused);
  define(
      form(
          "fp8_scalars", three + numbers +
              "float[] d_scale_w1, float[] d_scale_w2, float[] d_scale_w3, "),
      &by_numbers);
  define(
      form("fp8_fused_weights_scalars", two + numbers + "float[] d_scale_w12, float[] d_scale_w3, "),
      &by_numbers_fused);
  define(form("fp8_dynamic", three + hidden + of_three), &measured);
  define(form("fp8_fused_weights_dynamic", two + hidden + of_two), &measured_fused);
}

}  // namespace hpu::custom
