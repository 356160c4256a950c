#include "memory/allocations.h"

#include "threads/locks.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace hpu::allocations {
namespace {

constexpr size_t kLongestLog = 1 << 18;

std::atomic<bool> recording{false};
std::atomic<bool> optimizing{false};
thread_local uint64_t last_reservation = 0;

/// A reservation, or a release if `bytes` is negative.
struct Change {
  uint64_t number;
  int64_t bytes;
  uint32_t line;
  Phase phase;
};

struct Live {
  int64_t bytes;
  uint32_t line;
  Phase phase;
};

/// The memory in use over time. Each of its values is the maximum after `width_` changes.
class Course {
 public:
  void add(int64_t in_use) {
    if (changes_++ % width_ != 0) {
      maxima_.back() = std::max(maxima_.back(), in_use);
      return;
    }
    if (maxima_.size() == kMost) {
      halve();
    }
    maxima_.push_back(in_use);
  }

  std::vector<int64_t> values(size_t most) {
    while (maxima_.size() > most) {
      halve();
    }
    return maxima_;
  }

 private:
  static constexpr size_t kMost = 1 << 12;

  void halve() {
    const size_t count = (maxima_.size() + 1) / 2;
    for (size_t i = 0; i < count; ++i) {
      maxima_[i] = std::max(maxima_[2 * i], maxima_[std::min(2 * i + 1, maxima_.size() - 1)]);
    }
    maxima_.resize(count);
    width_ *= 2;
  }

  std::vector<int64_t> maxima_;
  size_t width_ = 1;
  size_t changes_ = 0;
};

using LiveSet = std::unordered_map<uint64_t, Live>;

/// All reservations, stored as a set at one point in time and the changes since then. The peak is a
/// position among the changes, or an older set.
class History {
 public:
  uint64_t add(events::CallerLines lines, Phase phase, size_t bytes) {
    const auto& [own, library] = lines;
    const auto [entry, fresh] = numbers_.try_emplace(
        {own.file, own.number, library.file, library.number},
        static_cast<uint32_t>(lines_.size()));
    if (fresh) {
      lines_.push_back(std::move(lines));
    }
    ++count_;
    reserved_ += bytes;
    append({count_, static_cast<int64_t>(bytes), entry->second, phase});
    if (in_use_ > peak_bytes_) {
      peak_bytes_ = in_use_;
      peak_at_ = log_.size();
    }
    return count_;
  }

  void remove(uint64_t number, size_t bytes) {
    append({number, -static_cast<int64_t>(bytes), 0, Phase::forward});
  }

  Peak peak() {
    shorten();
    Peak peak{peak_bytes_, {}};
    for (const auto& [number, live] : peak_) {
      peak.reservations.push_back({number, lines_[live.line], live.phase, live.bytes});
    }
    return peak;
  }

  std::pair<uint64_t, uint64_t> totals() const {
    return {count_, reserved_};
  }

  std::vector<int64_t> course(size_t most) {
    return std::exchange(course_, {}).values(most);
  }

  std::optional<Failure> failure;

 private:
  void append(const Change& change) {
    if (log_.size() >= kLongestLog) {
      shorten();
    }
    in_use_ += change.bytes;
    course_.add(in_use_);
    log_.push_back(change);
  }

  static void apply(LiveSet& set, const Change& change) {
    if (change.bytes > 0) {
      set[change.number] = {change.bytes, change.line, change.phase};
    } else if (const auto found = set.find(change.number); found != set.end()) {
      found->second.bytes += change.bytes;
      if (found->second.bytes <= 0) {
        set.erase(found);
      }
    }
  }

  void shorten() {
    for (size_t i = 0; i < log_.size(); ++i) {
      apply(set_, log_[i]);
      if (i + 1 == peak_at_) {
        peak_ = set_;
      }
    }
    log_.clear();
    peak_at_ = 0;
  }

  std::vector<events::CallerLines> lines_;
  std::map<std::tuple<std::string, int, std::string, int>, uint32_t> numbers_;
  LiveSet set_;
  std::vector<Change> log_;
  size_t peak_at_ = 0;  // the peak is after this many changes; 0 if `peak_` is the peak
  LiveSet peak_;
  Course course_;
  int64_t peak_bytes_ = 0;
  int64_t in_use_ = 0;
  uint64_t count_ = 0;
  uint64_t reserved_ = 0;
};

// Leaked, because tensors may live until the process ends.
History& history = *new History;

Phase phase() {
  if (optimizing.load(std::memory_order_relaxed)) {
    return Phase::optimizer;
  }
  return torch::autograd::get_current_graph_task_id() >= 0 ? Phase::backward : Phase::forward;
}

}  // namespace

void record() {
  recording.store(true);
}

void set_optimizing(bool on) {
  optimizing.store(on);
}

void add(size_t bytes) {
  if (bytes == 0 || !recording.load(std::memory_order_relaxed)) {
    return;
  }
  events::CallerLines lines = events::caller_lines();
  const std::lock_guard lock(locks::allocations);
  last_reservation = history.add(std::move(lines), phase(), bytes);
}

uint64_t latest() {
  return last_reservation;
}

void remove(uint64_t reservation, size_t bytes) noexcept {
  if (recording.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(locks::allocations);
    history.remove(reservation, bytes);
  }
}

void fail(size_t bytes, int64_t in_use, int64_t capacity) {
  if (recording.load(std::memory_order_relaxed)) {
    events::CallerLines lines = events::caller_lines();
    const std::lock_guard lock(locks::allocations);
    history.failure = Failure{std::move(lines), static_cast<int64_t>(bytes), in_use, capacity};
  }
}

Peak peak() {
  const std::lock_guard lock(locks::allocations);
  return history.peak();
}

std::vector<int64_t> course(size_t most) {
  const std::lock_guard lock(locks::allocations);
  return history.course(most);
}

std::optional<Failure> last_failure() {
  const std::lock_guard lock(locks::allocations);
  return history.failure;
}

std::pair<uint64_t, uint64_t> totals() {
  const std::lock_guard lock(locks::allocations);
  return history.totals();
}

}  // namespace hpu::allocations
