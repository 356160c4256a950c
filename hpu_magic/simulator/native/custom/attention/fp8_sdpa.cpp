// Attention over FP8 operands with scales. Probabilities are converted to FP8 if they have a scale.
// Operands of other dtypes are also supported, so that their largest magnitudes can be measured.
#include "custom/attention/attention.h"
#include "custom/define.h"
#include "custom/quantization/fp8.h"

#include <limits>

namespace hpu::custom {
namespace {

struct Fp8Scales {
  Scale d_q;
  Scale d_k;
  Scale d_v;
  Scale q_s;
  Scale q_o;
  Scale d_s;
};

/// The results of attention. Each operator returns a subset of these results.
struct Attended {
  at::Tensor out;
  at::Tensor scores;
  at::Tensor probabilities;  // before dropout, in FP8 if they have a scale
  at::Tensor kept;
  at::Tensor seed;
  at::Tensor amax_s;
  at::Tensor amax_o;
};

/// Options of later releases: the number of visible keys before and after a query (-1 for all), and
/// a sink, which is an additional score per query head for a key whose value is zero.
struct Extent {
  int64_t before = -1;
  int64_t after = -1;
  OptionalTensor sinks{};
};

Extent extent_of(const Arguments& of) {
  if (!of.has("window_size")) {
    return {};
  }
  const std::vector<int64_t> window = of["window_size"].toIntVector();
  TORCH_CHECK(
      window.size() == 2, "Fp8Sdpa window_size must be the numbers of keys before and after a "
      "query, but got ", window.size(), " numbers.");
  return {window[0], window[1], of.optional("sinks")};
}

/// Hides the keys outside the window of each query. The window may contain no key at all.
at::Tensor within_window(const at::Tensor& scores, const Extent& extent) {
  if (extent.before < 0 && extent.after < 0) {
    return scores;
  }
  const auto options = scores.options().dtype(ScalarType::Long);
  const at::Tensor distance = at::arange(scores.sym_size(-1), options) -
      at::arange(scores.sym_size(-2), options).unsqueeze(1);
  at::Tensor outside = at::zeros_like(distance, distance.options().dtype(ScalarType::Bool));
  if (extent.before >= 0) {
    outside = at::logical_or(outside, distance < -extent.before);
  }
  if (extent.after >= 0) {
    outside = at::logical_or(outside, distance > extent.after);
  }
  return scores.masked_fill(outside, -std::numeric_limits<double>::infinity());
}

/// Returns the probabilities if the softmax also includes the sinks. A query without visible keys
/// has probabilities of zero.
at::Tensor with_sinks(
    const at::Tensor& softmax, const at::Tensor& scores, const Extent& extent) {
  const bool limited = extent.before >= 0 || extent.after >= 0;
  const at::Tensor probabilities = limited
      ? softmax.masked_fill(at::isneginf(scores).all(-1, /*keepdim=*/true), 0.0)
      : softmax;
  const OptionalTensor& sinks = extent.sinks;
  if (!is_defined(sinks)) {
    return probabilities;
  }
  const c10::SymIntArrayRef sizes = scores.sym_sizes();
  const c10::SymIntArrayRef heads = sizes.slice(1, sizes.size() - 3);
  TORCH_CHECK(
      sinks->dim() == 1 && sinks->sym_numel() == c10::multiply_integers(heads),
      "Fp8Sdpa sinks must have a score for each of ", c10::multiply_integers(heads),
      " query heads, but their shape is ", sinks->sym_sizes(), ".");
  std::vector<c10::SymInt> shape = heads.vec();
  shape.insert(shape.end(), {1, 1});
  const at::Tensor log_sum = at::logsumexp(scores, -1, /*keepdim=*/true);
  return probabilities * at::sigmoid(log_sum - sinks->to(ScalarType::Float).reshape_symint(shape));
}

at::Tensor amax_if(const at::Tensor& values, bool requested) {
  const auto options = values.options().dtype(ScalarType::Float);
  return requested && !values.is_meta() && values.numel() > 0 ? values.abs().max().reshape({1})
                                                          : at::zeros({1}, options);
}

at::Tensor restored(const at::Tensor& values, const Scale& factor) {
  return scaled(values.to(ScalarType::Float), factor);
}

/// Returns the factor that dequantizes FP8 values. By default, this is the inverse of the factor
/// that quantizes values to FP8.
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
      "Fp8Sdpa q, k and v must have the same floating-point dtype, but got ", toString(dtype), ", ",
      toString(k.scalar_type()), " and ", toString(v.scalar_type()), ".");
  TORCH_CHECK(
      q.dim() >= 3 && k.dim() >= 3 && v.dim() >= 3, "Fp8Sdpa q, k and v must have at least 3 "
      "dimensions, but got ", q.dim(), ", ", k.dim(), " and ", v.dim(), ".");
  TORCH_CHECK(p >= 0.0 && p < 1.0, "Fp8Sdpa dropout must be in [0, 1), but got ", p, ".");
}

