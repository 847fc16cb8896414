// A method, synchronous SGD unless another is named, with a compression.
#pragma once

#include <utility>

#include "algorithms/synchronous/sync_sgd.hpp"

namespace syncopate {

template <typename Method = SyncSgd, typename... Args>
Method compressed(const CompressionOptions& options, Args&&... args) {
  Method method(std::forward<Args>(args)...);
  method.compress(options);
  return method;
}

}  // namespace syncopate
