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

/// The collectives of a replay that have started but not ended.
class RunningCollectives {
 public:
  /// Starts the collective that is a part of the graph. Locks must not be held.
  void start(size_t number, const Part& part, const Node& node);
  /// Waits until these collectives have ended, and rethrows their errors.
  void wait_for(const std::vector<size_t>& parts);
  void wait_for_all();

 private:
  std::map<size_t, c10::intrusive_ptr<c10d::Work>> running_;
};

}  // namespace hpu
