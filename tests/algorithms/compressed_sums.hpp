// Compressions of sums of gradients, by what tests tell apart.
#pragma once

#include "workers/compression/compressor.hpp"

namespace syncopate {

constexpr CompressionOptions of(CompressionOptions::Kind kind) {
  using Kind = CompressionOptions::Kind;
  CompressionOptions options;
  options.kind = kind;
  options.error_feedback = kind != Kind::qsgd && kind != Kind::majority;
  return options;
}

inline CompressionOptions in_two_phases(CompressionOptions::Kind kind) {
  CompressionOptions options = of(kind);
  options.pattern = CompressionOptions::Pattern::two_phase;
  return options;
}

inline CompressionOptions scale_com(double ratio, double filter) {
  CompressionOptions options = of(CompressionOptions::Kind::scalecom);
  options.ratio = ratio;
  options.filter = filter;
  return options;
}

inline CompressionOptions top_k(double ratio) {
  CompressionOptions options = of(CompressionOptions::Kind::top_k);
  options.ratio = ratio;
  return options;
}

}  // namespace syncopate
