// The capture of an HPU Graph, as lazy mode sees it, and the operations that it refuses. The replay
// is in graphs/.
#pragma once

#include "lazy/recorded_graph.h"

#include <string>
#include <vector>

namespace hpu::recorder {

/// Why recorded work must run now. A capture allows only `mark_step`.
enum class Cause { mark_step, host_read, host_write, fallback, data_dependent_shape };

/// Raises the error for an operation that a capture refuses.
[[noreturn]] void refuse_in_capture(Cause cause, const std::string& operation);

/// At most one capture is active in a process. Operations of all threads belong to it.
struct Capture {
  bool active = false;
  bool dry_run = false;  // record, but do not run
  size_t number = 0;
  std::vector<Node> nodes;

  /// Whether a captured operation uses the tensor's memory.
  bool uses(const at::Tensor& tensor) const;
};

}  // namespace hpu::recorder
