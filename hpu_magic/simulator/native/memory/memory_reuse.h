// Reuse of memory by kernels that allocate their results.
#pragma once

#include "memory/memory.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace hpu {

/// While it exists, a CPU allocation of this thread that has the size of one of the outputs gets
/// that output's memory, once. So a kernel without an out= form computes a captured tensor in
/// place, instead of in a new block whose pages the operating system must clear. The outputs keep
/// their memory in any case: a result in other memory is copied.
class MemoryReuse {
 public:
  explicit MemoryReuse(c10::ArrayRef<at::Tensor> outputs);
  ~MemoryReuse();
  MemoryReuse(const MemoryReuse&) = delete;
  MemoryReuse& operator=(const MemoryReuse&) = delete;

  /// The memory of an unused output of this size, or null.
  void* borrow(size_t bytes);

  /// Ends lending on this thread, after the kernel has finished. Its results may be in the memory
  /// of any output.
  static void stop();

 private:
  MemoryReuse* outer_;
  std::vector<std::pair<size_t, void*>> spare_;
  std::vector<void*> borrowed_;
};

/// While it exists, large CPU allocations of this thread come from a cache of freed memory, and
/// return there. A training step needs the same sizes repeatedly, and the operating system would
/// have to clear the pages each time.
class CachedMemory {
 public:
  CachedMemory();
  ~CachedMemory();
  CachedMemory(const CachedMemory&) = delete;
  CachedMemory& operator=(const CachedMemory&) = delete;

 private:
  const bool outer_;
};

/// While it exists, a CPU kernel computes for the device on this thread. In addition to
/// CachedMemory, its allocations must fit on the card next to the booked bytes. Otherwise the
/// vendor's out-of-memory error is raised before memory is touched. Results are booked when they
/// become device tensors; memory that the kernel frees counts only until then.
class KernelMemory {
 public:
  /// `widening` is the ratio between the size of the CPU's compute type and the tensor's type.
  explicit KernelMemory(int64_t widening = 1);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  /// Counts an allocation; returns the owner to pass to `free`.
  uint64_t allocate(size_t bytes);
  void free(size_t bytes, uint64_t owner);

 private:
  const CachedMemory kept_;
  KernelMemory* const outer_;
  const int64_t widening_;
  uint64_t number_ = 0;  // 0 before the first allocation
  int64_t unbooked_ = 0;
};

/// Frees the host's memory in the cache.
void free_cached_memory();

}  // namespace hpu
