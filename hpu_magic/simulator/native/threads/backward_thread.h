#pragma once

#include <c10/core/AutogradState.h>

namespace hpu {

/// Has the backward passes that this thread calls run on this thread: on a device thread of its
/// own, OpenMP would start a second team of workers, and two teams fight for the cores. PyTorch
/// keeps the choice for each thread, and anew for each node of a backward pass. So it is made
/// wherever autograd meets the device before it chooses: where it asks for the device's stream,
/// and where a tensor is made, as a gradient that arrives from the CPU is.
inline void run_backward_on_this_thread() {
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  if (state.get_multithreading_enabled()) {
    state.set_multithreading_enabled(false);
  }
}

}  // namespace hpu
