// Shared memory in which the ranks of one machine announce their calls. Before the transport moves
// data, the last rank of a collective checks whether all calls match, because the transport cannot
// check this. Ranks also use it to request the current Python line of other ranks.
#pragma once

#include "collectives/work.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace hpu::collectives {

class Announcements {
 public:
  /// `file` refers to `bytes_for(size)` bytes, initially zeros; -1 if the ranks share no memory.
  Announcements(int file, int rank, int size);
  ~Announcements();
  Announcements(const Announcements&) = delete;
  Announcements& operator=(const Announcements&) = delete;

  static size_t bytes_for(int size);

  /// Publishes a call of this rank.
  void announce(const Call& call);

  /// Calls of other ranks that do not match this one, by rank.
  std::map<int, std::string> differing(const Call& call) const;

  bool shared() const {
    return memory_ != nullptr;
  }

  /// Sends a request to a rank, and returns its number.
  uint64_t request(int rank) const;
  /// The response of a rank to this request or a later one; empty until it responds.
  std::string response(int rank, uint64_t request) const;
  /// Whether another rank waits for a response of this rank.
  bool is_requested() const;
  void respond(const std::string& text);

 private:
  struct Slot;
  struct Response;
  struct Rank;

  Rank& of(int rank) const;
  Slot& slot(int rank, uint64_t place) const;

  const int rank_;
  const int size_;
  void* memory_ = nullptr;
};

/// A description of a call: "all_reduce of 4 elements (Float)".
std::string described(const Call& call);

/// Starts a thread that sends the result of `location` to ranks that request it, until
/// `announcements` is destroyed. The thread polls memory, and takes the GIL only to respond.
void respond_with(
    const std::shared_ptr<Announcements>& announcements, std::function<std::string()> location);

/// The current Python line of another rank; empty if the rank does not respond within a second.
std::string location_of(const Announcements& announcements, int rank);

}  // namespace hpu::collectives
