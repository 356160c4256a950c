#include "collectives/announcements.h"

#include <c10/util/StringUtil.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

namespace hpu::collectives {
namespace {

// The number of announced calls that are kept per rank. Other ranks may be up to 15 calls ahead.
constexpr uint64_t kKept = 16;

// The number of messages that are kept for each pair of ranks. If the sender is further ahead, the
// receiver does not wait for older messages on the card's clock.
constexpr uint64_t kKeptMessages = 256;

constexpr auto kRequestInterval = std::chrono::milliseconds(200);
constexpr auto kPatience = std::chrono::seconds(1);

using Name = std::array<uint64_t, 5>;  // a null-terminated string

Name packed(const char* name) {
  Name words{};
  std::memcpy(words.data(), name, std::min(std::strlen(name), sizeof words - 1));
  return words;
}

/// Maps all operation types that the transport treats alike to a single type.
c10d::OpType family(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::_ALLGATHER_BASE:
      return c10d::OpType::ALLGATHER;
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return c10d::OpType::REDUCE_SCATTER;
    case c10d::OpType::ALLTOALL_BASE:
      return c10d::OpType::ALLTOALL;
    default:
      return type;
  }
}

uint64_t key_of(const Message& message) {
  return message.number << 32 | static_cast<uint32_t>(message.tag);
}

bool reduces(const Call& call) {
  return std::strstr(call.name, "reduce") != nullptr;
}

bool match(const Call& call, const Call& other) {
  if (family(call.type) != family(other.type) || call.subject.root != other.subject.root ||
      (call.type == c10d::OpType::COALESCED && std::strcmp(call.name, other.name) != 0)) {
    return false;
  }
  if (reduces(call) && call.subject.dtype != other.subject.dtype) {
    return false;
  }
  const auto bytes = [](const Subject& subject) {
    return subject.elements * static_cast<int64_t>(c10::elementSize(subject.dtype));
  };
  return bytes(call.subject) == bytes(other.subject);
}

}  // namespace

/// An announced call. Only the rank that makes the call writes to this slot. `place` is 0 while the
/// slot is being written.
struct Announcements::Slot {
  std::atomic<uint64_t> place;
  std::atomic<int64_t> elements;
  std::atomic<uint32_t> kind;  // the operation type and the dtype
  std::atomic<int32_t> root;
  std::atomic<double> ready;
  std::array<std::atomic<uint64_t>, std::tuple_size_v<Name>> name;
};

/// The Python line that a rank is currently executing. Only that rank writes to this struct, except
/// that other ranks increment the number of requests.
struct Announcements::Response {
  std::atomic<uint64_t> requested;
  std::atomic<uint64_t> responded;
  std::array<std::atomic<char>, 256> text;
};

struct Announcements::Rank {
  std::array<Slot, kKept> slots;
  Response response;
};

/// The last messages from one rank to another. Only the sender writes to this memory. `key` is 0
/// while an entry is being written.
struct Announcements::Outbox {
  struct Entry {
    std::atomic<uint64_t> key;
    std::atomic<double> ready;
  };
  std::atomic<uint64_t> sent;
  std::array<Entry, kKeptMessages> entries;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "shared memory needs lock-free atomics");

