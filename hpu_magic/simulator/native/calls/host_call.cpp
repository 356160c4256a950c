#include "calls/host_call.h"

#include "calls/dtypes.h"
#include "calls/generator.h"
#include "calls/indices.h"
#include "calls/tensors_of.h"
#include "memory/card.h"
#include "memory/card_types.h"
#include "memory/memory.h"
#include "memory/zero_pages.h"

#include <unordered_set>

namespace hpu {

using torch::jit::Stack;

namespace {

bool is_fill(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> names{
      "aten::copy_",   "aten::fill_",    "aten::zero_",   "aten::normal_",
      "aten::uniform_", "aten::random_", "aten::cauchy_", "aten::bernoulli_",
      "aten::geometric_", "aten::log_normal_", "aten::exponential_"};
  return names.count(op.operator_name().name) > 0;
}

/// Returns whether an argument is declared to be of the given kind, possibly as an optional.
bool is_of_kind(const c10::Argument& argument, c10::TypeKind kind) {
  const c10::Type& type = *argument.type();
  if (const auto* optional = type.castRaw<c10::OptionalType>()) {
    return optional->getElementType()->kind() == kind;
  }
  return type.kind() == kind;
}

}  // namespace

HostCall::HostCall(const c10::OperatorHandle& op, Stack* stack)
    : op_(op),
      kernel_(host_kernel(op)),
      schema_(op.schema()),
      stack_(stack),
      first_(stack->size() - schema_.arguments().size()) {}

void HostCall::run() {
  arguments_to_host();
  if (!shapes_only_) {
    indices::bring_into_range(op_, *stack_, first_);
  }
  run_kernel();
  if (outputs_) {
    move_apart();
  }
  results_to_device();
}

void HostCall::run_into(c10::ArrayRef<at::Tensor> outputs, c10::ArrayRef<Resized> resized) {
  int64_t unreserved = 0;
  for (const at::Tensor& output : outputs) {
    if (output.defined() && !has_memory(output.storage())) {
      card::check_room(device_bytes(output.storage()), unreserved);
      unreserved += static_cast<int64_t>(device_bytes(output.storage()));
    }
  }
  outputs_ = outputs;
  resized_ = resized;
  run();
}

void HostCall::run_on_shapes() {
  shapes_only_ = true;
  run();
}

/// Returns whether the call overwrites an argument without reading it. For an out= argument, the
/// size of the output must have been inferred; otherwise, the size is unknown until the kernel
/// runs.
bool HostCall::overwrites(size_t i) const {
  return (outputs_ && schema_.arguments()[i].is_out()) || (i == 0 && is_fill(op_));
}

c10::IValue& HostCall::argument(size_t i) {
  return (*stack_)[first_ + i];
}

void HostCall::arguments_to_host() {
  for (size_t i = 0; i < schema_.arguments().size(); ++i) {
    argument_to_host(i);
  }
  if (float64_) {
    round_numbers();
  }
}

/// On a card, scalars are float32 even in an operation with float64 tensors. For example, x == 0.1
/// is true if the tensor x was created from 0.1.
void HostCall::round_numbers() {
  for (size_t i = 0; i < schema_.arguments().size(); ++i) {
    c10::IValue& value = argument(i);
    if (!is_of_kind(schema_.arguments()[i], c10::TypeKind::NumberType)) {
      continue;
    }
    if (value.isDouble()) {
      value = narrow_types::narrowed(value.toDouble());
    } else if (value.isComplexDouble()) {
      value = narrow_types::narrowed(value.toComplexDouble());
    }
  }
}

at::Tensor HostCall::tensor_to_host(
    const at::Tensor& tensor, size_t i, bool written, size_t item) {
  if (!tensor.defined()) {
    return tensor;
  }
  if (!on_device(tensor)) {
    check_operand(tensor, i);
    return written ? tensor : narrow_types::narrowed(tensor);
  }
  const auto dtype = tensor.scalar_type();
  reduced_ = reduced_ || is_reduced(dtype);
  if (narrow_types::include(dtype)) {
    narrow_ = true;
    float64_ = float64_ || narrow_types::includes_float64(dtype);
  }
  if (written && !shapes_only_ && failure_of(tensor.storage()) && overwrites(i)) {
    clear_failure_if_overwritten(with_final_size(tensor, i, item));
  }
  operands_.push_back(
      {tensor, shapes_only_ ? shape_view(tensor) : host_view(tensor), i, item, written});
  if (written && !shapes_only_ && is_fill(op_) && op_.operator_name().name != "aten::zero_") {
    require_pages(operands_.back().view);
  }
  return operands_.back().view;
}

void HostCall::argument_to_host(size_t i) {
  const c10::Argument& declared = schema_.arguments()[i];
  c10::IValue& value = argument(i);
  const bool written = is_written(declared);
  if (value.isTensor()) {
    value = tensor_to_host(value.toTensor(), i, written);
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> list = value.toTensorVector();
    for (size_t item = 0; item < list.size(); ++item) {
      list[item] = tensor_to_host(list[item], i, written, item);
    }
    value = c10::List<at::Tensor>(std::move(list));
  } else if (value.isOptionalTensorList()) {  // indices, which PyTorch allows to be on the CPU
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor && on_device(*tensor) ? tensor_to_host(*tensor, i, written) : tensor);
    }
    value = std::move(list);
  } else if (value.isDevice() && value.toDevice().type() == kDevice) {
    value = c10::Device(c10::kCPU);
  } else if (is_generator(declared)) {
    value = host_generator(value.isNone() ? at::Generator() : value.toGenerator());
  }
}

void check_operand(const at::Tensor& tensor, size_t index) {
  TORCH_CHECK(
      tensor.dim() == 0 || !tensor.device().is_cpu(),
      "Expected all tensors to be on the HPU device, but found at least one input[idx=", index,
      "] on cpu (details: ", tensor.scalar_type(), " tensor of shape ", tensor.sizes(),
      "). Move it first, for example with .to(\"hpu\").");
}

bool is_generator(const c10::Argument& argument) {
  return is_of_kind(argument, c10::TypeKind::GeneratorType);
}

}  // namespace hpu
