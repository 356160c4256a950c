#include "calls/host_kernel.h"

#include "threads/locks.h"

#include <mutex>
#include <unordered_map>

namespace hpu {
namespace {

auto* kernels = new std::unordered_map<const c10::FunctionSchema*, c10::OperatorHandle>;

c10::OperatorHandle find(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  const std::string base = name.name.substr(name.name.find("::"));
  return c10::Dispatcher::singleton()
      .findSchema({kHostKernels + base, name.overload_name})
      .value_or(op);
}

}  // namespace

const c10::OperatorHandle& host_kernel(const c10::OperatorHandle& op) {
  const std::lock_guard lock(locks::operators);
  const auto known = kernels->find(&op.schema());
  return known != kernels->end() ? known->second
                                 : kernels->emplace(&op.schema(), find(op)).first->second;
}

}  // namespace hpu
