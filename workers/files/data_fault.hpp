// What is wrong with files of data.
#pragma once

#include <stdexcept>

namespace syncopate {

// Data that cannot be used: names the file or the sizes, what was found, and what would be right.
struct DataFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace syncopate
