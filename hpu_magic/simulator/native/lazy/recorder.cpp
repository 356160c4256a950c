#include "lazy/recorder.h"

#include "calls/generator.h"
#include "calls/policy.h"
#include "calls/tensors_of.h"
#include "events/events.h"
#include "lazy/dry_call.h"
#include "lazy/inference.h"
#include "lazy/recipe_cache.h"
#include "lazy/unfinished_work.h"
#include "memory/card.h"
#include "memory/memory.h"
#include "prices/observer.h"
#include "prices/source.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <sstream>
#include <unordered_map>

namespace hpu {

using torch::jit::Stack;

namespace recorder {
namespace {

std::atomic<bool> lazy{false};
size_t limit = SIZE_MAX;
bool collectives_captured = false;

RecordedGraph graph(1);
UnfinishedWork unfinished;

/// The capture of an HPU Graph; replays are implemented in graphs/. At most one capture is active
/// per process, and it includes the operations of all threads.
struct Capture {
  bool active = false;
  bool dry_run = false;  // record operations, but do not run them
  size_t number = 0;
  std::vector<Node> nodes;
  std::vector<uint64_t> signatures{};
  std::vector<CapturedCollective> collectives{};

  /// Returns whether a captured operation uses the tensor's memory.
  bool uses(const at::Tensor& tensor) const {
    for (const Node& node : nodes) {
      for (const auto& [used, written] : node.tensors()) {
        if (used.storage().is_alias_of(tensor.storage())) {
          return true;
        }
      }
    }
    return false;
  }
};

Capture capture;
auto* recipes = new RecipeCache;

RecipeCache& compiled() {
  return *recipes;
}

enum class Results { tensors, views, host_values };

/// Properties of an operator that are needed each time it is recorded.
struct Traits {
  Results results;
  bool falls_back;
};

auto* known_traits = new std::unordered_map<const c10::FunctionSchema*, Traits>;

// A forked child cannot use the card, so it does not run the operations that its parent recorded,
// and the tensors that they write raise an error. All state is leaked, because another thread may
// have been changing it, and freeing nodes would change the parent's memory counters.
void forget() {
  const uint64_t last = graph.number();
  lose_writes(
      std::min(unfinished.first_graph(), last), last,
      std::make_shared<const std::string>(
          "This tensor depends on operations that were recorded before this process was forked, and "
          "only the process that recorded them can run them. Call habana_frameworks.torch.core."
          "mark_step() before the fork, or pass CPU tensors."));
  new (&graph) RecordedGraph(last + 1);
  new (&unfinished) UnfinishedWork;
  new (&capture) Capture;
  recipes = new RecipeCache;
  known_traits = new std::unordered_map<const c10::FunctionSchema*, Traits>;
  forget_inferences();
}

const bool fork_handler = locks::reset_in_child(locks::ForkedState::recorded_work, &forget);

Results results_of(const c10::FunctionSchema& schema) {
  for (const auto& declared : schema.returns()) {
    const auto* alias = declared.alias_info();
    if (alias && !alias->isWrite()) {
      return Results::views;
    }
    const auto kind = declared.type()->kind();
    const bool tensors = kind == c10::TypeKind::TensorType ||
        (kind == c10::TypeKind::ListType &&
         declared.type()->castRaw<c10::ListType>()->getElementType()->kind() ==
             c10::TypeKind::TensorType);
    if (!tensors) {
      return Results::host_values;
    }
  }
  return Results::tensors;
}

const Traits& traits_of(const c10::OperatorHandle& op) {
  auto& known = *known_traits;
  const auto found = known.find(&op.schema());
  if (found != known.end()) {
    return found->second;
  }
  return known.emplace(&op.schema(), Traits{results_of(op.schema()), policy::falls_back(op)})
      .first->second;
}

void run_now(const c10::OperatorHandle& op, Stack* stack, Cause cause) {
  flush(cause, c10::toString(op.operator_name()));
  run_or_assume(op, stack);
}

std::string shapes_of(const std::vector<at::Tensor>& inputs) {
  std::ostringstream text;
  size_t shown = 0;
  for (const at::Tensor& input : inputs) {
    if (input.dim() == 0) {
      continue;
    }
    if (shown++ == 8) {
      text << ", ...";
      break;
    }
    text << (shown > 1 ? ", " : "") << input.sizes();
  }
  return text.str();
}

/// Counts a compilation if the graph is running for the first time, and a cache hit otherwise.
void count_recipe(const RecordedGraph& ready) {
  const int64_t spent = take_inference_time();
  const std::string recipe = "graph_" + std::to_string(ready.hash() % 0xffffff);
  if (compiled().has(ready.hash())) {
    events::emit(events::Kind::recipe_cache_hit, recipe);
    return;
  }
  events::emit(events::Kind::recipe_cache_miss, recipe);
  events::emit(
      events::Kind::graph_compilation, recipe, spent,
      events::listening() ? shapes_of(ready.inputs()) : "");
}

bool stays(const at::Tensor& tensor) {
  return !tensor.defined() || on_device(tensor);
}

at::Tensor moved(const at::Tensor& tensor, const c10::Argument& declared) {
  if (stays(tensor)) {
    return tensor;
  }
  TORCH_CHECK(
      !is_written(declared), "Got a non-HPU tensor, expecting an HPU tensor: '",
      declared.name(), "' is a ", tensor.device().type(), " tensor of shape ", tensor.sizes(),
      " and cannot store the result of HPU operations. Write to a tensor on \"hpu\", then "
      "move it.");
  return tensor.dim() == 0 ? tensor : tensor.to(device());
}

/// Copies CPU tensors in the arguments, which are at the top of the stack, to the device, like the
/// bridge. Scalars stay on the CPU. Raises an error if the call writes to a CPU tensor.
void move_operands(const c10::FunctionSchema& schema, Stack& stack) {
  const size_t first = stack.size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    bool all_stay = true;
    for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
      all_stay = all_stay && stays(tensor);
    });
    if (!all_stay) {
      map_tensors(stack[first + i], [&](const at::Tensor& tensor) {
        return moved(tensor, schema.arguments()[i]);
      });
    }
  }
}

