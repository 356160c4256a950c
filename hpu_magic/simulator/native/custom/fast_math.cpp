// Matmul and math functions for inference that a card fuses or approximates. The simulator computes
// these functions in float32, because the approximations are not published.
#include "custom/define.h"

namespace hpu::custom {
namespace {

template <at::Tensor (*function)(const at::Tensor&)>
at::Tensor in_float(const at::Tensor& self) {
  return function(self.to(ScalarType::Float)).to(self.scalar_type());
}

at::Tensor masked_batch_gemm(
    const at::Tensor& a, const at::Tensor& b, const at::Tensor& mask_a, const at::Tensor& mask_b,
    bool trans_a, bool trans_b) {
  TORCH_CHECK(
      a.dim() == 4 && b.dim() == 4 && mask_a.dim() == 4 && mask_b.dim() == 4,
      "All inputs must be 4D, but got: a = ", a.dim(), "D, b = ", b.dim(), "D, mask_a = ",
      mask_a.dim(), "D, mask_b = ", mask_b.dim(), "D");
  const auto operand = [](const at::Tensor& tensor, bool transposed) {
    const at::Tensor wide = tensor.to(ScalarType::Float);
    return transposed ? wide.transpose(-2, -1) : wide;
  };
  const at::Tensor product = at::matmul(operand(a, trans_a), operand(b, trans_b));
  const at::Tensor of_masks = at::matmul(operand(mask_a, trans_a), operand(mask_b, trans_b));
  const c10::SymIntArrayRef shape = product.sym_sizes(), masks = of_masks.sym_sizes();
  bool broadcasts = true;
  for (size_t i = 0; i < shape.size(); ++i) {
    broadcasts = broadcasts && (masks[i] == shape[i] || (i < 2 && masks[i] == 1));
  }
  TORCH_CHECK(
      broadcasts, "The product of the MaskedBatchGemm masks must have shape ", shape,
      " like that of a and b, except for batch dimensions of 1, but got shape ", masks, ".");
  return (product + of_masks).to(a.scalar_type());
}

const Operators fast_math([](Operators& define) {
  define(
      "masked_batch_gemm(Tensor a, Tensor b, Tensor mask_a, Tensor mask_b, bool trans_a, "
      "bool trans_b) -> Tensor",
      &masked_batch_gemm);
  define("exp_fast_math(Tensor self) -> Tensor", &in_float<&at::exp>);
  define("sqrt_fast_math(Tensor self) -> Tensor", &in_float<&at::sqrt>);
  define("rsqrt_fast_math(Tensor self) -> Tensor", &in_float<&at::rsqrt>);
});

}  // namespace
}  // namespace hpu::custom
