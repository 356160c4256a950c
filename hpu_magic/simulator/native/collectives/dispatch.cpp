// The operators of torch.distributed for device tensors: PyTorch registers them only for the CPU
// and CUDA.
#include "collectives/backend.h"

#include "memory/memory.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

namespace hpu::collectives {
namespace {

using Stack = torch::jit::Stack;
using Tensors = Hccl::Tensors;
using Lists = std::vector<Tensors>;
using Started = Hccl::Started;

/// The arguments of a call. The first ones are the same in all releases; the others are found by
/// name.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const Stack& stack)
      : schema_(op.schema()), given_(torch::jit::last(stack, schema_.arguments().size())) {}

  const c10::IValue& operator[](size_t i) const {
    return given_[i];
  }
  Lists lists(size_t i) const {
    Lists lists;
    for (const c10::IValue& list : given_[i].toListRef()) {
      lists.push_back(list.toTensorVector());
    }
    return lists;
  }
  c10d::ReduceOp reduction(size_t i) const {
    return *given_[i].toCustomClass<c10d::ReduceOp>();
  }
  c10d::Backend& backend(size_t i) const {
    return *given_[i].toCustomClass<c10d::ProcessGroup>()->getBackend(kDevice);
  }
  /// Options with the timeout, which all collectives have.
  template <class Options>
  Options options() const {
    Options options;
    if (const auto timeout = schema_.argumentIndexWithName("timeout")) {
      options.timeout = std::chrono::milliseconds(given_[*timeout].toInt());
    }
    return options;
  }

