// Runs the CPU kernel of a call, even for dtypes that the kernel does not support.
#include "calls/dtypes.h"
#include "calls/host_call.h"
#include "calls/thread_modes.h"
#include "memory/memory_reuse.h"
#include "threads/locks.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace hpu {

using torch::jit::Stack;

namespace {

c10::OperatorHandle find_host_kernel(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const std::string base = name.name.substr(name.name.find("::"));
  return c10::Dispatcher::singleton()
      .findSchema({kHostKernels + base, name.overload_name})
      .value_or(op);
}

}  // namespace

const c10::OperatorHandle& host_kernel(const c10::OperatorHandle& op) {
  static auto& known = *new std::unordered_map<const c10::FunctionSchema*, c10::OperatorHandle>;
  const std::lock_guard lock(locks::operators);
  const auto entry = known.find(&op.schema());
  return entry != known.end() ? entry->second
                              : known.emplace(&op.schema(), find_host_kernel(op)).first->second;
}

void HostCall::check_supported() const {
  TORCH_CHECK_NOT_IMPLEMENTED(
      kernel_.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), op_.operator_name(),
      " is not yet supported on HPU.");
}

void HostCall::run_kernel() {
  check_supported();
  const BelowAutograd below_autograd;
  std::vector<bool> wanted;
  if (op_.operator_name().name == "aten::convolution_backward" && schema_.returns().size() == 3) {
    const c10::List<bool> mask =
        argument(*schema_.argumentIndexWithName("output_mask")).toBoolList();
    wanted.assign(mask.begin(), mask.end());
  }
  if (reduced_ && multiplies_slowly()) {
    run_widened();
  } else if (reduced_) {
    run_reduced();
  } else {
    redispatch(narrow_ ? 2 : 1);
  }
  drop_unwanted(wanted);
}

/// Returns false if the float32 kernel would behave differently: if operands have different dtypes
/// or include CPU tensors, or if elements of an output share memory.
bool HostCall::multiplies_slowly() const {
  const std::string& name = op_.operator_name().name;
  const auto dtype = operands_.front().view.scalar_type();
  if (!hpu::multiplies_slowly(dtype) || !is_product(name)) {
    return false;
  }
  for (const Operand& operand : operands_) {
    if (operand.view.scalar_type() != dtype ||
        (operand.written && at::has_internal_overlap(operand.view) == at::MemOverlap::Yes)) {
      return false;
    }
  }
  const auto tensor_count = std::count_if(
      stack_->begin() + static_cast<ptrdiff_t>(first_), stack_->end(),
      [](const c10::IValue& value) { return value.isTensor() && value.toTensor().defined(); });
  if (static_cast<size_t>(tensor_count) != operands_.size()) {
    return false;
  }
  if (is_convolution(name)) {
    return keeps_strides_in_float32();
  }
  // In operators that add a tensor to the product, this tensor comes before the matrices.
  const size_t left = name == "aten::mm" || name == "aten::bmm" ? 0 : 1;
  return !is_quick(operands_[left].view, operands_[left + 1].view);
}

/// For channels-last tensors, the CPU kernels for 16-bit dtypes and for float32 choose different
/// strides if there are multiple groups or only one channel. The operands of 3D convolutions become
/// contiguous when they are converted to a wider dtype.
bool HostCall::keeps_strides_in_float32() const {
  const c10::IValue& groups = (*stack_)[first_ + *schema_.argumentIndexWithName("groups")];
  const bool in_groups = !groups.isInt() || groups.toInt() != 1;
  const bool by_onednn = onednn_supports(operands_.front().view.scalar_type());
  return std::all_of(operands_.begin(), operands_.end(), [&](const Operand& operand) {
    if (by_onednn && operand.view.suggest_memory_format() == c10::MemoryFormat::ChannelsLast3d) {
      return false;
    }
    const bool one_channel = operand.view.dim() > 1 && operand.view.size(1) == 1;
    return operand.view.is_contiguous() || !(in_groups || one_channel);
  });
}

/// Drops gradients that a convolution kernel computed but the caller did not request.
void HostCall::drop_unwanted(const std::vector<bool>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) {
      (*stack_)[stack_->size() - wanted.size() + i] = at::Tensor();
    }
  }
}

