#include "clock/clock.h"

#include "threads/locks.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace hpu::clock {

std::atomic<bool> running{false};

namespace {

using Host = std::chrono::steady_clock;

// If this many prices are known, all of them are deleted, and later work requests them again.
constexpr size_t kMostPrices = 1 << 18;

struct Entry {
  std::string name;
  Price price;
  bool priced;
};

std::unordered_map<uint64_t, Entry> prices;
Reading now;
std::vector<Record> records;
size_t most_records = 0;
std::atomic<bool> measures_host{false};
std::atomic<uint32_t> label{0};
double between_operators = 0;  // measured time on the host that is not yet on its clock
Host::time_point left;
double links_end = 0;  // when the launched collectives end
uint64_t run = 0;  // the number of starts
size_t entered = 0;  // how often `exclude` was called without `include`, in all threads

thread_local int operators = 0;  // how many nested operators this thread is running
thread_local bool waits_at_end = false;
thread_local uint64_t uses = 0;
thread_local uint32_t fallback_bit = 0;

/// Measures the time since the host's clock was last resumed, unless it is paused.
void measure() {
  if (on() && measures_host.load(std::memory_order_relaxed) && entered == 0) {
    const auto moment = Host::now();
    between_operators += std::chrono::duration<double>(moment - left).count();
    left = moment;
  }
}

/// Adds the measured time to the host's clock, and returns it.
double advance_host() {
  measure();
  const double measured = std::exchange(between_operators, 0.0);
  now.host += measured;
  return measured;
}

/// Adds up the times of a graph's operators by label.
std::vector<Share> shares_of(const Price& price, const std::vector<uint32_t>& labels) {
  std::vector<Share> shares;
  if (!price.operators) {
    return shares;
  }
  const std::vector<Parts>& operators = *price.operators;
  const bool labeled = labels.size() == operators.size();
  std::unordered_map<uint64_t, size_t> places;
  for (size_t i = 0; i < operators.size(); ++i) {
    const uint32_t own = labeled ? labels[i] : current_label();
    const bool copies = operators[i][kLinks] > 0;
    const auto [place, fresh] =
        places.try_emplace(uint64_t{own} << 1 | uint64_t{copies}, shares.size());
    if (fresh) {
      shares.push_back({own, {}});
    }
    for (size_t part = 0; part < kParts.size(); ++part) {
      shares[place->second].seconds[part] += operators[i][part];
    }
  }
  return shares;
}

void record(
    const std::string& name, double begin, const Price& price,
    const std::vector<uint32_t>& labels = {}) {
  if (records.size() < most_records) {
    records.push_back(
        {name, now.host, begin, price, current_label(), shares_of(price, labels)});
  } else if (most_records > 0) {
    ++now.lost;
  }
}

void add(const Entry& entry, const std::vector<uint32_t>& labels) {
  if (!entry.priced) {
    ++now.unpriced[entry.name];
    return;
  }
  const Price& price = entry.price;
  const double measured = advance_host();
  const double begin = std::max(now.card, now.host);
  record(entry.name, begin, price, labels);
  now.idle += begin - now.card;
  now.card = begin + price.card;
  now.host += std::max(price.host - measured, 0.0);  // the measured time includes the launch
  for (size_t i = 0; i < kParts.size(); ++i) {
    now.busy[i] += price.parts[i];
  }
  ++now.launches;
}

void wait_until_locked(double seconds) {
  if (now.host < seconds) {
    now.host = seconds;
    ++now.waits;
  }
}

void store(uint64_t signature, Entry entry) {
  const std::lock_guard lock(locks::clock);
  if (prices.size() >= kMostPrices) {
    prices.clear();
  }
  now.compilation += entry.price.compilation;
  if (most_records == 0) {
    entry.price.operators.reset();
  }
  prices.insert_or_assign(signature, std::move(entry));
}

}  // namespace

void start(bool host_is_measured, size_t most) {
  const std::lock_guard lock(locks::clock);
  now = {};
  records.clear();
  most_records = most;
  measures_host.store(host_is_measured);
  between_operators = 0;
  entered = 0;
  links_end = 0;
  left = Host::now();
  ++run;
  running.store(true);
}

void stop() {
  const std::lock_guard lock(locks::clock);
  advance_host();
  running.store(false);
}

