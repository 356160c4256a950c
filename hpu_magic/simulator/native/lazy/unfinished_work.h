// Recorded operations that are being run, and that may fail or be interrupted.
#pragma once

#include "lazy/recorded_graph.h"

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace hpu {

/// The operations that failed in one run. The results of failed operations, and all results that
/// depend on them, raise the first error when they are next used.
class Failures {
 public:
  /// Adds an operation. Must be called while the operation's error is being handled.
  void add(const Node& node, const std::exception& error);

  /// Throws the first error, if there was one.
  void rethrow_first() const;

  /// The messages for the tensors that are affected by one error.
  struct Cause {
    std::shared_ptr<const std::string> never_computed;
    std::shared_ptr<const std::string> not_written;
  };

 private:
  Cause inherited(const Node& node, const std::exception& error);

  std::vector<Cause> causes_;
  std::exception_ptr first_;
};

/// Marks the results of nodes that will not run as failed, so that their next use raises an error.
void fail_results(c10::ArrayRef<Node> nodes, const std::string& error);

/// Does the same for nodes that a replay did not reach. `made` are the storages of the graph's
/// results and intermediate results; other tensors keep their values.
void fail_results(
    c10::ArrayRef<Node> nodes, const std::exception& error, c10::ArrayRef<c10::Storage> made);

/// Nodes to run, in order. If a node fails, its results and all results that depend on them raise
/// its error when they are next used. The other nodes still run. After an interrupt, the remaining
/// nodes wait for the next run, so no recorded operation is lost.
class UnfinishedWork {
 public:
  /// Adds the nodes of a graph.
  void add(std::vector<Node> nodes, uint64_t graph);

  /// Runs all nodes, and moves them to `ended` unless it is null. Otherwise, destroys each node
  /// after running it, so that memory is freed after its last reader. Rethrows the first node error
  /// after all nodes have run; exceptions from signal handlers are rethrown immediately. A signal
  /// handler may run the remaining nodes itself.
  void run(std::vector<Node>* ended);

  /// Returns whether a node that has not run yet may use the storage.
  bool uses(const c10::Storage& storage) const;
  size_t size() const {
    return nodes_.size();
  }
  /// Returns the first graph with a node that has not finished.
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