/// Runs the kernel. Unless the outputs were allocated before the call, also checks that the memory
/// that the kernel allocates fits on the card. The check excludes convolutions, whose CPU kernels
/// allocate reordered copies of all operands, which a card does not need.
void HostCall::redispatch(int64_t widening) {
  if (outputs_ || is_convolution(op_.operator_name().name)) {
    const CachedMemory kept;
    kernel_.redispatchBoxed(kHost, stack_);
  } else {
    const KernelMemory memory(widening);
    kernel_.redispatchBoxed(kHost, stack_);
  }
}

// Some of the device's dtypes are not supported by CPU kernels, so a wider dtype is used instead.
void HostCall::run_reduced() {
  const Stack arguments(stack_->begin() + static_cast<ptrdiff_t>(first_), stack_->end());
  try {
    redispatch();
    return;
  } catch (const c10::Error& error) {
    if (!lacks_dtype(error)) {
      throw;
    }
  }
  stack_->resize(first_);
  stack_->insert(stack_->end(), arguments.begin(), arguments.end());
  run_widened();
}

void HostCall::run_widened() {
  std::optional<c10::ScalarType> target = widen_dtype_argument();
  bool full_precision_operand = false;
  for (const Operand& operand : operands_) {
    const auto dtype = operand.view.scalar_type();
    if (is_reduced(dtype)) {
      target = target.value_or(dtype);
    } else if (c10::isFloatingType(dtype) && operand.view.dim() > 0 && !operand.written) {
      full_precision_operand = true;
    }
  }
  const CachedMemory kept;  // widened operands do not exist on a card
  const bool convolves = is_convolution(op_.operator_name().name);
  std::vector<at::Tensor> wide;
  int64_t widening = 1;
  for (Operand& operand : operands_) {
    const auto dtype = operand.view.scalar_type();
    // The CPU's own kernel for 3D convolutions does not support the channels-last format.
    const auto format = convolves && operand.view.dim() == 5 ? c10::MemoryFormat::Contiguous
                                                             : c10::MemoryFormat::Preserve;
    wide.push_back(
        is_reduced(dtype)
            ? operand.view.to(wider(dtype), /*non_blocking=*/false, /*copy=*/false, format)
            : operand.view);
    widening = std::max<int64_t>(
        widening, wide.back().element_size() / operand.view.element_size());
    replace(operand, wide.back());
  }
  redispatch(widening);
  for (size_t i = 0; i < operands_.size(); ++i) {
    Operand& operand = operands_[i];
    if (operand.written && !wide[i].is_same(operand.view)) {
      operand.view.resize_(wide[i].sizes());
      operand.view.copy_(narrow(wide[i], operand.view.scalar_type()));
    }
  }
  if (target && !full_precision_operand) {
    narrow_results(*target);
  }
}

// Replaces a reduced-precision dtype in the `dtype` argument with a wider dtype.
std::optional<c10::ScalarType> HostCall::widen_dtype_argument() {
  for (size_t i = 0; i < schema_.arguments().size(); ++i) {
    if (schema_.arguments()[i].name() == "dtype" && argument(i).isInt()) {
      const auto dtype = argument(i).toScalarType();
      if (is_reduced(dtype)) {
        argument(i) = wider(dtype);
      }
      return dtype;
    }
  }
  return std::nullopt;
}

void HostCall::replace(const Operand& operand, const at::Tensor& by) {
  c10::IValue& value = argument(operand.argument);
  if (value.isTensor()) {
    value = by;
  } else if (value.isTensorList()) {
    auto list = value.toTensorList();
    for (size_t i = 0; i < list.size(); ++i) {
      if (list.get(i).is_same(operand.view)) {
        list.set(i, by);
      }
    }
  }
}

void HostCall::narrow_results(c10::ScalarType target) {
  for (size_t i = stack_->size() - schema_.returns().size(); i < stack_->size(); ++i) {
    c10::IValue& value = (*stack_)[i];
    if (value.isTensor() && value.toTensor().defined() && !is_operand(value.toTensor()) &&
        value.toTensor().scalar_type() == wider(target)) {
      value = narrow(value.toTensor(), target);
    }
  }
}

bool HostCall::is_operand(const at::Tensor& view) const {
  for (const Operand& operand : operands_) {
    if (operand.view.is_same(view)) {
      return true;
    }
  }
  return false;
}

bool lacks_dtype(const c10::Error& error) {
  const std::string_view what = error.what_without_backtrace();
  return what.find("not implemented for") != std::string_view::npos ||
      what.find("not supported for Float8") != std::string_view::npos;
}

}  // namespace hpu
