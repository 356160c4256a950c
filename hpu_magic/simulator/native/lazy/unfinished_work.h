// Recorded operations on their way through a run, which may fail and be interrupted.
#pragma once

#include "lazy/recorded_graph.h"

#include <cstdint>
#include <deque>
#include <vector>

namespace hpu {

/// Nodes that are to run, in order. Where one fails, what it would have written raises its error
/// at the next use, and so does all that depends on it; the others run. After an interrupt the
/// rest stays for the next run: nothing that was recorded is lost.
class UnfinishedWork {
 public:
  /// Takes the nodes of a graph.
  void add(std::vector<Node> nodes, uint64_t graph);

  /// Runs all nodes and lets each go as it ends, so that its last readers' memory is freed; into
  /// `ended` where that is given. Throws the first error of a node after all have run, or what
  /// the handler of a signal raised before the rest has. A handler may itself run the rest.
  void run(std::vector<Node>* ended);

  /// Whether a node that has not run yet may use the storage.
  bool uses(const c10::Storage& storage) const;
  size_t size() const {
    return nodes_.size();
  }
  /// The first graph with a node that has not ended.
  uint64_t first_graph() const {
    return first_graph_;
  }

 private:
  void drop_unseen();

  std::deque<Node> nodes_;
  uint64_t first_graph_ = UINT64_MAX;
  bool interrupted_ = false;
};

}  // namespace hpu
