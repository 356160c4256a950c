// Collectives with a different result for each rank, and point-to-point messages.
#include "collectives/backend.h"
#include "collectives/operands.h"
#include "memory/skipping.h"

#include <algorithm>
#include <numeric>

namespace hpu::collectives {
namespace {

/// Returns the number of bytes for each rank when a tensor is split along its first dimension.
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
  const bool negative =
      std::any_of(split.begin(), split.end(), [](int64_t count) { return count < 0; });
  TORCH_CHECK(
      split.size() == static_cast<size_t>(size) && !negative &&
          std::accumulate(split.begin(), split.end(), int64_t{0}) == all,
      "Split sizes doesn't match total dim 0 size: ", c10::IntArrayRef(split), " for ", all,
      " rows and ", size, " ranks.");
  const int64_t row = all > 0 ? static_cast<int64_t>(tensor.nbytes()) / all : 0;
  for (int64_t& count : split) {
    count *= row;
  }
  return split;
}

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

std::vector<int64_t> sizes_of(const Hccl::Tensors& tensors) {
  std::vector<int64_t> sizes;
  sizes.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    sizes.push_back(tensor.numel());
  }
  return sizes;
}

/// Copies the chunk that a rank sends to itself to the chunks that it receives from each rank.
void repeat(
    const at::Tensor& from, const at::Tensor& to, const std::vector<int64_t>& sent,
    const std::vector<int64_t>& received, ptrdiff_t rank) {
  const auto own = sent.begin() + rank;
  const at::Tensor chunk = from.narrow(0, std::accumulate(sent.begin(), own, int64_t{0}), *own);
  int64_t start = 0;
  for (const int64_t size : received) {
    to.narrow(0, start, size).copy_(chunk);
    start += size;
  }
}

}  // namespace

Hccl::Started Hccl::gather(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& requested) {
  Operands operands;
  const auto options = limited(requested);
  const at::Tensor& input = only(inputs, "gather");
  const at::Tensor from = operands.read(input);
  Tensors to;
  if (options.rootRank == rank_) {
    for (const at::Tensor& output : only(outputs, size_, "gather")) {
      check_same_size(output, input, "gather");
      to.push_back(operands.write(output));
    }
  }
  return launch(
      next(c10d::OpType::GATHER, "gather", like(input, options.rootRank)),
      outputs.empty() ? Tensors() : outputs[0], std::move(operands),
      {{[from, to, options](c10d::Backend& transport) {
        std::vector<Tensors> lists;
        if (!to.empty()) {
          lists.push_back(bytes(to));
        }
        Tensors tensors{bytes(from)};
        return transport.gather(lists, tensors, options);
      }}});
}

Hccl::Started Hccl::scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& requested) {
  Operands operands;
  const auto options = limited(requested);
  const at::Tensor& output = only(outputs, "scatter");
  Tensors from;
  if (options.rootRank == rank_) {
    for (const at::Tensor& input : only(inputs, size_, "scatter")) {
      check_same_size(output, input, "scatter");
      from.push_back(operands.read(input));
    }
  }
  const at::Tensor to = operands.write(output);
  return launch(
      next(c10d::OpType::SCATTER, "scatter", like(output, options.rootRank)), outputs,
      std::move(operands), {{[from, to, options](c10d::Backend& transport) {
        std::vector<Tensors> lists;
        if (!from.empty()) {
          lists.push_back(bytes(from));
        }
        Tensors tensors{bytes(to)};
        return transport.scatter(tensors, lists, options);
      }}});
}

Hccl::Step Hccl::exchange(
    const at::Tensor& from, const at::Tensor& to, std::vector<int64_t> sent,
    std::vector<int64_t> received, const c10d::AllToAllOptions& options) {
  return {[=](c10d::Backend& transport) mutable {
    at::Tensor source = bytes(from);
    at::Tensor target = bytes(to);
    return transport.alltoall_base(target, source, received, sent, options);
  }};
}

