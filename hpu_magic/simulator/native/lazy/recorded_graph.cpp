#include "lazy/recorded_graph.h"

#include "calls/generator.h"
#include "calls/kernels_only.h"
#include "memory/memory.h"

namespace hpu {

using torch::jit::Stack;

namespace {

/// The user was warned about a resized output where the operation was recorded.
struct Silence : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/// A number among tensors takes no part in the choice of the result's type.
at::Tensor as_number_like(const at::Tensor& tensor, at::Tensor copy) {
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

at::Tensor handle_of(const at::Tensor& tensor) {
  return as_number_like(tensor, with_geometry_of(tensor.storage(), tensor));
}

}  // namespace

void Node::run() const {
  const KernelsOnly kernels_only;
  const DefaultDtype as_recorded(default_dtype);
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
  std::vector<std::pair<at::Tensor, bool>> found;
  const auto add = [&found](const at::Tensor& tensor, bool written) {
    if (on_device(tensor)) {
      found.emplace_back(tensor, written);
    }
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    const auto* alias = op.schema().arguments()[i].alias_info();
    const bool written = alias && alias->isWrite();
    if (value.isTensor()) {
      add(value.toTensor(), written);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        add(tensor, written);
      }
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector()) {
        add(tensor.value_or(at::Tensor()), written);
      }
    }
  }
  for (const at::Tensor& output : outputs) {
    add(output, true);
  }
  return found;
}

void RecordedGraph::mix(uint64_t word) {
  hash_ = (hash_ ^ word) * 0xff51afd7ed558ccd;
  hash_ ^= hash_ >> 29;
}

/// Enters a storage into the graph's signature by the order of first use.
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
  mix(mark->ordinal << 20 ^ static_cast<uint64_t>(tensor.storage_offset()));
}

/// The recorder's own hold on an argument: a CPU scalar is copied, it may change until the run.
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

c10::IValue RecordedGraph::held(const c10::IValue& value, bool written) {
  if (value.isTensor()) {
    return held(value.toTensor(), written);
  }
  if (value.isTensorList()) {
    std::vector<at::Tensor> list = value.toTensorVector();
    for (auto& tensor : list) {
      tensor = held(tensor, written);
    }
    return c10::List<at::Tensor>(std::move(list));
  }
  if (value.isGenerator()) {
    return device_generator(value.toGenerator());  // raises now, at the user's line, if it cannot
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional<at::Tensor>(held(*tensor, written)) : std::nullopt);
    }
    return list;
  }
  return value;
}

/// A tensor whose memory comes with the run of `node`.
at::Tensor RecordedGraph::promised(const Geometry& geometry, Node& node) {
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

void RecordedGraph::push_results(const Inference& inference, Node& node, const Stack& call, Stack* stack) {
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
        tensor = promised(*next++, node);
      }
      stack->push_back(c10::List<at::Tensor>(std::move(list)));
    } else {
      stack->push_back(promised(*next++, node));
    }
  }
}

void RecordedGraph::add(
    const c10::OperatorHandle& op, const Stack& arguments, const Inference& inference,
    uint64_t signature, Stack* stack) {
  Node node{op, {}, {}, inference.resized};
  node.arguments.reserve(arguments.size());
  mix(signature);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    node.arguments.push_back(held(arguments[i], alias && alias->isWrite()));
  }
  push_results(inference, node, arguments, stack);
  nodes.push_back(std::move(node));
}

bool RecordedGraph::uses(const c10::Storage& storage) const {
  const RecordMark* mark = record_mark(storage);
  return mark && mark->graph == number_ && !nodes.empty();
}

}  // namespace hpu
