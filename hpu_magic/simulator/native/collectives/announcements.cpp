#include "collectives/announcements.h"

#include <c10/util/StringUtil.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace hpu::collectives {
namespace {

constexpr uint64_t kKept = 16;  // calls of a rank that are remembered: how far others may be ahead

using Name = std::array<uint64_t, 5>;  // of letters, with a zero behind them

Name packed(const char* name) {
  Name words{};
  std::memcpy(words.data(), name, std::min(std::strlen(name), sizeof words - 1));
  return words;
}

/// Operators that the transport carries out alike.
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

bool reduces(const Call& call) {
  return std::strstr(call.name, "reduce") != nullptr;
}

bool go_together(const Call& one, const Call& other) {
  if (family(one.type) != family(other.type) || one.subject.root != other.subject.root ||
      (one.type == c10d::OpType::COALESCED && std::strcmp(one.name, other.name) != 0)) {
    return false;
  }
  if (reduces(one) && one.subject.dtype != other.subject.dtype) {
    return false;
  }
  const auto bytes = [](const Subject& subject) {
    return subject.elements * static_cast<int64_t>(c10::elementSize(subject.dtype));
  };
  return bytes(one.subject) == bytes(other.subject);
}

}  // namespace

/// Written by its rank alone, with no place meanwhile.
struct Announcements::Slot {
  std::atomic<uint64_t> place;
  std::atomic<int64_t> elements;
  std::atomic<uint32_t> kind;  // type of the call and of its elements
  std::atomic<int32_t> root;
  std::array<std::atomic<uint64_t>, std::tuple_size_v<Name>> name;
};

/// Written by its rank alone but for the number of questions.
struct Announcements::Answer {
  std::atomic<uint64_t> asked;
  std::atomic<uint64_t> answered;
  std::array<std::atomic<char>, 256> text;
};

struct Announcements::Rank {
  std::array<Slot, kKept> slots;
  Answer answer;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free, "other processes know no lock of ours");

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
  return static_cast<size_t>(size) * sizeof(Rank);
}

Announcements::Rank& Announcements::of(int rank) const {
  return static_cast<Rank*>(memory_)[rank];
}

Announcements::Slot& Announcements::slot(int rank, uint64_t place) const {
  return of(rank).slots[place % kKept];
}

void Announcements::announce(const Call& call) {
  if (!memory_) {
    return;
  }
  Slot& mine = slot(rank_, call.place);
  mine.place.store(0);
  mine.elements.store(call.subject.elements);
  mine.kind.store(
      static_cast<uint32_t>(call.type) << 16 | static_cast<uint32_t>(call.subject.dtype));
  mine.root.store(call.subject.root);
  const Name name = packed(call.name);
  for (size_t i = 0; i < name.size(); ++i) {
    mine.name[i].store(name[i]);
  }
  mine.place.store(call.place);  // in one order with what others read: one of two sees the other
}

std::map<int, std::string> Announcements::differing(const Call& call) const {
  std::map<int, std::string> found;
  if (!memory_ || call.place == 0) {
    return found;
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
    if (theirs.place.load() == call.place && !go_together(call, other)) {
      found[rank] = described(other);
    }
  }
  return found;
}

uint64_t Announcements::ask(int rank) const {
  return ++of(rank).answer.asked;
}

std::string Announcements::answered(int rank, uint64_t question) const {
  const Answer& theirs = of(rank).answer;
  std::string text;
  if (theirs.answered.load() >= question) {
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

bool Announcements::is_asked() const {
  const Answer& mine = of(rank_).answer;
  return mine.asked.load() != mine.answered.load();
}

void Announcements::answer(const std::string& text) {
  Answer& mine = of(rank_).answer;
  const uint64_t question = mine.asked.load();
  // The end of a long path tells more than its beginning.
  const size_t begin = text.size() < mine.text.size() ? 0 : text.size() - mine.text.size() + 1;
  for (size_t i = begin; i <= text.size(); ++i) {
    mine.text[i - begin].store(text.c_str()[i]);
  }
  mine.answered.store(question);
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

}  // namespace hpu::collectives
