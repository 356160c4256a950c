// Memory for a kernel's results that has been used before.
#pragma once

#include "memory/memory.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace hpu {

/// While it lives, a CPU allocation of this thread with the size of one of the outputs is lent that
/// output's own memory, once. So a kernel that has no form that writes into given tensors computes
/// a captured tensor where it is, instead of in a block that the operating system must first fetch
/// page by page. The outputs keep their memory all the while: a result that a kernel made
/// elsewhere, as it likes on this processor, is copied into it.
class MemoryReuse {
 public:
  explicit MemoryReuse(c10::ArrayRef<at::Tensor> outputs);
  ~MemoryReuse();
  MemoryReuse(const MemoryReuse&) = delete;
  MemoryReuse& operator=(const MemoryReuse&) = delete;

  /// The memory of an output of that size; null where none is left.
  void* borrow(size_t bytes);

  /// Ends all lending on this thread: the kernel is done, and what it returned may lie in any of
  /// the outputs.
  static void stop();

 private:
  MemoryReuse* outer_;
  std::vector<std::pair<size_t, void*>> spare_;
  std::vector<void*> borrowed_;
};

/// While it lives, large CPU allocations of this thread come from memory that the device has let
/// go of, and go back there when they are freed. A training step wants the same sizes again and
/// again; the operating system would have to clear every page for it anew.
class KeptMemory {
 public:
  KeptMemory();
  ~KeptMemory();
  KeptMemory(const KeptMemory&) = delete;
  KeptMemory& operator=(const KeptMemory&) = delete;

 private:
  const bool outer_;
};

/// While it lives, a kernel of the CPU computes for the device on this thread: the same, and what
/// it allocates must fit on the card beside what is booked there, or the vendor's out-of-memory
/// error is raised before a page of it is touched. The results are booked when they become device
/// tensors; what the kernel frees itself counts only until then.
class KernelMemory {
 public:
  /// `widening` is how often a type fits into the wider one that the CPU computes with instead.
  explicit KernelMemory(int64_t widening = 1);
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;

  /// Notes an allocation, with what will know it when it is freed.
  uint64_t allocate(size_t bytes);
  void free(size_t bytes, uint64_t owner);

 private:
  const KeptMemory kept_;
  KernelMemory* const outer_;
  const int64_t widening_;
  uint64_t number_ = 0;  // from the first allocation on
  int64_t unbooked_ = 0;
};

/// Gives the memory that is kept for later back to the host.
void free_kept_memory();

}  // namespace hpu
