#pragma once

#include <c10/core/AutogradState.h>

namespace hpu {

/// Makes backward passes that this thread starts run on this thread. On a separate device thread,
/// OpenMP would start a second team of workers that competes for the cores. PyTorch stores this
/// setting per thread and per node of a backward pass, so the engine sets it at every point where
/// autograd meets the device first: when autograd requests the device's stream, and when a tensor
/// is created, for example for a gradient that arrives from the CPU.
inline void run_backward_on_this_thread() {
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  if (state.get_multithreading_enabled()) {
    state.set_multithreading_enabled(false);
  }
}

}  // namespace hpu
