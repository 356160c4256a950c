#include "custom/attention/attention.h"

#include "calls/generator.h"
#include "custom/define.h"
#include "custom/parallel.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <limits>

namespace hpu::custom {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Hides the keys after each query's position.
void hide_later(const at::Tensor& scores, int64_t first_query) {
  const int64_t keys = scores.size(-1) - first_query;
  if (keys <= 0) {
    return;  // every query sees all keys before the first query's position
  }
  const auto options = scores.options().dtype(ScalarType::Long);
  const at::Tensor query = at::arange(scores.size(-2), options).unsqueeze(-1);
  scores.narrow(-1, first_query, keys).masked_fill_(at::arange(keys, options) > query, -kInfinity);
}

at::Tensor valid(const at::Tensor& scores, const at::Tensor& length, const std::string& padding) {
  TORCH_CHECK(
      padding == "left" || padding == "right", "seq_padding_type must be \"left\" or \"right\", "
      "but got \"", padding, "\".");
  TORCH_CHECK(
      length.dim() == 1 && length.size(0) == scores.size(0),
      "valid_seq_len must be 1D, with one length per batch entry, but got shape ", length.sizes(),
      " for scores of shape ", scores.sizes(), ".");
  std::vector<int64_t> each(static_cast<size_t>(scores.dim()), 1);
  each[0] = -1;
  const at::Tensor lengths = length.reshape(each);
  const int64_t keys = scores.size(-1);
  const at::Tensor key = at::arange(keys, scores.options().dtype(ScalarType::Long));
  return padding == "right" ? key < lengths : key >= keys - lengths;
}

/// Operands with two leading dimensions, in which each query head has its own key head and value
/// head.
struct FourDimensional {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  OptionalTensor mask;
  std::vector<int64_t> batch;  // broadcast leading dimensions
};

std::vector<int64_t> leading(const at::Tensor& tensor) {
  return tensor.sizes().slice(0, static_cast<size_t>(tensor.dim() - 2)).vec();
}

std::vector<int64_t> with_last(std::vector<int64_t> batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

at::Tensor expanded_to_four(
    const at::Tensor& tensor, const std::vector<int64_t>& batch, int64_t rows, int64_t columns) {
  at::Tensor whole = tensor.expand(with_last(batch, rows, columns));
  while (whole.dim() < 4) {
    whole = whole.unsqueeze(0);
  }
  return whole.dim() > 4 ? whole.flatten(0, whole.dim() - 4) : whole;
}

at::Tensor as_four(const at::Tensor& tensor, const std::vector<int64_t>& batch) {
  const at::Tensor whole = expanded_to_four(tensor, batch, tensor.size(-2), tensor.size(-1));
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

constexpr int64_t kQueriesAtOnce = 64;
constexpr int64_t kScoresAtOnce = 1 << 17;  // 512 KiB, which fits in a core's cache

/// Four-dimensional operands and results of attention.
struct Heads {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
  OptionalTensor mask;
  at::Tensor out;
  at::Tensor largest;
  at::Tensor log_sum;
};

/// Computes attention for `count` queries of some heads, starting at query `first`. The tensors in
/// `heads` are three-dimensional views.
void attend(const Heads& heads, int64_t first, int64_t count, double scale, bool causal) {
  const int64_t seen = causal ? std::min(heads.k.size(-2), first + count) : heads.k.size(-2);
  const auto queries = [&](const at::Tensor& of) { return of.narrow(-2, first, count); };
  Masks masks{std::nullopt, causal, std::nullopt, ""};
  if (heads.mask) {
    masks.attention = queries(*heads.mask).narrow(-1, 0, seen);
  }
  at::Tensor weights =
      masked_scores(queries(heads.q), heads.k.narrow(-2, 0, seen), scale, masks, first);
  const at::Tensor largest = weights.amax(-1, /*keepdim=*/true);
  const at::Tensor none = at::isneginf(largest);
  const at::Tensor reference = largest.masked_fill(none, 0.0);
  weights.sub_(reference).exp_();
  const at::Tensor sum = weights.sum(-1, /*keepdim=*/true).masked_fill_(none, 1.0);
  queries(heads.out).copy_(at::matmul(weights, heads.v.narrow(-2, 0, seen)).div_(sum));
  queries(heads.largest).copy_(largest);
  queries(heads.log_sum).copy_(sum.log().add_(reference));
}

/// Removes repeated values along broadcast dimensions, so that the leading dimensions are `batch`.
at::Tensor of_one(at::Tensor rows, const std::vector<int64_t>& batch) {
  while (rows.dim() > static_cast<int64_t>(batch.size()) + 2) {
    rows = rows.select(0, 0);
  }
  for (size_t dim = 0; dim < batch.size(); ++dim) {
    rows = batch[dim] == 1 ? rows.narrow(static_cast<int64_t>(dim), 0, 1) : rows;
  }
  return rows.contiguous();
}

/// Sums a gradient over broadcast dimensions, so that it has the shape of its operand.
at::Tensor like(const at::Tensor& grad, const std::vector<int64_t>& batch, const at::Tensor& of) {
  return grad.reshape(with_last(batch, grad.size(-2), grad.size(-1)))
      .sum_to_size(of.sizes())
      .contiguous();
}

}  // namespace

Masks masks_of(const Arguments& arguments) {
  return {
      arguments.optional("attention_mask"), arguments["is_causal"].toBool(),
      arguments.optional("valid_seq_len"), arguments["seq_padding_type"].toStringRef()};
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
    hide_later(scores, first_query);
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
    return at::softmax(scores, -1);  // each query sees at least the first key
  }
  const at::Tensor none = (scores == -kInfinity).all(-1, /*keepdim=*/true);
  return at::softmax(scores, -1).masked_fill(none, 0.0);
}

at::Tensor seed_of_dropout(const OptionalTensor& seed, const at::Tensor& like) {
  if (seed) {
    TORCH_CHECK(
        seed->sym_numel() == 1, "The dropout seed must be a single number, but got shape ",
        seed->sym_sizes(), ".");
    return seed->to(ScalarType::Int).reshape({1}).clone();
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

TwoTensors statistics(
    const at::Tensor& largest, const at::Tensor& log_sum, ScalarType dtype, bool fast) {
  const at::Tensor none = at::isneginf(largest);
  const at::Tensor m = largest.masked_fill(none, 0.0).to(dtype);
  const at::Tensor linv = at::exp(m - log_sum).masked_fill(none, 0.0);
  return {m, linv.to(fast && dtype == ScalarType::BFloat16 ? dtype : ScalarType::Float)};
}

bool supports_flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Masks& masks) {
  return !q.is_meta() && !masks.valid_length && q.size(-1) == v.size(-1) && q.numel() > 0 &&
      k.numel() > 0;
}

TwoTensors flash_attention(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks) {
  const FourDimensional four = four_dimensional(q, k, v, masks);
  const auto [out, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
      four.q, four.k, four.v, 0.0, masks.causal, four.mask, scale);
  return {
      out.reshape(with_last(four.batch, out.size(-2), out.size(-1))).contiguous(),
      log_sum.reshape(with_last(four.batch, out.size(-2), 1))};
}

ThreeTensors attention_in_blocks(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
    const Masks& masks) {
  const std::vector<int64_t> of_scores = at::infer_size(leading(q), leading(k));
  const std::vector<int64_t> batch = at::infer_size(of_scores, leading(v));
  const int64_t length = q.size(-2);
  Heads all;
  all.q = as_four(q, batch);
  all.k = as_four(k.to(ScalarType::Float), batch);
  all.v = as_four(v.to(ScalarType::Float), batch);
  if (masks.attention) {
    all.mask = expanded_to_four(*masks.attention, batch, length, k.size(-2));
  }
  const auto result = [&](int64_t columns) {
    return at::empty({all.q.size(0), all.q.size(1), length, columns}, all.v.options());
  };
  all.out = result(v.size(-1));
  all.largest = result(1);
  all.log_sum = result(1);
  // Each thread performs all operations on its own blocks, so that no operation has to be split
  // among all threads.
  const int64_t heads = all.q.size(1);
  const int64_t together =
      std::clamp<int64_t>(kScoresAtOnce / (kQueriesAtOnce * k.size(-2)), 1, heads);
  const int64_t groups = (heads + together - 1) / together;
  const int64_t blocks = (length + kQueriesAtOnce - 1) / kQueriesAtOnce;
  each_below(all.q.size(0) * groups * blocks, [&](int64_t i) {
    const int64_t head = i / blocks % groups * together;
    const auto some = [&](const at::Tensor& of) {
      return of.select(0, i / blocks / groups).narrow(0, head, std::min(together, heads - head));
    };
    Heads few{some(all.q),   some(all.k),       some(all.v),      std::nullopt,
              some(all.out), some(all.largest), some(all.log_sum)};
    if (all.mask) {
      few.mask = some(*all.mask);
    }
    const int64_t first = i % blocks * kQueriesAtOnce;
    attend(few, first, std::min(kQueriesAtOnce, length - first), scale, masks.causal);
  });
  return {
      all.out.reshape(with_last(batch, length, v.size(-1))),
      of_one(all.largest.reshape(with_last(batch, length, 1)), of_scores),
      of_one(all.log_sum.reshape(with_last(batch, length, 1)), of_scores)};
}

ThreeTensors flash_attention_backward(
    const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& log_sum, double scale, const Masks& masks) {
  const FourDimensional four = four_dimensional(q, k, v, masks);
  const auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      as_four(grad, four.batch), four.q, four.k, four.v, as_four(out, four.batch),
      as_four(log_sum, four.batch).squeeze(-1), 0.0, masks.causal, four.mask, scale);
  return {like(of_q, four.batch, q), like(of_k, four.batch, k), like(of_v, four.batch, v)};
}

}  // namespace hpu::custom
