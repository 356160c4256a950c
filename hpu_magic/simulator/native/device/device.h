// Streams and events of the device. Operations are complete when their calls return, so a stream is
// only a name, and an event is a point in time.
#pragma once

#include <c10/core/Stream.h>

namespace hpu {

/// Removes CUDA as the process's accelerator on a machine without a GPU. Returns false if there is a
/// GPU. A PyTorch that is built for CUDA always names CUDA as accelerator and refuses a second one.
bool remove_cuda_accelerator();

c10::Stream current_stream();
void set_current_stream(c10::Stream stream);
c10::Stream new_stream();

}  // namespace hpu
