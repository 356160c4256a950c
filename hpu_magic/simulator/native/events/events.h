// What the engine notices: counted always, described in a bounded buffer while somebody listens.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hpu::events {

enum class Kind : uint8_t {
  graph_compilation,
  recipe_cache_hit,
  recipe_cache_miss,
  cpu_fallback,
  host_synchronization,
  mark_step,
  memory_defragmentation,
  device_acquired,
};
constexpr size_t kKinds = 8;
const char* name_of(Kind kind);

struct Event {
  uint64_t sequence;
  Kind kind;
  std::string name;
  int64_t timestamp;  // nanoseconds since the epoch
  int64_t duration;   // nanoseconds
  std::string file;   // the Python line that caused it; empty when none did
  int line;
  std::string detail;
};

struct Counter {
  uint64_t count = 0;
  int64_t nanoseconds = 0;
  int64_t longest = 0;                   // nanoseconds
  std::map<std::string, uint64_t> names;  // the first 4,096; all others count as "(others)"
};

bool listening();
/// Listeners nest: each `true` needs its `false`.
void listen(bool on);

/// Counts an event and, while somebody listens, keeps it with the Python line that runs now.
void notice(Kind kind, const std::string& name, int64_t duration = 0, std::string detail = "");

Counter counter(Kind kind);

/// Events with a sequence number of at least `since`; the oldest may have been dropped.
std::vector<Event> since(uint64_t sequence);
uint64_t next_sequence();

}  // namespace hpu::events
