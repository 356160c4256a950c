#include "graph.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

namespace hpu {

void Graph::capture_begin(bool dry_run) {
  TORCH_CHECK(
      recorder::enabled(),
      "HPU Graphs are for lazy mode: set PT_HPU_LAZY_MODE=1 before the first import and restart.");
  capture_ = recorder::begin_capture(dry_run);
  reset();
}

void Graph::capture_end() {
  if (capture_ != 0) {
    nodes_ = recorder::end_capture(std::exchange(capture_, 0));
  }
}

void Graph::replay() {
  TORCH_CHECK(!recorder::capturing(), "GRAPH:: Capture in progress");
  recorder::flush(recorder::Cause::step);
  if (steps_.empty()) {
    for (const Node& node : nodes_) {
      steps_.emplace_back(node);
    }
  }
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  torch::jit::Stack stack;
  for (Step& step : steps_) {
    step.run(stack);
  }
}

void Graph::reset() {
  steps_.clear();
  nodes_.clear();
}

std::vector<std::string> Graph::operations() const {
  std::vector<std::string> names;
  for (const Node& node : nodes_) {
    names.push_back(c10::toString(node.op.operator_name()));
  }
  return names;
}

bool Graph::is_empty() const {
  return nodes_.empty();
}

}  // namespace hpu
