// Reuse of memory by kernels that allocate their results.
#pragma once

#include "memory/memory.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace hpu {

/// While it exists, one CPU allocation of this thread for each output uses the output's memory, if
/// the sizes are equal. So a kernel without an out= variant writes directly to a captured tensor,
/// instead of to a new block whose pages the operating system must clear. The outputs keep their
/// memory in any case: a result in other memory is copied.
class MemoryReuse {
 public:
  explicit MemoryReuse(c10::ArrayRef<at::Tensor> outputs);
  ~MemoryReuse();
  MemoryReuse(const MemoryReuse&) = delete;
  MemoryReuse& operator=(const MemoryReuse&) = delete;

  /// The memory of an unused output of this size, or null.
  void* borrow(size_t bytes);

  /// Ends the reuse on this thread after the kernel. The kernel's results may be in the memory of
  /// any output.
  static void stop();

 private:
  MemoryReuse* outer_;
  std::vector<std::pair<size_t, void*>> spare_;
  std::vector<void*> borrowed_;
};

/// While it exists, large CPU allocations of this thread use a cache of freed memory. A training
/// step needs the same sizes repeatedly, and the operating system would clear the pages each time.
class CachedMemory {
 public:
  CachedMemory();
  ~CachedMemory();
  CachedMemory(const CachedMemory&) = delete;
  CachedMemory& operator=(const CachedMemory&) = delete;

 private:
  const bool outer_;
};

/// While it exists, a CPU kernel computes for the device on this thread. Its allocations use
/// CachedMemory, and must fit on the card in addition to the reserved bytes. Otherwise, the
/// vendor's out-of-memory error is raised before memory is used. Memory is reserved for results
/// when they become device tensors; memory that the kernel frees counts only until then.
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
  int64_t unreserved_ = 0;
};

/// Frees the host's memory in the cache.
void free_cached_memory();

}  // namespace hpu
