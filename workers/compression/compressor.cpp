#include "workers/compression/compressor.hpp"

#include <algorithm>
#include <utility>

#include "workers/compression/kinds.hpp"

namespace syncopate {

void Compressor::accumulate(std::span<const float> gradient, std::size_t at, float of_memory,
                            std::span<float> memory) const {
  float* const p = memory.data() + at;
  if (of_memory == 0)
    std::ranges::copy(gradient, p);
  else if (of_memory == 1)
    for (std::size_t i = 0; i < gradient.size(); ++i) p[i] += gradient[i];
  else
    for (std::size_t i = 0; i < gradient.size(); ++i) p[i] = of_memory * p[i] + gradient[i];
}

std::vector<Exchange> PartByPart::exchanges(Step step) const {
  std::size_t all = 0;
  for (const Part& part : parts_) all += words(part, step);
  return {{Operation::all_gather, bytes_of_words(all)}};
}

void PartByPart::encode(Rank worker, Step step, const float*, std::span<float> p, float* packet) const {
  for (const Part& part : parts_) {
    encode_part(part, worker, step, p.subspan(part.offset, part.size), packet);
    packet += words(part, step);
  }
}

void PartByPart::decode(const Received& received, std::span<float> sum) const {
  std::size_t begin = 0;
  for (const Part& part : parts_) {
    decode_part(part, received, begin, sum.subspan(part.offset, part.size));
    begin += words(part, received.step);
  }
}

void copy_parts(const float* packet, const std::vector<Part>& parts, std::span<float> sum) {
  for (const Part& part : parts) {
    std::copy_n(packet, part.size, sum.data() + part.offset);
    packet += part.size;
  }
}

namespace {

// Returns the pieces of parts in [begin, end). Their offsets count from `begin`.
std::vector<Part> cut(const std::vector<Part>& parts, std::size_t begin, std::size_t end) {
  std::vector<Part> pieces;
  for (const Part& part : parts) {
    const std::size_t from = std::max(part.offset, begin), to = std::min(part.offset + part.size, end);
    if (from < to)
      pieces.push_back({.offset = from - begin, .size = to - from, .rows = 0, .columns = part.columns, .place = from});
  }
  return pieces;
}

// Two phases: every worker owns a chunk, one Nth of the gradient. The owner decodes all workers' packets of the chunk,
// adds them up in single precision, compresses the sum again and sends it to all workers.
// Source:  the exchange of 1-bit SGD (Seide et al. 2014) and of 1-bit Adam's code (Tang et al. 2021). That owners in
//          1-bit SGD also keep a residual is known from descriptions of the paper, not from its text.
// Shapes:  chunks of ceil(d / N) values, the last ones shorter or empty. Each is compressed separately, with its own
//          scale, means and buckets. A piece of a matrix has all columns that reach into it.
// Cost:    an all-to-all of N packets of a chunk, and an all-gather of N: 2 (N - 1) packets per worker. Gathering whole
//          gradients takes N - 1 packets that are N times as long. All packets are as long as the longest.
// Differs: with error feedback the error of the second compression is the owner's residual. An owner that loses its
//          state loses that residual, too. An owner adds its own chunk as it would send it, not the exact values.
// Checks:  telescoping with both residuals; exact packets give the exact sum.
class TwoPhase : public Compressor {
 public:
  explicit TwoPhase(const CompressorInput& input) : Compressor(input) {
    const Part& last = input.parts.back();
    const std::size_t size = last.offset + last.size, owners = static_cast<std::size_t>(input.workers);
    const std::size_t most = (size + owners - 1) / owners;
    for (std::size_t owner = 0; owner < owners; ++owner) {
      const std::size_t begin = std::min(size, owner * most), end = std::min(size, begin + most);
      Chunk& chunk = chunks_.emplace_back(Chunk{.offset = begin, .size = end - begin});
      if (chunk.size == 0) continue;
      chunk.compressor = options_.make({options_, cut(input.parts, begin, end), seed_, input.workers});
      const Bytes packet = chunk.compressor->exchanges({}).front().packet;
      words_ = std::max(words_, static_cast<std::size_t>(packet.value()) / 4);
    }
    exchanges_ = {{Operation::all_to_all, bytes_of_words(owners * words_)},
                  {Operation::all_gather, bytes_of_words(words_)}};
  }

