// The captured operations of an HPU graph, prepared for running again and again.
#pragma once

#include "lazy/recorder.h"

#include <vector>

namespace hpu {

/// A node that runs again and again: on CPU views that its first run makes, straight into its
/// outputs' memory where the CPU has a kernel that writes there, else as it was recorded.
class Step {
 public:
  explicit Step(const Node& node) : node_(&node), op_(node.op) {}
  void run(torch::jit::Stack& stack);
  const Node& node() const {
    return *node_;
  }

 private:
  enum class Way { unprepared, direct, as_recorded };

  Way prepare();
  bool unchanged() const;

  const Node* node_;
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
  std::vector<std::pair<at::Tensor, at::Tensor>> views_;  // device tensor, its view
  Way way_ = Way::unprepared;
};

}  // namespace hpu