Attended attend(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks, double p,
    double scale, const Fp8Scales& scales, bool is_amax_s, bool is_amax_o,
    const OptionalTensor& seed, const Extent& extent) {
  check_fp8_operands(q, k, v, p);
  const ScalarType dtype = q.scalar_type();
  Attended result;
  result.scores = within_window(
      masked_scores(restored(q, scales.d_q), restored(k, scales.d_k), scale, masks), extent);
  const at::Tensor exact =
      with_sinks(probabilities_of(result.scores, masks), result.scores, extent);
  result.amax_s = amax_if(exact, is_amax_s);
  result.probabilities =
      is_defined(scales.q_s) ? to_fp8(scaled(exact, scales.q_s), is_fp8(dtype) ? dtype : kE4M3)
                             : exact;
  result.seed = at::zeros({1}, q.options().dtype(ScalarType::Int));
  result.kept = at::ones({1}, q.options().dtype(ScalarType::Char));
  at::Tensor weights = result.probabilities.to(ScalarType::Float);
  if (p > 0.0) {
    result.seed = seed_of_dropout(seed, q);
    result.kept = kept_by(result.seed, weights, p);
    weights = dropped(weights, result.kept, p);
  }
  const Scale back = factor_back(scales.d_s, scales.q_s);
  result.out = scaled(at::matmul(weights, restored(v, scales.d_v)), back);
  result.amax_o = amax_if(result.out, is_amax_o);
  if (is_fp8(dtype) && is_defined(scales.q_o)) {
    result.out = to_fp8(scaled(result.out, scales.q_o), dtype);
  } else {
    result.out = result.out.to(is_fp8(dtype) ? ScalarType::BFloat16 : dtype);
  }
  return result;
}

/// Returns a factor that is passed as a tensor or as a number; 0 means no factor.
Scale factor_of(const Arguments& arguments, const char* name) {
  const c10::IValue& value = arguments[name];
  if (!value.isDouble()) {
    return arguments.optional(name);
  }
  return value.toDouble() == 0.0 ? Scale()
                                 : tensor_of(arguments["q"].toTensor(), value.toDouble());
}

/// Implements all forward operators. Operators without a seed argument draw a random seed.
void fp8_sdpa_forward(
    const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const Arguments of(op, *stack);
  const at::Tensor q = of["q"].toTensor();
  const bool recomputed = of.has("requires_backward");
  const bool requires_backward = recomputed && of["requires_backward"].toBool();
  const bool is_amax_o =
      recomputed && of[of.has("is_amax_0") ? "is_amax_0" : "is_amax_o"].toBool();
  const Fp8Scales scales{
      factor_of(of, "d_scale_q"), factor_of(of, "d_scale_k"), factor_of(of, "d_scale_v"),
      factor_of(of, "q_scale_s"), recomputed ? factor_of(of, "q_scale_o") : std::nullopt,
      factor_of(of, "d_scale_s")};
  const Attended result = attend(
      q, of["k"].toTensor(), of["v"].toTensor(), masks_of(of), of["p"].toDouble(),
      of["scale"].toDouble(), scales, of["is_amax_s"].toBool(), is_amax_o, of.optional("seed"),
      extent_of(of));
  const bool fp8 = is_fp8(q.scalar_type());
  const bool fast = of["softmax_mode"].toStringRef() == "fast";
  torch::jit::drop(*stack, op.schema().arguments().size());
  if (!recomputed) {
    const at::Tensor probabilities = fp8 ? to_fp8(result.probabilities, q.scalar_type())
                                         : result.probabilities.to(q.scalar_type());
    torch::jit::push(*stack, result.out, probabilities, result.kept, result.amax_s);
    return;
  }
  const ScalarType dtype = fp8 ? ScalarType::BFloat16 : q.scalar_type();
  const auto placeholder = [&](ScalarType type) {
    return at::zeros({1}, q.options().dtype(type));
  };
  at::Tensor m = placeholder(dtype);
  at::Tensor linv = placeholder(fp8 ? dtype : ScalarType::Float);
  if (requires_backward) {
    std::tie(m, linv) = statistics(
        largest_of(result.scores), at::logsumexp(result.scores, -1, /*keepdim=*/true), dtype,
        fp8 || fast);
  }
  torch::jit::push(
      *stack, result.out, m, linv,
      requires_backward ? result.seed : placeholder(ScalarType::Int), result.amax_s,
      result.amax_o);
}

/// Returns gradients in bfloat16 for FP8 operands, and in the operands' dtype otherwise. `P`
/// contains the probabilities that fp8_sdpa_fwd returned.
FourTensors fp8_sdpa_bwd(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& P, const OptionalTensor& dm, bool /*is_causal*/, double p, double scale,
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
  const std::string extent =
      "Tensor? valid_seq_len, str seq_padding_type, int[2] window_size=[-1, -1], "
      "Tensor? sinks=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)";
  define.boxed<&fp8_sdpa_forward>("fp8_sdpa_fwd(" + operands + tensors + four);
  define.boxed<&fp8_sdpa_forward>("fp8_sdpa_recomp_fwd(" + recomputed + tensors + amax + extent);
  define.boxed<&fp8_sdpa_forward>(
      "fp8_sdpa_recomp_fwd.scalar(" + recomputed + numbers + amax + extent);
  const auto define_in_eager_mode = [&](const std::string& suffix, const std::string& seed,
                                        const std::string& amax_o) {
    const std::string name = "fp8_sdpa_recomp_fwd" + suffix;
    define.boxed_in_eager_mode<&fp8_sdpa_forward>(
        "fp8_sdpa_fwd" + suffix + "(" + seed + operands + tensors + four);
    define.boxed_in_eager_mode<&fp8_sdpa_forward>(
        name + "(" + seed + recomputed + tensors + amax_o + six);
    define.boxed_in_eager_mode<&fp8_sdpa_forward>(
        name + ".scalar(" + seed + recomputed + numbers + amax_o + six);
  };
  define_in_eager_mode("_dropout", "", amax);
  define_in_eager_mode("_non_dropout", "", amax);
  define_in_eager_mode("_dropout_seed", "Tensor seed, ", "bool is_amax_o, ");
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
