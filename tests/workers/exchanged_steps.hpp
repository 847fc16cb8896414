// Workers that exchange packets, without a cluster: what compressors make of their gradients, step by step.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

class ExchangedSteps {
 public:
  using Vector = std::vector<float>;

  ExchangedSteps(const Compressor& compressor, int workers, std::size_t size)
      : compressor_(compressor),
        size_(size),
        memory(static_cast<std::size_t>(workers), Vector(compressor.vectors() * size)),
        owned(static_cast<std::size_t>(workers)) {
    for (std::size_t i = 0; i < owned.size(); ++i) owned[i].resize(compressor.owned(rank(i)));
  }

  // The sum of what the workers send, one gradient of each.
  Vector step(Step step, const std::vector<Vector>& gradients, float of_memory = 1) {
    for (std::size_t i = 0; i < memory.size(); ++i) compressor_.take_in(gradients[i], 0, of_memory, memory[i]);
    return exchange(step);
  }
  // The same of what the memories hold.
  Vector exchange(Step step) {
    const std::vector<Exchange> exchanges = compressor_.exchanges(step);
    const std::size_t workers = memory.size(), words = words_of(exchanges.front());
    std::vector<Vector> packets;
    for (std::size_t i = 0; i < workers; ++i) {
      packets.emplace_back(words);
      const bool sends = exchanges.front().operation != Operation::broadcast || compressor_.root(step) == rank(i);
      if (sends)
        compressor_.encode(rank(i), step, common.empty() ? nullptr : common.data(), memory[i], packets.back().data());
    }
    Vector between;
    if (exchanges.size() > 1) {
      const std::size_t words_of_last = words_of(exchanges.back());
      std::vector<Vector> last(workers, Vector(words_of_last));
      if (exchanges.front().operation == Operation::all_to_all) {
        for (std::size_t i = 0; i < workers; ++i) {
          std::vector<const float*> chunks;
          for (const Vector& packet : packets) chunks.push_back(packet.data() + i * words_of_last);
          compressor_.reduce(rank(i), step, chunks, owned[i], last[i].data());
        }
      } else {
        const bool is_sum = exchanges.front().operation == Operation::all_reduce;
        between = is_sum ? sum_of(packets) : packets[static_cast<std::size_t>(compressor_.root(step).value)];
        compressor_.prepare(between.data());
        for (std::size_t i = 0; i < workers; ++i)
          compressor_.encode_second(step, between.data(), memory[i], last[i].data());
      }
      packets = std::move(last);
    }
    if (exchanges.back().operation == Operation::all_reduce) packets = {sum_of(packets)};
    std::vector<const float*> all;
    for (const Vector& packet : packets) all.push_back(packet.data());
    const Received received{.packets = all,
                            .between = between.data(),
                            .common = common.empty() ? nullptr : common.data(),
                            .workers = static_cast<int>(workers),
                            .micro_batches = static_cast<std::int64_t>(workers),
                            .step = step};
    Vector sum(size_);
    compressor_.decode(received, sum);
    if (compressor_.corrects_residual())
      for (Vector& own : memory) compressor_.correct(received, own);
    if (compressor_.follows_common()) common = packets.front();
    return sum;
  }

 private:
  static Rank rank(std::size_t i) { return Rank{static_cast<int>(i)}; }
  static std::size_t words_of(const Exchange& exchange) {
    return static_cast<std::size_t>(exchange.packet.value()) / sizeof(float);
  }
  static Vector sum_of(const std::vector<Vector>& packets) {
    Vector sum(packets.front().size());
    for (const Vector& packet : packets)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += packet[i];
    return sum;
  }

  const Compressor& compressor_;
  std::size_t size_;

 public:
  std::vector<Vector> memory;  // of each worker
  std::vector<Vector> owned;   // residuals of the chunks that each owns
  Vector common;               // of the step before
};

}  // namespace syncopate
