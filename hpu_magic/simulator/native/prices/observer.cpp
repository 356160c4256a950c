#include "prices/observer.h"

#include "calls/policy.h"
#include "calls/tensors_of.h"
#include "memory/memory.h"
#include "prices/signature.h"
#include "threads/locks.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace hpu::prices {
namespace {

using Arguments = c10::ArrayRef<const c10::IValue>;

/// The properties of an operator that are needed each time it runs.
struct Traits {
  c10::OperatorName name{"", ""};
  size_t results = 0;
  bool counted = false;
  bool is_collective = false;
  bool is_exchange = false;  // whether the price of a collective includes the operator
  bool mutates = false;
  bool uses_floats = false;
  bool is_clone = false;
  bool is_cast = false;  // whether autocast may cast the operands, and then calls the operator again
};

bool starts_with(const std::string& name, const char* prefix) {
  return name.rfind(prefix, 0) == 0;
}

/// Returns whether PyTorch replaces the operator with other operators before it reaches a backend.
bool is_decomposed(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::HPU);
}

bool is_view(const c10::FunctionSchema& schema) {
  return std::any_of(
      schema.returns().begin(), schema.returns().end(), [](const c10::Argument& declared) {
        return declared.alias_info() && !declared.alias_info()->isWrite();
      });
}

Traits traits_of(const c10::OperatorName& name) {
  Traits traits;
  const auto op = c10::Dispatcher::singleton().findSchema(name);
  if (!op) {
    return traits;
  }
  const auto& schema = op->schema();
  traits.name = name;
  traits.results = schema.returns().size();
  traits.mutates = schema.is_mutable();
  traits.uses_floats = name.name == "aten::pow" || name.name == "aten::pow_";
  traits.is_clone = name.name == "aten::clone";
  traits.is_collective =
      starts_with(name.name, "c10d::") || starts_with(name.name, "_c10d_functional::");
  traits.is_exchange = starts_with(name.name, "fsdp::");
  traits.is_cast = op->hasKernelForDispatchKey(c10::DispatchKey::AutocastHPU);
  traits.counted = !is_view(schema) && !is_decomposed(*op) &&
      name.name != "aten::_local_scalar_dense" && !starts_with(name.name, "prim::");
  return traits;
}

const Traits& traits_of(const at::RecordFunction& function) {
  static const Traits none;
  // The name of a schema has the same address for as long as the operator is registered.
  thread_local std::unordered_map<const char*, Traits> known;
  const auto found = known.find(function.name());
  if (found != known.end()) {
    return found->second;
  }
  const auto name = function.operator_name();
  return name ? known.emplace(function.name(), traits_of(*name)).first->second : none;
}

int64_t covered(const at::Tensor& tensor) {
  const auto in_all = static_cast<int64_t>(tensor.storage().nbytes() / tensor.dtype().itemsize());
  return std::min(tensor.numel(), in_all);
}

WeakTensor base_of(const at::Tensor& tensor) {
  return WeakTensor((tensor.is_view() ? tensor._base() : tensor).getIntrusivePtr());
}

Operand operand_of(const at::Tensor& tensor) {
  return {
      tensor.storage().getWeakStorageImpl(), tensor.sizes().vec(), tensor.scalar_type(),
      covered(tensor), static_cast<int64_t>(tensor.storage().nbytes()), base_of(tensor)};
}

c10::IValue without_tensors(const c10::IValue& value) {
  const bool has_tensors =
      value.isTensor() || value.isTensorList() || value.isOptionalTensorList();
  return has_tensors ? c10::IValue() : value;
}

/// A call that must be described, because its price is unknown or it is part of a graph.
struct Draft {
  Operation operation;
  c10::SmallVector<const at::TensorImpl*, 4> written{};

