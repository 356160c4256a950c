// Elementwise operators and reductions.
#include "operators/kernel.h"

#include <ATen/Operators.h>

namespace hpu {

namespace ops = at::_ops;

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  register_kernels<
      ops::add_Tensor, ops::add__Tensor, ops::add_out, ops::sub_Tensor, ops::sub__Tensor,
      ops::mul_Tensor, ops::mul__Tensor, ops::mul_out, ops::div_Tensor, ops::div__Tensor, ops::neg,
      ops::abs, ops::exp, ops::log, ops::sqrt, ops::sqrt_, ops::rsqrt, ops::reciprocal, ops::sin,
      ops::cos, ops::erf, ops::pow_Tensor_Scalar, ops::maximum, ops::minimum, ops::lerp__Scalar,
      ops::addcmul_, ops::addcdiv_, ops::addcmul, ops::addcdiv, ops::clamp, ops::clamp_min,
      ops::clamp_, ops::sign, ops::where_self, ops::eq_Tensor, ops::eq_Scalar, ops::ne_Tensor,
      ops::ne_Scalar, ops::gt_Tensor, ops::gt_Scalar, ops::ge_Scalar, ops::lt_Tensor,
      ops::lt_Scalar, ops::le_Scalar, ops::logical_not, ops::bitwise_not,
      ops::masked_fill__Scalar>(library);
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  register_kernels<
      ops::relu, ops::relu_, ops::threshold_backward, ops::leaky_relu, ops::silu, ops::sigmoid,
      ops::sigmoid_backward, ops::tanh, ops::tanh_backward, ops::hardtanh, ops::softplus, ops::elu,
      ops::sum_dim_IntList, ops::mean_dim, ops::mean, ops::amax, ops::argmax, ops::cumsum, ops::all,
      ops::any, ops::isnan, ops::linalg_vector_norm, ops::mse_loss, ops::mse_loss_backward,
      ops::smooth_l1_loss, ops::binary_cross_entropy_with_logits>(library);
}

}  // namespace hpu
