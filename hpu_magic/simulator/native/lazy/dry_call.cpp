#include "lazy/dry_call.h"

#include "calls/host_call.h"
#include "calls/stand_ins.h"
#include "calls/tensors_of.h"
#include "calls/thread_modes.h"
#include "events/events.h"
#include "lazy/assumed_indices.h"
#include "lazy/assumed_shapes.h"
#include "lazy/inference.h"
#include "lazy/inferred_values.h"
#include "lazy/known_values.h"
#include "lazy/recorder.h"
#include "memory/memory.h"
#include "memory/skipping.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>

namespace hpu {
namespace {

using torch::jit::Stack;

std::atomic<uint64_t> digest{0};

/// A call whose results are assumed.
class DryCall {
 public:
  DryCall(const c10::OperatorHandle& op, const Stack& arguments)
      : op_(op), schema_(op.schema()), arguments_(arguments) {}

  /// Raises an error if an operand is on the wrong device.
  void check_devices() const {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].isOptionalTensorList()) {  // indices may be on the CPU
        continue;
      }
      for_each_tensor(arguments_[i], [i](const at::Tensor& tensor) {
        if (tensor.defined() && !on_device(tensor)) {
          check_operand(tensor, i);
        }
      });
    }
  }

  /// Allocates memory for the operands, like a call that runs. Has an effect only in lazy mode.
  void materialize_operands() const {
    for (const c10::IValue& value : arguments_) {
      for_each_tensor(value, [](const at::Tensor& tensor) {
        if (on_device(tensor)) {
          materialize(tensor);
        }
      });
    }
  }

  /// Marks operands as assumed if the kernel would have written to them.
  void assume_written() const {
    const std::string& name = schema_.name();
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const c10::Argument& declared = schema_.arguments()[i];
      // Gradients of a scaled loss are assumed to be finite.
      const bool stays = declared.name() == "found_inf" &&
          name == "aten::_amp_foreach_non_finite_check_and_unscale_";
      if ((is_written(declared) || is_running_statistic(declared)) && !stays) {
        for_each_tensor(arguments_[i], [this](const at::Tensor& tensor) {
          if (on_device(tensor)) {
            assume(tensor);
          }
        });
      }
    }
  }

  /// Marks a result as assumed.
  void assume(const at::Tensor& tensor) const {
    assume_result(tensor, op_, arguments_);
  }

  /// Enlarges and reshapes out= arguments, like the kernel.
  void resize_written(const std::vector<Resized>& resized) const {
    for (const Resized& each : resized) {
      const c10::IValue& value = arguments_[each.argument];
      const at::Tensor tensor =
          value.isTensor() ? value.toTensor() : value.toTensorVector()[each.item];
      if (c10::multiply_integers(each.geometry.sizes) > 0) {
        grow(
            tensor.storage(),
            at::detail::computeStorageNbytes(
                each.geometry.sizes, each.geometry.strides, tensor.dtype().itemsize(),
                static_cast<size_t>(tensor.storage_offset())));
      }
      tensor.unsafeGetTensorImpl()->set_sizes_and_strides(
          each.geometry.sizes, each.geometry.strides);
    }
  }

  /// Returns the last result if it is a tensor that the call writes to.
  at::Tensor last_written() const {
    if (schema_.returns().empty() || !is_written(schema_.returns().back())) {
      return {};
    }
    const c10::IValue last = written_argument(*schema_.returns().back().alias_info());
    return last.isTensor() ? last.toTensor() : at::Tensor();
  }

  /// Replaces the arguments on the stack with assumed results.
  void push_results(const Inference& inference, Stack* stack) const {
    auto next = inference.results.begin();
    auto length = inference.lengths.begin();
    for (const c10::Argument& declared : schema_.returns()) {
      if (is_written(declared)) {
        stack->push_back(written_argument(*declared.alias_info()));
      } else if (declared.type()->kind() == c10::TypeKind::ListType) {
        std::vector<at::Tensor> list(*length++);
        for (at::Tensor& tensor : list) {
          tensor = new_result(*next++);
        }
        stack->push_back(c10::List<at::Tensor>(std::move(list)));
      } else {
        stack->push_back(new_result(*next++));
      }
    }
  }

 private:
  at::Tensor new_result(const Geometry& geometry) const {
    if (!geometry.defined) {
      return {};
    }
    at::Tensor result = at::empty_strided(
        geometry.sizes, geometry.strides,
        at::TensorOptions().device(device()).dtype(geometry.dtype));
    materialize(result);
    assume(result);
    return result;
  }

  c10::IValue written_argument(const c10::AliasInfo& alias) const {
    for (size_t i = 0; i < arguments_.size(); ++i) {
      const auto* declared = schema_.arguments()[i].alias_info();
      if (declared && *declared == alias) {
        return arguments_[i];
      }
    }
    return {};
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  const Stack& arguments_;
};

enum class Returns { tensors, views, host_values, nothing };

Returns returns_of(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) {
    const bool writes = std::any_of(
        schema.arguments().begin(), schema.arguments().end(), is_written);
    return writes ? Returns::tensors : Returns::nothing;
  }
  for (const c10::Argument& declared : schema.returns()) {
    const auto* alias = declared.alias_info();
    if (alias && !alias->isWrite()) {
      return Returns::views;
    }
    const c10::Type& type = *declared.type();
    const bool list = type.kind() == c10::TypeKind::ListType &&
        type.castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
    if (type.kind() != c10::TypeKind::TensorType && !list) {
      return Returns::host_values;
    }
  }
  return Returns::tensors;
}

