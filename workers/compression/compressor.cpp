#include "workers/compression/compressor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "workers/compression/low_bits.hpp"
#include "workers/compression/named_tables.hpp"
#include "workers/compression/one_bit.hpp"
#include "workers/compression/power_sgd.hpp"
#include "workers/compression/power_sgd_in_turn.hpp"
#include "workers/compression/quantisers.hpp"
#include "workers/compression/scale_com.hpp"
#include "workers/compression/sparse_rows.hpp"
#include "workers/compression/sparsifiers.hpp"
#include "workers/compression/two_phase.hpp"
#include "workers/process/run_failure.hpp"

namespace syncopate {

using Kind = CompressionOptions::Kind;

void Compressor::take_in(std::span<const float> gradient, std::size_t at, float of_memory,
                         std::span<float> memory) const {
  float* const p = memory.data() + at;
  if (of_memory == 0)
    std::ranges::copy(gradient, p);
  else if (of_memory == 1)
    for (std::size_t i = 0; i < gradient.size(); ++i) p[i] += gradient[i];
  else
    for (std::size_t i = 0; i < gradient.size(); ++i) p[i] = of_memory * p[i] + gradient[i];
}

void Compressor::fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const {
  take_in(gradient, at, 1, memory);
}

void Compressor::clip(std::span<float>, std::int64_t) const {}
void Compressor::prepare(float*) const {}
std::size_t Compressor::second_words(std::span<const float>) const { return 0; }
void Compressor::encode_second(Step, const float*, std::span<float>, float*) const {
  throw std::logic_error("this compressor has no second packet after a sum");
}
std::size_t Compressor::owned(Rank) const { return 0; }
void Compressor::reduce(Rank, Step, std::span<const float* const>, std::span<float>, float*) const {
  throw std::logic_error("this compressor has no owners of chunks");
}
void Compressor::correct(const Received&, std::span<float>) const {}

namespace {

// Matrices whose names contain one of these have rows, and nothing else has.
std::vector<Part> parts_with_tables(const CompressionOptions& options, std::span<const ParameterTensor> tensors) {
  const std::vector<std::string>& tables = options.tables;
  if (!has_table(tables, tensors))
    throw RunFailure(fmt::format(
        "{}; {}", options.written.empty() ? fmt::format("compression.tables = [{}]", quoted(tables)) : options.written,
        must_name_a_matrix(tensors)));
  std::vector<Part> parts;
  for (const ParameterTensor& tensor : tensors)
    if (tensor.size > 0)
      parts.push_back(
          {.offset = tensor.offset, .size = tensor.size, .rows = is_table(tables, tensor) ? tensor.rows : 0});
  return parts;
}

}  // namespace

std::vector<Part> parts_of(const CompressionOptions& options, std::span<const ParameterTensor> tensors,
                           Bytes parameters) {
  const auto size = static_cast<std::size_t>(parameters.value()) / sizeof(float);
  if (!options.needs_tensors()) return {{.offset = 0, .size = size}};
  if (options.kind == Kind::rows) return parts_with_tables(options, tensors);
  std::vector<Part> parts;
  for (const ParameterTensor& tensor : tensors)
    if (tensor.size > 0)
      parts.push_back({.offset = tensor.offset,
                       .size = tensor.size,
                       .rows = tensor.rows,
                       .columns = tensor.rows > 0 ? tensor.size / tensor.rows : 0,
                       .place = tensor.offset});
  return parts;
}

std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, const Training& training,
                                                  std::uint64_t seed, int workers) {
  return make_compressor(options, parts_of(options, training.tensors(), training.parameter_bytes()), seed, workers);
}

std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, std::vector<Part> parts,
                                                  std::uint64_t seed, int workers) {
  if (options.pattern == CompressionOptions::Pattern::two_phase)
    return std::make_shared<TwoPhase>(options, parts, seed, workers);
  switch (options.kind) {
    case Kind::top_k:
      return std::make_shared<TopK>(options, std::move(parts), seed);
    case Kind::dgc:
      return std::make_shared<DeepGradientCompression>(options, parts, seed, workers);
    case Kind::random_k:
      return std::make_shared<RandomK>(options, parts, seed);
    case Kind::scalecom:
      return std::make_shared<ScaleCom>(options, std::move(parts), seed, workers);
    case Kind::sign:
      return std::make_shared<ScaledSign>(options, std::move(parts), seed);
    case Kind::one_bit:
      return std::make_shared<OneBit>(options, parts, seed);
    case Kind::majority:
      return std::make_shared<MajorityVote>(options, parts, seed);
    case Kind::qsgd:
      return std::make_shared<Qsgd>(options, std::move(parts), seed);
    case Kind::int8:
      return std::make_shared<UniformBins>(options, std::move(parts), seed);
    case Kind::fp4:
      return std::make_shared<FourBitFloats>(options, std::move(parts), seed);
    case Kind::rows:
      return std::make_shared<SparseRows>(options, parts, seed);
    case Kind::power:
      if (options.factors == CompressionOptions::Factors::in_turn)
        return std::make_shared<PowerSgdInTurn>(options, parts, seed);
      return std::make_shared<PowerSgd>(options, parts, seed);
  }
  throw std::logic_error("no such compression");
}

std::vector<std::shared_ptr<const Compressor>> make_compressors(const CompressionOptions& options,
                                                                const Training& training, std::uint64_t seed,
                                                                int workers, int slices) {
  if (slices == 1) return {make_compressor(options, training, seed, workers)};
  std::vector<std::shared_ptr<const Compressor>> compressors;
  for (int index = 0; index < slices; ++index) {
    const Slice slice{.index = index, .count = slices};
    const Bytes bytes = slice.bytes_of(training.parameter_bytes());
    compressors.push_back(make_compressor(options, parts_of(options, {}, bytes), seed, workers));
  }
  return compressors;
}

std::vector<ExchangesFrom> exchanges_of(const std::optional<CompressionOptions>& options,
                                        std::span<const ParameterTensor> tensors, Bytes parameters, int workers) {
  if (!options) return {};
  const auto compressor = make_compressor(*options, parts_of(*options, tensors, parameters), 0, workers);
  std::vector<ExchangesFrom> all;
  const std::int64_t ratios = std::ssize(options->warmup_ratios), steps = options->warmup_steps.value();
  const auto first_of = [&](std::int64_t i) { return Step{(i * steps + ratios - 1) / ratios}; };  // see ratio_at
  for (std::int64_t i = 0; i < ratios; ++i)
    if (first_of(i) < first_of(i + 1)) all.push_back({first_of(i), compressor->exchanges(first_of(i))});
  all.push_back({options->warmup_steps, compressor->exchanges(options->warmup_steps)});
  if (options->kind == Kind::power && options->factors == CompressionOptions::Factors::in_turn)
    all.back().of_odd_steps = compressor->exchanges(Step{1});  // it has no warm-up
  return all;
}

std::vector<StepsOfExchanges> shared_out(const std::vector<ExchangesFrom>& list, Step steps) {
  std::vector<StepsOfExchanges> shares;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Step end = i + 1 < list.size() ? std::min(list[i + 1].first, steps) : steps;
    if (list[i].first >= end) continue;
    const std::int64_t odd = list[i].of_odd_steps.empty() ? 0 : end.value() / 2 - list[i].first.value() / 2;
    shares.push_back({(end - list[i].first).value() - odd, &list[i].exchanges});
    if (odd > 0) shares.push_back({odd, &list[i].of_odd_steps});
  }
  return shares;
}

}  // namespace syncopate
