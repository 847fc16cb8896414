#include "workers/compression/sparse_rows.hpp"

#include <algorithm>
#include <bit>

#include "workers/compression/packet_sizes.hpp"

namespace syncopate {

SparseRows::SparseRows(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
    : Compressor(options, seed) {
  std::size_t dense = 0, most = 1;
  for (const Part& part : parts) {
    (part.rows > 0 ? tables_ : dense_).push_back(part);
    if (part.rows > 0)
      most += part.size + part.rows;
    else
      dense += part.size;
  }
  exchanges_ = {{Operation::all_reduce, bytes_of_words(dense)}, {Operation::all_gather, bytes_of_words(most)}};
}

template <typename Use>
void SparseRows::for_touched_rows(std::span<const float> p, const Use& use) const {
  for (const Part& table : tables_) {
    const std::size_t columns = table.size / table.rows;
    for (std::size_t row = 0; row < table.rows; ++row) {
      const std::size_t place = table.offset + row * columns;
      const std::span<const float> values = p.subspan(place, columns);
      if (std::ranges::any_of(values, [](float value) { return value != 0; })) use(place, values);  // NaN is no zero
    }
  }
}

// What is not in a table.
void SparseRows::encode(Rank, Step, const float*, std::span<float> p, float* packet) const {
  for (const Part& part : dense_) packet = std::ranges::copy(p.subspan(part.offset, part.size), packet).out;
}

std::size_t SparseRows::second_words(std::span<const float> p) const {
  std::size_t words = 1;
  for_touched_rows(p, [&](std::size_t, std::span<const float> values) { words += 1 + values.size(); });
  return words;
}

// How many rows, and then each: its first place, and its values.
void SparseRows::encode_second(Step, const float*, std::span<float> p, float* packet) const {
  float* const count = packet++;
  std::uint32_t rows = 0;
  for_touched_rows(p, [&](std::size_t place, std::span<const float> values) {
    *packet++ = std::bit_cast<float>(static_cast<std::uint32_t>(place));
    packet = std::ranges::copy(values, packet).out;
    ++rows;
  });
  *count = std::bit_cast<float>(rows);
}

std::size_t SparseRows::columns_at(std::size_t place) const {
  const auto table = std::ranges::find_if(tables_, [&](const Part& part) { return place < part.offset + part.size; });
  return table->size / table->rows;
}

void SparseRows::decode(const Received& received, std::span<float> sum) const {
  const float* dense = received.between;
  for (const Part& part : dense_) {
    std::copy_n(dense, part.size, sum.data() + part.offset);
    dense += part.size;
  }
  for (const float* packet : received.packets) {
    const auto rows = std::bit_cast<std::uint32_t>(*packet++);
    for (std::uint32_t row = 0; row < rows; ++row) {
      const std::size_t place = std::bit_cast<std::uint32_t>(*packet++), columns = columns_at(place);
      for (std::size_t i = 0; i < columns; ++i) sum[place + i] += packet[i];
      packet += columns;
    }
  }
}

}  // namespace syncopate
