#include "calls/host_call.h"

#include "calls/dtypes.h"
#include "calls/generator.h"
#include "calls/indices.h"
#include "calls/tensors_of.h"
#include "calls/thread_modes.h"
#include "memory/card.h"
#include "memory/card_types.h"
#include "memory/memory.h"
#include "memory/memory_reuse.h"
#include "memory/zero_pages.h"
#include "threads/locks.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <unordered_map>
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

bool may_be_written(const c10::Argument& argument) {
  return is_written(argument) || is_running_statistic(argument);
}

bool draws(const c10::OperatorHandle& op) {
  return op.operator_name().name == "aten::uniform_" || op.operator_name().name == "aten::random_";
}

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

/// Returns whether the call overwrites an argument without reading it. This requires that the
/// output's size was inferred; otherwise, it is unknown before the kernel runs.
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

/// The memory for inferred results has already been checked, and a card needs no additional memory.
/// On the CPU, convolutions reorder all their operands, so only the memory of their results is
/// checked.
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
  follow_kernel(operand.tensor);
  const at::Tensor expected = with_final_size(operand.tensor, operand.argument, operand.item);
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

void check_operand(const at::Tensor& tensor, size_t index) {
  TORCH_CHECK(
      tensor.dim() == 0 || !tensor.device().is_cpu(),
      "Expected all tensors to be on the HPU device, but found at least one input[idx=", index,
      "] on cpu (details: ", tensor.scalar_type(), " tensor of shape ", tensor.sizes(),
      "). Move it first, for example with .to(\"hpu\").");
}

bool lacks_dtype(const c10::Error& error) {
  const std::string_view what = error.what_without_backtrace();
  return what.find("not implemented for") != std::string_view::npos ||
      what.find("not supported for Float8") != std::string_view::npos;
}

bool is_generator(const c10::Argument& argument) {
  return is_of_kind(argument, c10::TypeKind::GeneratorType);
}

}  // namespace hpu
