// Softmax of attention over blocks of a KV cache. Each block belongs to a sequence, and the sums of
// a sequence's blocks are combined after the multiplication by the values.
#include "custom/define.h"

#include <limits>

namespace hpu::custom {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

void check_groups(const char* name, const at::Tensor& blocks, const at::Tensor& groups) {
  TORCH_CHECK(
      groups.dim() == 1 && blocks.dim() > 0 && groups.sym_size(0) == blocks.sym_size(0) &&
          at::isIntegralType(groups.scalar_type(), /*includeBool=*/false),
      name, " block_groups must contain an integer for each of the blocks in ", blocks.sym_sizes(),
      ", but got ", toString(groups.scalar_type()), " of shape ", groups.sym_sizes(), ".");
}

/// Returns exp(score - largest score of the row), the largest scores, and the rows' sums. Blocks
/// with a negative group are padding. The sums of padding are also computed.
ThreeTensors block_softmax(
    const at::Tensor& attn, const OptionalTensor& block_bias, const at::Tensor& block_groups) {
  check_groups("BlockSoftmax", attn, block_groups);
  const at::Tensor scores = attn.to(ScalarType::Float);
  const at::Tensor biased = is_defined(block_bias) ? scores + *block_bias : scores;
  TORCH_CHECK(
      biased.sym_sizes() == attn.sym_sizes(), "BlockSoftmax block_bias must broadcast to ",
      attn.sym_sizes(), ", but its shape is ", block_bias->sym_sizes(), ".");
  const at::Tensor largest = at::amax(biased, -1, /*keepdim=*/true);
  const at::Tensor finite = at::where(largest == kHidden, at::zeros_like(largest), largest);
  const at::Tensor exponentials = at::exp(biased - finite);
  const ScalarType dtype = attn.scalar_type();
  return {
      exponentials.to(dtype), largest.to(dtype), exponentials.sum(-1, /*keepdim=*/true).to(dtype)};
}

/// Returns the factor by which each block contributes to its sequence's softmax: exp(block_max -
/// largest) / sum, where `largest` and `sum` are taken over the blocks of the same group. Blocks of
/// groups outside 0 to batch_size - 1 form a group of their own, which is padding.
at::Tensor block_softmax_adjustment(
    const at::Tensor& block_max, const at::Tensor& block_sums, const at::Tensor& block_groups,
    c10::SymInt batch_size, c10::SymIntArrayRef out_shape) {
  check_groups("BlockSoftmaxAdjustment", block_max, block_groups);
  TORCH_CHECK(
      block_sums.sym_sizes() == block_max.sym_sizes() &&
          c10::multiply_integers(out_shape) == block_max.sym_numel(),
      "BlockSoftmaxAdjustment block_sums and out_shape must have as many elements as block_max of ",
      block_max.sym_sizes(), ", but got ", block_sums.sym_sizes(), " and ", out_shape, ".");
  if (block_max.is_meta()) {
    return at::empty_symint(out_shape, block_max.options());
  }
  const int64_t batch = batch_size.guard_int(__FILE__, __LINE__);
  const at::Tensor groups = block_groups.to(ScalarType::Long);
  const at::Tensor valid = at::logical_and(groups >= 0, groups < batch);
  const at::Tensor rows = at::where(valid, groups, at::full_like(groups, batch));
  const int64_t blocks = block_max.size(0);
  const at::Tensor largest = block_max.to(ScalarType::Float).reshape({blocks, -1});
  const at::Tensor of_group =
      at::full({batch + 1, largest.size(1)}, kHidden, largest.options())
          .index_reduce_(0, rows, largest, "amax")
          .index_select(0, rows);
  const at::Tensor hidden = of_group == kHidden;
  const at::Tensor adjustment = at::exp(largest - of_group).masked_fill(hidden, 0.0);
  const at::Tensor sums = block_sums.to(ScalarType::Float).reshape({blocks, -1}) * adjustment;
  const at::Tensor total = at::zeros({batch + 1, largest.size(1)}, largest.options())
                               .index_add_(0, rows, sums)
                               .index_select(0, rows);
  return (adjustment / total)
      .masked_fill(total == 0, 0.0)
      .reshape_symint(out_shape)
      .to(block_max.scalar_type());
}

const Operators block_softmaxes([](Operators& define) {
  define(
      "block_softmax(Tensor attn, Tensor? block_bias, Tensor block_groups) -> "
      "(Tensor, Tensor, Tensor)",
      &block_softmax);
  define(
      "block_softmax_adjustment(Tensor block_max, Tensor block_sums, Tensor block_groups, "
      "SymInt batch_size, SymInt[] out_shape) -> Tensor",
      &block_softmax_adjustment);
});

}  // namespace
}  // namespace hpu::custom
