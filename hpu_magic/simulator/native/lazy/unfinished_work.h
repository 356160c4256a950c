// Recorded operations that run, and may fail or be interrupted.
#pragma once

#include "lazy/recorded_graph.h"

#include <cstdint>
#include <deque>
#include <vector>

namespace hpu {

/// Nodes to run, in order. If a node fails, its results and all that depend on them raise its error
/// at their next use; the other nodes run. After an interrupt, the remaining nodes stay for the
/// next run, so no recorded operation is lost.
class UnfinishedWork {
 public:
  /// Adds the nodes of a graph.
  void add(std::vector<Node> nodes, uint64_t graph);

  /// Runs all nodes and destroys each after it ends, to free memory after its last reader; moves
  /// them to `ended` unless it is null. After all nodes, throws the first error of a node. Throws
  /// the exception of a signal handler at once. Such a handler may run the remaining nodes itself.
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
