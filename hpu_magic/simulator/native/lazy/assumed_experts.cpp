#include "lazy/assumed_experts.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>

#include <atomic>
#include <cmath>
#include <vector>

namespace hpu::assumed_experts {
namespace {

double imbalance = 1;
int64_t ranks = 1;
std::atomic<bool> is_unbalanced{false};

/// Returns the portion of all selections for each expert.
std::vector<double> shares_of(int64_t experts) {
  const auto count = static_cast<double>(experts);
  std::vector<double> shares(static_cast<size_t>(experts), 1 / count);
  const int64_t own = experts / ranks;
  if (imbalance > 1 && own > 0 && experts % ranks == 0) {
    is_unbalanced = true;
    const double first = imbalance / count;
    const double other =
        (1 - imbalance / static_cast<double>(ranks)) / static_cast<double>(experts - own);
    for (int64_t i = 0; i < experts; ++i) {
      shares[static_cast<size_t>(i)] = i < own ? first : other;
    }
  }
  return shares;
}

/// Returns the experts of each token as a matrix with a row for each token.
at::Tensor experts_of(int64_t tokens, int64_t choices, int64_t experts) {
  constexpr double kTolerance = 1e-6;
  const std::vector<double> shares = shares_of(experts);
  at::Tensor matrix = at::empty({tokens, choices}, at::kLong);
  auto* selected = matrix.mutable_data_ptr<int64_t>();
  int64_t expert = 0;
  double share = shares[0];
  // Fractions are rounded up for the first experts, so that the first rank is the busiest one.
  const auto end = [&] {
    return std::ceil(share * static_cast<double>(tokens * choices) - kTolerance);
  };
  // A token's choices are far apart in this order, so they are different experts.
  for (int64_t choice = 0; choice < choices; ++choice) {
    for (int64_t token = 0; token < tokens; ++token) {
      const auto position = static_cast<double>(choice * tokens + token);
      while (expert < experts - 1 && position >= end()) {
        share += shares[static_cast<size_t>(++expert)];
      }
      selected[token * choices + choice] = expert;
    }
  }
  return matrix;
}

}  // namespace

void set_imbalance(double of_first, int64_t sharing) {
  imbalance = of_first;
  ranks = sharing;
}

bool unbalanced() {
  return is_unbalanced;
}

bool selects(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& scores = arguments[0].toTensor();
  return scores.dim() > 0 &&
      at::maybe_wrap_dim(arguments[2].toInt(), scores.dim()) == scores.dim() - 1;
}

at::Tensor indices(int64_t experts, c10::IntArrayRef sizes) {
  const int64_t choices = sizes.back();
  return experts_of(c10::multiply_integers(sizes) / choices, choices, experts).view(sizes);
}

}  // namespace hpu::assumed_experts
