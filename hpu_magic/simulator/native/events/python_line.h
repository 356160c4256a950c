// The line of the user's Python code that runs now.
#pragma once

#include <string>

namespace hpu {

struct PythonLine {
  std::string file;
  int number = 0;
};

/// The innermost frame outside PyTorch and its relatives; empty without a Python frame.
PythonLine python_line();

}  // namespace hpu
