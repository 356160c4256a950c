// Matmuls of 16-bit operands with a float32 `out`. A card writes its float32 sums to `out` without
// rounding them to 16 bits. PyTorch's kernels require an output with the operands' dtype.
#include "custom/define.h"

#include <ATen/Operators.h>

#include <algorithm>

namespace hpu::custom {
namespace {

/// Returns whether `out` is float32 and all operands have the same 16-bit dtype.
bool has_wide_output(at::TensorList operands, const at::Tensor& out) {
  const ScalarType dtype = operands.front().scalar_type();
  return out.scalar_type() == ScalarType::Float &&
      (dtype == ScalarType::BFloat16 || dtype == ScalarType::Half) &&
      std::all_of(operands.begin(), operands.end(), [dtype](const at::Tensor& operand) {
        return operand.scalar_type() == dtype;
      });
}

at::Tensor to_float(const at::Tensor& operand) {
  return operand.to(ScalarType::Float);
}

template <class Op>
at::Tensor& product(const at::Tensor& left, const at::Tensor& right, at::Tensor& out) {
  return has_wide_output({left, right}, out) ? Op::call(to_float(left), to_float(right), out)
                                             : Op::call(left, right, out);
}

template <class Op>
at::Tensor& sum_with_product(
    const at::Tensor& addend, const at::Tensor& left, const at::Tensor& right,
    const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  return has_wide_output({addend, left, right}, out)
      ? Op::call(to_float(addend), to_float(left), to_float(right), beta, alpha, out)
      : Op::call(addend, left, right, beta, alpha, out);
}

namespace ops = at::_ops;

const Operators matmuls([](Operators& define) {
  define.in_place_of("mm.out", &product<ops::mm_out>);
  define.in_place_of("bmm.out", &product<ops::bmm_out>);
  define.in_place_of("mv.out", &product<ops::mv_out>);
  define.in_place_of("dot.out", &product<ops::dot_out>);
  define.in_place_of("addmm.out", &sum_with_product<ops::addmm_out>);
  define.in_place_of("addmv.out", &sum_with_product<ops::addmv_out>);
  define.in_place_of("addbmm.out", &sum_with_product<ops::addbmm_out>);
  define.in_place_of("baddbmm.out", &sum_with_product<ops::baddbmm_out>);
});

}  // namespace
}  // namespace hpu::custom
