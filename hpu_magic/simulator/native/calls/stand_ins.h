// Values that the host reads in a dry run, although they were not computed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <string>
#include <vector>

namespace hpu::stand_ins {

/// A value that the user supplied for each read on a line.
struct Supplied {
  std::string file;  // the end of the file's path
  int line;  // of the user's code, or of a library
  double value;
};

void supply(std::vector<Supplied> values);

/// Returns whether a device tensor's values were not computed.
bool assumed(const at::Tensor& tensor);

/// Returns the stand-in for each element of an assumed tensor: the assumption's `value` for integers
/// and Booleans, its `number` for floating-point values if it has one, and 1 otherwise.
c10::Scalar value_of(const at::Tensor& tensor);

/// Counts a read of an assumed tensor by `operation`. Returns its stand-in, or the value that the
/// user supplied for the current line of the library or of the user's code.
c10::Scalar read(const at::Tensor& tensor, const std::string& operation);

/// Writes stand-ins to a CPU tensor. A large tensor gets zeros, which use no memory.
void write(const at::Tensor& source, at::Tensor& destination);

}  // namespace hpu::stand_ins
