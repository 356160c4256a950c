#include "calls/policy.h"

#include "events/events.h"
#include "threads/locks.h"

#include <mutex>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

namespace hpu::policy {
namespace {

std::unordered_set<std::string> with_kernel;
std::unordered_set<std::string> allowed;
thread_local uint64_t fallbacks = 0;
bool forbidden = false;
std::unordered_map<const c10::FunctionSchema*, bool> known;

std::string short_name(const c10::OperatorName& name) {
  const std::string base = name.name.substr(name.name.find("::") + 2);
  return name.overload_name.empty() ? base : base + "." + name.overload_name;
}

/// View operators never fall back to the CPU, because they only change metadata.
bool is_view(const c10::FunctionSchema& schema) {
  for (const auto& declared : schema.returns()) {
    if (declared.alias_info() && !declared.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

}  // namespace

void set(const std::vector<std::string>& operators, const std::string& place_on_cpu) {
  with_kernel = {operators.begin(), operators.end()};
  std::istringstream names(place_on_cpu);
  for (std::string name; std::getline(names, name, ',');) {
    forbidden = forbidden || name == "none";
    allowed.insert(name);
  }
}

bool falls_back(const c10::OperatorHandle& op) {
  if (with_kernel.empty()) {
    return false;
  }
  const std::lock_guard lock(locks::operators);
  const auto [entry, fresh] = known.try_emplace(&op.schema(), false);
  if (fresh) {
    entry->second = op.operator_name().name.rfind("aten::", 0) == 0 &&
        !is_view(op.schema()) && with_kernel.count(short_name(op.operator_name())) == 0;
  }
  return entry->second;
}

void check_fallback(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  const std::string base = op.operator_name().name.substr(op.operator_name().name.find("::") + 2);
  TORCH_CHECK(
      !forbidden && (allowed.empty() || allowed.count(base) || allowed.count(name)), name,
      " is not yet supported on HPU.");
  events::emit(events::Kind::cpu_fallback, name);
  ++fallbacks;
}

uint64_t fallbacks_of_thread() {
  return fallbacks;
}

}  // namespace hpu::policy
