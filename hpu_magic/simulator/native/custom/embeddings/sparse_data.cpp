// Lazy-mode versions of FBGEMM's operators for the segmented indices of recommendation models. The
// vendor's package calls them from functions with FBGEMM's names.
#include "custom/define.h"
#include "custom/embeddings/segments.h"

namespace hpu::custom {
namespace {

at::Tensor as_int64(const char* name, const at::Tensor& numbers) {
  TORCH_CHECK(
      at::isIntegralType(numbers.scalar_type(), /*includeBool=*/false), name,
      " must be integers, but got ", toString(numbers.scalar_type()), ".");
  return numbers.to(ScalarType::Long);
}

/// Converts a permutation to int64, after checking that it contains each position once.
at::Tensor permutation(const at::Tensor& permute, int64_t count) {
  const at::Tensor order = as_int64("permute", permute);
  TORCH_CHECK(
      order.dim() == 1 && order.numel() == count &&
          at::equal(std::get<0>(order.sort()), at::arange(count, order.options())),
      "permute must contain each number from 0 to ", count - 1, " once, but got ", permute, ".");
  return order;
}

/// Returns the lengths, indices and weights of the segments in a different order.
ThreeTensors permuted(
    const at::Tensor& order, const at::Tensor& lengths, const at::Tensor& indices,
    const OptionalTensor& weights) {
  const at::Tensor each = as_int64("lengths", lengths).flatten();
  TORCH_CHECK(
      indices.dim() == 1 && (each.numel() == 0 || each.min().item<int64_t>() >= 0) &&
          each.sum().item<int64_t>() == indices.numel(),
      "lengths must not be negative and must add up to the ", indices.sizes(), " indices, but got ",
      lengths, ".");
  TORCH_CHECK(
      !is_defined(weights) || weights->sizes() == indices.sizes(),
      "There must be a weight for each of ", indices.sizes(), " indices, but weights have shape ",
      weights->sizes(), ".");
  const at::Tensor chosen = each.index_select(0, order);
  const at::Tensor positions =
      positions_of_segments((each.cumsum(0) - each).index_select(0, order), chosen);
  return {
      chosen.to(lengths.scalar_type()), indices.index_select(0, positions),
      is_defined(weights) ? weights->index_select(0, positions) : at::Tensor()};
}

ThreeTensors permute_1d(
    const at::Tensor& permute, const at::Tensor& lengths, const at::Tensor& indices,
    const OptionalTensor& weights) {
  if (lengths.is_meta()) {
    return {
        at::empty_like(lengths.flatten()), at::empty_like(indices),
        is_defined(weights) ? at::empty_like(*weights) : at::Tensor()};
  }
  return permuted(permutation(permute, lengths.numel()), lengths, indices, weights);
}

TwoTensors permute_1d_without_weights(
    const at::Tensor& permute, const at::Tensor& lengths, const at::Tensor& indices) {
  const auto [of_segments, of_indices, none] =
      permute_1d(permute, lengths, indices, std::nullopt);
  return {of_segments, of_indices};
}

/// Permutes the tables. `lengths` has shape [tables, batch].
ThreeTensors permute_2d(
    const at::Tensor& permute, const at::Tensor& lengths, const at::Tensor& indices,
    const OptionalTensor& weights) {
  TORCH_CHECK(
      lengths.dim() == 2, "lengths must have shape [tables, batch], but got ", lengths.sym_sizes(),
      ".");
  if (lengths.is_meta()) {
    return {
        at::empty_like(lengths), at::empty_like(indices),
        is_defined(weights) ? at::empty_like(*weights) : at::Tensor()};
  }
  const at::Tensor tables = permutation(permute, lengths.size(0));
  const at::Tensor in_table = at::arange(lengths.size(1), tables.options());
  const at::Tensor order = (tables.unsqueeze(1) * lengths.size(1) + in_table).flatten();
  const auto [of_segments, of_indices, of_weights] = permuted(order, lengths, indices, weights);
  return {of_segments.reshape(lengths.sizes()), of_indices, of_weights};
}

TwoTensors permute_2d_without_weights(
    const at::Tensor& permute, const at::Tensor& lengths, const at::Tensor& indices) {
  const auto [of_segments, of_indices, none] =
      permute_2d(permute, lengths, indices, std::nullopt);
  return {of_segments, of_indices};
}

/// Returns the positions of the elements of the permuted segments.
at::Tensor expand_into_jagged_permute(
    const at::Tensor& permute, const at::Tensor& input_offsets,
    const at::Tensor& /*output_offsets*/, int64_t output_size) {
  TORCH_CHECK(output_size >= 0, "output_size must not be negative, but got ", output_size, ".");
  if (permute.is_meta()) {
    return at::empty({output_size}, input_offsets.options());
  }
  constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
  check_offsets("expand_into_jagged_permute input", input_offsets, kUnbounded);
  const at::Tensor offsets = input_offsets.to(ScalarType::Long);
  const at::Tensor order = as_int64("permute", permute).flatten();
  const at::Tensor starts = offsets.slice(0, 0, offsets.size(0) - 1);
  const at::Tensor lengths = (offsets.slice(0, 1) - starts).index_select(0, order);
  const int64_t total = lengths.sum().item<int64_t>();
  TORCH_CHECK(
      total == output_size, "The segments in permute have ", total,
      " elements, but output_size is ", output_size, ".");
  return positions_of_segments(starts.index_select(0, order), lengths)
      .to(input_offsets.scalar_type());
}

enum BoundsCheckMode : int64_t { kFatal = 0, kWarning = 1, kIgnore = 2, kNone = 3 };

/// Corrects the offsets so that they start at 0, do not decrease and end at the number of indices.
at::Tensor corrected_offsets(const at::Tensor& offsets, int64_t count) {
  at::Tensor ordered = std::get<0>(offsets.clamp(0, count).cummax(0));
  ordered[0].fill_(0);
  ordered[-1].fill_(count);
  return ordered;
}

/// Replaces invalid indices with 0, corrects invalid offsets, and counts both. The fatal mode
/// instead replaces both with -1, because a kernel on a card cannot raise errors.
ThreeTensors bounds_check_indices(
    at::Tensor indices, at::Tensor offsets, at::Tensor warning, const at::Tensor& rows_per_table,
    int64_t bounds_check_mode, const OptionalTensor& weights) {
  TORCH_CHECK(
      bounds_check_mode >= kFatal && bounds_check_mode <= kNone,
      "bounds_check_mode must be 0 (fatal), 1 (warning), 2 (ignore) or 3 (none), but got ",
      bounds_check_mode, ".");
  if (indices.is_meta() || bounds_check_mode == kNone) {
    return {indices, offsets, warning};
  }
  const int64_t tables = rows_per_table.numel();
  const int64_t bags = offsets.numel() - 1;
  TORCH_CHECK(
      indices.dim() == 1 && offsets.dim() == 1 && rows_per_table.dim() == 1 && tables > 0 &&
          bags >= 0 && bags % tables == 0 && warning.dim() == 1 && warning.numel() > 0,
      "bounds_check_indices requires 1D indices, one end offset for each bag of each of ", tables,
      " tables, and a warning tensor that is not empty, but got shapes ", indices.sizes(), ", ",
      offsets.sizes(), " and ", warning.sizes(), ".");
  TORCH_CHECK(
      !is_defined(weights) || weights->sizes() == indices.sizes(),
      "There must be a weight for each of ", indices.sizes(), " indices, but weights have shape ",
      weights->sizes(), ".");
  const at::Tensor bounds = as_int64("offsets", offsets);
  const at::Tensor ordered = corrected_offsets(bounds, indices.numel());
  const at::Tensor positions = at::arange(indices.numel(), bounds.options());
  const at::Tensor bag = at::searchsorted(ordered, positions, false, /*right=*/true) - 1;
  const at::Tensor table = at::floor_divide(bag, std::max<int64_t>(bags / tables, 1));
  const at::Tensor rows = as_int64("rows_per_table", rows_per_table).index_select(0, table);
  const at::Tensor each = as_int64("indices", indices);
  const at::Tensor outside = at::logical_or(each < 0, each >= rows);
  const at::Tensor changed = ordered != bounds;
  if (bounds_check_mode == kFatal) {
    indices.masked_fill_(outside, -1);
    offsets.masked_fill_(changed, -1);
    return {indices, offsets, warning};
  }
  indices.masked_fill_(outside, 0);
  offsets.copy_(ordered);
  if (bounds_check_mode == kWarning) {
    warning[0].add_(outside.sum() + changed.sum());
  }
  return {indices, offsets, warning};
}

/// Permutes the blocks of each row into the order given by `indices`.
at::Tensor split_permute_cat(
    const at::Tensor& input, const at::Tensor& indices, int64_t batch_size, int64_t num_features,
    int64_t dims) {
  TORCH_CHECK(
      input.dim() == 2 && num_features >= 0 && dims >= 0 && input.sym_size(0) == batch_size &&
          input.sym_size(1) == c10::SymInt(num_features) * dims,
      "split_permute_cat input must have shape [batch_size, num_features * dims], [", batch_size, ", ",
      num_features, " * ", dims, "], but got ", input.sym_sizes(), ".");
  TORCH_CHECK(
      indices.dim() == 1 && indices.sym_size(0) == num_features,
      "split_permute_cat requires one index for each of ", num_features,
      " features, but got shape ", indices.sym_sizes(), ".");
  if (input.is_meta()) {
    return at::empty_symint(input.sym_sizes(), input.options());
  }
  return input.reshape({batch_size, num_features, dims})
      .index_select(1, as_int64("indices", indices))
      .reshape({batch_size, num_features * dims});
}

const Operators sparse_data([](Operators& define) {
  const std::string segments = "_sparse_data(Tensor permute, Tensor lengths, Tensor indices, ";
  const std::string three = segments + "Tensor? weights=None) -> (Tensor, Tensor, Tensor)";
  const std::string two =
      "_sparse_data_without_weights(Tensor permute, Tensor lengths, Tensor indices) -> "
      "(Tensor, Tensor)";
  define.in_lazy_mode("habana_permute_1D" + three, &permute_1d);
  define.in_lazy_mode("habana_permute_1D" + two, &permute_1d_without_weights);
  define.in_lazy_mode("habana_permute_2D" + three, &permute_2d);
  define.in_lazy_mode("habana_permute_2D" + two, &permute_2d_without_weights);
  define.in_lazy_mode(
      "habana_expand_into_jagged_permute(Tensor permute, Tensor input_offsets, "
      "Tensor output_offsets, int output_size) -> Tensor",
      &expand_into_jagged_permute);
  define.in_lazy_mode(
      "habana_bounds_check_indices(Tensor(a!) indices, Tensor(b!) offsets, Tensor(c!) warning, "
      "Tensor rows_per_table, int bounds_check_mode, Tensor? weights) -> "
      "(Tensor(a!), Tensor(b!), Tensor(c!))",
      &bounds_check_indices);
  define.in_lazy_mode(
      "habana_split_permute_cat(Tensor input, Tensor indices, int batch_size, int num_features, "
      "int dims) -> Tensor",
      &split_permute_cat);
});

}  // namespace
}  // namespace hpu::custom
