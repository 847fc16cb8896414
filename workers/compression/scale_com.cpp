#include "workers/compression/scale_com.hpp"

#include <bit>

#include "workers/compression/packet_sizes.hpp"
#include "workers/compression/top_k.hpp"

namespace syncopate {

std::size_t ScaleCom::kept(Step step) const {
  std::size_t kept = 0;
  for (const Part& part : parts_) kept += kept_of(options_.ratio_at(step), part.size);
  return kept;
}

std::vector<Exchange> ScaleCom::exchanges(Step step) const {
  const Bytes packet = bytes_of_words(kept(step));
  return {{Operation::broadcast, packet}, {Operation::all_reduce, packet}};
}

// p = e + g, and e = e + beta g, of which beta times what is sent is taken away then.
void ScaleCom::take_in(std::span<const float> gradient, std::size_t at, float of_memory,
                       std::span<float> memory) const {
  if (!is_filtered()) return Compressor::take_in(gradient, at, of_memory, memory);
  const auto beta = static_cast<float>(options_.filter);
  float* const e = memory.data() + at;
  float* const p = e + memory.size() / 2;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    p[i] = of_memory * e[i] + gradient[i];
    e[i] = of_memory * e[i] + beta * gradient[i];
  }
}

// As if it had been there and nothing of it sent.
void ScaleCom::fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const {
  const auto beta = static_cast<float>(options_.filter);
  for (std::size_t i = 0; i < gradient.size(); ++i) memory[at + i] += beta * gradient[i];
}

void ScaleCom::encode(Rank, Step step, const float*, std::span<float> memory, float* packet) const {
  const std::span<float> p = memory.last(memory.size() / vectors());
  for (const Part& part : parts_)
    for (const std::uint32_t place :
         largest_magnitudes(p.subspan(part.offset, part.size), kept_of(options_.ratio_at(step), part.size)))
      *packet++ = std::bit_cast<float>(static_cast<std::uint32_t>(part.offset) + place);
}

void ScaleCom::encode_second(Step step, const float* places, std::span<float> memory, float* packet) const {
  const auto beta = static_cast<float>(options_.filter);
  const std::span<float> p = memory.last(memory.size() / vectors());
  for (std::size_t i = 0; i < kept(step); ++i) {
    const auto place = std::bit_cast<std::uint32_t>(places[i]);
    packet[i] = p[place];
    if (is_filtered())
      memory[place] -= beta * p[place];
    else
      p[place] = 0;
  }
}

void ScaleCom::decode(const Received& received, std::span<float> sum) const {
  for (std::size_t i = 0; i < kept(received.step); ++i)
    sum[std::bit_cast<std::uint32_t>(received.between[i])] = received.packets.front()[i];
}

}  // namespace syncopate