std::vector<Node> take_nodes() {
  std::vector<Node> nodes = std::move(graph.nodes);
  graph = RecordedGraph(graph.number() + 1);
  return nodes;
}

const char* refusal(Cause cause) {
  switch (cause) {
    case Cause::fallback:
      return "cpu fallback is not supported during hpu graph capturing";
    case Cause::host_read:
      return "reading a value on the host is not supported during hpu graph capturing";
    case Cause::host_write:
      return "copying from the host into an existing tensor is not supported during hpu graph "
             "capturing: replays would not repeat the copy";
    default:
      return "an output shape that depends on data is not supported during hpu graph capturing";
  }
}

/// Ends the capture without a result. The captured operations run at the next flush, except in a
/// dry run.
void abandon_capture() {
  const Capture abandoned = std::exchange(capture, Capture{});
  if (abandoned.dry_run) {
    fail_results(abandoned.nodes, "the capture was abandoned");
    fail_results(take_nodes(), "the capture was abandoned");
  }
}

/// Returns the number of references to each storage that nodes hold.
prices::Handles handles_of(const std::vector<Node>& nodes) {
  prices::Handles handles;
  for (const Node& node : nodes) {
    for (const auto& [tensor, written] : node.tensors()) {
      ++handles[tensor.storage().unsafeGetStorageImpl()];
    }
  }
  return handles;
}

/// Adds the time of a graph that consists of these nodes to the clock.
void launch(const std::vector<Node>& nodes) {
  const prices::Sequence recorded = prices::take_collected();
  if (recorded.empty()) {
    return;
  }
  const uint64_t signature =
      recorded.launch_graph([&nodes] { return handles_of(nodes); }, !capture.dry_run);
  if (capture.active) {
    capture.signatures.push_back(signature);
  }
}

bool uses(const c10::Storage& storage) {
  return graph.uses(storage) || unfinished.uses(storage);
}

}  // namespace

void enable(size_t most_operations, bool captures_collectives) {
  limit = most_operations;
  collectives_captured = captures_collectives;
  settle_generators_by([] { flush(Cause::mark_step); });
  prices::collect_all();
  lazy.store(true);
}

bool enabled() {
  return lazy.load(std::memory_order_relaxed);
}

void record(const c10::OperatorHandle& op, Stack* stack) {
  const Lock lock;
  const auto& schema = op.schema();
  const Traits& traits = traits_of(op);
  if (traits.results == Results::views) {
    HostCall(op, stack).run_on_shapes();
    return;
  }
  move_operands(schema, *stack);
  if (traits.results == Results::host_values) {
    run_now(op, stack, Cause::host_read);
    return;
  }
  if (traits.falls_back) {
    if (!capture.active) {  // otherwise, it is refused below
      policy::check_fallback(op);
    }
    run_now(op, stack, Cause::fallback);
    return;
  }
  const size_t first = stack->size() - schema.arguments().size();
  Stack arguments(
      std::make_move_iterator(stack->begin() + static_cast<ptrdiff_t>(first)),
      std::make_move_iterator(stack->end()));
  stack->resize(first);
  const Signature signature = signature_of(op, arguments);
  static const Inference unknown;
  const Inference& inference = signature.complete ? infer(op, arguments, signature) : unknown;
  if (inference.refusal && capture.active) {
    abandon_capture();
    std::rethrow_exception(inference.refusal);
  }
  if (!inference.known) {
    stack->insert(stack->end(), arguments.begin(), arguments.end());
    run_now(op, stack, Cause::data_dependent_shape);
    return;
  }
  graph.add(op, arguments, inference, signature.hash, stack);
  if (graph.nodes.size() >= limit && !capture.active) {
    flush(Cause::mark_step);
  }
}

