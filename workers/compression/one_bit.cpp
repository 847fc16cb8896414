#include "workers/compression/one_bit.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "workers/compression/packet_sizes.hpp"
#include "workers/compression/signs.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {
namespace {

// Sums of few rows, which single precision is enough for.
SYNCOPATE_VECTOR_CLONES
void add_row(const float* __restrict row, std::size_t size, float* __restrict below, float* __restrict others,
             float* __restrict count_below) {
  for (std::size_t i = 0; i < size; ++i) {
    const float value = row[i];
    below[i] += value < 0 ? value : 0.0f;
    others[i] += value < 0 ? 0.0f : value;
    count_below[i] += value < 0 ? 1.0f : 0.0f;
  }
}

// sums += rows, rows = 0
SYNCOPATE_VECTOR_CLONES
void move_into(double* __restrict sums, float* __restrict rows, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    sums[i] += static_cast<double>(rows[i]);
    rows[i] = 0;
  }
}

// values += factor x (where the mask is ones, below, else others)
SYNCOPATE_VECTOR_CLONES
void add_means(const std::uint32_t* __restrict masks, std::size_t size, float factor, const float* __restrict below,
               const float* __restrict others, float* __restrict values) {
  for (std::size_t i = 0; i < size; ++i) values[i] += factor * (masks[i] ? below[i] : others[i]);
}

// The means of the groups of each column, first all of the values below 0.
void find_means(const float* values, std::size_t size, std::size_t columns, float* means) {
  constexpr std::size_t lanes = 64;  // of a single column, so that it goes as fast
  constexpr std::size_t rows_at_once = 64;
  const std::size_t width = columns == 1 ? lanes : columns;
  std::vector<double> below(width), others(width), count_below(width);
  std::vector<float> few_below(width), few_others(width), few_counts(width);
  for (std::size_t at = 0, row = 1; at < size; at += width, ++row) {
    add_row(values + at, std::min(width, size - at), few_below.data(), few_others.data(), few_counts.data());
    if (row % rows_at_once != 0 && at + width < size) continue;
    move_into(below.data(), few_below.data(), width);
    move_into(others.data(), few_others.data(), width);
    move_into(count_below.data(), few_counts.data(), width);
  }
  if (columns == 1)
    for (std::size_t lane = 1; lane < width; ++lane) {
      below[0] += below[lane];
      others[0] += others[lane];
      count_below[0] += count_below[lane];
    }
  for (std::size_t column = 0; column < columns; ++column) {
    const std::size_t rows = (size - column + columns - 1) / columns;
    const double of_below = count_below[column];
    means[column] = static_cast<float>(below[column] / std::max(of_below, 1.0));
    means[columns + column] = static_cast<float>(others[column] / std::max(static_cast<double>(rows) - of_below, 1.0));
  }
}

// Takes each column's mean out of it, and returns the means. `ends`: of all columns minus their mean distance from it,
// then plus.
std::vector<float> centre(float* values, std::size_t size, std::size_t columns, float* ends) {
  std::vector<double> sums(columns), distances(columns);
  std::vector<float> means(columns);
  const auto rows_of = [&](std::size_t column) { return (size - column + columns - 1) / columns; };
  for (std::size_t i = 0; i < size; ++i) sums[i % columns] += values[i];
  for (std::size_t column = 0; column < columns; ++column)
    means[column] = static_cast<float>(sums[column] / static_cast<double>(rows_of(column)));
  for (std::size_t i = 0; i < size; ++i) {
    values[i] -= means[i % columns];
    distances[i % columns] += std::abs(static_cast<double>(values[i]));
  }
  for (std::size_t column = 0; column < columns; ++column) {
    ends[columns + column] = static_cast<float>(distances[column] / static_cast<double>(rows_of(column)));
    ends[column] = -ends[columns + column];
  }
  return means;
}

// Adds factor times what a packet's means and bits stand for.
void add_table(const float* packet, std::size_t size, std::size_t columns, float factor, float* values) {
  constexpr std::size_t words_at_once = 64, block = 32 * words_at_once;
  std::vector<float> same;  // of a single column, side by side
  const float *below = packet, *others = packet + columns;
  if (columns == 1) {
    same.assign(2 * block, packet[1]);
    std::fill_n(same.begin(), block, packet[0]);
    below = same.data(), others = same.data() + block;
  }
  const std::size_t width = columns == 1 ? block : columns;
  std::uint32_t words[words_at_once], masks[block];
  for (std::size_t begin = 0; begin < size; begin += block) {
    const std::size_t count = std::min(block, size - begin), of_words = words_of_bits(count);
    std::memcpy(words, packet + 2 * columns + begin / 32, 4 * of_words);
    spread_bits(words, of_words, masks);
    for (std::size_t at = begin; at < begin + count;) {
      const std::size_t column = at % width, many = std::min(width - column, begin + count - at);
      add_means(masks + (at - begin), many, factor, below + column, others + column, values + at);
      at += many;
    }
  }
}

}  // namespace

std::size_t OneBit::Table::words() const { return 2 * columns + words_of_bits(size); }

OneBit::OneBit(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
    : Compressor(options, seed) {
  const bool by_columns = options.scope == CompressionOptions::Scope::column;
  std::size_t words = 0;
  for (const Part& part : parts) {
    const std::size_t columns = by_columns && part.columns > 0 ? std::min(part.columns, part.size) : 1;
    tables_.push_back({part.offset, part.size, columns});
    words += tables_.back().words();
  }
  exchanges_ = {{Operation::all_gather, bytes_of_words(words)}};
}

// Per table: the means, then the bits.
void OneBit::encode(Rank, Step, const float*, std::span<float> p, float* packet) const {
  std::vector<std::uint32_t> bits;
  for (const Table& table : tables_) {
    float* const values = p.data() + table.offset;
    std::vector<float> means;
    if (options_.threshold == CompressionOptions::Threshold::mean)
      means = centre(values, table.size, table.columns, packet);
    else
      find_means(values, table.size, table.columns, packet);
    bits.resize(words_of_bits(table.size));
    pack_below_zero(values, table.size, bits.data());
    std::memcpy(packet + 2 * table.columns, bits.data(), 4 * bits.size());
    add_table(packet, table.size, table.columns, -1, values);
    for (std::size_t i = 0; i < 2 * means.size(); ++i) packet[i] += means[i % means.size()];
    packet += table.words();
  }
}

void OneBit::decode(const Received& received, std::span<float> sum) const {
  for (const float* packet : received.packets)
    for (const Table& table : tables_) {
      add_table(packet, table.size, table.columns, 1, sum.data() + table.offset);
      packet += table.words();
    }
}

}  // namespace syncopate
