#include "workers/compression/compressor.hpp"

#include <stdexcept>
#include <utility>

#include "workers/compression/power_sgd.hpp"
#include "workers/compression/quantisers.hpp"
#include "workers/compression/sparsifiers.hpp"

namespace syncopate {

using Kind = CompressionOptions::Kind;

void Compressor::prepare(float*) const {}
void Compressor::encode_second(const float*, std::span<float>, float*) const {
  throw std::logic_error("this compressor has one exchange");
}
void Compressor::correct(const Received&, std::span<float>) const {}

std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, const Training& training,
                                                  std::uint64_t seed) {
  std::vector<Part> parts;
  if (training.time_only() || !options.needs_tensors())
    parts.push_back(
        {.offset = 0, .size = static_cast<std::size_t>(training.parameter_bytes().value()) / sizeof(float)});
  else
    for (const ParameterTensor& tensor : training.objective().tensors())
      if (tensor.size > 0) parts.push_back({tensor.offset, tensor.size, tensor.rows});
  return make_compressor(options, std::move(parts), seed);
}

std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, std::vector<Part> parts,
                                                  std::uint64_t seed) {
  switch (options.kind) {
    case Kind::top_k:
      return std::make_shared<TopK>(options, std::move(parts), seed);
    case Kind::dgc:
      return std::make_shared<DeepGradientCompression>(options, std::move(parts), seed);
    case Kind::random_k:
      return std::make_shared<RandomK>(options, std::move(parts), seed);
    case Kind::sign:
      return std::make_shared<ScaledSign>(options, std::move(parts), seed);
    case Kind::majority:
      return std::make_shared<MajorityVote>(options, std::move(parts), seed);
    case Kind::qsgd:
      return std::make_shared<Qsgd>(options, std::move(parts), seed);
    case Kind::power:
      return std::make_shared<PowerSgd>(options, std::move(parts), seed);
  }
  throw std::logic_error("no such compression");
}

}  // namespace syncopate
