#include "lazy/assumed_indices.h"

#include "calls/stand_ins.h"
#include "calls/tensors_of.h"
#include "calls/thread_modes.h"
#include "events/events.h"
#include "lazy/assumed_experts.h"
#include "lazy/assumed_shapes.h"
#include "lazy/known_values.h"
#include "memory/memory.h"
#include "memory/skipping.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <string>
#include <vector>

namespace hpu::assumed_indices {
namespace {

using torch::jit::Stack;

/// Returns whether a call sorts floating-point numbers, or selects the largest ones.
bool orders(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const std::string& name = op.schema().name();
  if (!skipping::dry_run() || (name != "aten::topk" && name != "aten::sort")) {
    return false;
  }
  return at::isFloatingType(arguments[0].toTensor().scalar_type()) &&
      (name == "aten::sort" || assumed_experts::selects(arguments));
}

/// Returns the indices of numbers that are already sorted.
at::Tensor sorted_indices(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments, c10::IntArrayRef sizes) {
  const auto argument = op.schema().argumentIndexWithName("dim");
  if (!argument || !arguments[*argument].isInt()) {  // a named dimension
    return {};
  }
  if (sizes.empty()) {
    return at::zeros(sizes, at::kLong);
  }
  const auto dims = static_cast<int64_t>(sizes.size());
  const auto dim = static_cast<size_t>(c10::maybe_wrap_dim(arguments[*argument].toInt(), dims));
  std::vector<int64_t> shape(sizes.size(), 1);
  shape[dim] = sizes[dim];
  return at::arange(sizes[dim]).view(shape).expand(sizes);
}

/// Returns whether an assumed mask selects all elements.
bool selects_all(const at::Tensor& mask) {
  const Assumption& assumption = *assumption_of(mask.storage());
  return assumption.share >= 1 && !assumption.excludes;
}

/// Returns a selected tensor or an index on the CPU. Sets `usable` to false if its values are
/// unknown. An assumed mask selects all elements.
at::Tensor operand(const at::Tensor& tensor, bool is_index, bool& usable) {
  if (!tensor.defined()) {
    return tensor;
  }
  usable = usable && (!is_index || is_mask(tensor));
  if (!on_device(tensor)) {
    return tensor;
  }
  if (!stand_ins::assumed(tensor)) {
    usable = usable && keeps_host_values(tensor);
    return usable ? host_view(tensor) : tensor;
  }
  usable = usable && is_index && selects_all(tensor);
  return usable ? at::ones(tensor.sizes(), at::kBool) : tensor;
}

/// Returns the elements that masks select, or an undefined tensor if they are unknown.
at::Tensor selected(const c10::OperatorHandle& op, Stack stack) {
  bool usable = true;
  for (size_t i = 0; i < stack.size(); ++i) {
    const bool is_out = op.schema().arguments()[i].is_out();
    map_tensors(stack[i], [i, is_out, &usable](const at::Tensor& tensor) {
      return is_out ? at::empty({0}, tensor.scalar_type()) : operand(tensor, i == 1, usable);
    });
  }
  if (!usable) {
    return {};
  }
  op.callBoxed(&stack);
  return stack.back().toTensor();
}

/// Returns the last result of a call, or an undefined tensor if it is unknown.
at::Tensor values_of(
    const c10::OperatorHandle& op, const Stack& arguments, c10::IntArrayRef sizes) {
  if (orders(op, arguments)) {
    return op.schema().name() == "aten::sort"
        ? sorted_indices(op, arguments, sizes)
        : assumed_experts::indices(arguments[0].toTensor().size(-1), sizes);
  }
  if (!depends_on_values(op, arguments)) {
    return {};
  }
  const std::string& name = op.schema().name();
  if (name == "torchvision::nms") {  // keeps all boxes
    return at::arange(sizes[0]);
  }
  if (name == "aten::nonzero") {
    const at::Tensor mask = arguments[0].toTensor();
    return selects_all(mask) ? at::ones(mask.sizes(), at::kBool).nonzero() : at::Tensor();
  }
  const bool selects = name == "aten::masked_select" || name == "aten::index";
  return selects ? selected(op, arguments) : at::Tensor();
}

}  // namespace

void note(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  if (orders(op, arguments)) {
    events::emit(events::Kind::assumed_indices, op.schema().name());
  }
}

std::shared_ptr<const events::CallerLines> lines_of(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  return orders(op, arguments) ? std::make_shared<events::CallerLines>(events::caller_lines())
                               : nullptr;
}

void assume(const c10::OperatorHandle& op, const Stack& arguments, const at::Tensor& result) {
  const bool keeps =
      countable(result) || (keeps_host_values(result) && !uses_trained(arguments));
  if (!skipping::dry_run() || !keeps || result.numel() == 0 || !covers_storage(result)) {
    return;
  }
  const KernelsOnly kernels;
  const at::Tensor values = values_of(op, arguments, result.sizes());
  if (values.defined()) {
    host_view(result).copy_(values);
    *assumption_of(result.storage()) = {};
  }
}

}  // namespace hpu::assumed_indices