Announcements::Announcements(int file, int rank, int size) : rank_(rank), size_(size) {
  if (file >= 0) {
    void* mapped =
        mmap(nullptr, bytes_for(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    memory_ = mapped == MAP_FAILED ? nullptr : mapped;
  }
}

Announcements::~Announcements() {
  if (memory_) {
    munmap(memory_, bytes_for(size_));
  }
}

size_t Announcements::bytes_for(int size) {
  const auto ranks = static_cast<size_t>(size);
  return ranks * sizeof(Rank) + ranks * ranks * sizeof(Outbox);
}

Announcements::Rank& Announcements::of(int rank) const {
  return static_cast<Rank*>(memory_)[rank];
}

Announcements::Slot& Announcements::slot(int rank, uint64_t place) const {
  return of(rank).slots[place % kKept];
}

Announcements::Outbox& Announcements::outbox(int sender, int receiver) const {
  auto* all = reinterpret_cast<Outbox*>(static_cast<Rank*>(memory_) + size_);
  return all[sender * size_ + receiver];
}

void Announcements::announce(const Call& call) {
  if (!memory_ || call.type == c10d::OpType::RECV) {
    return;
  }
  if (call.type == c10d::OpType::SEND) {
    Outbox& mine = outbox(rank_, call.message.peer);
    Outbox::Entry& entry = mine.entries[mine.sent++ % kKeptMessages];
    entry.key.store(0);
    entry.ready.store(call.ready);
    entry.key.store(key_of(call.message));
    return;
  }
  Slot& mine = slot(rank_, call.place);
  mine.place.store(0);
  mine.elements.store(call.subject.elements);
  mine.kind.store(
      static_cast<uint32_t>(call.type) << 16 | static_cast<uint32_t>(call.subject.dtype));
  mine.root.store(call.subject.root);
  mine.ready.store(call.ready);
  const Name name = packed(call.name);
  for (size_t i = 0; i < name.size(); ++i) {
    mine.name[i].store(name[i]);
  }
  // The stores are sequentially consistent, so at least one of two ranks sees the other's call.
  mine.place.store(call.place);
}

std::map<int, std::string> Announcements::differing(const Call& call) const {
  std::map<int, std::string> different;
  if (!memory_ || call.place == 0) {
    return different;
  }
  for (int rank = 0; rank < size_; ++rank) {
    const Slot& theirs = slot(rank, call.place);
    if (rank == rank_ || theirs.place.load() != call.place) {
      continue;
    }
    Name name;
    for (size_t i = 0; i < name.size(); ++i) {
      name[i] = theirs.name[i].load();
    }
    const uint32_t kind = theirs.kind.load();
    const Call other{
        static_cast<c10d::OpType>(kind >> 16),
        reinterpret_cast<const char*>(name.data()),
        0,
        {theirs.elements.load(), static_cast<c10::ScalarType>(kind & 0xffff), theirs.root.load()}};
    if (theirs.place.load() == call.place && !match(call, other)) {
      different[rank] = described(other);
    }
  }
  return different;
}

double Announcements::last_ready(const Call& call) const {
  double last = call.ready;
  if (memory_ && call.type == c10d::OpType::RECV) {
    for (const Outbox::Entry& entry : outbox(call.message.peer, rank_).entries) {
      const double ready = entry.ready.load();
      if (entry.key.load() == key_of(call.message)) {
        last = std::max(last, ready);
      }
    }
    return last;
  }
  for (int rank = 0; memory_ && call.place > 0 && rank < size_; ++rank) {
    const Slot& theirs = slot(rank, call.place);
    const double ready = theirs.ready.load();
    if (theirs.place.load() == call.place) {
      last = std::max(last, ready);
    }
  }
  return last;
}

uint64_t Announcements::request(int rank) const {
  return ++of(rank).response.requested;
}

std::string Announcements::response(int rank, uint64_t request) const {
  const Response& theirs = of(rank).response;
  std::string text;
  if (theirs.responded.load() >= request) {
    for (const std::atomic<char>& letter : theirs.text) {
      const char read = letter.load();
      if (!read) {
        break;
      }
      text += read;
    }
  }
  return text;
}

bool Announcements::is_requested() const {
  const Response& mine = of(rank_).response;
  return mine.requested.load() != mine.responded.load();
}

void Announcements::respond(const std::string& text) {
  Response& mine = of(rank_).response;
  const uint64_t request = mine.requested.load();
  // The end of a long path is more useful than its beginning.
  const size_t begin = text.size() < mine.text.size() ? 0 : text.size() - mine.text.size() + 1;
  for (size_t i = begin; i <= text.size(); ++i) {
    mine.text[i - begin].store(text.c_str()[i]);
  }
  mine.responded.store(request);
}

std::string described(const Call& call) {
  std::string text = call.name;
  if (call.subject.root >= 0) {
    text += c10::str(" with root ", call.subject.root);
  }
  if (call.subject.elements >= 0) {
    text += c10::str(
        " of ", call.subject.elements, call.subject.elements == 1 ? " element (" : " elements (",
        c10::toString(call.subject.dtype), ")");
  }
  return text;
}

void respond_with(
    const std::shared_ptr<Announcements>& announcements, std::function<std::string()> location) {
  if (!announcements->shared()) {
    return;
  }
  // The thread is detached because it does not exist in forked children.
  std::thread([weak = std::weak_ptr<Announcements>(announcements), location = std::move(location)] {
    for (;;) {
      if (const auto held = weak.lock()) {
        if (held->is_requested()) {
          held->respond(location());
        }
      } else {
        return;
      }
      std::this_thread::sleep_for(kRequestInterval);
    }
  }).detach();
}

std::string location_of(const Announcements& announcements, int rank) {
  if (!announcements.shared()) {
    return "";
  }
  const uint64_t request = announcements.request(rank);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < until) {
    if (auto response = announcements.response(rank, request); !response.empty()) {
      return response;
    }
    std::this_thread::sleep_for(kRequestInterval / 10);
  }
  return "";
}

}  // namespace hpu::collectives
