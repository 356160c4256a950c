// Matmul, normalization, convolution and their backward passes.
#include "operators/convolution_memory.h"
#include "operators/kernel.h"

#include <ATen/Operators.h>
#include <ATen/SDPBackend.h>

namespace hpu {

namespace ops = at::_ops;

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  register_kernels<
      ops::mm, ops::addr, ops::addmm, ops::bmm, ops::baddbmm, ops::mv, ops::dot, ops::convolution,
      ops::convolution_backward, ops::_softmax, ops::_softmax_backward_data, ops::_log_softmax,
      ops::_log_softmax_backward_data, ops::nll_loss_forward, ops::nll_loss_backward,
      ops::nll_loss2d_forward, ops::nll_loss2d_backward, ops::native_layer_norm,
      ops::native_layer_norm_backward, ops::native_batch_norm, ops::native_batch_norm_backward,
      ops::native_group_norm, ops::native_group_norm_backward, ops::max_pool2d_with_indices,
      ops::max_pool2d_with_indices_backward, ops::avg_pool2d, ops::avg_pool2d_backward,
      ops::_adaptive_avg_pool2d, ops::_adaptive_avg_pool2d_backward,
      ops::_scaled_dot_product_flash_attention_for_cpu,
      ops::_scaled_dot_product_flash_attention_for_cpu_backward, ops::embedding_dense_backward,
      ops::index_select, ops::gather, ops::cat>(library);
}

// PyTorch calls these two operators for convolutions on devices that it does not support itself.
at::Tensor convolution_overrideable(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
    bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups) {
  return Kernel<ops::convolution>::call(
      input, weight, bias, stride, padding, dilation, transposed, output_padding,
      std::move(groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_overrideable(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    c10::SymIntArrayRef stride, c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
    bool transposed, c10::SymIntArrayRef output_padding, c10::SymInt groups,
    std::array<bool, 3> output_mask) {
  const std::vector<c10::SymInt> bias_sizes{
      transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  return Kernel<ops::convolution_backward>::call(
      grad_output, input, weight, c10::SymIntArrayRef(bias_sizes), stride, padding, dilation,
      transposed, output_padding, std::move(groups), output_mask);
}

/// The CPU kernel checks requires_grad, which is not set on the CPU views of device tensors.
int64_t fused_sdp_choice(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask, double dropout_p, bool is_causal,
    std::optional<double> scale, bool enable_gqa) {
  const bool mask_gradient = at::GradMode::is_enabled() && attn_mask && attn_mask->requires_grad();
  if (mask_gradient) {
    return static_cast<int64_t>(at::SDPBackend::math);
  }
  const auto shape = [](const at::Tensor& tensor) {
    return on_device(tensor) ? shape_view(tensor) : tensor;
  };
  return ops::_fused_sdp_choice::redispatch(
      kHost, shape(query), shape(key), shape(value),
      attn_mask ? std::optional<at::Tensor>(shape(*attn_mask)) : std::nullopt, dropout_p, is_causal,
      scale, enable_gqa);
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("_fused_sdp_choice", &fused_sdp_choice);
  library.impl("convolution_overrideable", &convolution_overrideable);
  library.impl("convolution_backward_overrideable", &convolution_backward_overrideable);
}

}  // namespace hpu
