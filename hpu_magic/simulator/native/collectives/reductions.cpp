#include "collectives/reductions.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sum.h>

namespace hpu::collectives {

void check_reduction(const c10d::ReduceOp& operation, c10::ScalarType dtype) {
  TORCH_CHECK(
      operation != c10d::ReduceOp::AVG || dtype != at::kBool,
      "Cannot use ReduceOp.AVG with boolean inputs");
  TORCH_CHECK(
      operation == c10d::ReduceOp::SUM || operation == c10d::ReduceOp::PRODUCT ||
          operation == c10d::ReduceOp::MIN || operation == c10d::ReduceOp::MAX,
      "Unsupported ReduceOp for HCCL process group: use SUM, PRODUCT, MIN or MAX.");
  TORCH_CHECK(
      !c10::isComplexType(dtype), "HCCL does not reduce complex numbers: pass "
      "torch.view_as_real(tensor) where the operation may be done on both parts.");
}

c10::ScalarType reduced_as(c10::ScalarType dtype) {
  return dtype == at::kBFloat16 ? dtype : at::kFloat;
}

void reduce_rows(
    const at::Tensor& rows, const c10d::ReduceOp& operation, const at::Tensor& result) {
  at::Tensor out = result;
  if (operation == c10d::ReduceOp::SUM) {
    at::sum_out(out, rows, 0);
  } else if (operation == c10d::ReduceOp::PRODUCT) {
    at::prod_out(out, rows, 0);
  } else if (operation == c10d::ReduceOp::MIN) {
    at::amin_out(out, rows, 0);
  } else {
    at::amax_out(out, rows, 0);
  }
}

}  // namespace hpu::collectives
