// Each collective of hccl in terms of the transport's.
#include "collectives/backend.h"
#include "collectives/reductions.h"

#include "calls/kernels_only.h"
#include "memory/memory.h"

namespace hpu::collectives {
namespace {

using Tensors = Hccl::Tensors;
using Lists = std::vector<Tensors>;

const at::Tensor& only(const Tensors& tensors, const char* name) {
  TORCH_CHECK(
      tensors.size() == 1, "hccl's ", name, " takes one tensor of the rank's card, not ",
      tensors.size(), ".");
  return tensors[0];
}

const Tensors& only(const Lists& lists, int size, const char* name) {
  TORCH_CHECK(
      lists.size() == 1 && lists[0].size() == static_cast<size_t>(size), "hccl's ", name,
      " takes one list with a tensor for each of the ", size, " ranks.");
  return lists[0];
}

void check_like(const at::Tensor& one, const at::Tensor& other, const char* name) {
  TORCH_CHECK(
      one.scalar_type() == other.scalar_type() && one.numel() == other.numel(), "hccl's ", name,
      " needs tensors of one type and size, not ", one.scalar_type(), " of ", one.sizes(),
      " beside ", other.scalar_type(), " of ", other.sizes(), ".");
}

void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* name) {
  TORCH_CHECK(
      whole.scalar_type() == part.scalar_type() && whole.numel() == part.numel() * size,
      "hccl's ", name, " needs two tensors of one type, the larger with the elements of all ",
      size, " ranks, not ", whole.scalar_type(), " of ", whole.sizes(), " beside ",
      part.scalar_type(), " of ", part.sizes(), ".");
}

Tensors bytes_of(const Tensors& tensors) {
  Tensors memory;
  memory.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    memory.push_back(bytes(tensor));
  }
  return memory;
}

/// How many bytes each rank gets of a tensor that is split by rows of its first dimension.
std::vector<int64_t> split_in_bytes(
    const std::vector<int64_t>& rows, const at::Tensor& tensor, int size) {
  const int64_t all = tensor.dim() > 0 ? tensor.size(0) : 1;
  std::vector<int64_t> split = rows;
  if (rows.empty()) {
    TORCH_CHECK(
        all % size == 0, "Tensor's dim 0 does not divide equally across group size: ", all,
        " rows for ", size, " ranks.");
    split.assign(static_cast<size_t>(size), all / size);
  }
  int64_t sum = 0;
  for (const int64_t count : split) {
    sum += count;
  }
  TORCH_CHECK(
      split.size() == static_cast<size_t>(size) && sum == all,
      "Split sizes doesn't match total dim 0 size: ", c10::IntArrayRef(split), " for ", all,
      " rows and ", size, " ranks.");
  const int64_t row = all > 0 ? static_cast<int64_t>(tensor.nbytes()) / all : 0;
  for (int64_t& count : split) {
    count *= row;
  }
  return split;
}

std::vector<int64_t> sizes_of(const Tensors& tensors) {
  std::vector<int64_t> sizes;
  sizes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    sizes.push_back(tensor.numel());
  }
  return sizes;
}

int64_t sum(const std::vector<int64_t>& sizes) {
  int64_t all = 0;
  for (const int64_t size : sizes) {
    all += size;
  }
  return all;
}

