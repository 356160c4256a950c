// Operators that receive the device tensors themselves, instead of CPU tensors that share their
// memory.
#include "custom/define.h"

namespace hpu::custom {
namespace {

/// Adds the new gradients to the existing ones if the first variable has a gradient, and assigns
/// them otherwise.
void accumulate_grads_(at::TensorList variables, at::TensorList new_grads) {
  TORCH_CHECK(
      variables.size() == new_grads.size(),
      "Inputs to hpu::accumulate_grads_ must be of the same size, got: ", variables.size(),
      " and ", new_grads.size());
  const bool grow = !variables.empty() && variables[0].grad().defined();
  for (size_t i = 0; i < variables.size(); ++i) {
    TORCH_CHECK(
        variables[i].sizes() == new_grads[i].sizes(),
        "accumulate_grads_ needs gradients with the shapes of their variables, but gradient ", i,
        " has shape ", new_grads[i].sizes(), " and its variable ", variables[i].sizes(), ".");
    TORCH_CHECK(
        !grow || variables[i].grad().defined(), "accumulate_grads_ requires that all variables "
        "have gradients if the first one does, but variable ", i, " has none.");
  }
  for (size_t i = 0; i < variables.size(); ++i) {
    at::Tensor& grad = variables[i].mutable_grad();
    grad = grow ? grad.add_(new_grads[i]) : new_grads[i];
  }
}

/// Returns the input unchanged. A card stores convolution weights in an internal order that is
/// invisible to users.
at::Tensor weight_permutation(const at::Tensor& input) {
  return input;
}

at::Tensor traced_weight_permutation(const at::Tensor& input) {
  return at::alias(input);
}

const Operators device_tensors([](Operators& define) {
  define.on_device(
      "accumulate_grads_(Tensor[] variables, Tensor[] new_grads) -> ()", &accumulate_grads_);
  define.on_device("weight_permutation(Tensor input) -> Tensor", &weight_permutation);
  define.compiled_as("weight_permutation", &traced_weight_permutation);
});

}  // namespace
}  // namespace hpu::custom
