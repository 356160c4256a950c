// The vendor's operators for indexing and padding with dynamic shapes.
#include "custom/define.h"

namespace hpu::custom {
namespace {

/// Indexes the leading dimensions, each of which needs an index.
at::Tensor plain_index(const at::Tensor& self, at::TensorList indices) {
  TORCH_CHECK(
      static_cast<int64_t>(indices.size()) <= self.dim(), "plain_index has ", indices.size(),
      " indices for ", self.dim(), " dimensions.");
  c10::List<OptionalTensor> each;
  for (const at::Tensor& index : indices) {
    TORCH_CHECK(
        index.defined() && (index.scalar_type() == ScalarType::Long ||
                            index.scalar_type() == ScalarType::Int),
        "plain_index requires int64 or int32 indices, but got ",
        index.defined() ? toString(index.scalar_type()) : "None", ".");
    each.push_back(index);
  }
  return each.empty() ? self.clone() : at::index(self, each);
}

/// Ignores `size`, because the other arguments determine it.
at::Tensor slice_ds(
    const at::Tensor& input, c10::SymInt dim, c10::SymInt start, c10::SymInt end,
    c10::SymInt step, at::OptionalSymIntArrayRef /*size*/) {
  return at::slice_symint(
             input, dim.guard_int(__FILE__, __LINE__), std::move(start), std::move(end),
             std::move(step))
      .clone();
}

at::Tensor constant_pad_nd_ds(
    const at::Tensor& input, c10::SymIntArrayRef pad, const at::Scalar& value,
    at::OptionalSymIntArrayRef /*size*/) {
  return at::constant_pad_nd_symint(input, pad, value);
}

const Operators indexing([](Operators& define) {
  define("plain_index(Tensor self, Tensor[] indices) -> Tensor", &plain_index);
  define.in_eager_mode(
      "slice_ds(Tensor input, SymInt dim, SymInt start, SymInt end, SymInt step, "
      "SymInt[]? size=None) -> Tensor",
      &slice_ds);
  define.in_eager_mode(
      "constant_pad_nd_ds(Tensor input, SymInt[] pad, Scalar value, SymInt[]? size=None) "
      "-> Tensor",
      &constant_pad_nd_ds);
});

}  // namespace
}  // namespace hpu::custom
