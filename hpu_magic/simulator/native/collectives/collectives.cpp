// Collectives that reduce tensors or return the same result to all ranks. All of them use the
// transport's collectives.
#include "collectives/backend.h"
#include "collectives/operands.h"

#include "calls/thread_modes.h"
#include "memory/memory.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/prod.h>
#include <ATen/ops/sum.h>

namespace hpu::collectives {
namespace {

/// Raises the vendor's error for a reduction that HCCL does not support.
void check_reduction(const c10d::ReduceOp& operation, c10::ScalarType dtype) {
  TORCH_CHECK(
      operation != c10d::ReduceOp::AVG || dtype != at::kBool,
      "Cannot use ReduceOp.AVG with boolean inputs");
  TORCH_CHECK(
      operation == c10d::ReduceOp::SUM || operation == c10d::ReduceOp::PRODUCT ||
          operation == c10d::ReduceOp::MIN || operation == c10d::ReduceOp::MAX,
      "Unsupported ReduceOp for HCCL process group: use SUM, PRODUCT, MIN or MAX.");
  TORCH_CHECK(
      !c10::isComplexType(dtype), "HCCL does not support reductions of complex tensors: pass "
      "torch.view_as_real(tensor) if the operation can be applied to the real and imaginary parts "
      "separately.");
}

/// Returns the dtype in which tensors of `dtype` are reduced: bfloat16 for bfloat16, and float32
/// for all other dtypes. As a result, SUM of bools computes their OR, and PRODUCT computes their
/// AND.
c10::ScalarType reduced_as(c10::ScalarType dtype) {
  return dtype == at::kBFloat16 ? dtype : at::kFloat;
}

/// Reduces the rows of a CPU tensor into `out`.
void reduce_rows(const at::Tensor& rows, const c10d::ReduceOp& operation, at::Tensor out) {
  if (operation == c10d::ReduceOp::SUM) {
    at::sum_out(out, rows, 0);
  } else if (operation == c10d::ReduceOp::PRODUCT) {
    at::prod_out(out, rows, 0);
  } else if (operation == c10d::ReduceOp::MIN) {
    at::amin_out(out, rows, 0);
  } else {
    at::amax_out(out, rows, 0);
  }
}

}  // namespace

Hccl::Started Hccl::broadcast(Tensors& tensors, const c10d::BroadcastOptions& requested) {
  Operands operands;
  const auto options = limited(requested);
  const at::Tensor& tensor = only(tensors, "broadcast");
  const at::Tensor memory =
      options.rootRank == rank_ ? operands.read(tensor) : operands.write(tensor);
  return launch(
      next(c10d::OpType::BROADCAST, "broadcast", like(tensor, options.rootRank)), tensors,
      std::move(operands), {{[memory, options](c10d::Backend& transport) {
        Tensors memories{bytes(memory)};
        return transport.broadcast(memories, options);
      }}});
}

Hccl::Started Hccl::reduce_each(
    c10d::OpType type, const char* name, const Tensors& tensors,
    const c10d::AllreduceOptions& requested) {
  Operands operands;
  std::vector<Step> steps;
  const auto options = limited(requested);
  for (const at::Tensor& tensor : tensors) {
    check_reduction(options.reduceOp, tensor.scalar_type());
    const at::Tensor memory = operands.update(tensor, reduced_as(tensor.scalar_type()));
    steps.push_back({[memory, options](c10d::Backend& transport) {
      Tensors memories{numbers(memory)};
      return transport.allreduce(memories, options);
    }});
  }
  return launch(next(type, name, like(tensors)), tensors, std::move(operands), std::move(steps));
}

Hccl::Started Hccl::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() > 1) {  // like HCCL, reduce each tensor separately
    return reduce_each(
        c10d::OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", tensors, options);
  }
  only(tensors, "all_reduce");
  return reduce_each(c10d::OpType::ALLREDUCE, "all_reduce", tensors, options);
}

Hccl::Started Hccl::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return reduce_each(c10d::OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", tensors, options);
}

Hccl::Started Hccl::reduce(Tensors& tensors, const c10d::ReduceOptions& requested) {
  Operands operands;
  const auto options = limited(requested);
  const at::Tensor& tensor = only(tensors, "reduce");
  check_reduction(options.reduceOp, tensor.scalar_type());
  const auto dtype = reduced_as(tensor.scalar_type());
  // On ranks other than the root, the transport overwrites the memory with partial results.
  const at::Tensor memory = options.rootRank == rank_ ? operands.update(tensor, dtype)
                                                      : operands.copied(tensor, dtype);
  return launch(
      next(c10d::OpType::REDUCE, "reduce", like(tensor, options.rootRank)), tensors,
      std::move(operands), {{[memory, options](c10d::Backend& transport) {
        Tensors memories{numbers(memory)};
        return transport.reduce(memories, options);
      }}});
}

