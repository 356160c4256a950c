// HPU Graphs: operations that are captured once and replayed into the same tensors.
#pragma once

#include "lazy/recorder.h"
#include "lazy/unfinished_work.h"

#include <string>
#include <unordered_set>
#include <vector>

namespace hpu {

/// A node that runs repeatedly. Its first run creates CPU views. If the CPU has a kernel for the
/// out= variant, later runs write directly to the outputs' memory; otherwise they run as recorded.
class ReplayStep {
 public:
  explicit ReplayStep(const Node& node) : node_(&node), op_(node.op) {}
  void run(torch::jit::Stack& stack);
  const Node& node() const {
    return *node_;
  }

 private:
  enum class Mode { unprepared, direct, as_recorded };

  Mode prepare();
  bool unchanged() const;

  const Node* node_;
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
  std::vector<std::pair<at::Tensor, at::Tensor>> views_;  // device tensor and its view
  Mode mode_ = Mode::unprepared;
};

class HpuGraph {
 public:
  /// Starts a capture; with `dry_run`, operations are recorded but do not run.
  void capture_begin(bool dry_run);
  /// Ends the capture, if there is one.
  void capture_end();
  /// Runs the captured operations again. If one fails, all operations that do not depend on it
  /// still run, and tensors without results raise the error at their next use.
  void replay();
  void reset();

  /// Ends the capture without a result; see recorder::abandon.
  void abandon();

  /// Makes replays free the tensors of a dry run. Each result is freed after its last reader, which
  /// may be in `backward`. Exceptions are the tensors `kept` and constants that the host has
  /// written.
  void free_intermediates(const std::vector<at::Tensor>& kept, HpuGraph* backward);
  /// Immediately frees the tensors that the backward graph would free.
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
  Storages made_;  // created by the captured function and written by each replay
  Storages for_backward_;
  uint64_t begun_ = 0;  // number of the last storage before the capture
  size_t capture_ = 0;  // number of the active capture; 0 for none
};

}  // namespace hpu