  void encode(Rank worker, Step step, const float*, std::span<float> p, float* packet) const override {
    std::fill_n(packet, chunks_.size() * words_, 0.0f);
    for (const Chunk& chunk : chunks_) {
      if (chunk.compressor)
        chunk.compressor->encode(worker, step, nullptr, p.subspan(chunk.offset, chunk.size), packet);
      packet += words_;
    }
  }

  std::size_t owned(Rank owner) const override { return chunks_[static_cast<std::size_t>(owner.value)].size; }

  // As an owner, worker w draws the random numbers of rank N + w.
  void reduce(Rank owner, Step step, std::span<const float* const> chunks, std::span<float> residual,
              float* packet) const override {
    std::fill_n(packet, words_, 0.0f);
    const auto& compressor = chunks_[static_cast<std::size_t>(owner.value)].compressor;
    if (!compressor) return;
    compressor->decode({.packets = chunks, .workers = static_cast<int>(chunks.size()), .step = step}, residual);
    const Rank as_owner{owner.value + static_cast<int>(chunks_.size())};
    compressor->encode(as_owner, step, nullptr, residual, packet);
  }

  void decode(const Received& received, std::span<float> sum) const override {
    for (std::size_t owner = 0; owner < chunks_.size(); ++owner) {
      const Chunk& chunk = chunks_[owner];
      if (chunk.compressor)
        chunk.compressor->decode({.packets = received.packets.subspan(owner, 1), .workers = 1, .step = received.step},
                                 sum.subspan(chunk.offset, chunk.size));
    }
  }

 private:
  struct Chunk {
    std::size_t offset = 0;
    std::size_t size = 0;
    std::shared_ptr<const Compressor> compressor{};  // null: the chunk is empty
  };

  std::vector<Chunk> chunks_;
  std::size_t words_ = 0;  // words of a chunk's packet
};

std::vector<Part> parts_of_model(const CompressionOptions& options, std::span<const ParameterTensor> tensors,
                                 Bytes parameters) {
  if (options.needs_tensors) return parts_of(tensors);
  return {{.offset = 0, .size = static_cast<std::size_t>(parameters.value()) / sizeof(float)}};
}

}  // namespace

std::vector<Part> parts_of(std::span<const ParameterTensor> tensors) {
  std::vector<Part> parts;
  for (const ParameterTensor& tensor : tensors)
    if (tensor.size > 0)
      parts.push_back({.offset = tensor.offset,
                       .size = tensor.size,
                       .rows = tensor.rows,
                       .columns = tensor.rows > 0 ? tensor.size / tensor.rows : 0,
                       .place = tensor.offset,
                       .name = tensor.name});
  return parts;
}

std::shared_ptr<const Compressor> make_compressor(const CompressionOptions& options, std::vector<Part> parts,
                                                  std::uint64_t seed, int workers) {
  const CompressorInput input{options, std::move(parts), seed, workers};
  if (options.pattern == CompressionOptions::Pattern::two_phase) return std::make_shared<TwoPhase>(input);
  return options.make(input);
}

std::vector<std::shared_ptr<const Compressor>> make_compressors(const CompressionOptions& options,
                                                                const Training& training, std::uint64_t seed,
                                                                int workers, int slices) {
  std::vector<std::shared_ptr<const Compressor>> compressors;
  for (int index = 0; index < slices; ++index) {
    const Slice slice{.index = index, .count = slices};
    const Bytes bytes = slice.bytes_of(training.parameter_bytes());
    compressors.push_back(make_compressor(options, parts_of_model(options, training.tensors(), bytes), seed, workers));
  }
  return compressors;
}

std::vector<ExchangesFrom> exchanges_of(const std::optional<CompressionOptions>& options,
                                        std::span<const ParameterTensor> tensors, Bytes parameters, int workers) {
  if (!options) return {};
  const auto compressor = make_compressor(*options, parts_of_model(*options, tensors, parameters), 0, workers);
  std::vector<ExchangesFrom> all;
  for (const Step first : compressor->changes())
    all.push_back({.first = first,
                   .exchanges = compressor->exchanges(first),
                   .vectors = compressor->vectors() + options->vectors_of_estimate()});
  ExchangesFrom& last = all.back();
  if (std::vector<Exchange> next = compressor->exchanges(last.first + 1); next != last.exchanges)
    last.of_odd_steps = std::move(next);
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