void flush(Cause cause, const std::string& operation) {
  const Lock lock;
  if (capture.active && cause != Cause::mark_step) {
    abandon_capture();
    TORCH_CHECK(false, refusal(cause), operation.empty() ? "" : " (" + operation + ")");
  }
  if (cause != Cause::mark_step && enabled()) {
    events::emit(events::Kind::host_synchronization, operation);
  }
  if (graph.nodes.empty() && unfinished.size() == 0) {
    if (clock::on()) {
      launch({});  // copies from the host, which have no nodes
    }
    return;
  }
  if (!graph.nodes.empty()) {
    count_recipe(graph);
  }
  const uint64_t number = graph.number();
  std::vector<Node> nodes = take_nodes();
  const prices::Unobserved unobserved;
  if (clock::on()) {
    launch(nodes);
  }
  if (capture.dry_run) {
    std::move(nodes.begin(), nodes.end(), std::back_inserter(capture.nodes));
    return;
  }
  if (cause != Cause::mark_step) {
    clock::wait();
  }
  unfinished.add(std::move(nodes), number);
  try {
    unfinished.run(capture.active ? &capture.nodes : nullptr);
  } catch (...) {
    if (capture.active) {  // a replay would not run the failed operations
      abandon_capture();
    }
    throw;
  }
}

void flush_users_of(const at::Tensor& tensor, Cause cause, const std::string& operation) {
  const Lock lock;
  if (uses(tensor.storage())) {
    flush(cause, operation);
  }
}

void flush_before_read(const at::Tensor& tensor, const std::string& operation) {
  const Lock lock;
  if (capture.active || uses(tensor.storage())) {
    flush(Cause::host_read, operation);
  } else {
    events::emit(events::Kind::host_synchronization, operation);
  }
}

void flush_before_write(const at::Tensor& tensor, const std::string& operation) {
  const Lock lock;
  if (capture.active && (has_memory(tensor.storage()) || capture.uses(tensor))) {
    flush(Cause::host_write, operation);
  }
  flush_users_of(tensor, Cause::host_write, operation);
}

size_t pending() {
  const Lock lock;
  return graph.nodes.size() + unfinished.size();
}

size_t recipe_count() {
  const Lock lock;
  return compiled().size();
}

void clear_recipes() {
  const Lock lock;
  compiled().clear();
}

size_t begin_capture(bool dry_run) {
  static size_t captures = 0;
  const Lock lock;
  TORCH_CHECK(!capture.active, "GRAPH:: graph Capture already in progress");
  flush(Cause::mark_step);
  capture = Capture{true, dry_run, ++captures, {}};
  return captures;
}

Captured end_capture(size_t number) {
  const Lock lock;
  if (!capturing(number)) {
    return {};
  }
  flush(Cause::mark_step);
  Captured captured{
      std::move(capture.nodes), std::move(capture.signatures), std::move(capture.collectives)};
  capture = Capture{};
  return captured;
}

void abandon(size_t number) {
  const Lock lock;
  if (capturing(number) && capture.dry_run) {
    abandon_capture();
  } else {
    end_capture(number);
  }
}

bool capturing() {
  return capture.active;
}

bool capturing(size_t number) {
  const Lock lock;
  return capture.active && capture.number == number;
}

bool captures_collectives() {
  return capture.active && collectives_captured;
}

CollectiveCapture::CollectiveCapture(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  flush(Cause::mark_step);
  capture.collectives.push_back(
      {capture.nodes.size(), capture.signatures.size(), prices::exchange_of_caller()});
  capture.nodes.push_back(Node::of_collective(op, arguments));
  capture.active = false;
}

CollectiveCapture::~CollectiveCapture() {
  capture.active = true;
}

bool CollectiveCapture::is_dry_run() const {
  return capture.dry_run;
}

void CollectiveCapture::started(c10::intrusive_ptr<c10d::Work> work) {
  capture.collectives.back().work = std::move(work);
}

}  // namespace recorder
}  // namespace hpu