  void read(Arguments arguments) {
    const auto& declared = operation.op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
        read(tensor, i < declared.size() && is_written(declared[i]));
      });
      operation.arguments.push_back(without_tensors(arguments[i]));
    }
  }

  void finish(const std::vector<c10::IValue>& results, bool mutates) {
    std::vector<Operand> made;
    for (const c10::IValue& result : results) {
      for_each_tensor(result, [&](const at::Tensor& tensor) {
        const bool is_argument = std::find(written.begin(), written.end(),
                                           tensor.unsafeGetTensorImpl()) != written.end();
        if (tensor.defined() && is_on_card(tensor) && !is_argument) {
          made.push_back(operand_of(tensor));
        } else if (tensor.defined() && is_on_host(tensor) && !is_argument) {
          operation.host_bytes += static_cast<int64_t>(tensor.nbytes());
        }
      });
    }
    operation.is_view = !mutates && !made.empty() &&
        std::all_of(made.begin(), made.end(), [this](const Operand& operand) {
                          return reads(operand);
                        });
    operation.writes.insert(operation.writes.begin(), made.begin(), made.end());
  }

  /// Replaces an operator that falls back to the CPU with the copies of its operands and results.
  void describe_copies() {
    static const auto copy = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
    operation.op = copy;
    operation.host_bytes = 0;
    for (const auto& operands : {operation.reads, operation.writes}) {
      for (const Operand& operand : operands) {
        operation.host_bytes +=
            operand.elements * static_cast<int64_t>(c10::elementSize(operand.dtype));
      }
    }
    operation.writes.clear();
    operation.arguments.clear();
    operation.is_view = false;
  }

 private:
  void read(const at::Tensor& tensor, bool is_written) {
    if (!tensor.defined()) {
      return;
    }
    if (is_written) {
      written.push_back(tensor.unsafeGetTensorImpl());
    }
    if (is_on_card(tensor)) {
      operation.reads.push_back(operand_of(tensor));
      if (is_written) {
        operation.writes.push_back(operation.reads.back());
      }
    } else if (is_on_host(tensor)) {
      operation.host_bytes += static_cast<int64_t>(tensor.nbytes());
    }
  }

  bool reads(const Operand& operand) const {
    return std::any_of(
        operation.reads.begin(), operation.reads.end(), [&operand](const Operand& read) {
          return read.storage._unsafe_get_target() == operand.storage._unsafe_get_target();
        });
  }
};

thread_local bool inside = false;  // whether this thread is inside an observed operator
thread_local bool inside_write = false;  // whether that operator writes to an argument
thread_local Sequence* of_thread = nullptr;
std::atomic<bool> collects_all{false};
auto* of_process = new Sequence;  // guarded by locks::clock

struct Call : at::ObserverContext {
  explicit Call(const Traits& called) : traits(&called) {
    clock::enter();
    inside_write = called.mutates;
  }
  ~Call() override {
    clock::leave();
    inside = was_inside;
    inside_write = was_inside_write;
  }

  const Traits* traits;
  uint64_t signature = 0;
  uint64_t fallbacks = policy::fallbacks_of_thread();  // at the beginning
  bool collected = false;
  bool was_inside = std::exchange(inside, true);
  bool was_inside_write = inside_write;
  std::unique_ptr<Draft> draft{};
};

/// Returns whether autograd, and not the operator's kernel, calls an operator inside another one.
bool is_above_kernel() {
  return !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradHPU);
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  // Autograd copies an operand that an operator overwrites, if the backward pass needs it.
  if (inside && !(inside_write && is_above_kernel() && traits_of(function).is_clone)) {
    return nullptr;
  }
  const Traits& traits = traits_of(function);
  if (traits.is_exchange) {
    return std::make_unique<Call>(traits);
  }
  if (!traits.counted || (traits.is_cast && at::autocast::is_autocast_enabled(kDevice))) {
    return nullptr;
  }
  Signer signer(reinterpret_cast<uintptr_t>(function.name()), traits.uses_floats);
  for (const c10::IValue& argument : function.inputs()) {
    signer.add(argument);
  }
  if (signer.has_wrappers() || (!signer.reads_card() && !signer.names_card())) {
    return nullptr;
  }
  if (traits.is_collective) {
    return nullptr;  // the backend launches it on the clock
  }
  auto call = std::make_unique<Call>(traits);
  call->signature = signer.hash();
  call->collected = of_thread || collects_all.load(std::memory_order_relaxed);
  // An operator without operands on the card may return tensors of PyTorch's tracing.
  if (call->collected || !signer.reads_card() || signer.uses_host() ||
      !clock::knows(call->signature)) {
    call->draft = std::make_unique<Draft>(
        Draft{{c10::Dispatcher::singleton().findSchemaOrThrow(
            traits.name.name.c_str(), traits.name.overload_name.c_str())}});
    call->draft->read(function.inputs());
  }
  return call;
}

