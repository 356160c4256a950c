// HPU Graphs: operations that are captured once and replayed into the same tensors.
#pragma once

#include "graphs/replay.h"
#include "lazy/failures.h"
#include "lazy/recorder.h"

#include <string>
#include <unordered_set>
#include <vector>

namespace hpu {

class HpuGraph {
 public:
  /// Starts a capture; with `dry_run`, operations are recorded but do not run.
  void capture_begin(bool dry_run);
  /// Ends the capture, if there is one.
  void capture_end();
  /// Runs the captured operations again. If one fails, all operations that do not depend on it run,
  /// and tensors without results raise the error at their next use.
  void replay();
  void reset();

  /// Ends the capture without a result; see recorder::abandon.
  void abandon();

  /// Keeps tensors of a dry run in memory only while a replay runs: each result is freed after its
  /// last reader, and results that `backward` reads after the last reader there. Exceptions are the
  /// tensors `kept` and constants that the host has written.
  void free_intermediates(const std::vector<at::Tensor>& kept, HpuGraph* backward);
  /// Frees at once the tensors that backward would free.
  void free_for_backward();

  /// Whether this graph's capture is active; a refused operation ends it.
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
  std::vector<ReplayStep> steps_;  // created at the first replay
  std::vector<Storages> freed_;  // after each node; empty if all tensors are kept
  Storages made_;  // created by the captured function, and written by each replay
  Storages for_backward_;
  uint64_t begun_ = 0;  // number of the last storage before the capture
  size_t capture_ = 0;  // number of the active capture; 0 for none
};

}  // namespace hpu
