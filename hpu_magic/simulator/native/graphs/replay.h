// Captured operations of an HPU Graph, prepared for repeated runs.
#pragma once

#include "lazy/recorder.h"

#include <vector>

namespace hpu {

/// A node that runs repeatedly. Its first run creates CPU views. If the CPU has an out= kernel,
/// later runs write directly to the outputs' memory; else they run as recorded.
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

}  // namespace hpu
