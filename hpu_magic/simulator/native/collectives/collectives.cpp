// Collectives that reduce, or return the same result to all ranks, implemented by those of the
// transport.
#include "collectives/backend.h"
#include "collectives/checks.h"

#include "calls/kernels_only.h"
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
      !c10::isComplexType(dtype), "HCCL does not reduce complex numbers: pass "
      "torch.view_as_real(tensor) if the operation is valid for both parts.");
}

/// The type in which tensors of `dtype` are reduced: bfloat16, and float32 for all others. So a
/// sum of bools is their OR, and a product their AND.
c10::ScalarType reduced_as(c10::ScalarType dtype) {
  return dtype == at::kBFloat16 ? dtype : at::kFloat;
}

/// Reduces the rows of a CPU tensor into `result`.
void reduce_rows(
    const at::Tensor& rows, const c10d::ReduceOp& operation, const at::Tensor& result) {
  at::Tensor out = result;
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

void Hccl::add_reduction(
    std::vector<Step>& steps, Operands& operands, const at::Tensor& tensor,
    const c10d::ReduceOp& operation, std::chrono::milliseconds timeout) const {
  check_reduction(operation, tensor.scalar_type());
  auto options = with<c10d::AllreduceOptions>(limit(timeout));
  options.reduceOp = operation;
  const at::Tensor memory = operands.update(tensor, reduced_as(tensor.scalar_type()));
  steps.push_back({[memory, options](c10d::Backend& transport) {
    Tensors tensors{numbers(memory)};
    return transport.allreduce(tensors, options);
  }});
}

void Hccl::add_gathering(
    std::vector<Step>& steps, Operands& operands, const at::Tensor& output,
    const at::Tensor& input, std::chrono::milliseconds timeout) const {
  check_parts(output, input, size_, "all_gather_into_tensor");
  const auto options = with<c10d::AllgatherOptions>(limit(timeout));
  const at::Tensor source = operands.read(input);
  const at::Tensor gathered = operands.write(output);
  steps.push_back({[source, gathered, options](c10d::Backend& transport) {
    at::Tensor from = bytes(source);
    at::Tensor to = bytes(gathered);
    return transport._allgather_base(to, from, options);
  }});
}

void Hccl::add_scattered_reduction(
    std::vector<Step>& steps, Operands& operands, const at::Tensor& output,
    const at::Tensor& input, const c10d::ReduceOp& operation,
    std::chrono::milliseconds timeout) const {
  const auto dtype = input.scalar_type();
  check_reduction(operation, dtype);
  const auto options = with<c10d::AllToAllOptions>(limit(timeout));
  const at::Tensor source = operands.read(input, reduced_as(dtype));
  const at::Tensor reduced = operands.write(output, reduced_as(dtype));
  const at::Tensor received = operands.scratch({size_, output.numel()}, reduced_as(dtype));
  steps.push_back(
      {[source, received, options](c10d::Backend& transport) {
         at::Tensor from = bytes(source);
         at::Tensor to = bytes(received);
         std::vector<int64_t> equal;
         return transport.alltoall_base(to, from, equal, equal, options);
       },
       [received, reduced, operation] {
         const KernelsOnly kernels;
         reduce_rows(host_view(received), operation, numbers(reduced));
       }});
}

Hccl::Started Hccl::broadcast(Tensors& tensors, const c10d::BroadcastOptions& requested) {
  Operands operands;
  c10d::BroadcastOptions options = requested;
  options.timeout = limit(requested.timeout);
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

Hccl::Started Hccl::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() > 1) {  // like HCCL, reduces each tensor separately
    c10d::AllreduceCoalescedOptions coalesced;
    coalesced.reduceOp = options.reduceOp;
    coalesced.timeout = options.timeout;
    return allreduce_coalesced(tensors, coalesced);
  }
  Operands operands;
  std::vector<Step> steps;
  add_reduction(
      steps, operands, only(tensors, "all_reduce"), options.reduceOp, options.timeout);
  return launch(
      next(c10d::OpType::ALLREDUCE, "all_reduce", like(tensors)), tensors, std::move(operands),
      std::move(steps));
}

