// A cache of compiled graphs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

namespace hpu {

/// The hashes of the graphs that ran most recently, up to a maximum number. Graphs that have been
/// evicted are compiled again.
class RecipeCache {
 public:
  static constexpr size_t kMost = 1 << 14;

  /// Returns whether the graph is in the cache, and adds it if it is not.
  bool has(uint64_t graph) {
    const auto found = places_.find(graph);
    if (found != places_.end()) {
      latest_first_.splice(latest_first_.begin(), latest_first_, found->second);
      return true;
    }
    if (places_.size() == kMost) {
      places_.erase(latest_first_.back());
      latest_first_.pop_back();
    }
    latest_first_.push_front(graph);
    places_.emplace(graph, latest_first_.begin());
    return false;
  }

  size_t size() const {
    return places_.size();
  }

  void clear() {
    places_.clear();
    latest_first_.clear();
  }

 private:
  std::list<uint64_t> latest_first_;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};

}  // namespace hpu