template <class Options>
Options with(std::chrono::milliseconds timeout) {
  Options options;
  options.timeout = timeout;
  return options;
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
  const at::Tensor given = operands.read(input);
  const at::Tensor gathered = operands.write(output);
  steps.push_back({[given, gathered, options](c10d::Backend& transport) {
    at::Tensor from = bytes(given);
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
  const at::Tensor given = operands.read(input, reduced_as(dtype));
  const at::Tensor reduced = operands.write(output, reduced_as(dtype));
  const at::Tensor received = operands.scratch({size_, output.numel()}, reduced_as(dtype));
  steps.push_back(
      {[given, received, options](c10d::Backend& transport) {
         at::Tensor from = bytes(given);
         at::Tensor to = bytes(received);
         std::vector<int64_t> equal;
         return transport.alltoall_base(to, from, equal, equal, options);
       },
       [received, reduced, operation] {
         const KernelsOnly kernels;
         reduce_rows(host_view(received), operation, numbers(reduced));
       }});
}

Hccl::Started Hccl::broadcast(Tensors& tensors, const c10d::BroadcastOptions& given) {
  Operands operands;
  c10d::BroadcastOptions options = given;
  options.timeout = limit(given.timeout);
  const at::Tensor& tensor = only(tensors, "broadcast");
  const at::Tensor memory =
      options.rootRank == rank_ ? operands.read(tensor) : operands.write(tensor);
  return launch(
      next(c10d::OpType::BROADCAST, "broadcast"), tensors, std::move(operands),
      {{[memory, options](c10d::Backend& transport) {
        Tensors memories{bytes(memory)};
        return transport.broadcast(memories, options);
      }}});
}

Hccl::Started Hccl::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Operands operands;
  std::vector<Step> steps;
  add_reduction(
      steps, operands, only(tensors, "all_reduce"), options.reduceOp, options.timeout);
  return launch(
      next(c10d::OpType::ALLREDUCE, "all_reduce"), tensors, std::move(operands),
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
      next(c10d::OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced"), tensors,
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::reduce(Tensors& tensors, const c10d::ReduceOptions& given) {
  Operands operands;
  c10d::ReduceOptions options = given;
  options.timeout = limit(given.timeout);
  const at::Tensor& tensor = only(tensors, "reduce");
  check_reduction(options.reduceOp, tensor.scalar_type());
  const auto dtype = reduced_as(tensor.scalar_type());
  at::Tensor memory;
  if (options.rootRank == rank_) {
    memory = operands.update(tensor, dtype);
  } else {  // the transport leaves partial results there
    memory = operands.copied(tensor, dtype);
  }
  return launch(
      next(c10d::OpType::REDUCE, "reduce"), tensors, std::move(operands),
      {{[memory, options](c10d::Backend& transport) {
        Tensors memories{numbers(memory)};
        return transport.reduce(memories, options);
      }}});
}

Hccl::Started Hccl::allgather(
    Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& given) {
  Operands operands;
  const auto options = with<c10d::AllgatherOptions>(limit(given.timeout));
  const at::Tensor& input = only(inputs, "all_gather");
  const at::Tensor from = operands.read(input);
  Tensors to;
  for (const at::Tensor& output : only(outputs, size_, "all_gather")) {
    check_like(output, input, "all_gather");
    to.push_back(operands.write(output));
  }
  return launch(
      next(c10d::OpType::ALLGATHER, "all_gather"), outputs[0], std::move(operands),
      {{[from, to, options](c10d::Backend& transport) {
        Lists lists{bytes_of(to)};
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
      next(c10d::OpType::_ALLGATHER_BASE, "all_gather_into_tensor"), {output},
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::allgather_coalesced(
    Lists& /*outputs*/, Tensors& /*inputs*/, const c10d::AllgatherOptions& /*options*/) {
  TORCH_CHECK(
      false, "HCCL has no allgather_coalesced: gather each tensor with all_gather, or all of them "
      "with all_gather_into_tensor.");
}

Hccl::Started Hccl::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(
      outputs.size() == inputs.size(), "hccl's all_gather_into_tensor_coalesced takes as many "
      "outputs as inputs, not ", outputs.size(), " and ", inputs.size(), ".");
  Operands operands;
  std::vector<Step> steps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    add_gathering(steps, operands, outputs[i], inputs[i], options.timeout);
  }
  return launch(
      next(c10d::OpType::COALESCED, "all_gather_into_tensor_coalesced"), outputs,
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& given) {
  Operands operands;
  c10d::GatherOptions options = given;
  options.timeout = limit(given.timeout);
  const at::Tensor& input = only(inputs, "gather");
  const at::Tensor from = operands.read(input);
  Tensors to;
  if (options.rootRank == rank_) {
    for (const at::Tensor& output : only(outputs, size_, "gather")) {
      check_like(output, input, "gather");
      to.push_back(operands.write(output));
    }
  }
  return launch(
      next(c10d::OpType::GATHER, "gather"), outputs.empty() ? Tensors() : outputs[0],
      std::move(operands), {{[from, to, options](c10d::Backend& transport) {
        Lists lists;
        if (!to.empty()) {
          lists.push_back(bytes_of(to));
        }
        Tensors tensors{bytes(from)};
        return transport.gather(lists, tensors, options);
      }}});
}

Hccl::Started Hccl::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& given) {
  Operands operands;
  c10d::ScatterOptions options = given;
  options.timeout = limit(given.timeout);
  const at::Tensor& output = only(outputs, "scatter");
  Tensors from;
  if (options.rootRank == rank_) {
    for (const at::Tensor& input : only(inputs, size_, "scatter")) {
      check_like(output, input, "scatter");
      from.push_back(operands.read(input));
    }
  }
  const at::Tensor to = operands.write(output);
  return launch(
      next(c10d::OpType::SCATTER, "scatter"), outputs, std::move(operands),
      {{[from, to, options](c10d::Backend& transport) {
        Lists lists;
        if (!from.empty()) {
          lists.push_back(bytes_of(from));
        }
        Tensors tensors{bytes(to)};
        return transport.scatter(tensors, lists, options);
      }}});
}

Hccl::Started Hccl::reduce_scatter(
    Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) {
  Operands operands;
  std::vector<Step> steps;
  const at::Tensor& output = only(outputs, "reduce_scatter");
  const Tensors& parts = only(inputs, size_, "reduce_scatter");
  for (const at::Tensor& part : parts) {
    check_like(output, part, "reduce_scatter");
  }
  add_scattered_reduction(
      steps, operands, output, operands.joined(parts), options.reduceOp, options.timeout);
  return launch(
      next(c10d::OpType::REDUCE_SCATTER, "reduce_scatter"), outputs, std::move(operands),
      std::move(steps));
}

Hccl::Started Hccl::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  check_parts(input, output, size_, "reduce_scatter_tensor");
  Operands operands;
  std::vector<Step> steps;
  add_scattered_reduction(steps, operands, output, input, options.reduceOp, options.timeout);
  return launch(
      next(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor"), {output},
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(
      outputs.size() == inputs.size(), "hccl's reduce_scatter_tensor_coalesced takes as many "
      "outputs as inputs, not ", outputs.size(), " and ", inputs.size(), ".");
  Operands operands;
  std::vector<Step> steps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_parts(inputs[i], outputs[i], size_, "reduce_scatter_tensor_coalesced");
    add_scattered_reduction(
        steps, operands, outputs[i], inputs[i], options.reduceOp, options.timeout);
  }
  return launch(
      next(c10d::OpType::COALESCED, "reduce_scatter_tensor_coalesced"), outputs,
      std::move(operands), std::move(steps));
}

Hccl::Started Hccl::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
    std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& given) {
  TORCH_CHECK(
      output.scalar_type() == input.scalar_type(), "hccl's all_to_all_single needs tensors of one "
      "type, not ", output.scalar_type(), " and ", input.scalar_type(), ".");
  Operands operands;
  const auto options = with<c10d::AllToAllOptions>(limit(given.timeout));
  const auto sent = split_in_bytes(input_rows, input, size_);
  const auto received = split_in_bytes(output_rows, output, size_);
  const at::Tensor from = operands.read(input);
  const at::Tensor to = operands.write(output);
  return launch(
      next(c10d::OpType::ALLTOALL_BASE, "all_to_all_single"), {output}, std::move(operands),
      {{[=](c10d::Backend& transport) {
        at::Tensor source = bytes(from);
        at::Tensor target = bytes(to);
        std::vector<int64_t> target_split = received;
        std::vector<int64_t> source_split = sent;
        return transport.alltoall_base(target, source, target_split, source_split, options);
      }}});
}

Hccl::Started Hccl::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& given) {
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK(
      outputs.size() == ranks && inputs.size() == ranks, "hccl's all_to_all takes a tensor for "
      "each of the ", size_, " ranks, not ", outputs.size(), " outputs and ", inputs.size(),
      " inputs.");
  for (const Tensors* tensors : {&outputs, &inputs}) {
    for (const at::Tensor& tensor : *tensors) {
      TORCH_CHECK(
          tensor.scalar_type() == inputs[0].scalar_type(), "hccl's all_to_all needs tensors of "
          "one type, not ", inputs[0].scalar_type(), " and ", tensor.scalar_type(), ".");
    }
  }
  Operands operands;
  at::Tensor input = operands.joined(inputs);
  at::Tensor output = operands.scratch({sum(sizes_of(outputs))}, input.scalar_type());
  operands.part(output, outputs);
  const auto options = with<c10d::AllToAllOptions>(limit(given.timeout));
  const auto sent = split_in_bytes(sizes_of(inputs), input, size_);
  const auto received = split_in_bytes(sizes_of(outputs), output, size_);
  return launch(
      next(c10d::OpType::ALLTOALL, "all_to_all"), outputs, std::move(operands),
      {{[=](c10d::Backend& transport) {
        at::Tensor source = bytes(input);
        at::Tensor target = bytes(output);
        std::vector<int64_t> target_split = received;
        std::vector<int64_t> source_split = sent;
        return transport.alltoall_base(target, source, target_split, source_split, options);
      }}});
}

Hccl::Started Hccl::send(Tensors& tensors, int destination, int tag) {
  check_peer(destination, "send");
  Operands operands;
  const at::Tensor memory = operands.read(only(tensors, "send"));
  return launch(
      {c10d::OpType::SEND, "send", 0}, tensors, std::move(operands),
      {{[=](c10d::Backend& transport) {
        Tensors memories{bytes(memory)};
        return transport.send(memories, destination, tag);
      }}});
}

Hccl::Started Hccl::recv(Tensors& tensors, int source, int tag) {
  check_peer(source, "recv");
  Operands operands;
  const at::Tensor memory = operands.write(only(tensors, "recv"));
  return launch(
      {c10d::OpType::RECV, "recv", 0}, tensors, std::move(operands),
      {{[=](c10d::Backend& transport) {
        Tensors memories{bytes(memory)};
        return transport.recv(memories, source, tag);
      }}});
}

Hccl::Started Hccl::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  TORCH_CHECK(false, "HCCL does not receive from any source: name the rank.");
}

Hccl::Started Hccl::barrier(const c10d::BarrierOptions& given) {
  const auto options = with<c10d::BarrierOptions>(limit(given.timeout));
  return launch(
      next(c10d::OpType::BARRIER, "barrier"), {}, {},
      {{[options](c10d::Backend& transport) { return transport.barrier(options); }}});
}

}  // namespace hpu::collectives