Hccl::Started Hccl::allgather(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& requested) {
  Operands operands;
  const auto options = limited(requested);
  const at::Tensor& input = only(inputs, "all_gather");
  const at::Tensor from = operands.read(input);
  Tensors to;
  for (const at::Tensor& output : only(outputs, size_, "all_gather")) {
    check_same_size(output, input, "all_gather");
    to.push_back(operands.write(output));
  }
  return launch(
      next(c10d::OpType::ALLGATHER, "all_gather", like(input)), outputs[0], std::move(operands),
      {{[from, to, options](c10d::Backend& transport) {
        std::vector<Tensors> lists{bytes(to)};
        Tensors tensors{bytes(from)};
        return transport.allgather(lists, tensors, options);
      }}});
}

Hccl::Started Hccl::gather_each(
    c10d::OpType type, const char* name, const Tensors& outputs, const Tensors& inputs,
    const c10d::AllgatherOptions& requested) {
  check_pairs(outputs, inputs, name);
  Operands operands;
  std::vector<Step> steps;
  const auto options = limited(requested);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_parts(outputs[i], inputs[i], size_, name);
    const at::Tensor from = operands.read(inputs[i]);
    const at::Tensor to = operands.write(outputs[i]);
    steps.push_back({[from, to, options](c10d::Backend& transport) {
      at::Tensor source = bytes(from);
      at::Tensor target = bytes(to);
      return transport._allgather_base(target, source, options);
    }});
  }
  return launch(next(type, name, like(inputs)), outputs, std::move(operands), std::move(steps));
}

Hccl::Started Hccl::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return gather_each(
      c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor", {output}, {input}, options);
}

Hccl::Started Hccl::allgather_coalesced(
    std::vector<Tensors>& /*outputs*/, Tensors& /*inputs*/,
    const c10d::AllgatherOptions& /*options*/) {
  TORCH_CHECK(
      false, "HCCL does not support allgather_coalesced: gather each tensor with all_gather, or "
      "all of them with all_gather_into_tensor.");
}

Hccl::Started Hccl::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return gather_each(
      c10d::OpType::COALESCED, "all_gather_into_tensor_coalesced", outputs, inputs, options);
}

Hccl::Started Hccl::scatter_each(
    c10d::OpType type, const char* name, const Tensors& outputs, const Tensors& inputs,
    Operands operands, const c10d::ReduceScatterOptions& requested) {
  check_pairs(outputs, inputs, name);
  std::vector<Step> steps;
  c10d::AllToAllOptions options;
  options.timeout = limited(requested).timeout;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_parts(inputs[i], outputs[i], size_, name);
    check_reduction(requested.reduceOp, inputs[i].scalar_type());
    const auto dtype = reduced_as(inputs[i].scalar_type());
    const at::Tensor source = operands.read(inputs[i], dtype);
    const at::Tensor reduced = operands.write(outputs[i], dtype);
    const at::Tensor received = operands.scratch({size_, outputs[i].numel()}, dtype);
    steps.push_back(exchange(source, received, {}, {}, options));
    steps.back().is_computed = false;  // the transport does not reduce the values
    steps.back().finish = [received, reduced, operation = requested.reduceOp] {
      const KernelsOnly kernels;
      reduce_rows(host_view(received), operation, numbers(reduced));
    };
  }
  return launch(next(type, name, like(outputs)), outputs, std::move(operands), std::move(steps));
}

Hccl::Started Hccl::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  Operands operands;
  const at::Tensor& output = only(outputs, "reduce_scatter");
  const Tensors& parts = only(inputs, size_, "reduce_scatter");
  for (const at::Tensor& part : parts) {
    check_same_size(output, part, "reduce_scatter");
  }
  const at::Tensor input = operands.joined(parts);
  return scatter_each(
      c10d::OpType::REDUCE_SCATTER, "reduce_scatter", outputs, {input}, std::move(operands),
      options);
}

Hccl::Started Hccl::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  return scatter_each(
      c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", {output}, {input}, {}, options);
}

Hccl::Started Hccl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return scatter_each(
      c10d::OpType::COALESCED, "reduce_scatter_tensor_coalesced", outputs, inputs, {}, options);
}

Hccl::Started Hccl::barrier(const c10d::BarrierOptions& requested) {
  c10d::BarrierOptions options;
  options.timeout = limited(requested).timeout;
  return launch(
      next(c10d::OpType::BARRIER, "barrier"), {}, {},
      {{[options](c10d::Backend& transport) { return transport.barrier(options); }}});
}

}  // namespace hpu::collectives
