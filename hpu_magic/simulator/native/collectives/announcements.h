// Shared memory in which the ranks on one machine announce their calls. Before the transport moves
// data, the last rank to join a collective checks whether all calls match, because the transport
// cannot check this. Messages are announced with the time at which the sender was ready. Ranks also
// use this memory to request the current Python line of other ranks.
#pragma once

#include "collectives/work.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace hpu::collectives {

class Announcements {
 public:
  /// `file` is the descriptor of a zero-filled file of `bytes_for(size)` bytes, or -1 if the ranks
  /// do not share memory.
  Announcements(int file, int rank, int size);
  ~Announcements();
  Announcements(const Announcements&) = delete;
  Announcements& operator=(const Announcements&) = delete;

  static size_t bytes_for(int size);

  /// Publishes a call of this rank, unless the call receives a message.
  void announce(const Call& call);

  /// Returns the calls of other ranks that do not match this call, by rank.
  std::map<int, std::string> differing(const Call& call) const;

  /// Returns when the last rank that made this call was ready, on the clock of that rank's
  /// card. A received message involves only the sender and this rank.
  double last_ready(const Call& call) const;

  bool shared() const {
    return memory_ != nullptr;
  }

  /// Sends a request to a rank and returns the number of the request.
  uint64_t request(int rank) const;
  /// Returns a rank's response to this request or a later one. Returns an empty string until the
  /// rank responds.
  std::string response(int rank, uint64_t request) const;
  /// Returns whether another rank is waiting for a response from this rank.
  bool is_requested() const;
  void respond(const std::string& text);

 private:
  struct Slot;
  struct Response;
  struct Rank;
  struct Outbox;

  Rank& of(int rank) const;
  Slot& slot(int rank, uint64_t place) const;
  Outbox& outbox(int sender, int receiver) const;

  const int rank_;
  const int size_;
  void* memory_ = nullptr;
};

/// Returns a description of a call, for example "all_reduce of 4 elements (Float)".
std::string described(const Call& call);

/// Starts a thread that sends the result of `location` to the ranks that request it, until
/// `announcements` is destroyed. The thread polls the shared memory and acquires the GIL only when
/// it has to respond.
void respond_with(
    const std::shared_ptr<Announcements>& announcements, std::function<std::string()> location);

/// Returns the Python line that another rank is currently executing, or an empty string if that
/// rank does not respond within a second.
std::string location_of(const Announcements& announcements, int rank);

}  // namespace hpu::collectives
