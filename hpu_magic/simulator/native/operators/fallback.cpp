#include "operators/fallback.h"

#include "calls/policy.h"
#include "events/events.h"
#include "lazy/recorder.h"

#include <torch/library.h>

namespace hpu {

void run_boxed(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  if (recorder::enabled()) {
    recorder::record(op, stack);
    return;
  }
  if (policy::falls_back(op)) {
    policy::check_fallback(op);
    // Its inputs come to the host first, as when lazy mode runs what was recorded before it.
    events::notice(events::Kind::host_synchronization, c10::toString(op.operator_name()));
  }
  HostCall(op, stack).run();
}

void take_whole(const std::vector<std::string>& operators) {
  static torch::Library library(
      torch::Library::IMPL, "aten", c10::DispatchKey::HPU, __FILE__, __LINE__);
  for (const std::string& name : operators) {
    const size_t dot = name.find('.');
    const auto op = c10::Dispatcher::singleton().findSchema(
        {"aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::HPU)) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
    }
  }
}

TORCH_LIBRARY_IMPL(_, HPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

}  // namespace hpu
