// The vendor's operators for scaled dot-product attention. One pair of forward and backward
// operators saves the probabilities for the backward pass. The other pair saves the largest score
// and the inverse sum of exponentials of each query, and recomputes the probabilities.
//
// softmax_mode "fast" is as accurate as the other modes, because the vendor's approximation is not
// published.
#include "custom/attention/attention.h"
#include "custom/define.h"

#include <algorithm>

namespace hpu::custom {
namespace {

void check_operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double p) {
  const ScalarType dtype = q.scalar_type();
  TORCH_CHECK(
      (dtype == ScalarType::Float || dtype == ScalarType::BFloat16 || dtype == ScalarType::Half) &&
          k.scalar_type() == dtype && v.scalar_type() == dtype,
      "Sdpa q, k and v must all be of float, bfloat16 or half dtype, but got ", toString(dtype),
      ", ", toString(k.scalar_type()), " and ", toString(v.scalar_type()), ".");
  TORCH_CHECK(
      q.dim() >= 3 && k.dim() >= 3 && v.dim() >= 3 && k.sym_size(-1) == q.sym_size(-1) &&
          v.sym_size(-2) == k.sym_size(-2),
      "Sdpa q, k and v must have shapes [..., L, E], [..., S, E] and [..., S, Ev], but got ",
      q.sym_sizes(), ", ", k.sym_sizes(), " and ", v.sym_sizes(), ".");
  TORCH_CHECK(p >= 0.0 && p < 1.0, "Sdpa dropout must be in [0, 1), but got ", p, ".");
}

/// Raises an error unless a saved tensor has the shape that the forward pass returns.
void check_saved(const char* name, const at::Tensor& tensor, const c10::SymDimVector& shape) {
  TORCH_CHECK(
      tensor.sym_sizes() == c10::SymIntArrayRef(shape), "Sdpa backward needs ", name, " of shape ",
      c10::SymIntArrayRef(shape), ", but its shape is ", tensor.sym_sizes(), ".");
}

ThreeTensors forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks, double p,
    double scale, const OptionalTensor& seed) {
  check_operands(q, k, v, p);
  const at::Tensor probabilities = probabilities_of(masked_scores(q, k, scale, masks), masks);
  at::Tensor kept = at::ones({1}, q.options().dtype(ScalarType::Char));
  at::Tensor weights = probabilities;
  if (p > 0.0) {
    kept = kept_by(seed_of_dropout(seed, q), probabilities, p);
    weights = dropped(probabilities, kept, p);
  }
  const at::Tensor out = at::matmul(weights, v.to(ScalarType::Float));
  return {out.to(q.scalar_type()), probabilities.to(q.scalar_type()), kept};
}

/// Computes the gradients from the probabilities before dropout.
ThreeTensors backward_of(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& probabilities, const OptionalTensor& kept, double p, double scale) {
  const at::Tensor upstream = grad.to(ScalarType::Float);
  const at::Tensor wide = probabilities.to(ScalarType::Float);
  at::Tensor weights = wide;
  at::Tensor of_weights =
      at::matmul(upstream, v.to(ScalarType::Float).transpose(-2, -1));
  if (p > 0.0) {
    TORCH_CHECK(
        is_defined(kept), "Sdpa backward needs the dropout mask if p is ", p, ".");
    weights = dropped(wide, *kept, p);
    of_weights = dropped(of_weights, *kept, p);
  }
  const at::Tensor along = (of_weights * wide).sum(-1, /*keepdim=*/true);
  const at::Tensor of_scores = (of_weights - along) * wide * scale;
  const auto like = [](const at::Tensor& gradient, const at::Tensor& of) {
    return gradient.sum_to_size_symint(of.sym_sizes()).to(of.scalar_type());
  };
  return {
      like(at::matmul(of_scores, k.to(ScalarType::Float)), q),
      like(at::matmul(of_scores.transpose(-2, -1), q.to(ScalarType::Float)), k),
      like(at::matmul(weights.transpose(-2, -1), upstream), v)};
}

