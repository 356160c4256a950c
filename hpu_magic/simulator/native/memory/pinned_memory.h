// Page-locked host memory: ordinary memory whose address ranges are registered.
#pragma once

#include <c10/core/Allocator.h>

namespace hpu {

c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);

}  // namespace hpu
