// The parts of an HPU Graph that contains collectives.
#pragma once

#include "lazy/recorder.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstddef>
#include <map>
#include <vector>

namespace hpu {

/// Operations that a replay runs together, or a collective, which is a single node.
struct Part {
  size_t first_node;
  size_t end_node;  // after the last node
  size_t first_signature;
  size_t end_signature;
  bool is_collective = false;
  std::optional<std::string> exchange{};  // of a collective
  std::vector<size_t> waits{};  // earlier collectives that share a tensor with this part
};

/// Divides the nodes of a capture at its collectives. The first part contains operations, or
/// nothing.
std::vector<Part> parts_of(const recorder::Captured& captured);

/// The collectives of a graph that have started but not ended. Locks must not be held while they
/// start or end.
class RunningCollectives {
 public:
  RunningCollectives() = default;
  /// Contains the collectives that started during a capture.
  explicit RunningCollectives(const std::vector<recorder::CapturedCollective>& captured);

  /// Starts the collective that is a part of the graph.
  void start(size_t number, const Part& part, const Node& node);
  /// Waits until a collective has ended, and rethrows its error.
  void wait_for(size_t number);
  /// Waits for the collectives of the capture and of replays that failed or were interrupted. Their
  /// errors have already been reported.
  void wait_for_earlier();

 private:
  std::map<size_t, c10::intrusive_ptr<c10d::Work>> running_;
};

}  // namespace hpu
