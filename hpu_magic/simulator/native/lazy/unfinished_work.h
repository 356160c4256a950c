// Recorded operations in execution, which may fail or be interrupted.
#pragma once

#include "lazy/recorded_graph.h"

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace hpu {

/// The operations that failed in one run. Their results, and all results that depend on them, raise
/// the first error at their next use.
class Failures {
 public:
  /// Adds an operation. Call it in the handler of the operation's error.
  void add(const Node& node, const std::exception& error);

  /// Throws the first error, if there was one.
  void rethrow_first() const;

  /// The messages of one error, for the tensors that it affects.
  struct Cause {
    std::shared_ptr<const std::string> never_computed;
    std::shared_ptr<const std::string> not_written;
  };

 private:
  Cause inherited(const Node& node, const std::exception& error);

  std::vector<Cause> causes_;
  std::exception_ptr first_;
};

/// Makes the next use of results raise an error, because their nodes will not run.
void fail_results(c10::ArrayRef<Node> nodes, const std::string& error);

/// Nodes to run, in order. If a node fails, its results and all results that depend on them raise
/// its error at their next use; the other nodes run. After an interrupt, the remaining nodes wait
/// for the next run, so no recorded operation is lost.
class UnfinishedWork {
 public:
  /// Adds the nodes of a graph.
  void add(std::vector<Node> nodes, uint64_t graph);

  /// Runs all nodes, and moves them to `ended` unless it is null. Destroys each node after its run,
  /// to free memory after its last reader. Throws the first error of a node after all nodes have
  /// run, and the exception of a signal handler immediately. Such a handler may run the remaining
  /// nodes itself.
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
