// Modes in which kernels do not run.
#pragma once

#include <atomic>
#include <cstdint>

namespace hpu::skipping {

enum class Mode : uint8_t {
  off,
  // PT_COMPILE_ONLY_MODE, in which a card compiles graphs without running them. New tensors contain
  // zeros.
  compile_only,
  // Tensors have sizes and device memory, but no host memory; see lazy/dry_call.h.
  dry_run,
};

inline std::atomic<Mode> mode{Mode::off};

inline bool enabled() {
  return mode.load(std::memory_order_relaxed) != Mode::off;
}

inline bool compile_only() {
  return mode.load(std::memory_order_relaxed) == Mode::compile_only;
}

inline bool dry_run() {
  return mode.load(std::memory_order_relaxed) == Mode::dry_run;
}

}  // namespace hpu::skipping
