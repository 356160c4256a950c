// HPU Graphs: operations that are captured once, and then replayed on the same tensors.
#pragma once

#include "graphs/parts.h"
#include "lazy/recorder.h"
#include "lazy/unfinished_work.h"

#include <string>
#include <unordered_set>
#include <vector>

namespace hpu {

/// A node that runs repeatedly. The first run creates CPU views. If the CPU has a kernel for the
/// out= variant of the operator, later runs write directly to the outputs' memory. Otherwise, later
/// runs execute the operation as recorded.
class ReplayStep {
 public:
  explicit ReplayStep(const Node& node) : node_(&node), op_(node.op) {}
  void run(torch::jit::Stack& stack);

 private:
  enum class Mode { unprepared, direct, as_recorded };

  Mode prepare();
  bool unchanged() const;

  const Node* node_;
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
  std::vector<std::pair<at::Tensor, at::Tensor>> views_;  // device tensors and their CPU views
  Mode mode_ = Mode::unprepared;
};

class HpuGraph {
 public:
  /// Starts a capture. If `dry_run` is true, operations are recorded but do not run.
  void capture_begin(bool dry_run);
  /// Ends the capture, if one is active.
  void capture_end();
  /// Runs the captured operations again. If an operation fails, all operations that do not depend
  /// on it still run. Tensors whose values could not be computed raise the error when they are next
  /// used. If the graph contains collectives, it must not be changed or replayed by another thread
  /// until the replay ends.
  void replay();
  void reset();

  /// Ends the capture and discards it; see recorder::abandon.
  void abandon();

  /// Makes replays free the tensors created in a dry run. Each result is freed after the last
  /// operation that reads it, which may be in `backward`. The tensors in `kept` and constants that
  /// the host has written are not freed.
  void free_intermediates(const std::vector<at::Tensor>& kept, HpuGraph* backward);
  /// Immediately frees the tensors that the backward graph would free.
  void free_for_backward();

  /// Returns whether this graph is being captured. The capture ends if an operation is refused.
  bool is_capturing() const;
  std::vector<std::string> operations() const;
  bool is_empty() const;

 private:
  using Storages = std::vector<c10::Storage>;
  using Known = std::unordered_set<const c10::StorageImpl*>;

  void check_not_replaying() const;
  void replay_parts();
  void replay_part(size_t number, Failures& failures);
  void run(const Part& part, Failures& failures);
  void launch(const Part& part) const;
  void note_made();
  void plan_freeing(Known needed, uint64_t since);
  void replay_steps(const Part& part, Failures& failures);
  void replay_freeing(const Part& part, Failures& failures);

  std::vector<Node> nodes_;
  std::vector<uint64_t> signatures_;  // identify the prices of a replay
  std::vector<Part> parts_ = parts_of({});
  RunningCollectives running_;
  std::vector<ReplayStep> steps_;  // created by the first replay
  std::vector<Storages> freed_;  // what to free after each node; empty if all tensors are kept
  Storages made_;  // storages created by the captured function and written by each replay
  Storages for_backward_;
  uint64_t begun_ = 0;  // number of the last storage created before the capture
  size_t capture_ = 0;  // number of the active capture, or 0 if there is none
  bool replaying_ = false;  // whether a thread replays the parts of this graph
};

}  // namespace hpu