Hccl::Step Hccl::exchange_or_repeat(
    const at::Tensor& from, const at::Tensor& to, const std::vector<int64_t>& sent,
    const std::vector<int64_t>& received, const c10d::AllToAllOptions& options) const {
  if (!skipping::dry_run()) {
    return exchange(from, to, sent, received, options);
  }
  const int64_t own = sent[static_cast<size_t>(rank_)];
  const bool fits = std::all_of(
      received.begin(), received.end(), [own](int64_t size) { return size == own; });
  return {
      [=, rank = rank_](c10d::Backend&) {
        repeat(bytes(from), bytes(to), sent, received, rank);
        return Started();
      },
      {},
      fits};
}

Hccl::Started Hccl::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_rows,
    std::vector<int64_t>& input_rows, const c10d::AllToAllOptions& requested) {
  TORCH_CHECK(
      output.scalar_type() == input.scalar_type(), "hccl's all_to_all_single requires tensors "
      "of the same dtype, but got ", output.scalar_type(), " and ", input.scalar_type(), ".");
  Operands operands;
  const auto sent = split_in_bytes(input_rows, input, size_);
  const auto received = split_in_bytes(output_rows, output, size_);
  const Step step = exchange_or_repeat(
      operands.read(input), operands.write(output), sent, received, limited(requested));
  return launch(
      next(c10d::OpType::ALLTOALL_BASE, "all_to_all_single", {}, bytes_of(input)), {output},
      std::move(operands), {step});
}

Hccl::Started Hccl::alltoall(
    Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& requested) {
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK(
      outputs.size() == ranks && inputs.size() == ranks, "hccl's all_to_all requires a tensor "
      "for each of the ", size_, " ranks, but got ", outputs.size(), " outputs and ", inputs.size(),
      " inputs.");
  for (const Tensors* tensors : {&outputs, &inputs}) {
    for (const at::Tensor& tensor : *tensors) {
      TORCH_CHECK(
          tensor.scalar_type() == inputs[0].scalar_type(), "hccl's all_to_all requires tensors "
          "of the same dtype, but got ", inputs[0].scalar_type(), " and ", tensor.scalar_type(),
          ".");
    }
  }
  Operands operands;
  const at::Tensor input = operands.joined(inputs);
  const at::Tensor output = operands.scratch({like(outputs).elements}, input.scalar_type());
  operands.part(output, outputs);
  const Step step = exchange_or_repeat(
      input, output, split_in_bytes(sizes_of(inputs), input, size_),
      split_in_bytes(sizes_of(outputs), output, size_), limited(requested));
  return launch(
      next(c10d::OpType::ALLTOALL, "all_to_all", {}, bytes_of(input)), outputs,
      std::move(operands), {step});
}

Hccl::Started Hccl::send(Tensors& tensors, int destination, int tag) {
  Operands operands;
  const at::Tensor memory = operands.read(only(tensors, "send"));
  return launch(
      next_message(c10d::OpType::SEND, "send", destination, tag, bytes_of(memory)), tensors,
      std::move(operands), {{[=](c10d::Backend& transport) {
        Tensors memories{bytes(memory)};
        return transport.send(memories, destination, tag);
      }}});
}

Hccl::Started Hccl::recv(Tensors& tensors, int source, int tag) {
  Operands operands;
  const at::Tensor memory = operands.write(only(tensors, "recv"));
  return launch(
      next_message(c10d::OpType::RECV, "recv", source, tag, bytes_of(memory)), tensors,
      std::move(operands), {{[=](c10d::Backend& transport) {
        Tensors memories{bytes(memory)};
        return transport.recv(memories, source, tag);
      }}});
}

Hccl::Started Hccl::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  TORCH_CHECK(false, "HCCL cannot receive from an arbitrary source; specify the source rank.");
}

}  // namespace hpu::collectives