size_t keep_records(size_t most) {
  const std::lock_guard lock(locks::clock);
  return std::exchange(most_records, most);
}

void set_label(uint32_t next) {
  label.store(next, std::memory_order_relaxed);
}

uint32_t current_label() {
  return label.load(std::memory_order_relaxed) | fallback_bit;
}

FallbackLabel::FallbackLabel(bool fell_back) {
  fallback_bit = fell_back ? kFallback : 0;
}

FallbackLabel::~FallbackLabel() {
  fallback_bit = 0;
}

bool launch(uint64_t signature, const std::vector<uint32_t>& labels) {
  ++uses;
  const std::lock_guard lock(locks::clock);
  const auto found = prices.find(signature);
  if (found == prices.end()) {
    return false;
  }
  add(found->second, labels);
  return true;
}

bool knows(uint64_t signature) {
  const std::lock_guard lock(locks::clock);
  return prices.count(signature) > 0;
}

void learn(uint64_t signature, const std::string& name, const Price& price) {
  store(signature, {name, price, true});
}

void learn_unpriced(uint64_t signature, const std::string& name) {
  store(signature, {name, {}, false});
}

void learn_as(uint64_t signature, uint64_t other) {
  const std::lock_guard lock(locks::clock);
  const auto found = prices.find(signature);
  if (found != prices.end()) {
    Entry entry = found->second;
    prices.insert_or_assign(other, std::move(entry));
  }
}

void count_unpriced(const std::string& name) {
  ++uses;
  if (on()) {
    const std::lock_guard lock(locks::clock);
    ++now.unpriced[name];
  }
}

void forget_prices() {
  const std::lock_guard lock(locks::clock);
  prices.clear();
}

Transfer transfer(const std::string& name, const LinkPrice& price, bool waits_for_links) {
  ++uses;
  const std::lock_guard lock(locks::clock);
  advance_host();
  const double launched = std::max(now.card, now.host);
  const double ready = waits_for_links ? std::max(launched, links_end) : launched;
  const double seconds = price.card < 0 ? price.links : price.card;
  Price whole{seconds};
  whole.parts[kLinks] = price.links;
  record(name, ready, whole);
  now.busy[kLinks] += price.links;
  if (price.card >= 0) {
    now.idle += launched - now.card;
    now.card = ready + seconds;
  }
  if (waits_for_links) {
    links_end = ready + seconds;
  }
  return {ready, seconds};
}

void occupy_links(double until) {
  const std::lock_guard lock(locks::clock);
  links_end = std::max(links_end, until);
}

void join(double end) {
  const std::lock_guard lock(locks::clock);
  now.card = std::max(now.card, end);
}

void join_links() {
  const std::lock_guard lock(locks::clock);
  now.card = std::max(now.card, links_end);
}

void wait() {
  ++uses;
  if (!on()) {
    return;
  }
  if (operators > 0) {
    waits_at_end = true;
    return;
  }
  const std::lock_guard lock(locks::clock);
  advance_host();
  wait_until_locked(now.card);
}

void wait_until(const Moment& moment) {
  ++uses;
  const std::lock_guard lock(locks::clock);
  if (!on() || moment.run != run) {
    return;
  }
  advance_host();
  wait_until_locked(moment.seconds);
}

Moment end_of_work() {
  const std::lock_guard lock(locks::clock);
  if (!on()) {
    return {};
  }
  advance_host();
  return {run, std::max(now.card, now.host)};
}

void enter() {
  ++operators;
  exclude();
}

void leave() {
  if (--operators == 0 && std::exchange(waits_at_end, false)) {
    wait();
  }
  include();
}

void exclude() {
  if (!measures_host.load(std::memory_order_relaxed)) {
    return;
  }
  const std::lock_guard lock(locks::clock);
  measure();
  ++entered;
}

void include() {
  if (!measures_host.load(std::memory_order_relaxed)) {
    return;
  }
  const std::lock_guard lock(locks::clock);
  left = Host::now();
  entered -= std::min<size_t>(entered, 1);  // 0 if the clock started in the meantime
}

uint64_t uses_by_thread() {
  return uses;
}

Reading read() {
  const std::lock_guard lock(locks::clock);
  advance_host();
  return now;
}

std::vector<Record> take_records() {
  const std::lock_guard lock(locks::clock);
  return std::exchange(records, {});
}

}  // namespace hpu::clock
