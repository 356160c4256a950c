#include "lazy/recorded_graph.h"

#include "calls/generator.h"
#include "calls/tensors_of.h"
#include "calls/thread_modes.h"
#include "lazy/assumed_indices.h"
#include "lazy/dry_call.h"
#include "lazy/known_values.h"
#include "memory/memory.h"
#include "memory/skipping.h"
#include "memory/zero_pages.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/accumulate.h>

namespace hpu {

using torch::jit::Stack;

namespace {

/// Suppresses the warning about a resized output, because the user already received it when the
/// operation was recorded.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// Copies the flag that marks a wrapped number, so that it has no effect on type promotion.
at::Tensor as_number_like(const at::Tensor& tensor, at::Tensor copy) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

at::Tensor resized_tensor(const Stack& arguments, const Resized& resized) {
  const c10::IValue& argument = arguments[resized.argument];
  return argument.isTensor() ? argument.toTensor() : argument.toTensorVector()[resized.item];
}

/// Enlarges the storages of out= arguments so that the results fit. Other views of these storages
/// also see the results.
void grow_written(const Stack& arguments, const Inference& inference) {
  for (const Resized& resized : inference.resized) {
    const at::Tensor tensor = resized_tensor(arguments, resized);
    if (c10::multiply_integers(resized.geometry.sizes) > 0) {
      grow(
          tensor.storage(),
          at::detail::computeStorageNbytes(
              resized.geometry.sizes, resized.geometry.strides, tensor.dtype().itemsize(),
              tensor.storage_offset()));
    }
  }
}

/// Sets the sizes and strides of written arguments to those that they will have after the call.
void resize_written(const Stack& arguments, const Inference& inference) {
  for (const Resized& resized : inference.resized) {
    resized_tensor(arguments, resized)
        .unsafeGetTensorImpl()
        ->set_sizes_and_strides(resized.geometry.sizes, resized.geometry.strides);
  }
}

at::Tensor handle_of(const at::Tensor& tensor) {
  return as_number_like(tensor, with_geometry_of(tensor.storage(), tensor));
}

}  // namespace

Node Node::of_collective(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  Node node{op, arguments.vec(), {}, {}};
  node.is_collective = true;
  for (c10::IValue& argument : node.arguments) {
    map_tensors(argument, [](const at::Tensor& tensor) {
      return on_device(tensor) ? handle_of(tensor) : tensor;
    });
  }
  return node;
}

void Node::skip() const {
  for (const at::Tensor& output : outputs) {
    if (output.defined()) {
      at::Tensor view = host_view(output);
      write_zeros(view);
    }
  }
}

void Node::run() const {
  if (skipping::compile_only()) {
    skip();
    return;
  }
  const KernelsOnly kernels_only;
  const DefaultDtype as_recorded(default_dtype);
  if (skipping::dry_run() && assume_node(*this)) {
    return;
  }
  Stack stack = arguments;
  if (resized.empty()) {
    HostCall(op, &stack).run_into(outputs, {});
    return;
  }
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard warned(&silence);
  HostCall(op, &stack).run_into(outputs, resized);
}

std::vector<std::pair<at::Tensor, bool>> Node::tensors() const {
  std::vector<std::pair<at::Tensor, bool>> all;
  const auto add = [&all](const at::Tensor& tensor, bool written) {
    if (on_device(tensor)) {
      all.emplace_back(tensor, written);
    }
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool written = is_collective || is_written(op.schema().arguments()[i]);
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { add(tensor, written); });
  }
  for (const at::Tensor& output : outputs) {
    add(output, true);
  }
  return all;
}

/// Adds a storage to the graph's signature, in order of first use.
void RecordedGraph::use(const at::Tensor& tensor, bool written) {
  RecordMark* mark = record_mark(tensor.storage());
  if (!mark) {
    return;
  }
  if (mark->graph != number_) {
    mark->graph = number_;
    mark->ordinal = storages_++;
    if (!written) {
      inputs_.push_back(tensor);
    }
  }
  if (written) {
    mark->written = number_;
  }
  hash_ = mixed(hash_, mark->ordinal << 20 ^ static_cast<uint64_t>(tensor.storage_offset()));
}

/// Returns the recorder's handle for an argument. Copies a CPU scalar, because it may change before
/// the graph runs.
at::Tensor RecordedGraph::held(const at::Tensor& tensor, bool written) {
  if (!tensor.defined()) {
    return tensor;
  }
  if (!on_device(tensor)) {
    return as_number_like(tensor, tensor.clone());
  }
  use(tensor, written);
  return handle_of(tensor);
}

c10::IValue RecordedGraph::held(c10::IValue value, bool written) {
  if (value.isGenerator()) {
    return device_generator(value.toGenerator());  // raises an error here, at the user's line
  }
  map_tensors(value, [&](const at::Tensor& tensor) { return held(tensor, written); });
  return value;
}

/// Returns a pending tensor, whose memory is allocated when `node` runs.
at::Tensor RecordedGraph::pending_result(const Geometry& geometry, Node& node) {
  if (!geometry.defined) {
    node.outputs.emplace_back();
    return {};
  }
  at::Tensor result =
      pending_tensor(geometry.sizes, geometry.strides, geometry.offset, geometry.dtype);
  use(result, /*written=*/true);
  node.outputs.push_back(handle_of(result));
  return result;
}

void RecordedGraph::push_results(
    const Inference& inference, Node& node, const Stack& call, Stack* stack) {
  const auto& schema = node.op.schema();
  auto next = inference.results.begin();
  auto length = inference.lengths.begin();
  for (const auto& declared : schema.returns()) {
    const auto* alias = declared.alias_info();
    if (alias && alias->isWrite()) {
      for (size_t i = 0; i < call.size(); ++i) {
        const auto* argument = schema.arguments()[i].alias_info();
        if (argument && *argument == *alias) {
          stack->push_back(call[i]);
          break;
        }
      }
    } else if (declared.type()->kind() == c10::TypeKind::ListType) {
      std::vector<at::Tensor> list(*length++);
      for (auto& tensor : list) {
        tensor = pending_result(*next++, node);
      }
      stack->push_back(c10::List<at::Tensor>(std::move(list)));
    } else {
      stack->push_back(pending_result(*next++, node));
    }
  }
}

void RecordedGraph::add(
    const c10::OperatorHandle& op, const Stack& arguments, const Inference& inference,
    uint64_t signature, Stack* stack) {
  grow_written(arguments, inference);
  Node node{op, {}, {}, inference.resized};
  node.arguments.reserve(arguments.size());
  node.uses_trained = skipping::dry_run() && uses_trained(arguments);
  node.lines = assumed_indices::lines_of(op, arguments);
  hash_ = mixed(hash_, signature);
  for (size_t i = 0; i < arguments.size(); ++i) {
    node.arguments.push_back(held(arguments[i], is_written(op.schema().arguments()[i])));
  }
  push_results(inference, node, arguments, stack);
  nodes.push_back(std::move(node));
  resize_written(arguments, inference);
}

bool RecordedGraph::uses(const c10::Storage& storage) const {
  const RecordMark* mark = record_mark(storage);
  return mark && mark->graph == number_ && !nodes.empty();
}

}  // namespace hpu
