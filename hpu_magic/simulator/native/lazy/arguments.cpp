#include "lazy/arguments.h"

#include "memory/memory.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/accumulate.h>

#include <algorithm>

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
  const auto* alias = declared.alias_info();
  TORCH_CHECK(
      !(alias && alias->isWrite()), "Got a non-HPU tensor, expecting an HPU tensor: '",
      declared.name(), "' is a ", tensor.device().type(), " tensor of shape ", tensor.sizes(),
      " and would get the result of an operation on HPU tensors. Write into a tensor on \"hpu\" "
      "and move that.");
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
    const c10::Argument& declared = schema.arguments()[i];
    c10::IValue& value = stack[first + i];
    if (value.isTensor()) {
      if (!stays(value.toTensor())) {
        value = moved(value.toTensor(), declared);
      }
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list = value.toTensorVector();
      if (!std::all_of(list.begin(), list.end(), stays)) {
        for (auto& tensor : list) {
          tensor = moved(tensor, declared);
        }
        value = c10::List<at::Tensor>(std::move(list));
      }
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& tensor : value.toOptionalTensorVector()) {
        list.push_back(
            tensor ? std::optional<at::Tensor>(moved(*tensor, declared)) : std::nullopt);
      }
      value = std::move(list);
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
