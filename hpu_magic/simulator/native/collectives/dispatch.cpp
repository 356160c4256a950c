// Kernels of torch.distributed's operators for device tensors. PyTorch registers such kernels only
// for the CPU and CUDA.
#include "collectives/backend.h"
#include "lazy/recorder.h"
#include "memory/memory.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <tuple>
#include <type_traits>

namespace hpu::collectives {
namespace {

using torch::jit::Stack;
using Lists = std::vector<Hccl::Tensors>;
using Started = Hccl::Started;

template <class Options, class = void>
constexpr bool has_reduction = false;
template <class Options>
constexpr bool has_reduction<Options, std::void_t<decltype(&Options::reduceOp)>> = true;

template <class Options, class = void>
constexpr bool has_root = false;
template <class Options>
constexpr bool has_root<Options, std::void_t<decltype(&Options::rootRank)>> = true;

template <class Options, class = void>
constexpr bool has_root_tensor = false;
template <class Options>
constexpr bool has_root_tensor<Options, std::void_t<decltype(&Options::rootTensor)>> = true;

/// The arguments of an operator. The tensors, splits and ranks are in the same order as the
/// parameters of the backend's method. The fields of the method's options are looked up by name,
/// because their positions differ between releases.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const Stack& stack)
      : schema_(op.schema()), values_(torch::jit::last(stack, schema_.arguments().size())) {}

  c10d::Backend& backend() const {
    return *named("process_group").toCustomClass<c10d::ProcessGroup>()->getBackend(kDevice);
  }

  /// Captures the operator in an HPU Graph, and starts it unless the capture is a dry run.
  template <class Start>
  Started capture(const c10::OperatorHandle& op, const Start& start) const {
    recorder::CollectiveCapture captured(op, values_);
    if (!captured.is_dry_run()) {
      Started work = start();
      captured.started(work);
      return work;
    }
    auto ended = Work::start(backend().getRank(), {c10d::OpType::UNKNOWN, "captured", 0}, {});
    ended->end(nullptr);
    return ended;
  }

  /// Returns the value of the method's next parameter.
  template <class Parameter>
  Parameter next() {
    if constexpr (std::is_same_v<Parameter, Lists>) {
      Lists lists;
      for (const c10::IValue& list : next_value().toListRef()) {
        lists.push_back(list.toTensorVector());
      }
      return lists;
    } else if constexpr (std::is_same_v<Parameter, int>) {
      return static_cast<int>(next_value().toInt());
    } else if constexpr (
        std::is_same_v<Parameter, at::Tensor> || std::is_same_v<Parameter, Hccl::Tensors> ||
        std::is_same_v<Parameter, std::vector<int64_t>>) {
      return next_value().to<Parameter>();
    } else {
      return options<Parameter>();
    }
  }

 private:
  const c10::IValue& named(const char* name) const {
    return values_[static_cast<size_t>(schema_.argumentIndexWithName(name).value())];
  }

  const c10::IValue& next_value() {
    const c10::IValue& value = values_[next_++];
    return value.isObject() ? values_[next_++] : value;  // skip the process group
  }

  template <class Options>
  Options options() const {
    Options options;
    if constexpr (has_reduction<Options>) {
      options.reduceOp = *named("reduce_op").toCustomClass<c10d::ReduceOp>();
    }
    if constexpr (has_root<Options>) {
      options.rootRank = named("root_rank").toInt();
    }
    if constexpr (has_root_tensor<Options>) {
      options.rootTensor = named("root_tensor").toInt();
    }
    if (schema_.argumentIndexWithName("timeout")) {
      options.timeout = std::chrono::milliseconds(named("timeout").toInt());
    }
    return options;
  }

  const c10::FunctionSchema& schema_;
  const c10::ArrayRef<c10::IValue> values_;
  size_t next_ = 0;
};

/// The kernel of an operator that corresponds to a method of the backend. The operator returns the
/// Work object that the method returns. If the operator also returns tensors, they are its first
/// argument.
template <auto method>
struct Collective;

template <class... Parameters, Started (c10d::Backend::*method)(Parameters...)>
struct Collective<method> {
  static void run(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    Arguments arguments(op, *stack);
    c10d::Backend& backend = arguments.backend();
    std::tuple<std::decay_t<Parameters>...> values{
        arguments.next<std::decay_t<Parameters>>()...};  // braces ensure left-to-right evaluation
    const auto start = [&] {
      return std::apply(
          [&backend](auto&... value) { return (backend.*method)(value...); }, values);
    };
    Started work = recorder::captures_collectives() ? arguments.capture(op, start) : start();
    const size_t count = op.schema().arguments().size();
    c10::IValue first = (*stack)[stack->size() - count];
    torch::jit::drop(*stack, count);
    if (op.schema().returns().size() == 2) {
      stack->push_back(std::move(first));
    }
    stack->emplace_back(std::move(work));
  }
};

template <auto method>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<&Collective<method>::run>();
}

TORCH_LIBRARY_IMPL(c10d, HPU, library) {
  using c10d::Backend;
  library.impl("broadcast_", boxed<&Backend::broadcast>());
  library.impl("allreduce_", boxed<&Backend::allreduce>());
  library.impl("allreduce_coalesced_", boxed<&Backend::allreduce_coalesced>());
  library.impl("reduce_", boxed<&Backend::reduce>());
  library.impl("allgather_", boxed<&Backend::allgather>());
  library.impl("_allgather_base_", boxed<&Backend::_allgather_base>());
  library.impl("allgather_coalesced_", boxed<&Backend::allgather_coalesced>());
  library.impl(
      "allgather_into_tensor_coalesced_", boxed<&Backend::allgather_into_tensor_coalesced>());
  library.impl("gather_", boxed<&Backend::gather>());
  library.impl("scatter_", boxed<&Backend::scatter>());
  library.impl("reduce_scatter_", boxed<&Backend::reduce_scatter>());
  library.impl("_reduce_scatter_base_", boxed<&Backend::_reduce_scatter_base>());
  library.impl(
      "reduce_scatter_tensor_coalesced_", boxed<&Backend::reduce_scatter_tensor_coalesced>());
  library.impl("alltoall_base_", boxed<&Backend::alltoall_base>());
  library.impl("alltoall_", boxed<&Backend::alltoall>());
  library.impl("send", boxed<&Backend::send>());
  library.impl("recv_", boxed<&Backend::recv>());
  library.impl("recv_any_source_", boxed<&Backend::recvAnysource>());
  library.impl("barrier", boxed<&Backend::barrier>());
}

}  // namespace
}  // namespace hpu::collectives
