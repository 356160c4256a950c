// Streams and events of the device. Work is done when its call returns, so a stream is a name
// and an event is a moment.
#pragma once

#include <c10/core/Stream.h>

namespace hpu {

c10::Stream current_stream();
void set_current_stream(c10::Stream stream);
c10::Stream new_stream();

}  // namespace hpu
