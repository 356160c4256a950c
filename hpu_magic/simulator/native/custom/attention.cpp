#include "custom/attention.h"

#include "calls/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <limits>

namespace hpu::custom {

using at::ScalarType;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor causal(const at::Tensor& scores, int64_t first_query) {
  const auto options = scores.options().dtype(ScalarType::Long);
  const at::Tensor query = at::arange(scores.size(-2), options) + first_query;
  return at::arange(scores.size(-1), options) <= query.unsqueeze(-1);
}

at::Tensor valid(const at::Tensor& scores, const at::Tensor& length, const std::string& padding) {
  TORCH_CHECK(
      padding == "left" || padding == "right", "seq_padding_type must be \"left\" or \"right\", "
      "but is \"", padding, "\".");
  TORCH_CHECK(
      length.dim() == 1 && length.size(0) == scores.size(0),
      "valid_seq_len must be 1D of one length for each batch, but has shape ", length.sizes(),
      " for scores of shape ", scores.sizes(), ".");
  std::vector<int64_t> each(static_cast<size_t>(scores.dim()), 1);
  each[0] = -1;
  const at::Tensor lengths = length.reshape(each);
  const int64_t keys = scores.size(-1);
  const at::Tensor key = at::arange(keys, scores.options().dtype(ScalarType::Long));
  return padding == "right" ? key < lengths : key >= keys - lengths;
}

/// The leading dimensions as two, and one key and value for each query head.
struct FourDimensional {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  std::optional<at::Tensor> mask;
  std::vector<int64_t> batch;  // as broadcast
};

std::vector<int64_t> leading(const at::Tensor& tensor) {
  return tensor.sizes().slice(0, static_cast<size_t>(tensor.dim() - 2)).vec();
}

std::vector<int64_t> with_last(std::vector<int64_t> batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

at::Tensor as_four(const at::Tensor& tensor, const std::vector<int64_t>& batch) {
  at::Tensor whole = tensor.expand(with_last(batch, tensor.size(-2), tensor.size(-1)));
  while (whole.dim() < 4) {
    whole = whole.unsqueeze(0);
  }
  whole = whole.dim() > 4 ? whole.flatten(0, whole.dim() - 4) : whole;
  return whole.stride(-1) == 1 ? whole : whole.contiguous();
}

FourDimensional four_dimensional(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks) {
  FourDimensional four;
  four.batch = at::infer_size(at::infer_size(leading(q), leading(k)), leading(v));
  four.q = as_four(q, four.batch);
  four.k = as_four(k, four.batch);
  four.v = as_four(v, four.batch);
  if (masks.attention) {
    at::Tensor mask = *masks.attention;
    if (mask.scalar_type() == ScalarType::Bool) {
      mask = at::zeros(mask.sizes(), q.options()).masked_fill_(mask.logical_not(), -kInfinity);
    } else if (mask.scalar_type() != q.scalar_type()) {
      mask = mask.to(ScalarType::Float);
    }
    while (mask.dim() < 2) {
      mask = mask.unsqueeze(0);
    }
    four.mask = as_four(mask.expand(with_last(leading(mask), q.size(-2), k.size(-2))), four.batch);
  }
  return four;
}

/// Sums a gradient over what broadcast, into the shape of what it is the gradient of.
at::Tensor like(const at::Tensor& grad, const std::vector<int64_t>& batch, const at::Tensor& of) {
  return grad.reshape(with_last(batch, grad.size(-2), grad.size(-1)))
      .sum_to_size(of.sizes())
      .contiguous();
}

}  // namespace

Masks masks_of(
    const std::optional<at::Tensor>& attention, bool causal,
    const std::optional<at::Tensor>& valid_length, c10::string_view padding) {
  const auto given = [](const std::optional<at::Tensor>& tensor) {
    return tensor && tensor->defined() ? tensor : std::nullopt;
  };
  return {given(attention), causal, given(valid_length), std::string(padding)};
}

c10::SymDimVector shape_over(
    at::TensorList operands, const c10::SymInt& rows, const c10::SymInt& columns) {
  c10::SymDimVector shape;
  for (const at::Tensor& each : operands) {
    const size_t leading = static_cast<size_t>(each.dim() - 2);
    shape = at::infer_size_symdimvector(shape, each.sym_sizes().slice(0, leading));
  }
  shape.push_back(rows);
  shape.push_back(columns);
  return shape;
}

void check_mask(const at::Tensor& q, const at::Tensor& k, const Masks& masks) {
  if (!masks.attention) {
    return;
  }
  const c10::SymDimVector scores = shape_over({q, k}, q.sym_size(-2), k.sym_size(-2));
  const c10::SymIntArrayRef mask = masks.attention->sym_sizes();
  bool broadcasts = mask.size() <= scores.size();
  for (size_t i = 1; broadcasts && i <= mask.size(); ++i) {
    const c10::SymInt& size = mask[mask.size() - i];
    broadcasts = size == 1 || size == scores[scores.size() - i];
  }
  TORCH_CHECK(
      broadcasts, "attention_mask of shape ", mask, " must broadcast to the scores' shape ",
      c10::SymIntArrayRef(scores), ".");
}

at::Tensor masked_scores(
    const at::Tensor& q, const at::Tensor& k, double scale, const Masks& masks,
    int64_t first_query) {
  check_mask(q, k, masks);
  at::Tensor scores =
      at::matmul(q.to(ScalarType::Float) * scale, k.to(ScalarType::Float).transpose(-2, -1));
  if (masks.causal && !scores.is_meta()) {
    scores.masked_fill_(causal(scores, first_query).logical_not(), -kInfinity);
  }
  if (masks.valid_length && !scores.is_meta()) {
    scores.masked_fill_(
        valid(scores, *masks.valid_length, masks.padding).logical_not(), -kInfinity);
  }
  if (!masks.attention) {
    return scores;
  }
  const at::Tensor& mask = *masks.attention;
  return mask.scalar_type() == ScalarType::Bool
      ? scores.masked_fill(mask.logical_not(), -kInfinity)
      : scores + mask;
}

at::Tensor probabilities_of(const at::Tensor& scores, const Masks& masks) {
  if (!masks.attention && !masks.valid_length) {
    return at::softmax(scores, -1);  // each query sees the first key at least
  }
  const at::Tensor none = (scores == -kInfinity).all(-1, /*keepdim=*/true);
  return at::softmax(scores, -1).masked_fill(none, 0.0);
}

at::Tensor seed_of_dropout(const at::Tensor& given, const at::Tensor& like) {
  if (given.defined()) {
    TORCH_CHECK(
        given.sym_numel() == 1, "The seed of dropout must be one number, but has shape ",
        given.sym_sizes(), ".");
    return given.to(ScalarType::Int).reshape({1}).clone();
  }
  const auto options = like.options().dtype(ScalarType::Int);
  return like.is_meta()
      ? at::empty({1}, options)
      : at::randint(
            std::numeric_limits<int32_t>::max(), {1}, host_generator(at::Generator()), options);
}

at::Tensor kept_by(const at::Tensor& seed, const at::Tensor& probabilities, double p) {
  const auto options = probabilities.options();
  if (seed.is_meta()) {
    return at::empty_symint(probabilities.sym_sizes(), options.dtype(ScalarType::Char));
  }
  const at::Generator generator =
      at::detail::createCPUGenerator(static_cast<uint64_t>(seed.item<int32_t>()));
  const at::Tensor draws =
      at::rand(probabilities.sizes(), generator, options.dtype(ScalarType::Float));
  return (draws >= p).to(ScalarType::Char);
}

at::Tensor dropped(const at::Tensor& probabilities, const at::Tensor& kept, double p) {
  return probabilities * kept / (1.0 - p);
}

at::Tensor largest_of(const at::Tensor& scores) {
  return scores.sym_size(-1) == 0 ? scores.logsumexp(-1, /*keepdim=*/true)
                                  : scores.amax(-1, /*keepdim=*/true);
}

std::tuple<at::Tensor, at::Tensor> statistics(
    const at::Tensor& largest, const at::Tensor& log_sum, ScalarType dtype, bool fast) {
  const at::Tensor none = at::isneginf(largest);
  const at::Tensor m = largest.masked_fill(none, 0.0).to(dtype);
  const at::Tensor linv = at::exp(m - log_sum).masked_fill(none, 0.0);
  return {m, linv.to(fast && dtype == ScalarType::BFloat16 ? dtype : ScalarType::Float)};
}

bool takes_flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks) {
  return !q.is_meta() && !masks.valid_length && q.size(-1) == v.size(-1) && q.numel() > 0 &&
      k.numel() > 0;
}

std::tuple<at::Tensor, at::Tensor> flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks) {
  const FourDimensional four = four_dimensional(q, k, v, masks);
  const auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
      four.q, four.k, four.v, 0.0, masks.causal, four.mask, scale);
  return {
      out.reshape(with_last(four.batch, out.size(-2), out.size(-1))).contiguous(),
      log_sum.reshape(with_last(four.batch, out.size(-2), 1))};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& log_sum, double scale, const Masks& masks) {
  const FourDimensional four = four_dimensional(q, k, v, masks);
  const auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      as_four(grad, four.batch), four.q, four.k, four.v, as_four(out, four.batch),
      as_four(log_sum, four.batch).squeeze(-1), 0.0, masks.causal, four.mask, scale);
  return {like(of_q, four.batch, q), like(of_k, four.batch, k), like(of_v, four.batch, v)};
}

}  // namespace hpu::custom
