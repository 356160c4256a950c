// Converts the CPU kernel's results to device tensors.
#include "calls/host_call.h"
#include "calls/tensors_of.h"
#include "memory/card_types.h"
#include "memory/memory_reuse.h"

#include <string>

namespace hpu {
namespace {

bool may_be_written(const c10::Argument& argument) {
  return is_written(argument) || is_running_statistic(argument);
}

bool draws(const c10::OperatorHandle& op) {
  return op.operator_name().name == "aten::uniform_" || op.operator_name().name == "aten::random_";
}

}  // namespace

void HostCall::results_to_device() {
  for (const Operand& operand : operands_) {
    if (!shapes_only_ && may_be_written(schema_.arguments()[operand.argument])) {
      narrow_types::apply(operand.view, draws(op_) ? narrow_types::Values::drawn
                                                   : narrow_types::Values::computed);
    }
    if (operand.written && outputs_) {
      keep_geometry(operand);
    } else if (operand.written && !shapes_only_) {
      write_back(operand.tensor, operand.view);
    }
  }
  const auto& returns = schema_.returns();
  const size_t first = stack_->size() - returns.size();
  for (size_t i = 0; i < returns.size(); ++i) {
    c10::IValue& value = (*stack_)[first + i];
    if (value.isTensor() && is_written(returns[i])) {
      value = written_operand(*returns[i].alias_info(), value.toTensor());
    } else {
      map_tensors(value, [this](const at::Tensor& tensor) { return tensor_to_device(tensor); });
    }
  }
}

/// Copies each result that shares memory with another output, before that output is overwritten.
void HostCall::move_apart() {
  MemoryReuse::stop();
  size_t next = 0;
  const auto apart = [&](const at::Tensor& result) {
    const size_t own = next++;
    if (!result.defined() || !result.has_storage() || result.storage().nbytes() == 0) {
      return result;
    }
    for (size_t i = 0; i < outputs_->size(); ++i) {
      const at::Tensor& output = (*outputs_)[i];
      if (i != own && output.defined() && output.storage().data() == result.storage().data()) {
        return result.clone();
      }
    }
    return result;
  };
  for (size_t i = stack_->size() - schema_.returns().size(); i < stack_->size(); ++i) {
    c10::IValue& value = (*stack_)[i];
    const auto& declared = schema_.returns()[i + schema_.returns().size() - stack_->size()];
    if (!value.isTensor() || !is_written(declared)) {
      map_tensors(value, apart);
    }
  }
}

at::Tensor HostCall::written_operand(
    const c10::AliasInfo& alias, const at::Tensor& result) const {
  for (const Operand& operand : operands_) {
    const auto* declared = schema_.arguments()[operand.argument].alias_info();
    if (declared && *declared == alias) {
      return operand.tensor;
    }
  }
  return result;  // a 0-dim CPU tensor was written
}

/// Returns a written argument with the sizes that it will have after the call.
at::Tensor HostCall::with_final_size(const at::Tensor& tensor, size_t argument, size_t item) const {
  for (const Resized& resized : resized_) {
    if (resized.argument == argument && resized.item == item) {
      return with_sizes(tensor, resized.geometry.sizes, resized.geometry.strides);
    }
  }
  return tensor;
}

void HostCall::keep_geometry(const Operand& operand) const {
  const at::Tensor expected = with_final_size(operand.tensor, operand.argument, operand.item);
  follow_kernel(expected);
  if (checks_geometry()) {
    check_geometry(
        op_.operator_name(), "argument " + schema_.arguments()[operand.argument].name(),
        geometry_of(expected), operand.view);
  }
  if (operand.view.sizes() == expected.sizes() && operand.view.strides() != expected.strides()) {
    host_view(expected).copy_(operand.view.clone());
  }
}

void HostCall::place_next(const at::Tensor& result) {
  const at::Tensor& output = (*outputs_)[placed_];
  if (checks_geometry()) {
    check_geometry(
        op_.operator_name(), "result " + std::to_string(placed_), geometry_of(output), result);
  }
  ++placed_;
  if (result.defined() && output.defined()) {
    narrow_types::apply(result);
    place(result, output);
  }
}

at::Tensor HostCall::tensor_to_device(const at::Tensor& result) {
  if (outputs_) {
    place_next(result);
    return (*outputs_)[placed_ - 1];
  }
  if (!result.defined() || !result.device().is_cpu()) {
    return result;
  }
  if (!result.has_storage() || result.storage().use_count() == 1) {
    return adopt(result);
  }
  const c10::StorageImpl* storage = result.storage().unsafeGetStorageImpl();
  for (const Operand& operand : operands_) {
    if (operand.view.storage().unsafeGetStorageImpl() == storage) {
      return with_geometry_of(operand.tensor.storage(), result);
    }
  }
  for (const auto& [host, adopted] : shared_) {
    if (host == storage) {
      narrow_types::apply(result);
      return with_geometry_of(adopted, result);
    }
  }
  at::Tensor adopted = adopt(result);
  shared_.emplace_back(storage, adopted.storage());
  return adopted;
}

}  // namespace hpu
