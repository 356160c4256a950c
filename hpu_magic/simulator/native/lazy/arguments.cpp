#include "lazy/arguments.h"

#include "calls/tensors_of.h"
#include "memory/memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/accumulate.h>

namespace hpu {
namespace {

using torch::jit::Stack;

bool stays(const at::Tensor& tensor) {
  return !tensor.defined() || on_device(tensor);
}

at::Tensor moved(const at::Tensor& tensor, const c10::Argument& declared) {
  if (stays(tensor)) {
    return tensor;
  }
  TORCH_CHECK(
      !is_written(declared), "Got a non-HPU tensor, expecting an HPU tensor: '",
      declared.name(), "' is a ", tensor.device().type(), " tensor of shape ", tensor.sizes(),
      " and cannot store the result of HPU tensors. Write to a tensor on \"hpu\" and move it.");
  return tensor.dim() == 0 ? tensor : tensor.to(device());
}

at::Tensor resized_tensor(const Stack& arguments, const Resized& resized) {
  const c10::IValue& argument = arguments[resized.argument];
  return argument.isTensor() ? argument.toTensor() : argument.toTensorVector()[resized.item];
}

}  // namespace

void move_operands(const c10::FunctionSchema& schema, Stack& stack) {
  const size_t first = stack.size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    bool all_stay = true;
    for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
      all_stay = all_stay && stays(tensor);
    });
    if (!all_stay) {
      map_tensors(stack[first + i], [&](const at::Tensor& tensor) {
        return moved(tensor, schema.arguments()[i]);
      });
    }
  }
}

void grow_written(const Stack& arguments, const Inference& inference) {
  for (const Resized& resized : inference.resized) {
    const at::Tensor tensor = resized_tensor(arguments, resized);
    if (c10::multiply_integers(resized.geometry.sizes) > 0) {
      grow(
          tensor.storage(),
          at::detail::computeStorageNbytes(
              resized.geometry.sizes, resized.geometry.strides, tensor.dtype().itemsize(),
              tensor.storage_offset()));
    }
  }
}

void resize_written(const Stack& arguments, const Inference& inference) {
  for (const Resized& resized : inference.resized) {
    resized_tensor(arguments, resized)
        .unsafeGetTensorImpl()
        ->set_sizes_and_strides(resized.geometry.sizes, resized.geometry.strides);
  }
}

}  // namespace hpu
