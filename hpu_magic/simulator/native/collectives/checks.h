// Checks of the arguments of a collective.
#pragma once

#include "collectives/work.h"

#include <ATen/core/Tensor.h>

#include <chrono>
#include <vector>

namespace hpu::collectives {

/// The single tensor that a collective gets from each rank.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name);

/// The single list of a collective, with a tensor for each rank.
const std::vector<at::Tensor>& only(
    const std::vector<std::vector<at::Tensor>>& lists, int size, const char* name);

/// Raises unless both have the same type and number of elements.
void check_same_size(const at::Tensor& one, const at::Tensor& other, const char* name);

/// Raises unless `whole` has as many elements as the parts of all ranks.
void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* name);

/// The properties in which the calls of all ranks must agree.
Subject like(const at::Tensor& tensor, int64_t root = -1);
Subject like(const std::vector<at::Tensor>& tensors);

/// Options of a transport's collective that have only a timeout.
template <class Options>
Options with(std::chrono::milliseconds timeout) {
  Options options;
  options.timeout = timeout;
  return options;
}

}  // namespace hpu::collectives
