// Lazy-mode operators for embedding tables: sums of rows, and optimizers that update only rows with
// a gradient. The optimizers use the standard algorithms, because the vendor's kernels are not
// public.
#include "custom/define.h"
#include "custom/embeddings/segments.h"

#include <algorithm>

namespace hpu::custom {
namespace {

enum KernelMode : int64_t { kGather = 0, kBagSum = 1, kSmallBags = 2 };

void check_bags(
    const at::Tensor& input, const at::Tensor& indices, const at::Tensor& offsets,
    const at::Tensor& valid_count, int64_t kernel_mode) {
  TORCH_CHECK(input.dim() == 2, "Input tensor should be 2D");
  TORCH_CHECK(indices.dim() == 1, "index tensor cannot be more than 1D");
  TORCH_CHECK(valid_count.dim() == 1, "valid count tensor should be 1D");
  TORCH_CHECK(
      at::isIntegralType(indices.scalar_type(), /*includeBool=*/false),
      "The indices of an embedding must be integers, but got ",
      toString(indices.scalar_type()), ".");
  TORCH_CHECK(
      kernel_mode >= kGather && kernel_mode <= kSmallBags,
      "The embedding kernel mode must be 0, 1 or 2, but got ", kernel_mode, ".");
  TORCH_CHECK(
      kernel_mode == kGather || (offsets.dim() == 1 && offsets.sym_size(0) > 0),
      "Bag offsets must be 1D and not empty, but got shape ",
      offsets.sym_sizes(), ".");
}

/// Returns the sum of the rows in each bag, in float32.
at::Tensor sums_of_bags(
    const at::Tensor& input, const at::Tensor& indices, const at::Tensor& offsets) {
  check_offsets("Embedding", offsets, indices.numel());
  const at::Tensor bounds = offsets.to(ScalarType::Long);
  const int64_t bags = bounds.size(0) - 1;
  const at::Tensor lengths = bounds.slice(0, 1) - bounds.slice(0, 0, bags);
  const at::Tensor bag =
      at::arange(bags, lengths.options()).repeat_interleave(lengths);
  const at::Tensor positions = positions_of_segments(bounds.slice(0, 0, bags), lengths);
  const at::Tensor rows = input.index_select(0, indices.index_select(0, positions));
  return at::zeros({bags, input.size(1)}, input.options().dtype(ScalarType::Float))
      .index_add_(0, bag, rows.to(ScalarType::Float));
}

/// Returns a row for each bag, or for each index if the mode is kGather.
at::Tensor embedding_bag_sum(
    const at::Tensor& input, const at::Tensor& indices, const at::Tensor& offsets,
    const at::Tensor& valid_count, int64_t kernel_mode) {
  check_bags(input, indices, offsets, valid_count, kernel_mode);
  if (input.is_meta()) {
    const c10::SymInt rows =
        kernel_mode == kGather ? indices.sym_size(0) : offsets.sym_size(0) - 1;
    return at::empty_symint({rows, input.sym_size(1)}, input.options());
  }
  return kernel_mode == kGather ? input.index_select(0, indices)
                                : sums_of_bags(input, indices, offsets).to(input.scalar_type());
}

/// Adds the gradients to the first `valid_count_bwd` rows of `out`.
at::Tensor embedding_bag_sum_bwd_out(
    at::Tensor out, const at::Tensor& input, const at::Tensor& indices_bwd,
    const at::Tensor& offsets_bwd, const at::Tensor& valid_count_bwd, int64_t kernel_mode) {
  check_bags(input, indices_bwd, offsets_bwd, valid_count_bwd, kernel_mode);
  TORCH_CHECK(
      out.dim() == 2 && out.sym_size(1) == input.sym_size(1) && valid_count_bwd.sym_numel() > 0,
      "The gradient of an embedding must be 2D with as many columns as the input of shape ",
      input.sym_sizes(), ", and valid_count_bwd must not be empty, but got a gradient of shape ",
      out.sym_sizes(), ".");
  if (out.is_meta()) {
    return out;
  }
  const at::Tensor sums = kernel_mode == kGather
      ? input.index_select(0, indices_bwd).to(ScalarType::Float)
      : sums_of_bags(input, indices_bwd, offsets_bwd);
  const int64_t valid = std::min(valid_count_bwd[0].item<int64_t>(), sums.size(0));
  TORCH_CHECK(
      valid >= 0 && valid <= out.size(0), "The gradient of an embedding has ", out.size(0),
      " rows, but ", valid, " are valid.");
  out.narrow(0, 0, valid).add_(sums.narrow(0, 0, valid));
  return out;
}

/// The sums of the valid gradients of each row.
struct RowGradients {
  at::Tensor rows;
  at::Tensor gradients;
};

RowGradients row_gradients(
    const char* name, const at::Tensor& gradients, const at::Tensor& weights,
    const at::Tensor& moments, const at::Tensor& indices, const at::Tensor& valid_count) {
  TORCH_CHECK(
      gradients.dim() == 2 && weights.dim() == 2 && indices.dim() == 1 &&
          gradients.size(1) == weights.size(1) && gradients.size(0) == indices.size(0) &&
          moments.sizes() == weights.sizes(),
      name, " requires one row of gradients per index and one moment per weight, but got "
      "gradients of ", gradients.sizes(), ", indices of ", indices.sizes(), ", weights of ",
      weights.sizes(), " and moments of ", moments.sizes(), ".");
  TORCH_CHECK(
      at::isIntegralType(indices.scalar_type(), /*includeBool=*/false) && valid_count.numel() > 0,
      name, " requires integer indices and the number of valid indices, but got indices of dtype ",
      toString(indices.scalar_type()), " and counts of shape ", valid_count.sizes(), ".");
  const int64_t valid = valid_count.flatten()[0].item<int64_t>();
  TORCH_CHECK(
      valid >= 0 && valid <= indices.size(0), name, " has ", indices.size(0), " gradients, but ",
      valid, " are valid.");
  const auto [rows, position, counts] =
      at::_unique2(indices.narrow(0, 0, valid).to(ScalarType::Long), /*sorted=*/true, true);
  at::Tensor summed =
      at::zeros({rows.size(0), weights.size(1)}, gradients.options().dtype(ScalarType::Float));
  summed.index_add_(0, position, gradients.narrow(0, 0, valid).to(ScalarType::Float));
  return {rows, summed};
}

void write_rows(const at::Tensor& table, const at::Tensor& rows, const at::Tensor& values) {
  table.index_copy_(0, rows, values.to(table.scalar_type()));
}

double rate_of(const char* name, const at::Tensor& learning_rate) {
  TORCH_CHECK(
      learning_rate.numel() == 1, name, " requires one learning rate, but got ",
      learning_rate.numel(), ".");
  return learning_rate.item<double>();
}

TwoTensors sparse_sgd(
    const at::Tensor& gradients, at::Tensor weights_in, at::Tensor moments_in,
    const at::Tensor& indices, const at::Tensor& learning_rate, const at::Tensor& valid_count,
    double mom, bool nesterov) {
  if (weights_in.is_meta()) {
    return {weights_in, moments_in};
  }
  const double rate = rate_of("SparseSGD", learning_rate);
  const auto [rows, gradient] =
      row_gradients("SparseSGD", gradients, weights_in, moments_in, indices, valid_count);
  const at::Tensor moment =
      moments_in.index_select(0, rows).to(ScalarType::Float) * mom + gradient;
  const at::Tensor step = nesterov ? gradient + moment * mom : moment;
  const at::Tensor weight = weights_in.index_select(0, rows).to(ScalarType::Float);
  write_rows(moments_in, rows, moment);
  write_rows(weights_in, rows, weight - step * rate);
  return {weights_in, moments_in};
}

TwoTensors sparse_adagrad(
    const at::Tensor& gradients, at::Tensor weights_in, at::Tensor moments_in,
    const at::Tensor& indices, const at::Tensor& learning_rate, const at::Tensor& valid_count) {
  constexpr double kEpsilon = 1e-10;
  if (weights_in.is_meta()) {
    return {weights_in, moments_in};
  }
  const double rate = rate_of("SparseAdagrad", learning_rate);
  const auto [rows, gradient] =
      row_gradients("SparseAdagrad", gradients, weights_in, moments_in, indices, valid_count);
  const at::Tensor moment =
      moments_in.index_select(0, rows).to(ScalarType::Float) + gradient * gradient;
  const at::Tensor weight = weights_in.index_select(0, rows).to(ScalarType::Float);
  write_rows(moments_in, rows, moment);
  write_rows(weights_in, rows, weight - gradient / (moment.sqrt() + kEpsilon) * rate);
  return {weights_in, moments_in};
}

const Operators embeddings([](Operators& define) {
  const std::string step =
      "(Tensor gradients, Tensor(a!) weights_in, Tensor(b!) moments_in, Tensor indices, "
      "Tensor learning_rate, Tensor valid_count_tensor";
  const std::string written_tables = ") -> (Tensor(a!), Tensor(b!))";
  define.in_lazy_mode(
      "embedding_bag_sum(Tensor input, Tensor indices, Tensor offsets, Tensor valid_count, "
      "int kernel_mode) -> Tensor",
      &embedding_bag_sum);
  define.in_lazy_mode(
      "embedding_bag_sum_bwd_out(Tensor(a!) out, Tensor input, Tensor indices_bwd, "
      "Tensor offsets_bwd, Tensor valid_count_bwd, int kernel_mode) -> Tensor(a!)",
      &embedding_bag_sum_bwd_out);
  define.in_lazy_mode(
      "habanaOptimizerSparseSgd" + step + ", float mom, bool nesterov" + written_tables,
      &sparse_sgd);
  define.in_lazy_mode("habanaOptimizerSparseAdagrad" + step + written_tables, &sparse_adagrad);
});

}  // namespace
}  // namespace hpu::custom
