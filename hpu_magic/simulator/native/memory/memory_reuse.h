// Memory for a kernel's results that has been used before.
#pragma once

#include "memory/memory.h"

#include <utility>
#include <vector>

namespace hpu {

/// While it lives, CPU allocations of this thread with the size of one of the outputs get that
/// output's own memory. So a kernel that has no form that writes into given tensors computes a
/// captured tensor where it was, instead of in a block that the operating system must first
/// fetch page by page. When it ends, every output has memory again.
class MemoryReuse {
 public:
  explicit MemoryReuse(c10::ArrayRef<at::Tensor> outputs);
  ~MemoryReuse();
  MemoryReuse(const MemoryReuse&) = delete;
  MemoryReuse& operator=(const MemoryReuse&) = delete;

  /// The memory of an output of that size; null where none is left.
  c10::DataPtr take(size_t bytes);

 private:
  c10::ArrayRef<at::Tensor> outputs_;
  std::vector<std::pair<size_t, c10::DataPtr>> spare_;
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
  bool outer_;
};

/// Gives the memory that is kept for later back to the host.
void free_kept_memory();

}  // namespace hpu
