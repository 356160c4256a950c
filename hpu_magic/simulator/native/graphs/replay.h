// The captured operations of an HPU graph, prepared for running again and again.
#pragma once

#include "lazy/recorder.h"

#include <vector>

namespace hpu {

/// A node ready to run: on CPU views that are made once, straight into its outputs' memory where
/// the CPU has a kernel that writes there, else as it was recorded.
class Step {
 public:
  explicit Step(const Node& node);
  void run(torch::jit::Stack& stack);

 private:
  bool prepare();
  bool unchanged() const;

  const Node* node_;
  c10::OperatorHandle op_;
  torch::jit::Stack arguments_;
  std::vector<std::pair<at::Tensor, at::Tensor>> views_;  // device tensor, its view
  bool direct_;
};

}  // namespace hpu
