// Memory reuse for kernels that allocate their own results.
#pragma once

#include "memory/memory.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace hpu {

/// While an instance exists, this thread can use the memory of each output for one CPU allocation
/// of the same size. A kernel without an out= variant can therefore write directly to a captured
/// tensor, instead of to a new block whose pages the operating system must clear. The outputs
/// always keep their memory: a result in other memory is copied to it.
class MemoryReuse {
 public:
  explicit MemoryReuse(c10::ArrayRef<at::Tensor> outputs);
  ~MemoryReuse();
  MemoryReuse(const MemoryReuse&) = delete;
  MemoryReuse& operator=(const MemoryReuse&) = delete;

  /// Returns the memory of an output of this size that has not been used yet, or null.
  void* borrow(size_t bytes);

  /// Ends the reuse on this thread after the kernel has run. Any result of the kernel may use
  /// the memory of any output.
  static void stop();

 private:
  MemoryReuse* outer_;
  std::vector<std::pair<size_t, void*>> spare_;
  std::vector<void*> borrowed_;
};

/// While an instance exists, large CPU allocations on this thread use a cache of freed memory. Each
/// training step allocates the same sizes. Without the cache, the operating system would clear the
/// pages each time.
class CachedMemory {
 public:
  CachedMemory();
  ~CachedMemory();
  CachedMemory(const CachedMemory&) = delete;
  CachedMemory& operator=(const CachedMemory&) = delete;

 private:
  const bool outer_;
};

/// Exists while a CPU kernel runs on this thread on behalf of the device. The kernel's allocations
/// use CachedMemory and must fit on the card in addition to the memory that is already reserved.
/// Otherwise, the vendor's out-of-memory error is raised before any memory is used. Memory for
/// results is reserved when they become device tensors. Memory that the kernel uses only
/// temporarily counts until it is freed.
class KernelMemory {
 public:
  /// `widening` is the size of the dtype in which the CPU computes, divided by that of the tensor's
  /// dtype.
  explicit KernelMemory(int64_t widening = 1);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  /// Counts an allocation. Returns the owner, which must be passed to `free`.
  uint64_t allocate(size_t bytes);
  void free(size_t bytes, uint64_t owner);

 private:
  const CachedMemory kept_;
  KernelMemory* const outer_;
  const int64_t widening_;
  uint64_t number_ = 0;  // 0 before the first allocation
  int64_t unreserved_ = 0;
};

/// Frees the host memory that is in the cache.
void free_cached_memory();

}  // namespace hpu
