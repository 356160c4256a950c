// Rotary position embedding: rotates pairs of channels by position-dependent angles, in float32.
#include "custom/define.h"

#include <ATen/ExpandUtils.h>

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
      "RotaryPosEmbedding sin and cos must be tables of shape (positions, channels) if "
      "position_ids are passed, but got shape ", table.sym_sizes(), ".");
  const at::Tensor flat = table.reshape_symint({table.sym_size(-2), table.sym_size(-1)});
  const at::Tensor selected = at::embedding(flat, position_ids);
  return position_ids.dim() == 2 ? selected.unsqueeze(1) : selected;
}

/// Returns the sine or cosine for each channel of `input`, in a shape that broadcasts to that of
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
  const at::Tensor values = selected.narrow_symint(-1, offset, channels);
  const auto shape = at::infer_size_symdimvector(input.sym_sizes(), values.sym_sizes());
  TORCH_CHECK(
      c10::SymIntArrayRef(shape) == input.sym_sizes(),
      "RotaryPosEmbedding sin and cos must broadcast to the input's shape ", input.sym_sizes(),
      ", but result in ", c10::SymIntArrayRef(shape), ".");
  c10::SymDimVector aligned(static_cast<size_t>(input.dim() - values.dim()), 1);
  aligned.insert(aligned.end(), values.sym_sizes().begin(), values.sym_sizes().end());
  return values.view_symint(aligned);
}

/// Rotates an input of float32 elements. The gradient is rotated by the opposite angle.
at::Tensor rotated(
    const at::Tensor& input, const at::Tensor& sin, const at::Tensor& cos, int64_t mode,
    bool backward) {
  const at::Tensor product =
      backward ? partners(input * sin, mode, true) : partners(input, mode, false).mul_(sin);
  return (input * cos).add_(product);
}

/// Writes the rotated input to `out`, in blocks, so that float32 copies of only one block exist at a
/// time.
void rotate_into(
    const at::Tensor& out, const at::Tensor& input, const at::Tensor& sin, const at::Tensor& cos,
    int64_t mode, bool backward) {
  constexpr int64_t kBlock = 1 << 18;
  int64_t dim = 0;
  while (dim < input.dim() - 1 && input.size(dim) == 1) {
    ++dim;
  }
  const int64_t size = input.size(dim);
  if (input.numel() <= kBlock || dim == input.dim() - 1) {
    const auto wide = [](const at::Tensor& tensor) { return tensor.to(ScalarType::Float); };
    out.copy_(rotated(wide(input), wide(sin), wide(cos), mode, backward));
    return;
  }
  for (const int64_t start : {int64_t{0}, size / 2}) {
    const int64_t length = start == 0 ? size / 2 : size - size / 2;
    const auto half = [&](const at::Tensor& tensor) {
      return tensor.size(dim) == 1 ? tensor : tensor.narrow(dim, start, length);
    };
    rotate_into(half(out), half(input), half(sin), half(cos), mode, backward);
  }
}

template <bool backward>
at::Tensor rotary_pos_embedding(
    const at::Tensor& input, const at::Tensor& sin, const at::Tensor& cos,
    const OptionalTensor& position_ids, int64_t offset, int64_t mode) {
  TORCH_CHECK(
      mode == kBlockwise || mode == kPairwise,
      "RotaryPosEmbedding mode must be 0 (BLOCKWISE) or 1 (PAIRWISE), but got ", mode, ".");
  TORCH_CHECK(
      at::isFloatingType(input.scalar_type()) && input.dim() > 0 && input.sym_size(-1) % 2 == 0,
      "RotaryPosEmbedding input must be floating-point with an even number of channels, but got ",
      toString(input.scalar_type()), " of shape ", input.sym_sizes(), ".");
  const at::Tensor sines = angles(sin, input, position_ids, offset);
  const at::Tensor cosines = angles(cos, input, position_ids, offset);
  at::Tensor out = at::empty_like(input);
  if (!input.is_meta()) {
    rotate_into(out, input, sines, cosines, mode, backward);
  }
  return out;
}

const Operators rotary([](Operators& define) {
  define(
      "rotary_pos_embedding(Tensor input, Tensor sin, Tensor cos, Tensor? position_ids, "
      "int offset, int mode) -> Tensor",
      &rotary_pos_embedding<false>);
  define(
      "rotary_pos_embedding_backward(Tensor grad_in, Tensor sin, Tensor cos, Tensor? position_ids, "
      "int offset, int mode) -> Tensor",
      &rotary_pos_embedding<true>);
});

}  // namespace
}  // namespace hpu::custom