Hccl::Started Hccl::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Operands operands;
  std::vector<Step> steps;
  for (const at::Tensor& tensor : tensors) {
    add_reduction(steps, operands, tensor, options.reduceOp, options.timeout);
  }
  return launch(
      next(c10d::OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", like(tensors)), tensors,
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::reduce(Tensors& tensors, const c10d::ReduceOptions& requested) {
  Operands operands;
  c10d::ReduceOptions options = requested;
  options.timeout = limit(requested.timeout);
  const at::Tensor& tensor = only(tensors, "reduce");
  check_reduction(options.reduceOp, tensor.scalar_type());
  const auto dtype = reduced_as(tensor.scalar_type());
  at::Tensor memory;
  if (options.rootRank == rank_) {
    memory = operands.update(tensor, dtype);
  } else {  // the transport overwrites this memory with partial results
    memory = operands.copied(tensor, dtype);
  }
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
  const auto options = with<c10d::AllgatherOptions>(limit(requested.timeout));
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

Hccl::Started Hccl::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Operands operands;
  std::vector<Step> steps;
  add_gathering(steps, operands, output, input, options.timeout);
  return launch(
      next(c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor", like(input)), {output},
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::allgather_coalesced(
    std::vector<Tensors>& /*outputs*/, Tensors& /*inputs*/,
    const c10d::AllgatherOptions& /*options*/) {
  TORCH_CHECK(
      false, "HCCL has no allgather_coalesced: gather each tensor with all_gather, or all of them "
      "with all_gather_into_tensor.");
}

Hccl::Started Hccl::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(
      outputs.size() == inputs.size(), "hccl's all_gather_into_tensor_coalesced needs as many "
      "outputs as inputs, but got ", outputs.size(), " and ", inputs.size(), ".");
  Operands operands;
  std::vector<Step> steps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    add_gathering(steps, operands, outputs[i], inputs[i], options.timeout);
  }
  return launch(
      next(c10d::OpType::COALESCED, "all_gather_into_tensor_coalesced", like(inputs)), outputs,
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  Operands operands;
  std::vector<Step> steps;
  const at::Tensor& output = only(outputs, "reduce_scatter");
  const Tensors& parts = only(inputs, size_, "reduce_scatter");
  for (const at::Tensor& part : parts) {
    check_same_size(output, part, "reduce_scatter");
  }
  add_scattered_reduction(
      steps, operands, output, operands.joined(parts), options.reduceOp, options.timeout);
  return launch(
      next(c10d::OpType::REDUCE_SCATTER, "reduce_scatter", like(output)), outputs,
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  check_parts(input, output, size_, "reduce_scatter_tensor");
  Operands operands;
  std::vector<Step> steps;
  add_scattered_reduction(steps, operands, output, input, options.reduceOp, options.timeout);
  return launch(
      next(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", like(output)), {output},
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(
      outputs.size() == inputs.size(), "hccl's reduce_scatter_tensor_coalesced needs as many "
      "outputs as inputs, but got ", outputs.size(), " and ", inputs.size(), ".");
  Operands operands;
  std::vector<Step> steps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_parts(inputs[i], outputs[i], size_, "reduce_scatter_tensor_coalesced");
    add_scattered_reduction(
        steps, operands, outputs[i], inputs[i], options.reduceOp, options.timeout);
  }
  return launch(
      next(c10d::OpType::COALESCED, "reduce_scatter_tensor_coalesced", like(outputs)), outputs,
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::barrier(const c10d::BarrierOptions& requested) {
  const auto options = with<c10d::BarrierOptions>(limit(requested.timeout));
  return launch(
      next(c10d::OpType::BARRIER, "barrier"), {}, {},
      {{[options](c10d::Backend& transport) { return transport.barrier(options); }}});
}

}  // namespace hpu::collectives