/// Pushes a stand-in for the result of an operator that returns a number or a Boolean to the host.
void push_host_value(const c10::OperatorHandle& op, const Stack& arguments, Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.schema().name() == "aten::equal", op.operator_name(),
      ": its result depends on values that a dry run does not compute. Compute its operands on the "
      "CPU, or skip the operation in a dry run.");
  stack->push_back(stand_ins::read(arguments[0].toTensor(), "aten::equal").to<bool>());
}

/// Returns whether a call has no new results and does not resize the tensors that it writes to.
bool only_writes(const c10::FunctionSchema& schema) {
  return std::all_of(schema.returns().begin(), schema.returns().end(), is_written) &&
      !std::any_of(
             schema.arguments().begin(), schema.arguments().end(),
             [](const c10::Argument& declared) { return declared.is_out(); });
}

/// Infers the results of a call. Raises an error if that is impossible without running the call.
Inference results_of(const c10::OperatorHandle& op, const Stack& arguments) {
  const recorder::Lock lock;  // guards the cache of inferences
  if (depends_on_values(op, arguments)) {
    return assume_shapes(op, arguments);
  }
  const Signature signature = signature_of(op, arguments);
  digest += signature.hash;
  const Inference& inference = infer(op, arguments, signature);
  const bool is_of_torch = op.schema().name().rfind("aten::", 0) == 0;
  if (inference.refusal && is_of_torch) {  // the kernel may accept more, and has other messages
    return infer_on_host(op, arguments, signature);
  }
  if (inference.refusal) {
    std::rethrow_exception(inference.refusal);
  }
  if (!inference.known && only_writes(op.schema())) {
    Inference nothing;
    nothing.known = true;
    return nothing;
  }
  if (!inference.known && is_of_torch) {
    return infer_on_host(op, arguments, signature);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      inference.known, op.operator_name(),
      " has no meta kernel, so a dry run cannot infer the sizes of its results. Register one, for "
      "example with torch.library.register_fake.");
  return inference;
}

void assume_call(const c10::OperatorHandle& op, Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const Returns returns = returns_of(schema);
  if (returns == Returns::views) {
    HostCall(op, stack).run_on_shapes();
    return;
  }
  const auto first = static_cast<ptrdiff_t>(stack->size() - schema.arguments().size());
  const Stack arguments(stack->begin() + first, stack->end());
  const DryCall call(op, arguments);
  const bool known = has_known_operands(op, arguments);
  if (known && returns != Returns::tensors) {
    HostCall(op, stack).run();
    return;
  }
  // Kernels compute sizes that depend on known values.
  if (known && depends_on_values(op, arguments)) {
    HostCall(op, stack).run();
    return;
  }
  if (returns == Returns::tensors) {
    check_written_selection(op, arguments);
    const Inference inference = results_of(op, arguments);
    if (known && has_computed_results(inference, uses_trained(arguments))) {
      know_overwritten(schema, arguments);
      HostCall(op, stack).run();
      return;
    }
    stack->resize(static_cast<size_t>(first));
    call.check_devices();
    call.materialize_operands();
    call.resize_written(inference.resized);
    call.push_results(inference, stack);
    call.assume_written();
    assumed_indices::note(op, arguments);
    if (!schema.returns().empty() && stack->back().isTensor()) {
      assumed_indices::assume(op, arguments, stack->back().toTensor());
    }
    return;
  }
  stack->resize(static_cast<size_t>(first));
  if (returns == Returns::host_values) {
    push_host_value(op, arguments, stack);
  }
}

}  // namespace

void run_or_assume(const c10::OperatorHandle& op, Stack* stack) {
  if (skipping::dry_run()) {
    assume_call(op, stack);
  } else {
    HostCall(op, stack).run();
  }
}

uint64_t digest_of_calls() {
  return digest;
}

bool assume_node(const Node& node) {
  digest += signature_of(node.op, node.arguments).hash;
  const DryCall call(node.op, node.arguments);
  const bool computed_outputs = std::all_of(
      node.outputs.begin(), node.outputs.end(),
      [&node](const at::Tensor& output) {
        return !output.defined() || countable(output) ||
            (!node.uses_trained && keeps_host_values(output));
      });
  if (computed_outputs && has_known_operands(node.op, node.arguments)) {
    know_overwritten(node.op.schema(), node.arguments);
    for (const at::Tensor& output : node.outputs) {
      if (output.defined()) {
        *assumption_of(output.storage()) = {};
      }
    }
    return false;
  }
  check_written_selection(node.op, node.arguments);
  call.materialize_operands();
  call.resize_written(node.resized);
  for (const at::Tensor& output : node.outputs) {
    if (output.defined()) {
      materialize(output);
      call.assume(output);
    }
  }
  call.assume_written();
  if (node.lines) {
    events::emit_at(*node.lines, events::Kind::assumed_indices, node.op.schema().name());
  }
  const at::Tensor last = node.outputs.empty() ? call.last_written() : node.outputs.back();
  if (last.defined()) {
    assumed_indices::assume(node.op, node.arguments, last);
  }
  return true;
}

void copy_or_assume(const at::Tensor& source, const at::Tensor& destination) {
  const bool from_device = on_device(source);
  if (from_device) {
    materialize(source);
  }
  if (!on_device(destination)) {
    at::Tensor target = destination;
    if (from_device && stand_ins::assumed(source)) {
      stand_ins::write(source, target);
    } else {
      target.copy_(host_view(source));
    }
    return;
  }
  materialize(destination);
  const bool assumed = from_device && stand_ins::assumed(source);
  const bool computed = keeps_host_values(source) && !assumed && !source.requires_grad();
  if (!keeps_host_values(destination) || (from_device && !computed)) {
    assume_copy(source, destination);
    return;
  }
  if (covers_storage(destination)) {
    *assumption_of(destination.storage()) = {};
  }
  host_view(destination).copy_(from_device ? host_view(source) : source);
}

}  // namespace hpu
