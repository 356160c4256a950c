// Attention over 8-bit floating-point operands with scales. Probabilities are converted to 8 bits
// if they have a scale. For other operands, it returns the largest magnitudes.
#include "custom/attention/attention.h"
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace hpu::custom {
namespace {

using at::ScalarType;
using Optional = std::optional<at::Tensor>;

struct Fp8Scales {
  Scale d_q;
  Scale d_k;
  Scale d_v;
  Scale q_s;
  Scale q_o;
  Scale d_s;
};

/// Results that both forms need.
struct Attended {
  at::Tensor out;
  at::Tensor scores;
  at::Tensor probabilities;  // as multiplied with the values, before dropout
  at::Tensor kept;
  at::Tensor seed;
  at::Tensor amax_s;
  at::Tensor amax_o;
};

at::Tensor amax_if(const at::Tensor& values, bool asked) {
  const auto options = values.options().dtype(ScalarType::Float);
  return asked && !values.is_meta() && values.numel() > 0 ? values.abs().max().reshape({1})
                                                          : at::zeros({1}, options);
}

at::Tensor restored(const at::Tensor& values, const Scale& factor) {
  return scaled(values.to(ScalarType::Float), factor);
}

/// The factor that converts values from 8 bits: the inverse of the other direction's factor, unless
/// it is passed.
Scale factor_back(const Scale& back, const Scale& there) {
  return is_defined(back) || !is_defined(there)
      ? back
      : Scale(there->to(ScalarType::Float).reciprocal());
}

void check_fp8_operands(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double p) {
  const ScalarType dtype = q.scalar_type();
  TORCH_CHECK(
      at::isFloatingType(dtype) && k.scalar_type() == dtype && v.scalar_type() == dtype,
      "Fp8Sdpa q, k and v must have the same floating-point dtype, but have ", toString(dtype), ", ",
      toString(k.scalar_type()), " and ", toString(v.scalar_type()), ".");
  TORCH_CHECK(
      q.dim() >= 3 && k.dim() >= 3 && v.dim() >= 3, "Fp8Sdpa q, k and v must have at least 3 "
      "dimensions, but have ", q.dim(), ", ", k.dim(), " and ", v.dim(), ".");
  TORCH_CHECK(p >= 0.0 && p < 1.0, "Fp8Sdpa dropout must be in [0, 1), but is ", p, ".");
}

Attended attend(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks, double p,
    double scale, const Fp8Scales& scales, bool is_amax_s, bool is_amax_o,
    const at::Tensor& seed) {
  check_fp8_operands(q, k, v, p);
  const ScalarType dtype = q.scalar_type();
  Attended made;
  made.scores = masked_scores(restored(q, scales.d_q), restored(k, scales.d_k), scale, masks);
  const at::Tensor exact = probabilities_of(made.scores, masks);
  made.amax_s = amax_if(exact, is_amax_s);
  made.probabilities =
      is_defined(scales.q_s) ? to_fp8(scaled(exact, scales.q_s), is_fp8(dtype) ? dtype : kE4M3)
                             : exact;
  made.seed = at::zeros({1}, q.options().dtype(ScalarType::Int));
  made.kept = at::ones({1}, q.options().dtype(ScalarType::Char));
  at::Tensor weights = made.probabilities.to(ScalarType::Float);
  if (p > 0.0) {
    made.seed = seed_of_dropout(seed, q);
    made.kept = kept_by(made.seed, weights, p);
    weights = dropped(weights, made.kept, p);
  }
  const Scale back = factor_back(scales.d_s, scales.q_s);
  made.out = scaled(at::matmul(weights, restored(v, scales.d_v)), back);
  made.amax_o = amax_if(made.out, is_amax_o);
  if (is_fp8(dtype) && is_defined(scales.q_o)) {
    made.out = to_fp8(scaled(made.out, scales.q_o), dtype);
  } else {
    made.out = made.out.to(is_fp8(dtype) ? ScalarType::BFloat16 : dtype);
  }
  return made;
}

using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

FourTensors fp8_sdpa_fwd_dropout_seed(
    const at::Tensor& seed, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const Optional& attention_mask,
    double p, double scale, bool is_causal, c10::string_view /*softmax_mode*/,
    const Scale& d_scale_q, const Scale& d_scale_k, const Scale& d_scale_v, const Scale& q_scale_s,
    const Scale& /*q_scale_o*/, const Scale& d_scale_s, bool is_amax_s,
    const Optional& valid_seq_len, c10::string_view seq_padding_type) {
  const Attended made = attend(
      q, k, v, masks_of(attention_mask, is_causal, valid_seq_len, seq_padding_type), p, scale,
      {d_scale_q, d_scale_k, d_scale_v, q_scale_s, std::nullopt, d_scale_s}, is_amax_s, false,
      seed);
  const ScalarType dtype = q.scalar_type();
  const at::Tensor probabilities =
      is_fp8(dtype) ? to_fp8(made.probabilities, dtype) : made.probabilities.to(dtype);
  return {made.out, probabilities, made.kept, made.amax_s};
}

using Six =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Six fp8_sdpa_recomp_fwd_dropout_seed(
    const at::Tensor& seed, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const Optional& attention_mask,
    double p, double scale, bool is_causal, bool requires_backward,
    c10::string_view softmax_mode, const Scale& d_scale_q, const Scale& d_scale_k,
    const Scale& d_scale_v, const Scale& q_scale_s, const Scale& q_scale_o, const Scale& d_scale_s,
    bool is_amax_s, bool is_amax_0, const Optional& valid_seq_len,
    c10::string_view seq_padding_type) {
  const Attended made = attend(
      q, k, v, masks_of(attention_mask, is_causal, valid_seq_len, seq_padding_type), p, scale,
      {d_scale_q, d_scale_k, d_scale_v, q_scale_s, q_scale_o, d_scale_s}, is_amax_s, is_amax_0,
      seed);
  const bool fp8 = is_fp8(q.scalar_type());
  const ScalarType dtype = fp8 ? ScalarType::BFloat16 : q.scalar_type();
  if (!requires_backward) {
    const auto placeholder = [&](ScalarType type) {
      return at::zeros({1}, q.options().dtype(type));
    };
    return {
        made.out, placeholder(dtype), placeholder(fp8 ? dtype : ScalarType::Float),
        placeholder(ScalarType::Int), made.amax_s, made.amax_o};
  }
  const auto [m, linv] = statistics(
      largest_of(made.scores),
      at::logsumexp(made.scores, -1, /*keepdim=*/true), dtype, fp8 || softmax_mode == "fast");
  return {made.out, m, linv, made.seed, made.amax_s, made.amax_o};
}

/// A factor that is passed as a number; 0 means none.
Scale number(const at::Tensor& like, double factor) {
  return factor == 0.0 ? Scale() : Scale(tensor_of(like, factor));
}

Six fp8_sdpa_recomp_fwd_dropout_seed_scalar(
    const at::Tensor& seed, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const Optional& attention_mask,
    double p, double scale, bool is_causal, bool requires_backward,
    c10::string_view softmax_mode, double d_scale_q, double d_scale_k, double d_scale_v,
    double q_scale_s, double q_scale_o, double d_scale_s, bool is_amax_s, bool is_amax_0,
    const Optional& valid_seq_len, c10::string_view seq_padding_type) {
  return fp8_sdpa_recomp_fwd_dropout_seed(
      seed, q, k, v, attention_mask, p, scale, is_causal, requires_backward, softmax_mode,
      number(q, d_scale_q), number(q, d_scale_k), number(q, d_scale_v), number(q, q_scale_s),
      number(q, q_scale_o), number(q, d_scale_s), is_amax_s, is_amax_0, valid_seq_len,
      seq_padding_type);
}

/// Gradients in bfloat16 for 8-bit operands, else in the operands' dtype. `P` is the result of
/// fp8_sdpa_fwd.
FourTensors fp8_sdpa_bwd(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& P, const Optional& dm, bool /*is_causal*/, double p, double scale,
    const Scale& d_scale_q, const Scale& d_scale_k, const Scale& d_scale_v,
    const Scale& d_scale_s, const Scale& d_scale_do, const Scale& d_scale_ds,
    const Scale& q_scale_s, const Scale& q_scale_ds, bool is_amax_ds,
    const at::Tensor& /*fwd_out*/) {
  check_fp8_operands(q, k, v, p);
  const at::Tensor upstream = restored(grad, d_scale_do);
  const at::Tensor probabilities = restored(P, factor_back(d_scale_s, q_scale_s));
  at::Tensor weights = probabilities;
  at::Tensor of_weights = at::matmul(upstream, restored(v, d_scale_v).transpose(-2, -1));
  if (p > 0.0) {
    TORCH_CHECK(
        is_defined(dm), "Fp8Sdpa backward needs the dropout mask if p is ", p, ".");
    weights = dropped(weights, *dm, p);
    of_weights = dropped(of_weights, *dm, p);
  }
  const at::Tensor along = (of_weights * probabilities).sum(-1, /*keepdim=*/true);
  at::Tensor of_scores = (of_weights - along) * probabilities;
  const at::Tensor amax_ds = amax_if(of_scores, is_amax_ds);
  if (is_defined(q_scale_ds)) {
    const ScalarType narrow = is_fp8(grad.scalar_type()) ? grad.scalar_type() : kE5M2;
    of_scores = restored(
        to_fp8(scaled(of_scores, q_scale_ds), narrow), factor_back(d_scale_ds, q_scale_ds));
  }
  const auto like = [](const at::Tensor& gradient, const at::Tensor& of) {
    const ScalarType dtype = of.scalar_type();
    return gradient.sum_to_size_symint(of.sym_sizes())
        .to(is_fp8(dtype) ? ScalarType::BFloat16 : dtype);
  };
  return {
      like(at::matmul(of_scores, restored(k, d_scale_k)) * scale, q),
      like(at::matmul(of_scores.transpose(-2, -1), restored(q, d_scale_q)) * scale, k),
      like(at::matmul(weights.transpose(-2, -1), upstream), v), amax_ds};
}

const Operators fp8_sdpa([](Operators& define) {
  const std::string operands =
      "Tensor q, Tensor k, Tensor v, Tensor? attention_mask, float p, float scale, "
      "bool is_causal, ";
  const std::string recomputed = operands + "bool requires_backward, ";
  const std::string tensors =
      "str softmax_mode, Tensor? d_scale_q, Tensor? d_scale_k, Tensor? d_scale_v, "
      "Tensor? q_scale_s, Tensor? q_scale_o, Tensor? d_scale_s, bool is_amax_s, ";
  const std::string numbers =
      "str softmax_mode, float d_scale_q, float d_scale_k, float d_scale_v, float q_scale_s, "
      "float q_scale_o, float d_scale_s, bool is_amax_s, ";
  const std::string padding = "Tensor? valid_seq_len, str seq_padding_type) -> ";
  const std::string four = padding + "(Tensor, Tensor, Tensor, Tensor)";
  const std::string six = padding + "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)";
  const std::string amax = "bool is_amax_0, ";
  const auto kept = &Drawing<&fp8_sdpa_fwd_dropout_seed>::run;
  const auto by_tensors = &Drawing<&fp8_sdpa_recomp_fwd_dropout_seed>::run;
  const auto by_numbers = &Drawing<&fp8_sdpa_recomp_fwd_dropout_seed_scalar>::run;
  define("fp8_sdpa_fwd(" + operands + tensors + four, kept);
  define("fp8_sdpa_recomp_fwd(" + recomputed + tensors + amax + six, by_tensors);
  define("fp8_sdpa_recomp_fwd.scalar(" + recomputed + numbers + amax + six, by_numbers);
  for (const std::string spelling : {"_dropout", "_non_dropout"}) {
    const std::string name = "fp8_sdpa_recomp_fwd" + spelling;
    define.in_eager_mode("fp8_sdpa_fwd" + spelling + "(" + operands + tensors + four, kept);
    define.in_eager_mode(name + "(" + recomputed + tensors + amax + six, by_tensors);
    define.in_eager_mode(name + ".scalar(" + recomputed + numbers + amax + six, by_numbers);
  }
  const std::string seed = "(Tensor seed, ";
  const std::string amax_of_seeded = "bool is_amax_o, ";
  define.in_eager_mode(
      "fp8_sdpa_fwd_dropout_seed" + seed + operands + tensors + four, &fp8_sdpa_fwd_dropout_seed);
  define.in_eager_mode(
      "fp8_sdpa_recomp_fwd_dropout_seed" + seed + recomputed + tensors + amax_of_seeded + six,
      &fp8_sdpa_recomp_fwd_dropout_seed);
  define.in_eager_mode(
      "fp8_sdpa_recomp_fwd_dropout_seed.scalar" + seed + recomputed + numbers + amax_of_seeded +
          six,
      &fp8_sdpa_recomp_fwd_dropout_seed_scalar);
  define(
      "fp8_sdpa_bwd(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor P, Tensor? dm, "
      "bool is_causal, float p, float scale, Tensor? d_scale_q, Tensor? d_scale_k, "
      "Tensor? d_scale_v, Tensor? d_scale_s, Tensor? d_scale_do, Tensor? d_scale_ds, "
      "Tensor? q_scale_s, Tensor? q_scale_ds, bool is_amax_ds, Tensor fwd_out) -> "
      "(Tensor, Tensor, Tensor, Tensor)",
      &fp8_sdpa_bwd);
});

}  // namespace
}  // namespace hpu::custom
