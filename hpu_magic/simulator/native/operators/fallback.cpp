#include "operators/operators.h"

#include "calls/policy.h"
#include "events/events.h"
#include "lazy/assumed_shapes.h"
#include "lazy/dry_call.h"
#include "lazy/recorder.h"
#include "lazy/skipped_call.h"
#include "memory/skipping.h"

#include <torch/library.h>

namespace hpu {

void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (recorder::enabled()) {
    recorder::record(op, stack);
    return;
  }
  const bool falls_back = policy::falls_back(op);
  if (falls_back) {
    policy::check_fallback(op);
  }
  // On a card, a fallback first copies the inputs to the host.
  if (falls_back || reads_card(op, torch::jit::last(*stack, op.schema().arguments().size()))) {
    events::emit(events::Kind::host_synchronization, c10::toString(op.operator_name()));
  }
  if (skipping::compile_only() && skip_call(op, stack)) {
    return;
  }
  run_or_assume(op, stack);
}

void register_undecomposed(const std::vector<std::string>& operators) {
  static torch::Library library(
      torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__, __LINE__);
  for (const std::string& name : operators) {
    const size_t dot = name.find('.');
    const auto op = c10::Dispatcher::singleton().findSchema(
        {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::HPU)) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
    }
  }
}

namespace {

/// Runs a PyTorch kernel on the device tensors themselves. The CPU kernels for nested tensors call
/// operators on the component tensors, which can be on any device, but PyTorch registers only some
/// of these kernels for HPU.
template <c10::DispatchKey kKey>
void run_on_device(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  // These two operators read memory, which recorded tensors do not have.
  const bool sums = name == "aten::sum" || name == "aten::_nested_sum_backward";
  TORCH_CHECK_NOT_IMPLEMENTED(
      op.hasKernelForDispatchKey(kKey) && !(sums && recorder::enabled()), op.operator_name(),
      " is not supported for nested tensors of strided layout", sums ? " in lazy mode" : "",
      "; use layout=torch.jagged.");
  op.redispatchBoxed(c10::DispatchKeySet(kKey), stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, NestedTensorHPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<
                   &run_on_device<c10::DispatchKey::NestedTensorCPU>>());
}

TORCH_LIBRARY_IMPL(_, HPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  // These operators create a nested tensor whose sizes are stored on the CPU.
  for (const char* name :
       {"_nested_view_from_buffer", "_nested_from_padded", "_nested_tensor_from_mask",
        "_nested_tensor_from_mask_left_aligned"}) {
    library.impl(
        name,
        torch::CppFunction::makeFromBoxedFunction<&run_on_device<c10::DispatchKey::CPU>>());
  }
  // PyTorch's own kernel accepts only some devices.
  library.impl("mode.values", torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
  // PyTorch's own kernels require an output with the operands' dtype.
  for (const char* name : {"mv.out", "dot.out"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
  }
  // PyTorch's own kernel copies the results of `_unique2`, some of which are None in eager mode.
  library.impl("_unique2.out", torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

}  // namespace hpu
