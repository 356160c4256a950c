#include "memory/booking.h"

#include "events/events.h"
#include "memory/card.h"
#include "memory/memory_reuse.h"

#include <chrono>

namespace hpu {
namespace {

void attempt_again(size_t bytes, const std::function<bool()>& attempt) {
  if (!defragment(attempt)) {
    card::out_of_memory(bytes);
  }
}

}  // namespace

void book(size_t bytes) {
  if (!card::book(bytes)) {
    attempt_again(bytes, [bytes] { return card::book(bytes); });
  }
}

void check_room(size_t bytes, int64_t unbooked) {
  const int64_t wanted = unbooked + static_cast<int64_t>(bytes);
  if (!card::has_room(wanted)) {
    attempt_again(bytes, [wanted] { return card::has_room(wanted); });
  }
}

bool defragment(const std::function<bool()>& attempt) {
  const auto began = std::chrono::steady_clock::now();
  free_cached_memory();
  const bool successful = attempt();
  const auto spent = std::chrono::steady_clock::now() - began;
  events::emit(
      events::Kind::memory_defragmentation, successful ? "successful" : "failed",
      std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count());
  return successful;
}

}  // namespace hpu
