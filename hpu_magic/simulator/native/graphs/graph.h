// HPU graphs: operations captured once and replayed into the same tensors.
#pragma once

#include "lazy/failures.h"
#include "lazy/recorder.h"
#include "graphs/replay.h"

#include <string>
#include <unordered_set>
#include <vector>

namespace hpu {

class Graph {
 public:
  /// Starts a capture; with `dry_run` the operations are recorded and not run.
  void capture_begin(bool dry_run);
  /// Ends it; silent when none was begun.
  void capture_end();
  /// Runs the captured operations again; nothing where there are none. Where one fails, all that
  /// do not depend on it run, and the tensors that lack its results say so at their next use.
  void replay();
  void reset();

  /// Ends the capture for nothing; see recorder::abandon.
  void abandon();

  /// Keeps what was made during a dry run in memory only while a replay runs: each result is
  /// freed after its last reader, and what `backward` reads after its last reader there. All but
  /// the given tensors, and constants that the host has written.
  void free_intermediates(const std::vector<at::Tensor>& kept, Graph* backward);
  /// Frees at once what backward would.
  void free_for_backward();

  /// Whether this graph's capture is under way: a refusal ends it.
  bool is_capturing() const;
  std::vector<std::string> operations() const;
  bool is_empty() const;

 private:
  using Storages = std::vector<c10::Storage>;
  using Known = std::unordered_set<const c10::StorageImpl*>;

  void note_made();
  void plan_freeing(Known needed, uint64_t since);
  void replay_steps(Failures& failures);
  void replay_freeing(Failures& failures);

  std::vector<Node> nodes_;
  std::vector<Step> steps_;  // prepared at the first replay
  std::vector<Storages> freed_;  // after each node; empty where all is kept
  Storages made_;  // by the captured function, and computed anew by each replay
  Storages for_backward_;
  uint64_t begun_ = 0;  // number of the last storage made before the capture
  size_t capture_ = 0;  // number of the capture under way; 0 for none
};

}  // namespace hpu