ThreeTensors sdpa_bwd(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& P, const OptionalTensor& dm, bool /*is_causal*/, double p, double scale,
    const at::Tensor& /*fwd_out*/) {
  check_operands(q, k, v, p);
  const c10::SymDimVector scores = shape_over({q, k}, q.sym_size(-2), k.sym_size(-2));
  check_saved("grad", grad, shape_over({q, k, v}, q.sym_size(-2), v.sym_size(-1)));
  check_saved("P", P, scores);
  if (p > 0.0 && is_defined(dm)) {
    check_saved("dm", *dm, scores);
  }
  return backward_of(grad, q, k, v, P, dm, p, scale);
}

FourTensors recomputed_forward(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks, double p,
    double scale, bool requires_backward, bool fast, const OptionalTensor& passed_seed) {
  check_operands(q, k, v, p);
  check_mask(q, k, masks);
  const auto placeholder = [&](ScalarType dtype) {
    return at::zeros({1}, q.options().dtype(dtype));
  };
  at::Tensor seed = placeholder(ScalarType::Int);
  at::Tensor out;
  at::Tensor largest;
  at::Tensor log_sum;
  if (p == 0.0 && supports_flash_attention(q, k, v, masks)) {
    if (requires_backward) {
      std::tie(out, largest, log_sum) = attention_in_blocks(q, k, v, scale, masks);
      out = out.to(q.scalar_type());
    } else {
      std::tie(out, log_sum) = flash_attention(q, k, v, scale, masks);
    }
  } else {
    const at::Tensor scores = masked_scores(q, k, scale, masks);
    at::Tensor weights = probabilities_of(scores, masks);
    if (p > 0.0) {
      seed = seed_of_dropout(passed_seed, q);
      weights = dropped(weights, kept_by(seed, weights, p), p);
    }
    out = at::matmul(weights, v.to(ScalarType::Float)).to(q.scalar_type());
    if (requires_backward) {
      log_sum = at::logsumexp(scores, -1, /*keepdim=*/true);
      largest = largest_of(scores);
    }
  }
  if (!requires_backward) {
    return {
        out, placeholder(q.scalar_type()), placeholder(ScalarType::Float),
        placeholder(ScalarType::Int)};
  }
  const auto [m, linv] = statistics(largest, log_sum, q.scalar_type(), fast);
  return {out, m, linv, seed};
}

/// Implements all forward operators. Operators without a seed argument draw a random seed.
void sdpa_forward(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Arguments of(op, *stack);
  const at::Tensor q = of["q"].toTensor(), k = of["k"].toTensor(), v = of["v"].toTensor();
  const Masks masks = masks_of(of);
  const double p = of["p"].toDouble(), scale = of["scale"].toDouble();
  const OptionalTensor seed = of.optional("seed");
  const size_t count = op.schema().arguments().size();
  if (!of.has("requires_backward")) {
    const auto [out, probabilities, kept] = forward(q, k, v, masks, p, scale, seed);
    torch::jit::drop(*stack, count);
    torch::jit::push(*stack, out, probabilities, kept);
    return;
  }
  const auto [out, m, linv, used_seed] = recomputed_forward(
      q, k, v, masks, p, scale, of["requires_backward"].toBool(),
      of["softmax_mode"].toStringRef() == "fast", seed);
  torch::jit::drop(*stack, count);
  torch::jit::push(*stack, out, m, linv, used_seed);
}

/// Returns whether linv cannot represent the sum of exponentials because m was rounded. The
/// backward pass then computes the probabilities from the scores alone.
bool is_lost(const at::Tensor& m, const at::Tensor& linv) {
  constexpr double kSmallest = 1e-30;  // far below 1 / number of keys
  if (m.is_meta()) {
    return false;
  }
  const at::Tensor lost =
      at::isfinite(linv).logical_not_().logical_or_((linv < kSmallest) & (m != 0));
  return lost.any().item<bool>();
}

