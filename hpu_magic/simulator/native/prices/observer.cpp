#include "prices/observer.h"

#include "calls/policy.h"
#include "calls/tensors_of.h"
#include "memory/memory.h"
#include "threads/locks.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
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
  bool mutates = false;
  bool uses_floats = false;
  bool is_clone = false;
  bool is_cast = false;  // whether autocast may cast the operands, and then calls the operator again
};

bool starts_with(const std::string& name, const char* prefix) {
  return name.rfind(prefix, 0) == 0;
}

/// Returns whether PyTorch replaces the operator with other operators above all backends.
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

/// Returns whether the operator runs on the host. Operators that PyTorch implements with other
/// operators are not in the list of the device's operators.
bool runs_on_host(const c10::OperatorHandle& op) {
  return policy::falls_back(op) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::HPU);
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
  traits.is_cast = op->hasKernelForDispatchKey(c10::DispatchKey::AutocastHPU);
  traits.counted = !is_view(schema) && !is_decomposed(*op) && !runs_on_host(*op) &&
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

/// Returns whether a tensor belongs to a trace or a transform. The operators on such a tensor call
/// other operators, which are observed instead. A trace may record that its size was read, so the
/// size must not be read.
bool is_wrapper(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers{
      c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
      c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper};
  return tensor.key_set().has_any(kWrappers);
}

bool is_on_card(const at::Tensor& tensor) {
  return !is_wrapper(tensor) && on_device(tensor) &&
      tensor.key_set().has(c10::DispatchKey::HPU) && tensor.has_storage();
}

bool is_on_host(const at::Tensor& tensor) {
  return !is_wrapper(tensor) && tensor.is_cpu() && tensor.dim() > 0;
}

int64_t covered(const at::Tensor& tensor) {
  const auto in_all = static_cast<int64_t>(tensor.storage().nbytes() / tensor.dtype().itemsize());
  return std::min(tensor.numel(), in_all);
}

/// Computes the signature of a call.
class Signer {
 public:
  Signer(const Traits& traits, const char* name)
      : uses_floats_(traits.uses_floats), hash_(reinterpret_cast<uintptr_t>(name)) {}

  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      add(value.toTensor());
    } else if (value.isInt()) {
      mix(static_cast<uint64_t>(value.toInt()));
    } else if (value.isBool()) {
      mix(value.toBool() ? 3 : 5);
    } else if (value.isNone()) {
      mix(7);
    } else if (value.isDouble()) {
      mix(uses_floats_ ? std::hash<double>()(value.toDouble()) : 11);
    } else if (value.isDevice()) {
      names_card_ = names_card_ || value.toDevice().type() == kDevice;
      uses_host_ = uses_host_ || value.toDevice().is_cpu();
    } else if (value.isList()) {
      mix(value.toListRef().size());
      for (const c10::IValue& item : value.toListRef()) {
        add(item);
      }
    }
  }

  uint64_t hash() const {
    return hash_;
  }
  bool reads_card() const {
    return !storages_.empty();
  }
  bool has_wrappers() const {
    return has_wrappers_;
  }
  bool names_card() const {
    return names_card_;
  }
  bool uses_host() const {
    return uses_host_;
  }

 private:
  void mix(uint64_t word) {
    hash_ = mixed(hash_, word);
  }

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      mix(13);
      return;
    }
    if (is_wrapper(tensor)) {
      has_wrappers_ = true;
      return;
    }
    const bool on_card = is_on_card(tensor);
    uses_host_ = uses_host_ || is_on_host(tensor);
    mix(static_cast<uint64_t>(tensor.scalar_type()) << 8 | static_cast<uint64_t>(tensor.dim()));
    for (const int64_t size : tensor.sizes()) {
      mix(static_cast<uint64_t>(size));
    }
    if (on_card) {
      const auto* storage = tensor.storage().unsafeGetStorageImpl();
      const auto* const found = std::find(storages_.begin(), storages_.end(), storage);
      mix(static_cast<uint64_t>(found - storages_.begin()));  // shared storages have one number
      mix(storage->nbytes());
      if (found == storages_.end()) {
        storages_.push_back(storage);
      }
    }
  }

  const bool uses_floats_;
  bool has_wrappers_ = false;
  bool names_card_ = false;
  bool uses_host_ = false;
  uint64_t hash_;
  c10::SmallVector<const c10::StorageImpl*, 8> storages_;
};

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

/// A call whose description is needed: its price is unknown, or it is part of a graph.
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
  if (!traits.counted || (traits.is_cast && at::autocast::is_autocast_enabled(kDevice))) {
    return nullptr;
  }
  Signer signer(traits, function.name());
  for (const c10::IValue& argument : function.inputs()) {
    signer.add(argument);
  }
  if (signer.has_wrappers() || (!signer.reads_card() && !signer.names_card())) {
    return nullptr;
  }
  if (traits.is_collective) {
    clock::count_unpriced(traits.name.name);
    return nullptr;
  }
  auto call = std::make_unique<Call>(traits);
  call->signature = signer.hash();
  call->collected = of_thread || collects_all.load(std::memory_order_relaxed);
  // The results of an operator without operands on the card may be tensors of a trace.
  if (call->collected || !signer.reads_card() || signer.uses_host() ||
      !clock::knows(call->signature)) {
    call->draft = std::make_unique<Draft>(
        Draft{{c10::Dispatcher::singleton().findSchemaOrThrow(
            traits.name.name.c_str(), traits.name.overload_name.c_str())}});
    call->draft->read(function.inputs());
  }
  return call;
}

void finish(Call& call, const std::vector<c10::IValue>& results) {
  Draft& draft = *call.draft;
  draft.finish(results, call.traits->mutates);
  Operation& operation = draft.operation;
  if (operation.writes.empty() && operation.reads.empty()) {
    return;
  }
  const bool copies_to_host = operation.host_bytes > 0 && operation.writes.empty();
  if (call.collected && !copies_to_host) {
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
  const bool failed = function.outputs().size() < call.traits->results;
  // An operator that fails takes no time.
  if (!failed && call.draft) {
    finish(call, function.outputs());
  } else if (!failed && !clock::launch(call.signature)) {
    clock::count_unpriced(c10::toString(call.traits->name));
  }
}

std::optional<at::CallbackHandle> handle;

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

Unobserved::Unobserved() : before_(std::exchange(inside, true)) {}

Unobserved::~Unobserved() {
  inside = before_;
}

void collect_all() {
  collects_all.store(true);
}

Sequence take_collected() {
  const std::lock_guard lock(locks::clock);
  return std::exchange(*of_process, {});
}

Collected::Collected()
    : outer_(of_thread),
      active_(clock::on() && !collects_all.load(std::memory_order_relaxed) && !of_thread) {
  if (active_) {
    of_thread = &sequence_;
  }
}

Collected::~Collected() {
  if (active_) {
    of_thread = outer_;
  }
}

void Collected::launch() {
  if (!active_) {
    return;
  }
  of_thread = outer_;
  active_ = false;
  if (!sequence_.empty()) {
    sequence_.launch_graph([] { return Handles(); });
  }
}

}  // namespace hpu::prices
