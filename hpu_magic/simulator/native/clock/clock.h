// The time that recorded work would take on a card. There are two clocks: the host launches work
// and advances its own clock, and the card runs the work in order and advances the other one.
//
// The code in this folder only adds up times. Prices come from a source outside the simulator.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace hpu::clock {

/// The parts of a card that work in parallel, and the time to launch work.
constexpr std::array<const char*, 5> kParts{"matrix", "vector", "memory", "links", "launch"};
constexpr size_t kLinks = 3;
using Parts = std::array<double, kParts.size()>;

/// The times that an operator or a graph takes, in seconds.
struct Price {
  double card = 0;  // how long the card is occupied
  double host = 0;  // how long the host needs to launch the work
  double compilation = 0;
  Parts parts{};
  // The time that each operator of a graph adds to `card`, by the part of the card that limits the
  // operator. Null for a single operator, or if no records were kept when the price was stored.
  std::shared_ptr<const std::vector<Parts>> operators{};
};

/// The times that a collective takes, in seconds.
struct LinkPrice {
  double links = 0;  // how long the links need
  double card = -1;  // how long the card waits for them; negative if it waits until `join`
};

/// A collective that was launched. The collective ends `seconds` after its last rank is ready.
struct Transfer {
  double ready = 0;  // when this rank can take part, on the card's clock
  double seconds = 0;
};

/// The time of a graph's operators that have the same label. Copies from the host have their own
/// entry.
struct Share {
  uint32_t label;
  Parts seconds{};
};

/// Work that was launched while records were kept. Times are in seconds since the start.
struct Record {
  std::string name;
  double launched;  // on the host's clock
  double start;     // on the card's clock
  Price price;
  uint32_t label;             // at the launch, with `kFallback`
  std::vector<Share> shares;  // in the order of their first operators; empty for a single operator
};

/// The state of the clocks, in seconds since the start.
struct Reading {
  double host = 0;
  double card = 0;
  double idle = 0;         // how long the card waited for the host
  double compilation = 0;  // not included in the other times
  Parts busy{};
  uint64_t launches = 0;
  uint64_t waits = 0;  // how often the host waited for the card
  uint64_t lost = 0;   // records that were dropped because there were too many
  std::map<std::string, uint64_t> unpriced;  // how often work without a price ran
};

/// A point in time on the card's clock, which is set to zero at each start.
struct Moment {
  uint64_t run = 0;  // the number of the start; 0 if the clock was off
  double seconds = 0;
};

extern std::atomic<bool> running;

inline bool on() {
  return running.load(std::memory_order_relaxed);
}

/// Sets both clocks to zero and starts them. If `measures_host` is true, the host's clock also
/// contains the time between operators in this process, such as the time to load data.
void start(bool measures_host, size_t most_records);
void stop();
/// Changes the number of records that are kept, and returns the previous number.
size_t keep_records(size_t most);

/// Sets the label of the work that all threads launch or record from now on.
void set_label(uint32_t label);

/// The bit of a label that marks the copies of a CPU fallback.
constexpr uint32_t kFallback = uint32_t{1} << 31;

/// Returns the label of the work that this thread launches or records.
uint32_t current_label();

/// While an instance exists, the labels of this thread's work contain `kFallback`, if `fell_back`.
class FallbackLabel {
 public:
  explicit FallbackLabel(bool fell_back);
  ~FallbackLabel();
  FallbackLabel(const FallbackLabel&) = delete;
  FallbackLabel& operator=(const FallbackLabel&) = delete;
};

/// Launches the work with this signature. Returns false if its price has not been stored. `labels`
/// contains the label of each operator of a graph; if it is empty, all have the current label.
bool launch(uint64_t signature, const std::vector<uint32_t>& labels = {});
bool knows(uint64_t signature);
/// Stores the price of a signature until `forget_prices` is called.
void learn(uint64_t signature, const std::string& name, const Price& price);
/// Records that the work with this signature has no price. Such work is counted, but takes no time.
void learn_unpriced(uint64_t signature, const std::string& name);
/// Stores the price of `signature` for `other`, too. Does nothing if the price is unknown.
void learn_as(uint64_t signature, uint64_t other);
/// Counts a run of work that has neither a signature nor a price.
void count_unpriced(const std::string& name);
void forget_prices();

/// Launches a collective. If `waits_for_links` is true, the collective starts when earlier ones
/// have ended. Messages between two cards do not wait for earlier collectives.
Transfer transfer(const std::string& name, const LinkPrice& price, bool waits_for_links);
/// Makes later collectives wait until a collective has ended.
void occupy_links(double until);
/// Makes later work on the card wait until a collective has ended.
void join(double end);
/// Makes later work on the card wait for all collectives.
void join_links();

/// Makes the host wait until the card has finished all launched work. Operators are launched when
/// they end, so a wait inside an operator takes effect when the operator ends.
void wait();
/// Makes the host wait until this point in time, unless the clock has been restarted since then.
void wait_until(const Moment& moment);
/// Returns the moment at which the launched work ends.
Moment end_of_work();

/// Called when an operator begins and ends on this thread.
void enter();
void leave();

/// Pauses and resumes the host's clock, because the time that the simulation itself takes does not
/// count. Calls can be nested.
void exclude();
void include();

/// Returns a number that increases whenever this thread launches work or makes the host wait.
uint64_t uses_by_thread();

Reading read();
/// Returns the records and removes them.
std::vector<Record> take_records();

}  // namespace hpu::clock
