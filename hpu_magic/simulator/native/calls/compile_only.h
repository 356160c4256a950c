// Compile-only mode (PT_COMPILE_ONLY_MODE), in which a card compiles graphs without running them. The
// simulator does not run kernels either, and new tensors contain zeros.
#pragma once

#include <atomic>

namespace hpu::compile_only {

inline std::atomic<bool> flag{false};

inline bool enabled() {
  return flag.load(std::memory_order_relaxed);
}

}  // namespace hpu::compile_only