 private:
  const c10::FunctionSchema& schema_;
  const c10::ArrayRef<c10::IValue> given_;
};

/// Calls a collective, which returns its work. If the operator also returns tensors, these are its
/// first argument.
template <Started (*collective)(const Arguments&)>
void run(const c10::OperatorHandle& op, Stack* stack) {
  const size_t taken = op.schema().arguments().size();
  Started work = collective(Arguments(op, *stack));
  const bool returns_tensors = op.schema().returns().size() == 2;
  c10::IValue first = returns_tensors ? (*stack)[stack->size() - taken] : c10::IValue();
  torch::jit::drop(*stack, taken);
  if (returns_tensors) {
    stack->push_back(std::move(first));
  }
  stack->emplace_back(std::move(work));
}

Started broadcast(const Arguments& arguments) {
  auto options = arguments.options<c10d::BroadcastOptions>();
  options.rootRank = arguments[2].toInt();
  options.rootTensor = arguments[3].toInt();
  Tensors tensors = arguments[0].toTensorVector();
  return arguments.backend(1).broadcast(tensors, options);
}

Started allreduce(const Arguments& arguments) {
  auto options = arguments.options<c10d::AllreduceOptions>();
  options.reduceOp = arguments.reduction(2);
  Tensors tensors = arguments[0].toTensorVector();
  return arguments.backend(1).allreduce(tensors, options);
}

Started allreduce_coalesced(const Arguments& arguments) {
  auto options = arguments.options<c10d::AllreduceCoalescedOptions>();
  options.reduceOp = arguments.reduction(2);
  Tensors tensors = arguments[0].toTensorVector();
  return arguments.backend(1).allreduce_coalesced(tensors, options);
}

Started reduce(const Arguments& arguments) {
  auto options = arguments.options<c10d::ReduceOptions>();
  options.reduceOp = arguments.reduction(2);
  options.rootRank = arguments[3].toInt();
  options.rootTensor = arguments[4].toInt();
  Tensors tensors = arguments[0].toTensorVector();
  return arguments.backend(1).reduce(tensors, options);
}

Started allgather(const Arguments& arguments) {
  Lists outputs = arguments.lists(0);
  Tensors inputs = arguments[1].toTensorVector();
  return arguments.backend(2).allgather(
      outputs, inputs, arguments.options<c10d::AllgatherOptions>());
}

Started allgather_base(const Arguments& arguments) {
  at::Tensor output = arguments[0].toTensor();
  at::Tensor input = arguments[1].toTensor();
  return arguments.backend(2)._allgather_base(
      output, input, arguments.options<c10d::AllgatherOptions>());
}

Started allgather_coalesced(const Arguments& arguments) {
  Lists outputs = arguments.lists(0);
  Tensors inputs = arguments[1].toTensorVector();
  return arguments.backend(2).allgather_coalesced(
      outputs, inputs, arguments.options<c10d::AllgatherOptions>());
}

Started allgather_into_tensor_coalesced(const Arguments& arguments) {
  Tensors outputs = arguments[0].toTensorVector();
  Tensors inputs = arguments[1].toTensorVector();
  return arguments.backend(2).allgather_into_tensor_coalesced(
      outputs, inputs, arguments.options<c10d::AllgatherOptions>());
}

Started gather(const Arguments& arguments) {
  auto options = arguments.options<c10d::GatherOptions>();
  options.rootRank = arguments[3].toInt();
  Lists outputs = arguments.lists(0);
  Tensors inputs = arguments[1].toTensorVector();
  return arguments.backend(2).gather(outputs, inputs, options);
}

Started scatter(const Arguments& arguments) {
  auto options = arguments.options<c10d::ScatterOptions>();
  options.rootRank = arguments[3].toInt();
  Tensors outputs = arguments[0].toTensorVector();
  Lists inputs = arguments.lists(1);
  return arguments.backend(2).scatter(outputs, inputs, options);
}

Started reduce_scatter(const Arguments& arguments) {
  auto options = arguments.options<c10d::ReduceScatterOptions>();
  options.reduceOp = arguments.reduction(3);
  Tensors outputs = arguments[0].toTensorVector();
  Lists inputs = arguments.lists(1);
  return arguments.backend(2).reduce_scatter(outputs, inputs, options);
}

Started reduce_scatter_base(const Arguments& arguments) {
  auto options = arguments.options<c10d::ReduceScatterOptions>();
  options.reduceOp = arguments.reduction(3);
  at::Tensor output = arguments[0].toTensor();
  at::Tensor input = arguments[1].toTensor();
  return arguments.backend(2)._reduce_scatter_base(output, input, options);
}

Started reduce_scatter_tensor_coalesced(const Arguments& arguments) {
  auto options = arguments.options<c10d::ReduceScatterOptions>();
  options.reduceOp = arguments.reduction(3);
  Tensors outputs = arguments[0].toTensorVector();
  Tensors inputs = arguments[1].toTensorVector();
  return arguments.backend(2).reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Started alltoall_base(const Arguments& arguments) {
  at::Tensor output = arguments[0].toTensor();
  at::Tensor input = arguments[1].toTensor();
  std::vector<int64_t> output_rows = arguments[3].toIntVector();
  std::vector<int64_t> input_rows = arguments[4].toIntVector();
  return arguments.backend(2).alltoall_base(
      output, input, output_rows, input_rows, arguments.options<c10d::AllToAllOptions>());
}

Started alltoall(const Arguments& arguments) {
  Tensors outputs = arguments[0].toTensorVector();
  Tensors inputs = arguments[1].toTensorVector();
  return arguments.backend(2).alltoall(outputs, inputs, arguments.options<c10d::AllToAllOptions>());
}

Started send(const Arguments& arguments) {
  Tensors tensors = arguments[0].toTensorVector();
  return arguments.backend(1).send(
      tensors, static_cast<int>(arguments[2].toInt()), static_cast<int>(arguments[3].toInt()));
}

Started recv(const Arguments& arguments) {
  Tensors tensors = arguments[0].toTensorVector();
  return arguments.backend(1).recv(
      tensors, static_cast<int>(arguments[2].toInt()), static_cast<int>(arguments[3].toInt()));
}

Started recv_any_source(const Arguments& arguments) {
  Tensors tensors = arguments[0].toTensorVector();
  return arguments.backend(1).recvAnysource(tensors, static_cast<int>(arguments[2].toInt()));
}

Started barrier(const Arguments& arguments) {
  auto options = arguments.options<c10d::BarrierOptions>();
  options.device_ids = arguments[2].toIntVector();
  return arguments.backend(1).barrier(options);
}

template <Started (*collective)(const Arguments&)>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<&run<collective>>();
}

TORCH_LIBRARY_IMPL(c10d, HPU, library) {
  library.impl("broadcast_", boxed<&broadcast>());
  library.impl("allreduce_", boxed<&allreduce>());
  library.impl("allreduce_coalesced_", boxed<&allreduce_coalesced>());
  library.impl("reduce_", boxed<&reduce>());
  library.impl("allgather_", boxed<&allgather>());
  library.impl("_allgather_base_", boxed<&allgather_base>());
  library.impl("allgather_coalesced_", boxed<&allgather_coalesced>());
  library.impl("allgather_into_tensor_coalesced_", boxed<&allgather_into_tensor_coalesced>());
  library.impl("gather_", boxed<&gather>());
  library.impl("scatter_", boxed<&scatter>());
  library.impl("reduce_scatter_", boxed<&reduce_scatter>());
  library.impl("_reduce_scatter_base_", boxed<&reduce_scatter_base>());
  library.impl("reduce_scatter_tensor_coalesced_", boxed<&reduce_scatter_tensor_coalesced>());
  library.impl("alltoall_base_", boxed<&alltoall_base>());
  library.impl("alltoall_", boxed<&alltoall>());
  library.impl("send", boxed<&send>());
  library.impl("recv_", boxed<&recv>());
  library.impl("recv_any_source_", boxed<&recv_any_source>());
  library.impl("barrier", boxed<&barrier>());
}

}  // namespace
}  // namespace hpu::collectives
