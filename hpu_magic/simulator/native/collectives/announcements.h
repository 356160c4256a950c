// What the ranks of one machine call, told each other in memory that they share: whoever comes last
// sees whether all want the same before the transport, which cannot tell, moves a byte. Ranks ask
// each other there, too, where they are.
#pragma once

#include "collectives/work.h"

#include <map>
#include <string>

namespace hpu::collectives {

class Announcements {
 public:
  /// `file` is that of `bytes_for(size)` bytes, of zeros at first; -1 for ranks that share none.
  Announcements(int file, int rank, int size);
  ~Announcements();
  Announcements(const Announcements&) = delete;
  Announcements& operator=(const Announcements&) = delete;

  static size_t bytes_for(int size);

  /// Tells the others of this rank's call.
  void announce(const Call& call);

  /// What other ranks have called in its place that cannot go with it, by their ranks.
  std::map<int, std::string> differing(const Call& call) const;

  bool shared() const {
    return memory_ != nullptr;
  }

  /// A question to a rank, and its number.
  uint64_t ask(int rank) const;
  /// What that rank has answered to it or to a later one; empty until then.
  std::string answered(int rank, uint64_t question) const;
  /// Whether somebody waits for an answer of this rank.
  bool is_asked() const;
  void answer(const std::string& text);

 private:
  struct Slot;
  struct Answer;
  struct Rank;

  Rank& of(int rank) const;
  Slot& slot(int rank, uint64_t place) const;

  const int rank_;
  const int size_;
  void* memory_ = nullptr;
};

/// A call with what it is about: "all_reduce of 4 elements (Float)".
std::string described(const Call& call);

}  // namespace hpu::collectives
