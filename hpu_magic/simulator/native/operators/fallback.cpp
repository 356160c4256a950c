#include "operators/fallback.h"

#include "calls/policy.h"
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
  }
  HostCall(op, stack).run();
}

TORCH_LIBRARY_IMPL(_, HPU, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

}  // namespace hpu
