// HPU graphs: operations captured once and replayed into the same tensors.
#pragma once

#include "recorder.h"
#include "replay.h"

#include <string>
#include <vector>

namespace hpu {

class Graph {
 public:
  /// Starts a capture; with `dry_run` the operations are recorded and not run.
  void capture_begin(bool dry_run);
  /// Ends it; silent when none was begun.
  void capture_end();
  /// Runs the captured operations again; nothing where there are none.
  void replay();
  void reset();

  std::vector<std::string> operations() const;
  bool is_empty() const;

 private:
  std::vector<Node> nodes_;
  std::vector<Step> steps_;  // prepared at the first replay
  size_t capture_ = 0;  // number of the capture under way; 0 for none
};

}  // namespace hpu
