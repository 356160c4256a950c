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

  /// Keeps intermediate results in memory only while a replay runs: each is freed after its last
  /// reader. Kept are the given tensors, tensors that had memory before the first replay, and
  /// what `backward` reads, which frees it in its turn. After a dry run only.
  void free_intermediates(const std::vector<at::Tensor>& kept, const Graph* backward);

  /// Whether this graph's capture is under way: a refusal ends it.
  bool is_capturing() const;
  std::vector<std::string> operations() const;
  bool is_empty() const;

 private:
  void replay_freeing();

  std::vector<Node> nodes_;
  std::vector<Step> steps_;  // prepared at the first replay
  std::vector<std::vector<c10::Storage>> freed_;  // after each node; empty where all is kept
  size_t capture_ = 0;  // number of the capture under way; 0 for none
};

}  // namespace hpu
