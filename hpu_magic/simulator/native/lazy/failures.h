// Failures in a run of recorded operations.
#pragma once

#include "lazy/recorded_graph.h"

#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace hpu {

/// The operations that failed in one run. Their results, and all results that depend on them, raise
/// the first error at their next use.
class Failures {
 public:
  /// Adds the operation; called in the handler of its error.
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

/// Makes the results of nodes that will not run raise at their next use.
void fail_results(c10::ArrayRef<Node> nodes, const std::string& error);

}  // namespace hpu