void finish(Call& call, const std::vector<c10::IValue>& results, bool fell_back) {
  Draft& draft = *call.draft;
  draft.finish(results, call.traits->mutates);
  Operation& operation = draft.operation;
  if (operation.writes.empty() && operation.reads.empty()) {
    return;
  }
  if (fell_back) {
    draft.describe_copies();
  }
  const bool copies_to_host = operation.host_bytes > 0 && operation.writes.empty();
  const bool in_compiled_code = fell_back && of_thread;
  if (call.collected && (!copies_to_host || in_compiled_code)) {
    if (of_thread) {
      of_thread->add(call.signature, std::move(operation));
    } else {
      const std::lock_guard lock(locks::clock);
      of_process->add(call.signature, std::move(operation));
    }
    return;
  }
  if (!clock::launch(call.signature)) {
    Sequence single;
    single.add(call.signature, std::move(operation));
    single.launch_operator(call.signature);
  }
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (!context) {
    return;
  }
  Call& call = *static_cast<Call*>(context);
  if (call.traits->is_exchange) {
    return;
  }
  const bool failed = function.outputs().size() < call.traits->results;
  const bool fell_back = policy::fallbacks_of_thread() != call.fallbacks;
  const clock::FallbackLabel label(fell_back);
  // An operator that fails takes no time.
  if (!failed && call.draft) {
    finish(call, function.outputs(), fell_back);
  } else if (!failed && !clock::launch(call.signature)) {
    clock::count_unpriced(c10::toString(call.traits->name));
  }
}

std::optional<at::CallbackHandle> handle;

/// Returns whether nothing else observes the operators of this thread, such as a profiler.
bool is_only_observer() {
  const auto observers = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  return observers && observers->callbacks_.size() == 1 &&
      observers->callbacks_.front().start_ == &begin;
}

}  // namespace

void observe(bool on) {
  if (on && !handle) {
    handle = at::addGlobalCallback(at::RecordFunctionCallback(&begin, &end)
                                       .needsInputs(true)
                                       .needsOutputs(true)
                                       .scopes({at::RecordScope::FUNCTION}));
  } else if (!on && handle) {
    at::removeCallback(*handle);
    handle.reset();
  }
}

Unobserved::Unobserved() : before_(std::exchange(inside, true)), timed_(clock::on()) {
  if (timed_) {
    clock::exclude();
    if (is_only_observer()) {
      unseen_.emplace(false);
    }
  }
}

Unobserved::~Unobserved() {
  inside = before_;
  if (timed_) {
    clock::include();
  }
}

void collect_all() {
  collects_all.store(true);
}

Sequence take_collected() {
  const std::lock_guard lock(locks::clock);
  return std::exchange(*of_process, {});
}

Collected::Collected(std::optional<uint64_t> run)
    : outer_(of_thread),
      run_(run),
      uses_(clock::uses_by_thread()),
      active_(clock::on() && !inside && !collects_all.load(std::memory_order_relaxed) && !of_thread) {
  if (!active_) {
    return;
  }
  if (run_ && clock::knows(*run_)) {
    known_.emplace();
  } else {
    clock::exclude();
    of_thread = &sequence_;
  }
}

Collected::~Collected() {
  end();
}

void Collected::end() {
  if (active_ && !known_) {
    of_thread = outer_;
    clock::include();
  }
  known_.reset();
  active_ = false;
}

void Collected::launch() {
  const bool known = known_.has_value();
  const bool active = active_;
  end();
  if (known && clock::launch(*run_)) {
    return;
  }
  if (active && !sequence_.empty()) {
    const bool alone = clock::uses_by_thread() == uses_;
    const uint64_t graph = sequence_.launch_graph([] { return Handles(); });
    if (run_ && alone) {
      clock::learn_as(graph, *run_);
    }
  }
}

}  // namespace hpu::prices