ThreeTensors sdpa_recomp_bwd(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const OptionalTensor& attention_mask, const at::Tensor& m, const at::Tensor& linv,
    const OptionalTensor& seed, bool is_causal, double p, double scale,
    c10::string_view /*softmax_mode*/, const at::Tensor& fwd_out) {
  check_operands(q, k, v, p);
  const Masks masks{
      is_defined(attention_mask) ? attention_mask : std::nullopt, is_causal, std::nullopt, "left"};
  check_mask(q, k, masks);
  const c10::SymDimVector result = shape_over({q, k, v}, q.sym_size(-2), v.sym_size(-1));
  const c10::SymDimVector of_rows = shape_over({q, k}, q.sym_size(-2), 1);
  check_saved("grad", grad, result);
  check_saved("fwd_out", fwd_out, result);
  check_saved("m", m, of_rows);
  check_saved("linv", linv, of_rows);
  const bool lost = is_lost(m, linv);
  if (p == 0.0 && !lost && supports_flash_attention(q, k, v, masks)) {
    const at::Tensor log_sum = m.to(ScalarType::Float) - linv.to(ScalarType::Float).log();
    return flash_attention_backward(
        grad.to(q.scalar_type()), q, k, v, fwd_out.to(q.scalar_type()), log_sum, scale, masks);
  }
  const at::Tensor scores = masked_scores(q, k, scale, masks);
  const at::Tensor probabilities =
      lost ? probabilities_of(scores, masks) : at::exp(scores - m) * linv;
  OptionalTensor kept;
  if (p > 0.0) {
    TORCH_CHECK(
        is_defined(seed), "Sdpa backward needs the dropout seed if p is ", p, ".");
    kept = kept_by(*seed, probabilities, p);
  }
  return backward_of(grad, q, k, v, probabilities, kept, p, scale);
}

const Operators sdpa([](Operators& define) {
  const std::string operands =
      "Tensor q, Tensor k, Tensor v, Tensor? attention_mask, float p, float scale, "
      "bool is_causal, ";
  const std::string kept = "(" + operands +
      "str softmax_mode, Tensor? valid_seq_len, str seq_padding_type) -> (Tensor, Tensor, Tensor)";
  const std::string recomputed = "(" + operands +
      "bool requires_backward, str softmax_mode, Tensor? valid_seq_len, str seq_padding_type) -> "
      "(Tensor, Tensor, Tensor, Tensor)";
  const auto seeded = [](const std::string& rest) { return "(Tensor seed, " + rest.substr(1); };
  define.boxed<&sdpa_forward>("sdpa_fwd" + kept);
  define.boxed<&sdpa_forward>("sdpa_recomp_fwd" + recomputed);
  define(
      "sdpa_bwd(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor P, Tensor? dm, bool is_causal, "
      "float p, float scale, Tensor fwd_out) -> (Tensor, Tensor, Tensor)",
      &sdpa_bwd);
  define(
      "sdpa_recomp_bwd(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor? attention_mask, "
      "Tensor m, Tensor linv, Tensor ? seed, bool is_causal, float p, float scale, "
      "str softmax_mode, Tensor fwd_out) -> (Tensor, Tensor, Tensor)",
      &sdpa_recomp_bwd);
  for (const char* suffix : {"_dropout", "_non_dropout"}) {
    define.boxed_in_eager_mode<&sdpa_forward>("sdpa_fwd" + (suffix + kept));
    define.boxed_in_eager_mode<&sdpa_forward>("sdpa_recomp_fwd" + (suffix + recomputed));
  }
  define.boxed_in_eager_mode<&sdpa_forward>("sdpa_fwd_dropout_seed" + seeded(kept));
  define.boxed_in_eager_mode<&sdpa_forward>("sdpa_recomp_fwd_dropout_seed" + seeded(recomputed));
});

}  // namespace
}  // namespace hpu::custom
