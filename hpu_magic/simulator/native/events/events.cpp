#include "events/events.h"

#include "clock/clock.h"
#include "threads/locks.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <tuple>

namespace hpu::events {
namespace {

constexpr size_t kCapacity = 10000;
// The maximum number of names that are counted for each kind of event. A limit is needed because
// the number of recipes and compiled graphs is unbounded.
constexpr size_t kMostNames = 4096;
constexpr const char* kOtherNames = "(others)";

std::atomic<int> listeners{0};
std::array<Counter, kKinds> counters;
std::deque<Event> buffer;
std::atomic<bool> counting_lines{false};
// Each key contains the user's line and the library's line, both with file and number.
std::map<std::tuple<Kind, std::string, std::string, int, std::string, int>, uint64_t> by_line;
uint64_t sequence = 0;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Counts an event. If there is a listener, also stores it.
void add(Event event, const CallerLines& lines) {
  const std::lock_guard lock(locks::events);
  Counter& counter = counters[static_cast<size_t>(event.kind)];
  ++counter.count;
  counter.nanoseconds += event.duration;
  counter.longest = std::max(counter.longest, event.duration);
  if (counting_lines.load(std::memory_order_relaxed)) {
    const auto& [own, library] = lines;
    ++by_line[{event.kind, event.name, own.file, own.number, library.file, library.number}];
  }
  if (!event.name.empty()) {
    const bool known = counter.names.size() < kMostNames || counter.names.count(event.name) > 0;
    ++counter.names[known ? event.name : kOtherNames];
  }
  if (listening()) {
    event.sequence = sequence++;
    buffer.push_back(std::move(event));
    if (buffer.size() > kCapacity) {
      buffer.pop_front();
    }
  }
}

}  // namespace

const char* name_of(Kind kind) {
  static constexpr std::array names{
      "graph_compilation",    "recipe_cache_hit", "recipe_cache_miss",      "cpu_fallback",
      "host_synchronization", "mark_step",        "memory_defragmentation", "device_acquired",
      "stand_in",             "assumed_shape",    "assumed_indices"};
  static_assert(names.size() == kKinds);
  return names[static_cast<size_t>(kind)];
}

bool listening() {
  return listeners.load(std::memory_order_relaxed) > 0;
}

void listen(bool on) {
  if (on) {
    ++listeners;
  } else if (listeners.load() > 0) {
    --listeners;
  }
}

void emit(Kind kind, const std::string& name, int64_t duration, std::string detail) {
  if (kind == Kind::host_synchronization) {
    clock::wait();
  }
  PythonLine line;
  if (listening()) {
    line = python_line();  // this acquires the GIL, which is not allowed while holding the lock
  }
  CallerLines lines;
  if (counting_lines.load(std::memory_order_relaxed)) {
    lines = caller_lines();
  }
  add({0, kind, name, now() - duration, duration, std::move(line.file), line.number,
       std::move(detail)},
      lines);
}

void emit_at(const CallerLines& lines, Kind kind, const std::string& name) {
  add({0, kind, name, now(), 0, lines.own.file, lines.own.number, ""}, lines);
}

Counter counter(Kind kind) {
  const std::lock_guard lock(locks::events);
  return counters[static_cast<size_t>(kind)];
}

std::vector<Event> since(uint64_t first) {
  const std::lock_guard lock(locks::events);
  // Sequence numbers have no gaps, so the index can be computed from the number.
  const uint64_t oldest = buffer.empty() ? first : buffer.front().sequence;
  const size_t skipped = first > oldest ? std::min<size_t>(first - oldest, buffer.size()) : 0;
  return {buffer.begin() + static_cast<std::ptrdiff_t>(skipped), buffer.end()};
}

void count_lines() {
  counting_lines.store(true);
}

std::vector<LineCount> line_counts() {
  const std::lock_guard lock(locks::events);
  std::vector<LineCount> counts;
  for (const auto& [key, count] : by_line) {
    const auto& [kind, name, file, number, library, library_number] = key;
    counts.push_back({kind, name, {{file, number}, {library, library_number}}, count});
  }
  return counts;
}

uint64_t next_sequence() {
  const std::lock_guard lock(locks::events);
  return sequence;
}

}  // namespace hpu::events
