// What recommendation models do to indices in segments of several lengths, as FBGEMM defines it:
// lazy mode's own, which the vendor's package calls for its functions of FBGEMM's names.
#include "custom/define.h"
#include "custom/segments.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

namespace hpu::custom {

using at::ScalarType;

void check_offsets(const char* name, const at::Tensor& offsets, int64_t most) {
  TORCH_CHECK(
      at::isIntegralType(offsets.scalar_type(), /*includeBool=*/false) && offsets.dim() == 1 &&
          offsets.numel() > 0,
      name, " offsets must be whole numbers in one dimension, one at least, but are ",
      toString(offsets.scalar_type()), " of ", offsets.sizes(), ".");
  const bool ordered =
      (offsets.slice(0, 1) >= offsets.slice(0, 0, offsets.size(0) - 1)).all().item<bool>();
  TORCH_CHECK(
      ordered && offsets[0].item<int64_t>() >= 0 && offsets[-1].item<int64_t>() <= most, name,
      " offsets must not decrease and must lie between 0 and ", most, ", but are ", offsets, ".");
}

at::Tensor places_of_segments(const at::Tensor& starts, const at::Tensor& lengths) {
  const at::Tensor ends = lengths.cumsum(0);
  const int64_t total = lengths.numel() > 0 ? ends[-1].item<int64_t>() : 0;
  const at::Tensor shift = (starts - (ends - lengths)).repeat_interleave(lengths);
  return at::arange(total, lengths.options()) + shift;
}

namespace {

at::Tensor whole_numbers(const char* name, const at::Tensor& given) {
  TORCH_CHECK(
      at::isIntegralType(given.scalar_type(), /*includeBool=*/false), name,
      " must be whole numbers, but are ", toString(given.scalar_type()), ".");
  return given.to(ScalarType::Long);
}

/// Each of `count` places once.
at::Tensor permutation(const at::Tensor& permute, int64_t count) {
  const at::Tensor order = whole_numbers("permute", permute);
  TORCH_CHECK(
      order.dim() == 1 && order.numel() == count &&
          at::equal(std::get<0>(order.sort()), at::arange(count, order.options())),
      "permute must have each number from 0 to ", count - 1, " once, but is ", permute, ".");
  return order;
}

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// Indices and weights of the segments in another order.
ThreeTensors permuted(
    const at::Tensor& order, const at::Tensor& lengths, const at::Tensor& indices,
    const std::optional<at::Tensor>& weights) {
  const at::Tensor each = whole_numbers("lengths", lengths).flatten();
  TORCH_CHECK(
      indices.dim() == 1 && (each.numel() == 0 || each.min().item<int64_t>() >= 0) &&
          each.sum().item<int64_t>() == indices.numel(),
      "lengths must not be negative and add up to the ", indices.sizes(), " indices, but are ",
      lengths, ".");
  TORCH_CHECK(
      !weights || !weights->defined() || weights->sizes() == indices.sizes(),
      "There must be a weight for each of ", indices.sizes(), " indices, but their shape is ",
      weights->sizes(), ".");
  const at::Tensor chosen = each.index_select(0, order);
  const at::Tensor places =
      places_of_segments((each.cumsum(0) - each).index_select(0, order), chosen);
  return {
      chosen.to(lengths.scalar_type()), indices.index_select(0, places),
      weights && weights->defined() ? weights->index_select(0, places) : at::Tensor()};
}

ThreeTensors permute_1d(
    const at::Tensor& permute, const at::Tensor& lengths, const at::Tensor& indices,
    const std::optional<at::Tensor>& weights) {
  if (lengths.is_meta()) {
    return {
        at::empty_like(lengths.flatten()), at::empty_like(indices),
        weights && weights->defined() ? at::empty_like(*weights) : at::Tensor()};
  }
  return permuted(permutation(permute, lengths.numel()), lengths, indices, weights);
}

std::tuple<at::Tensor, at::Tensor> permute_1d_without_weights(
    const at::Tensor& permute, const at::Tensor& lengths, const at::Tensor& indices) {
  const auto [of_segments, of_indices, none] =
      permute_1d(permute, lengths, indices, std::nullopt);
  return {of_segments, of_indices};
}

/// Lengths are [tables, batch]; whole tables change places.
ThreeTensors permute_2d(
    const at::Tensor& permute, const at::Tensor& lengths, const at::Tensor& indices,
    const std::optional<at::Tensor>& weights) {
  TORCH_CHECK(
      lengths.dim() == 2, "lengths must be of [tables, batch], but are of ", lengths.sym_sizes(),
      ".");
  if (lengths.is_meta()) {
    return {
        at::empty_like(lengths), at::empty_like(indices),
        weights && weights->defined() ? at::empty_like(*weights) : at::Tensor()};
  }
  const at::Tensor tables = permutation(permute, lengths.size(0));
  const at::Tensor in_table = at::arange(lengths.size(1), tables.options());
  const at::Tensor order = (tables.unsqueeze(1) * lengths.size(1) + in_table).flatten();
  const auto [of_segments, of_indices, of_weights] = permuted(order, lengths, indices, weights);
  return {of_segments.reshape(lengths.sizes()), of_indices, of_weights};
}

std::tuple<at::Tensor, at::Tensor> permute_2d_without_weights(
    const at::Tensor& permute, const at::Tensor& lengths, const at::Tensor& indices) {
  const auto [of_segments, of_indices, none] =
      permute_2d(permute, lengths, indices, std::nullopt);
  return {of_segments, of_indices};
}

/// The places of the segments that `permute` names, one after the other.
at::Tensor expand_into_jagged_permute(
    const at::Tensor& permute, const at::Tensor& input_offsets,
    const at::Tensor& /*output_offsets*/, int64_t output_size) {
  TORCH_CHECK(output_size >= 0, "output_size must not be negative, but is ", output_size, ".");
  if (permute.is_meta()) {
    return at::empty({output_size}, input_offsets.options());
  }
  constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
  check_offsets("expand_into_jagged_permute input", input_offsets, kUnbounded);
  const at::Tensor offsets = input_offsets.to(ScalarType::Long);
  const at::Tensor order = whole_numbers("permute", permute).flatten();
  const at::Tensor starts = offsets.slice(0, 0, offsets.size(0) - 1);
  const at::Tensor lengths = (offsets.slice(0, 1) - starts).index_select(0, order);
  const int64_t total = lengths.sum().item<int64_t>();
  TORCH_CHECK(
      total == output_size, "The segments that permute names have ", total,
      " elements, but output_size is ", output_size, ".");
  return places_of_segments(starts.index_select(0, order), lengths)
      .to(input_offsets.scalar_type());
}

enum BoundsCheckMode : int64_t { kFatal = 0, kWarning = 1, kIgnore = 2, kNone = 3 };

/// Offsets that begin at 0, do not decrease and end with the indices.
at::Tensor mended(const at::Tensor& offsets, int64_t count) {
  at::Tensor ordered = std::get<0>(offsets.clamp(0, count).cummax(0));
  ordered[0].fill_(0);
  ordered[-1].fill_(count);
  return ordered;
}

/// An index that its table does not have becomes 0, and offsets are mended; both count as faults.
/// The fatal mode marks them with -1 instead: a kernel of a card raises nothing.
ThreeTensors bounds_check_indices(
    at::Tensor indices, at::Tensor offsets, at::Tensor warning, const at::Tensor& rows_per_table,
    int64_t bounds_check_mode, const std::optional<at::Tensor>& weights) {
  TORCH_CHECK(
      bounds_check_mode >= kFatal && bounds_check_mode <= kNone,
      "bounds_check_mode must be 0 (fatal), 1 (warning), 2 (ignore) or 3 (none), but is ",
      bounds_check_mode, ".");
  if (indices.is_meta() || bounds_check_mode == kNone) {
    return {indices, offsets, warning};
  }
  const int64_t tables = rows_per_table.numel();
  const int64_t bags = offsets.numel() - 1;
  TORCH_CHECK(
      indices.dim() == 1 && offsets.dim() == 1 && rows_per_table.dim() == 1 && tables > 0 &&
          bags >= 0 && bags % tables == 0 && warning.dim() == 1 && warning.numel() > 0,
      "bounds_check_indices needs indices, offsets with an end for each bag of each of ", tables,
      " tables, and a place for the warning, but their shapes are ", indices.sizes(), ", ",
      offsets.sizes(), " and ", warning.sizes(), ".");
  TORCH_CHECK(
      !weights || !weights->defined() || weights->sizes() == indices.sizes(),
      "There must be a weight for each of ", indices.sizes(), " indices, but their shape is ",
      weights->sizes(), ".");
  const at::Tensor given = whole_numbers("offsets", offsets);
  const at::Tensor ordered = mended(given, indices.numel());
  const at::Tensor places = at::arange(indices.numel(), given.options());
  const at::Tensor bag = at::searchsorted(ordered, places, false, /*right=*/true) - 1;
  const at::Tensor table = at::floor_divide(bag, std::max<int64_t>(bags / tables, 1));
  const at::Tensor rows = whole_numbers("rows_per_table", rows_per_table).index_select(0, table);
  const at::Tensor each = whole_numbers("indices", indices);
  const at::Tensor outside = at::logical_or(each < 0, each >= rows);
  const at::Tensor changed = ordered != given;
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

/// Rows of blocks, the blocks of each row in the order of `indices`.
at::Tensor split_permute_cat(
    const at::Tensor& input, const at::Tensor& indices, int64_t batch_size, int64_t num_features,
    int64_t dims) {
  TORCH_CHECK(
      input.dim() == 2 && num_features >= 0 && dims >= 0 && input.sym_size(0) == batch_size &&
          input.sym_size(1) == c10::SymInt(num_features) * dims,
      "split_permute_cat input must be of [batch_size, num_features * dims], [", batch_size, ", ",
      num_features, " * ", dims, "], but is of ", input.sym_sizes(), ".");
  TORCH_CHECK(
      indices.dim() == 1 && indices.sym_size(0) == num_features,
      "split_permute_cat needs an index for each of ", num_features, " features, but they are of ",
      indices.sym_sizes(), ".");
  if (input.is_meta()) {
    return at::empty_symint(input.sym_sizes(), input.options());
  }
  return input.reshape({batch_size, num_features, dims})
      .index_select(1, whole_numbers("indices", indices))
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
