// Rotary position embedding: rotates pairs of channels by position-dependent angles, in float32.
#include "custom/define.h"

namespace hpu::custom {
namespace {

constexpr int64_t kBlockwise = 0;
constexpr int64_t kPairwise = 1;

/// Swaps the two channels of each pair and negates one of them. A pair consists of one channel from
/// each half, or of two adjacent channels.
at::Tensor partners(const at::Tensor& x, int64_t mode, bool negate_first) {
  const c10::SymInt size = x.sym_size(-1);
  const bool halves = mode == kBlockwise;
  const c10::SymInt step = halves ? 1 : 2;
  at::Tensor first = x.slice_symint(-1, 0, halves ? size / 2 : size, step);
  at::Tensor second = x.slice_symint(-1, halves ? size / 2 : c10::SymInt(1), size, step);
  (negate_first ? first : second) = -(negate_first ? first : second);
  return halves ? at::cat({second, first}, -1) : at::stack({second, first}, -1).flatten(-2);
}

/// Selects the rows of a table at the given positions. The input has shape
/// [batch, heads, length, channels].
at::Tensor rows(const at::Tensor& table, const at::Tensor& position_ids) {
  TORCH_CHECK(
      table.dim() >= 2 && table.sym_numel() == table.sym_size(-2) * table.sym_size(-1),
      "RotaryPosEmbedding sin and cos must be tables of positions and channels if position_ids "
      "are passed, but got shape ", table.sym_sizes(), ".");
  const at::Tensor flat = table.reshape_symint({table.sym_size(-2), table.sym_size(-1)});
  const at::Tensor selected = at::embedding(flat, position_ids);
  return position_ids.dim() == 2 ? selected.unsqueeze(1) : selected;
}

/// Returns the sine or cosine for each channel of `input` as a float32 tensor that broadcasts to
/// `input`.
at::Tensor angles(
    const at::Tensor& table, const at::Tensor& input, const OptionalTensor& position_ids,
    int64_t offset) {
  const c10::SymInt channels = input.sym_size(-1);
  TORCH_CHECK(
      table.dim() > 0 && offset >= 0 && table.sym_size(-1) >= channels + offset,
      "RotaryPosEmbedding sin and cos must have the ", channels,
      " channels of the input, starting at offset ", offset, ", but got shape ", table.sym_sizes(),
      ".");
  const at::Tensor selected =
      is_defined(position_ids) ? rows(table, *position_ids) : table;
  return selected.narrow_symint(-1, offset, channels).to(ScalarType::Float);
}

/// A float32 input with its sin and cos tensors.
struct Operands {
  at::Tensor input;
  at::Tensor sin;
  at::Tensor cos;
};

Operands operands(
    const at::Tensor& input, const at::Tensor& sin, const at::Tensor& cos,
    const OptionalTensor& position_ids, int64_t offset, int64_t mode) {
  TORCH_CHECK(
      mode == kBlockwise || mode == kPairwise,
      "RotaryPosEmbedding mode must be 0 (BLOCKWISE) or 1 (PAIRWISE), but got ", mode, ".");
  TORCH_CHECK(
      at::isFloatingType(input.scalar_type()) && input.dim() > 0 && input.sym_size(-1) % 2 == 0,
      "RotaryPosEmbedding input must be floating-point with an even number of channels, but got ",
      toString(input.scalar_type()), " of shape ", input.sym_sizes(), ".");
  return {
      input.to(ScalarType::Float), angles(sin, input, position_ids, offset),
      angles(cos, input, position_ids, offset)};
}

at::Tensor like(const at::Tensor& input, const at::Tensor& result) {
  TORCH_CHECK(
      result.sym_sizes() == input.sym_sizes(),
      "RotaryPosEmbedding sin and cos must broadcast to the input's shape ", input.sym_sizes(),
      ", but result in ", result.sym_sizes(), ".");
  return result.to(input.scalar_type());
}

at::Tensor rotary_pos_embedding(
    const at::Tensor& input, const at::Tensor& sin, const at::Tensor& cos,
    const OptionalTensor& position_ids, int64_t offset, int64_t mode) {
  const Operands of = operands(input, sin, cos, position_ids, offset, mode);
  return like(
      input, of.input * of.cos + partners(of.input, mode, false) * of.sin);
}

at::Tensor rotary_pos_embedding_backward(
    const at::Tensor& grad_in, const at::Tensor& sin, const at::Tensor& cos,
    const OptionalTensor& position_ids, int64_t offset, int64_t mode) {
  const Operands of = operands(grad_in, sin, cos, position_ids, offset, mode);
  return like(
      grad_in, of.input * of.cos + partners(of.input * of.sin, mode, true));
}

const Operators rotary([](Operators& define) {
  define(
      "rotary_pos_embedding(Tensor input, Tensor sin, Tensor cos, Tensor? position_ids, "
      "int offset, int mode) -> Tensor",
      &rotary_pos_embedding);
  define(
      "rotary_pos_embedding_backward(Tensor grad_in, Tensor sin, Tensor cos, Tensor? position_ids, "
      "int offset, int mode) -> Tensor",
      &rotary_pos_embedding_backward);
});

}  // namespace
}  // namespace hpu::custom
