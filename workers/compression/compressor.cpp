#include "workers/compression/compressor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"
#include "workers/compression/kernels.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

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

namespace {

using Kind = CompressionOptions::Kind;

constexpr std::size_t words_of_bits(std::size_t bits) { return (bits + 31) / 32; }

// Bits are packed and unpacked in pieces that stay in the nearest cache.
constexpr std::size_t words_at_once = 64, piece = 32 * words_at_once;

float* append(std::span<const std::uint32_t> words, float* packet) {
  std::memcpy(packet, words.data(), 4 * words.size());
  return packet + words.size();
}

// Copies values that a packet holds part after part to their places.
void copy_parts(const float* packet, const std::vector<Part>& parts, std::span<float> sum) {
  for (const Part& part : parts) {
    std::copy_n(packet, part.size, sum.data() + part.offset);
    packet += part.size;
  }
}

std::size_t kept_of(double ratio, std::size_t size) {
  // The small addend corrects products that rounding has left just below a whole number.
  const auto kept = static_cast<std::size_t>(ratio * static_cast<double>(size) + 1e-9);
  return std::min(size, std::max<std::size_t>(1, kept));
}
std::size_t kept_of(double ratio, const std::vector<Part>& parts) {
  std::size_t kept = 0;
  for (const Part& part : parts) kept += kept_of(ratio, part.size);
  return kept;
}

// Sums of a few rows, for which single precision is enough.
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

// Writes each column's mean of values below 0, then each column's mean of the others.
void find_means(const float* values, std::size_t size, std::size_t columns, float* means) {
  constexpr std::size_t lanes = 64;  // a single column is summed as so many, to be as fast
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

// Subtracts each column's mean from its values, and returns the means. Writes to `ends` minus the mean distance of each
// column's values from its mean, then plus.
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

// Adds factor times the values that a packet's means and bits encode.
void add_table(const float* packet, std::size_t size, std::size_t columns, float factor, float* values) {
  std::vector<float> same;  // the two means of a single column, each repeated
  const float *below = packet, *others = packet + columns;
  if (columns == 1) {
    same.assign(2 * piece, packet[1]);
    std::fill_n(same.begin(), piece, packet[0]);
    below = same.data(), others = same.data() + piece;
  }
  const std::size_t width = columns == 1 ? piece : columns;
  std::uint32_t words[words_at_once], masks[piece];
  for (std::size_t begin = 0; begin < size; begin += piece) {
    const std::size_t count = std::min(piece, size - begin), of_words = words_of_bits(count);
    std::memcpy(words, packet + 2 * columns + begin / 32, 4 * of_words);
    spread_bits(words, of_words, masks);
    for (std::size_t at = begin; at < begin + count;) {
      const std::size_t column = at % width, many = std::min(width - column, begin + count - at);
      add_means(masks + (at - begin), many, factor, below + column, others + column, values + at);
      at += many;
    }
  }
}

// 1-bit SGD: a bit per value. In each column of a matrix it stands for the mean of the values below 0, or of the
// others.
// Source:  Seide, Fu, Droppo, Li, Yu 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
//          Distributed Training of Speech DNNs"; CNTK's code where the paper leaves a choice.
// Shapes:  M (n, m), a tensor's first dimension by the others: m columns. Any other tensor is a single column.
// Cost:    all-gather of a bit per value and 8 bytes per column; or in two phases, as in the paper.
// Differs: all-gathered unless the file says otherwise; `scope` can make a column of each tensor or of the whole model.
//          A group without values has mean 0. `threshold = "mean"` is another form of CNTK's code: a bit says on which
//          side of the column's mean a value lies, and stands for the mean minus or plus one deviation. Which deviation
//          CNTK takes is not established; here it is the mean distance, with the smallest error. The default threshold,
//          0, keeps each column's mean.
// Checks:  a column with one value on each side of 0, or with two values that are equally frequent, is exact.
class OneBit : public Compressor {
 public:
  OneBit(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
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
  void encode(Rank, Step, const float*, std::span<float> p, float* packet) const override {
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
      append(bits, packet + 2 * table.columns);
      add_table(packet, table.size, table.columns, -1, values);
      for (std::size_t i = 0; i < 2 * means.size(); ++i) packet[i] += means[i % means.size()];
      packet += table.words();
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    for (const float* packet : received.packets)
      for (const Table& table : tables_) {
        add_table(packet, table.size, table.columns, 1, sum.data() + table.offset);
        packet += table.words();
      }
  }

 private:
  // Values i, i + columns, i + 2 columns, ... are a column; the last row can be shorter.
  struct Table {
    std::size_t offset;
    std::size_t size;
    std::size_t columns;
    std::size_t words() const { return 2 * columns + words_of_bits(size); }
  };
  std::vector<Table> tables_;
};

// PowerSGD: each matrix M as two factors: P, the sum of all workers' M Q, made orthogonal; and Q, the sum of their
// M^T P. The step is along P Q^T, the projection of the mean gradient.
// Source:  Vogels, Karimireddy, Jaggi 2019, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
//          Optimization". Their package and their paper's code differ in the residual.
// Shapes:  M (n, m): a tensor's first dimension by the others; P (n, r); Q (m, r).
// Cost:    two all-reduces, one after the other, of 4 r n and 4 r m bytes per matrix. The first also carries,
//          unchanged, tensors that are no matrices and those that the factors make smaller by `least_rate` or less.
// Differs: both factors at each step, as in the paper's code; the package alternates. No first steps without
//          compression (100 in the package, 10 or 1000 in PyTorch's hook). A tensor that is sent whole leaves no
//          residual (in PyTorch's hook: its difference from the mean). `removed = "own"`, the package's, is the
//          default. With "mean", the paper's code's, the differences of workers' gradients from their mean stay in the
//          residuals for ever and cancel only in the sum over workers. The first factor of a step is not made
//          orthogonal: it spans the same space. A column of zeros in it is drawn again.
class PowerSgd : public Compressor {
 public:
  PowerSgd(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
      : Compressor(options, seed) {
    std::size_t left_words = 0;
    const auto r = static_cast<std::size_t>(options.rank);
    for (const Part& part : parts) {
      const std::size_t n = part.rows, m = n > 0 ? part.size / n : 0;
      const bool is_smaller =
          r <= std::min(n, m) && static_cast<double>(r * (n + m)) * options.least_rate < static_cast<double>(n * m);
      if (is_smaller) {
        factored_.push_back({{n, m, r}, part.offset, left_words, right_words_});
        left_words += r * n;
        right_words_ += r * m;
      } else {
        whole_.push_back({part, left_words});
        left_words += part.size;
      }
    }
    if (factored_.empty())
      throw RunFailure(fmt::format("{}{}the model has no matrix that factors of rank {} make smaller by more than {}",
                                   options.written, options.written.empty() ? "" : "; ", options.rank,
                                   options.least_rate));
    exchanges_ = {{Operation::all_reduce, bytes_of_words(left_words)},
                  {Operation::all_reduce, bytes_of_words(right_words_)}};
  }

  bool follows_common() const override { return options_.warm_start; }
  bool corrects_residual() const override { return options_.removed == CompressionOptions::Removed::shared; }

  void encode(Rank, Step step, const float* common, std::span<float> p, float* packet) const override {
    std::vector<float> right(right_words_);
    begin_right(step, common, right);
    for (const Factored& matrix : factored_)
      write_left(matrix.shape, p.data() + matrix.offset, right.data() + matrix.right, packet + matrix.left);
    for (const auto& [part, at] : whole_) move_whole(part, p, packet + at);
  }

  void prepare(float* sum) const override {
    for (const Factored& matrix : factored_) orthogonalise(matrix.shape.n, matrix.shape.r, sum + matrix.left);
  }

  void encode_second(Step, const float* between, std::span<float> p, float* packet) const override {
    for (const Factored& matrix : factored_) {
      float* const own = p.data() + matrix.offset;
      write_right(matrix.shape, own, between + matrix.left, packet + matrix.right);
      if (!corrects_residual()) add_product(matrix.shape, -1, between + matrix.left, packet + matrix.right, own);
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    add_products(received, 1, sum);
    for (const auto& [part, at] : whole_) std::copy_n(received.between + at, part.size, sum.data() + part.offset);
  }

  void correct(const Received& received, std::span<float> p) const override {
    add_products(received, -1 / static_cast<float>(received.workers), p);
  }

 protected:
  struct Factored {
    LowRank shape;
    std::size_t offset;  // in the gradient
    std::size_t left;    // in the first packet
    std::size_t right;   // in the second
  };
  struct Whole {
    Part part;
    std::size_t at;  // in the first packet
  };

  // Draws a column for a step, the same on all workers; `first` selects the numbers.
  void draw(Step step, std::size_t first, std::span<float> column) const {
    const RandomStream stream{.seed = seed_, .purpose = Purpose::compression, .stream = 2, .worker = {}, .step = step};
    std::vector<double> drawn(column.size());
    fill_standard_normal(stream, static_cast<std::uint32_t>(first), drawn);
    std::ranges::transform(drawn, column.begin(), [](double value) { return static_cast<float>(value); });
  }

  static void move_whole(const Part& part, std::span<float> p, float* packet) {
    std::copy_n(p.data() + part.offset, part.size, packet);
    std::fill_n(p.data() + part.offset, part.size, 0.0f);
  }

  std::vector<Factored> factored_;
  std::vector<Whole> whole_;
  std::size_t right_words_ = 0;

 private:
  // Writes the last step's factor, or draws one. Gradients of zeros or of a smaller rank leave columns of zeros, which
  // would stay zeros for ever: these are drawn again.
  void begin_right(Step step, const float* last, std::span<float> right) const {
    if (last) std::copy_n(last, right.size(), right.data());
    for (const Factored& matrix : factored_)
      for (std::size_t column = 0; column < matrix.shape.r; ++column) {
        const std::size_t first = matrix.right + column * matrix.shape.m;
        const auto values = right.subspan(first, matrix.shape.m);
        if (last && std::ranges::any_of(values, [](float value) { return value != 0; })) continue;
        draw(step, first, values);
      }
  }

  virtual void add_products(const Received& received, float factor, std::span<float> to) const {
    for (const Factored& matrix : factored_)
      add_product(matrix.shape, factor, received.between + matrix.left, received.packets.front() + matrix.right,
                  to.data() + matrix.offset);
  }
};

// PowerSGD with one factor per step. Even steps send M Q, with Q the last step's, made orthogonal; the step is along
// (M Q) Q^T, with M Q summed over workers. Odd steps send M^T P in the same way; the step is along P (M^T P)^T.
// Source:  the package of Vogels, Karimireddy, Jaggi 2019, "PowerSGD".
// Shapes:  M (n, m); P (n, r); Q (m, r).
// Cost:    one all-reduce, of 4 r n bytes per matrix at even steps and 4 r m at odd ones: half of both factors on
//          average. Each worker, and each process that adds up, makes a factor orthogonal. Whole tensors go along.
// Differs: steps are even by their number in the run. Which factor the package begins with is not established; here it
//          is P, along a Q that is drawn. Its 100 first steps without compression are left out. A column of zeros is
//          drawn again, as in PowerSGD.
// Checks:  a recursion in double precision; telescoping; full rank is exact for square matrices.
class PowerSgdInTurn : public PowerSgd {
 public:
  using PowerSgd::PowerSgd;

  std::vector<Exchange> exchanges(Step step) const override {
    if (sends_left(step)) return {exchanges_.front()};
    std::size_t words = right_words_;
    for (const Whole& whole : whole_) words += whole.part.size;
    return {{Operation::all_reduce, bytes_of_words(words)}};
  }

  bool follows_common() const override { return true; }

  void encode(Rank, Step step, const float* common, std::span<float> p, float* packet) const override {
    const std::vector<float> other = other_factor(step, common);
    for (const Factored& matrix : factored_) {
      float* const own = p.data() + matrix.offset;
      float* const sent = packet + place_of(matrix, step);
      const auto [left, right] = factors(matrix, step, sent, other);
      if (sends_left(step))
        write_left(matrix.shape, own, right, sent);
      else
        write_right(matrix.shape, own, left, sent);
      if (!corrects_residual()) add_product(matrix.shape, -1, left, right, own);
    }
    for_whole(step, [&](const Part& part, std::size_t at) { move_whole(part, p, packet + at); });
  }

  void decode(const Received& received, std::span<float> sum) const override {
    add_products(received, 1, sum);
    for_whole(received.step, [&](const Part& part, std::size_t at) {
      std::copy_n(received.packets.front() + at, part.size, sum.data() + part.offset);
    });
  }

 private:
  static bool sends_left(Step step) { return step.value() % 2 == 0; }

  // Where the factor that is sent begins in a packet.
  static std::size_t place_of(const Factored& matrix, Step step) {
    return sends_left(step) ? matrix.left : matrix.right;
  }

  // P and Q of a matrix: the one that is sent and the other.
  static std::pair<const float*, const float*> factors(const Factored& matrix, Step step, const float* sent,
                                                       const std::vector<float>& other) {
    if (sends_left(step)) return {sent, other.data() + matrix.right};
    return {other.data() + matrix.left, sent};
  }

  // The factor of the step before, orthogonal, with the layout of the packet that carried it.
  std::vector<float> other_factor(Step step, const float* common) const {
    const bool is_right = sends_left(step);
    const auto size = static_cast<std::size_t>(exchanges_[is_right ? 1 : 0].packet.value()) / sizeof(float);
    std::vector<float> factor(size);
    if (common) std::copy_n(common, size, factor.data());
    std::vector<float> column, by_rows;
    for (const Factored& matrix : factored_) {
      const auto& [n, m, r] = matrix.shape;
      const std::size_t rows = is_right ? m : n, begin = is_right ? matrix.right : matrix.left;
      // P is stored row by row, Q column by column.
      const auto at = [&, r = r](std::size_t i, std::size_t c) {
        return begin + (is_right ? c * rows + i : i * r + c);
      };
      by_rows.resize(rows * r);
      for (std::size_t c = 0; c < r; ++c) {
        column.resize(rows);
        for (std::size_t i = 0; i < rows; ++i) column[i] = factor[at(i, c)];
        if (std::ranges::all_of(column, [](float value) { return value == 0; })) draw(step, begin + c * rows, column);
        for (std::size_t i = 0; i < rows; ++i) by_rows[i * r + c] = column[i];
      }
      orthogonalise(rows, r, by_rows.data());
      for (std::size_t c = 0; c < r; ++c)
        for (std::size_t i = 0; i < rows; ++i) factor[at(i, c)] = by_rows[i * r + c];
    }
    return factor;
  }

  void add_products(const Received& received, float factor, std::span<float> to) const override {
    const std::vector<float> other = other_factor(received.step, received.common);
    for (const Factored& matrix : factored_) {
      const float* const sent = received.packets.front() + place_of(matrix, received.step);
      const auto [left, right] = factors(matrix, received.step, sent, other);
      add_product(matrix.shape, factor, left, right, to.data() + matrix.offset);
    }
  }

  // Calls use(part, where it begins in a packet).
  template <typename Use>
  void for_whole(Step step, const Use& use) const {
    std::size_t behind_right = right_words_;
    for (const auto& [part, at] : whole_) {
      use(part, sends_left(step) ? at : behind_right);
      behind_right += part.size;
    }
  }
};

constexpr std::size_t bins = 256;  // of eight-bit packets

// Signs or levels, a few bits per value: each part of the gradient is packed by itself, all in one all-gather.
class PackedParts : public Compressor {
 public:
  PackedParts(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed)
      : Compressor(options, seed), parts_(std::move(parts)) {
    std::size_t words = 0;
    for (const Part& part : parts_) words += packet_words(part.size);
    exchanges_ = {{Operation::all_gather, bytes_of_words(words)}};
  }

 protected:
  std::size_t bucket() const { return static_cast<std::size_t>(options_.bucket); }
  std::size_t buckets(std::size_t size) const { return (size + bucket() - 1) / bucket(); }
  // The narrowest of 2, 4 and 8 bits that holds -s .. s.
  std::size_t bits_of_levels() const { return options_.levels == 1 ? 2 : options_.levels <= 7 ? 4 : 8; }

  std::size_t packet_words(std::size_t size) const {
    switch (options_.kind) {
      case Kind::sign:  // the mean magnitude
        return 1 + words_of_bits(size);
      case Kind::majority:  // whether the gradient is finite
        return (options_.zeros_abstain ? 2 : 1) * (1 + words_of_bits(size));
      case Kind::qsgd:
        return buckets(size) + words_of_bits(size * bits_of_levels());
      case Kind::int8:  // the bins' means
        return bins + words_of_bits(8 * size);
      case Kind::fp4:
        return buckets(size) + words_of_bits(4 * size);
      default:
        throw std::logic_error("these packets are no signs or levels");
    }
  }

  std::vector<Part> parts_;
};

// Adds one part of all packets, a magnitude and signs from word `begin` on. Goes piece by piece, so that each piece of
// the sum stays in the nearest cache.
void add_scaled_signs(std::span<const float* const> packets, std::size_t begin, std::span<float> sum) {
  std::uint32_t words[words_at_once];
  for (std::size_t at = 0; at < sum.size(); at += piece) {
    const std::size_t size = std::min(piece, sum.size() - at);
    for (const float* const packet : packets) {
      std::memcpy(words, packet + begin + 1 + at / 32, 4 * words_of_bits(size));
      add_signs(words, packet[begin], size, sum.data() + at);
    }
  }
}

// EF-signSGD: signs times the mean magnitude.
// Source:  Karimireddy et al. 2019, "Error Feedback Fixes SignSGD".
// Cost:    all-gather of a bit per value and 4 bytes; or in two phases.
// Differs: workers' packets are averaged, which the paper's single process leaves open. The mean magnitude is that of
//          the whole model unless `scope` says otherwise (the paper's code: of each tensor). The sign of 0 is +1
//          (there 0).
class ScaledSign : public PackedParts {
 public:
  using PackedParts::PackedParts;

  // Per part: the mean magnitude, then the signs.
  void encode(Rank, Step, const float*, std::span<float> p, float* packet) const override {
    std::vector<std::uint32_t> words;
    for (const Part& part : parts_) {
      float* const values = p.data() + part.offset;
      const auto size = static_cast<double>(part.size);
      const auto scale = static_cast<float>(options_.l2_scale ? std::sqrt(sum_of_squares(values, part.size) / size)
                                                              : sum_of_magnitudes(values, part.size) / size);
      words.resize(words_of_bits(part.size));
      for (std::size_t at = 0; at < part.size; at += piece) {  // which stays in the nearest cache between the two
        const std::size_t count = std::min(piece, part.size - at);
        pack_signs(values + at, count, words.data() + at / 32);
        take_out_signs(values + at, scale, count);
      }
      *packet = scale;
      packet = append(words, packet + 1);
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    std::size_t begin = 0;
    for (const Part& part : parts_) {
      add_scaled_signs(received.packets, begin, sum.subspan(part.offset, part.size));
      begin += packet_words(part.size);
    }
  }
};

// signSGD and Signum with majority vote: the step is along the sign of the sum of signs.
// Source:  Bernstein et al. 2018, "signSGD: Compressed Optimisation for Non-Convex Problems"; 2019, "signSGD with
//          Majority Vote is Communication Efficient and Fault Tolerant".
// Cost:    all-gather of a bit per value, and 4 bytes that show whether the gradient is finite; twice that where zeros
//          abstain.
// Differs: a tie gives 0 (their code: +1 in one decoder, 0 in another). The sign of a 0 is +1, so values without any
//          gradient move by the rate, such as rows of words that a step lacks. With `zeros = "abstain"` it is 0, as in
//          the formula, which a bit cannot express. A worker none of whose micro-batches counts has only zeros, and
//          abstains (with momentum it votes by its average). Votes are gathered, not counted by a server. There is no
//          residual: with momentum, a worker's state is its average. If a method divides by all micro-batches, the step
//          is the rate times the share that counts.
class MajorityVote : public PackedParts {
 public:
  using PackedParts::PackedParts;

  // Leaves p unchanged, which is no residual. The packet's first number is the weight of its signs. Where zeros
  // abstain, each value has two votes, and a zero gives one to either side.
  void encode(Rank, Step, const float*, std::span<float> p, float* packet) const override {
    const double magnitude = sum_of_magnitudes(p.data(), p.size());
    *packet = !std::isfinite(magnitude) ? std::numeric_limits<float>::quiet_NaN() : magnitude > 0 ? 1 : 0;
    std::vector<std::uint32_t> words(words_of_bits(p.size()));
    if (!options_.zeros_abstain) {
      pack_signs(p.data(), p.size(), words.data());
      append(words, packet + 1);
      return;
    }
    pack_below_zero(p.data(), p.size(), words.data());
    float* const second = append(words, packet + 1);
    *second = *packet;
    std::vector<float> negated(p.size());
    std::ranges::transform(p, negated.begin(), std::negate<>());
    pack_below_zero(negated.data(), negated.size(), words.data());
    for (std::uint32_t& word : words) word = ~word;
    append(words, second + 1);
  }

  // The signs times the number of micro-batches, by which a method divides.
  void decode(const Received& received, std::span<float> sum) const override {
    add_scaled_signs(received.packets, 0, sum);
    if (options_.zeros_abstain) add_scaled_signs(received.packets, 1 + words_of_bits(sum.size()), sum);
    write_signs(sum.data(), static_cast<float>(received.micro_batches), sum.size());
  }
};

// Calls `use` with the number of bits as a constant: places in words then need no division.
template <typename Use>
void with_bits(std::size_t bits, const Use& use) {
  if (bits == 2) return use(std::integral_constant<std::size_t, 2>());
  if (bits == 4) return use(std::integral_constant<std::size_t, 4>());
  use(std::integral_constant<std::size_t, 8>());
}

// Levels from -s to s, each plus s.
template <std::size_t bits>
void write_levels(std::span<const float> values, std::span<const double> uniform, double factor, int most,
                  std::size_t at, std::vector<std::uint32_t>& words) {
  constexpr std::size_t per_word = 32 / bits;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = factor > 0 ? values[i] : 0;
    const int level = std::min(most, static_cast<int>(factor * std::abs(value) + uniform[i]));
    const auto shifted = static_cast<std::uint32_t>(most + (value < 0 ? -level : level));
    words[(at + i) / per_word] |= shifted << (bits * ((at + i) % per_word));
  }
}

template <std::size_t bits>
void add_levels(const std::vector<std::uint32_t>& words, float factor, int most, std::size_t begin,
                std::span<float> sum) {
  constexpr std::size_t per_word = 32 / bits;
  constexpr std::uint32_t mask = (1u << bits) - 1;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const std::size_t at = begin + i;
    const std::uint32_t shifted = (words[at / per_word] >> (bits * (at % per_word))) & mask;
    sum[i] += factor * static_cast<float>(static_cast<int>(shifted) - most);
  }
}

// QSGD: each value is rounded up or down at random to a multiple of its bucket's norm / s, without bias.
// Source:  Alistarh et al. 2017, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding".
// Cost:    all-gather of 2, 4 or 8 bits per value and 4 bytes per bucket; or in two phases.
// Differs: levels have a fixed number of bits, without Elias coding; a bucket of zeros stays zeros.
class Qsgd : public PackedParts {
 public:
  using PackedParts::PackedParts;

  // Per part: the norms, then the levels. A norm that is not finite makes its bucket so.
  void encode(Rank worker, Step step, const float*, std::span<float> p, float* packet) const override {
    const RandomStream stream{
        .seed = seed_, .purpose = Purpose::compression, .stream = 1, .worker = worker, .step = step};
    std::vector<std::uint32_t> words;
    std::vector<double> uniform(bucket());
    for (const Part& part : parts_) {
      const std::span<const float> values = p.subspan(part.offset, part.size);
      words.assign(words_of_bits(part.size * bits_of_levels()), 0);
      with_bits(bits_of_levels(), [&](auto bits_of_each) {
        for (std::size_t at = 0; at < values.size(); at += bucket()) {
          const std::size_t size = std::min(bucket(), values.size() - at);
          const double norm = std::sqrt(sum_of_squares(values.data() + at, size));
          *packet++ = static_cast<float>(norm);
          const double factor = norm > 0 && std::isfinite(norm) ? options_.levels / norm : 0;
          stream.fill_uniform(static_cast<std::uint32_t>(part.place + at), std::span(uniform).first(size));
          write_levels<bits_of_each()>(values.subspan(at, size), uniform, factor, options_.levels, at, words);
        }
      });
      packet = append(words, packet);
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    std::vector<std::uint32_t> words;
    for (const float* packet : received.packets)
      for (const Part& part : parts_) {
        const std::span<float> values = sum.subspan(part.offset, part.size);
        words.resize(words_of_bits(part.size * bits_of_levels()));
        std::memcpy(words.data(), packet + buckets(part.size), 4 * words.size());
        with_bits(bits_of_levels(), [&](auto bits_of_each) {
          for (std::size_t at = 0; at < values.size(); at += bucket()) {
            const float factor = *packet++ / static_cast<float>(options_.levels);
            const std::size_t size = std::min(bucket(), values.size() - at);
            add_levels<bits_of_each()>(words, factor, options_.levels, at, values.subspan(at, size));
          }
        });
        packet += words.size();
      }
  }
};

using Level = std::uint8_t;

// Where bins begin, and how many there are per unit. 0 if all values are equal, and so in the first bin.
struct BinRange {
  float low = 0;
  float per_unit = 0;
};

BinRange range_of(std::span<const float> values, double range_std) {
  const auto size = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / size;
  const double square = sum_of_squares(values.data(), values.size()) / size - mean * mean;
  const double range = range_std * std::sqrt(std::max(0.0, square));
  const auto per_unit = static_cast<float>(bins / (2 * range));
  return {static_cast<float>(mean - range), range > 0 && std::isfinite(per_unit) ? per_unit : 0.0f};
}

SYNCOPATE_VECTOR_CLONES
void write_bins(const float* __restrict values, std::size_t size, const BinRange of, Level* __restrict levels) {
  constexpr float last = bins - 1;
  for (std::size_t i = 0; i < size; ++i) {
    const float at = (values[i] - of.low) * of.per_unit;
    const float within = at < 0 ? 0.0f : at > last ? last : at;
    levels[i] = static_cast<Level>(static_cast<std::int32_t>(within));
  }
}

// Equal neighbours fall into one bin, whose sum would wait for itself: each bin has two sums.
std::array<float, bins> means_of(std::span<const float> values, const Level* levels) {
  std::array<std::array<double, bins>, 2> sums{};
  std::array<std::array<std::int32_t, bins>, 2> counts{};
  const auto take = [&](std::size_t i, std::size_t lane) {
    sums[lane][levels[i]] += static_cast<double>(values[i]);
    ++counts[lane][levels[i]];
  };
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) take(i, 0), take(i + 1, 1);
  if (values.size() % 2 == 1) take(values.size() - 1, 0);
  std::array<float, bins> means{};
  for (std::size_t b = 0; b < bins; ++b)
    if (const double count = static_cast<double>(counts[0][b]) + counts[1][b]; count > 0)
      means[b] = static_cast<float>((sums[0][b] + sums[1][b]) / count);
  return means;
}

// Uniform bins in eight bits, for outer gradients: 256 bins over mean +- range_std standard deviations. Each stands for
// the mean of the values in it; values outside are in the outermost bins.
// Source:  INTELLECT-1 (Prime Intellect 2024), after hivemind's uniform 8-bit code.
// Cost:    all-gather of a byte per value and 1,024 bytes for the bins' means: as many bytes as a dense sum of 8
//          workers. With `exchange = "two-phase"`: a quarter of a dense sum's bytes for any number, and the means of N
//          chunks.
// Differs: accounts of INTELLECT-1 say mean +- 6 standard deviations. In hivemind's code 6 of them are the whole range,
//          from -3 to +3, which is the default (`range_std`). That code rounds to the middle of a bin and takes the
//          standard deviation of a sample; here it is that of all values, and bins are cut at their edges. The range is
//          that of the whole model unless `scope` says otherwise (there: of each tensor). There is no residual unless
//          `error_feedback` asks for one.
class UniformBins : public PackedParts {
 public:
  using PackedParts::PackedParts;

  // Per part: the bins' means, then the levels. A value that is not finite makes its whole part so.
  void encode(Rank, Step, const float*, std::span<float> p, float* packet) const override {
    std::vector<Level> levels;
    for (const Part& part : parts_) {
      const std::span<float> values = p.subspan(part.offset, part.size);
      levels.assign(4 * ((part.size + 3) / 4), 0);
      std::array<float, bins> means;
      if (std::isfinite(sum_of_squares(values.data(), values.size()))) {
        write_bins(values.data(), values.size(), range_of(values, options_.range_std), levels.data());
        means = means_of(values, levels.data());
      } else {
        means.fill(std::numeric_limits<float>::quiet_NaN());
      }
      for (std::size_t i = 0; i < part.size; ++i) values[i] -= means[levels[i]];
      packet = std::ranges::copy(means, packet).out;
      std::memcpy(packet, levels.data(), levels.size());
      packet += levels.size() / 4;
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    std::vector<Level> levels;
    for (const float* packet : received.packets)
      for (const Part& part : parts_) {
        const float* const means = packet;
        levels.resize(4 * ((part.size + 3) / 4));
        std::memcpy(levels.data(), packet + bins, levels.size());
        float* const out = sum.data() + part.offset;
        for (std::size_t i = 0; i < part.size; ++i) out[i] += means[levels[i]];
        packet += packet_words(part.size);
      }
  }
};

constexpr std::uint32_t sign = 8;  // of a code of four bits
constexpr std::size_t codes_per_word = 8;

// Code c > 0 stands for 2^(c - 7), at most 1.
constexpr std::array<float, 8> magnitudes = {0, 1.0f / 64, 1.0f / 32, 1.0f / 16, 1.0f / 8, 1.0f / 4, 1.0f / 2, 1};
// Where code c begins with rounding to the nearest: halfway from the code below.
constexpr std::array<float, 8> begins = {0, 1.0f / 128, 1.5f / 64, 1.5f / 32, 1.5f / 16, 1.5f / 8, 1.5f / 4, 1.5f / 2};

SYNCOPATE_VECTOR_CLONES
void write_nearest(const float* __restrict values, float scale, std::size_t size, std::uint8_t* __restrict codes) {
  for (std::size_t i = 0; i < size; ++i) {
    const float magnitude = std::fabs(values[i]) / scale;
    std::int32_t code = values[i] < 0 ? static_cast<std::int32_t>(sign) : 0;
    for (std::size_t c = 1; c < begins.size(); ++c) code += magnitude >= begins[c] ? 1 : 0;
    codes[i] = static_cast<std::uint8_t>(code);
  }
}

// The code above with the probability that gives the right mean, else the code below.
std::uint32_t at_random(float magnitude, double uniform) {
  std::uint32_t below = 0;
  for (std::size_t c = 1; c < magnitudes.size(); ++c) below += magnitude >= magnitudes[c] ? 1 : 0;
  if (below == magnitudes.size() - 1) return below;
  const double low = magnitudes[below], high = magnitudes[below + 1];
  return below + (uniform * (high - low) < magnitude - low ? 1 : 0);
}

// The bits of a float's exponent are the code's plus 120.
inline float value_of(std::uint32_t code, float scale) {
  const std::uint32_t exponent = (code & 7u) == 0 ? 0u : (code & 7u) + 120u;
  return scale * std::bit_cast<float>((code & sign) << 28 | exponent << 23);
}

SYNCOPATE_VECTOR_CLONES
void take_out(const std::uint8_t* __restrict codes, float scale, std::size_t size, float* __restrict values) {
  for (std::size_t i = 0; i < size; ++i) values[i] -= value_of(codes[i], scale);
}

SYNCOPATE_VECTOR_CLONES
void add_values(const std::uint8_t* __restrict codes, float scale, std::size_t size, float* __restrict sum) {
  for (std::size_t i = 0; i < size; ++i) sum[i] += value_of(codes[i], scale);
}

// Eight codes per word, the first in the lowest bits.
void pack(const std::uint8_t* codes, std::span<std::uint32_t> words) {
  for (std::uint32_t& word : words) {
    word = 0;
    for (std::size_t i = 0; i < codes_per_word; ++i) word |= static_cast<std::uint32_t>(codes[i]) << (4 * i);
    codes += codes_per_word;
  }
}
void unpack(std::span<const std::uint32_t> words, std::uint8_t* codes) {
  for (const std::uint32_t word : words)
    for (std::size_t i = 0; i < codes_per_word; ++i) *codes++ = static_cast<std::uint8_t>((word >> (4 * i)) & 15u);
}

// The largest magnitude; NaN if a value is not finite.
float scale_of(std::span<const float> values) {
  if (!std::isfinite(sum_of_magnitudes(values.data(), values.size()))) return std::numeric_limits<float>::quiet_NaN();
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Floats of four bits, for outer gradients: a sign and three bits of exponent, no mantissa. A bucket's scale is its
// largest magnitude s; values are 0 and +- s 2^-k, k = 0 .. 6.
// Source:  after Streaming DiLoCo (Douillard et al. 2025), which sends outer gradients as 4-bit floats.
// Cost:    all-gather of half a byte per value and 4 bytes per bucket; or in two phases.
// Differs: it is not established that theirs has three bits of exponent (E3M0), nor how it rounds and scales. Buckets,
//          the scale, a zero instead of the smallest exponent, and both roundings are this project's. `rounding`: to
//          the nearest, of two the larger; or up or down at random, without bias. There is no residual, as in the
//          paper, unless `error_feedback` asks for one.
class FourBitFloats : public PackedParts {  // of one part
 public:
  using PackedParts::PackedParts;

  // The scales, then the codes.
  void encode(Rank worker, Step step, const float*, std::span<float> p, float* packet) const override {
    const RandomStream stream{
        .seed = seed_, .purpose = Purpose::compression, .stream = 2, .worker = worker, .step = step};
    std::vector<std::uint32_t> words(words_of_bits(4 * p.size()));
    std::vector<std::uint8_t> codes(codes_per_word * words.size());
    std::vector<double> uniform(options_.rounds_at_random ? bucket() : 0);
    for (std::size_t begin = 0; begin < p.size(); begin += bucket()) {
      const std::span<float> values = p.subspan(begin, std::min(bucket(), p.size() - begin));
      const float scale = *packet++ = scale_of(values);
      if (!(scale > 0)) continue;  // all values are 0, or the scale makes them NaN
      if (options_.rounds_at_random) {
        stream.fill_uniform(static_cast<std::uint32_t>(parts_.front().place + begin),
                            std::span(uniform).first(values.size()));
        for (std::size_t i = 0; i < values.size(); ++i)
          codes[begin + i] = static_cast<std::uint8_t>(at_random(std::fabs(values[i]) / scale, uniform[i]) |
                                                       (values[i] < 0 ? sign : 0u));
      } else {
        write_nearest(values.data(), scale, values.size(), codes.data() + begin);
      }
      take_out(codes.data() + begin, scale, values.size(), values.data());
    }
    pack(codes.data(), words);
    append(words, packet);
  }

  void decode(const Received& received, std::span<float> sum) const override {
    std::vector<std::uint32_t> words(words_of_bits(4 * sum.size()));
    std::vector<std::uint8_t> codes(codes_per_word * words.size());
    for (const float* packet : received.packets) {
      std::memcpy(words.data(), packet + buckets(sum.size()), 4 * words.size());
      unpack(words, codes.data());
      for (std::size_t begin = 0; begin < sum.size(); begin += bucket())
        add_values(codes.data() + begin, *packet++, std::min(bucket(), sum.size() - begin), sum.data() + begin);
    }
  }
};

// ScaleCom: at each step all workers send their values at the places where one worker's, the leader's, are largest. The
// next step has another leader. Packets can be added, and keep their length with any number of workers.
// Source:  Chen et al. 2020, "ScaleCom: Scalable Sparsified Gradient Compression for Communication-Efficient
//          Distributed Training", from accounts and code of third parties.
// Cost:    a broadcast of k places and then an all-reduce of k values: 4 bytes each.
// Differs: the leader is worker (step mod N) and selects by its p = e + g. With `filter` = beta, the low-pass filter,
//          e' = (1 - beta) e + beta (p - sent): where values are sent, (1 - beta) e stays. The paper's beta, and
//          whether it leaves first layers dense, is not established. The default is 1, plain error feedback, for all
//          layers alike. All wait for a late leader as for any worker. Ties go to the lowest place.
// Checks:  sum of what is sent = sum of gradients + (first residual - last) / beta.
class ScaleCom : public Compressor {
 public:
  ScaleCom(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed, int workers)
      : Compressor(options, seed), parts_(std::move(parts)), workers_(workers) {}

  std::vector<Exchange> exchanges(Step step) const override {
    const Bytes packet = bytes_of_words(kept(step));
    return {{Operation::broadcast, packet}, {Operation::all_reduce, packet}};
  }
  // With a filter p has a vector of its own, behind e.
  std::size_t vectors() const override { return is_filtered() ? 2 : 1; }
  Rank root(Step step) const override { return Rank{static_cast<int>(step.value() % workers_)}; }
  bool accumulates_by_adding() const override { return !is_filtered(); }

  // p = e + g, and e = e + beta g. Encoding then subtracts beta times what is sent.
  void accumulate(std::span<const float> gradient, std::size_t at, float of_memory,
                  std::span<float> memory) const override {
    if (!is_filtered()) return Compressor::accumulate(gradient, at, of_memory, memory);
    const auto beta = static_cast<float>(options_.filter);
    float* const e = memory.data() + at;
    float* const p = e + memory.size() / 2;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      p[i] = of_memory * e[i] + gradient[i];
      e[i] = of_memory * e[i] + beta * gradient[i];
    }
  }

  // As if the gradient had been there and none of it had been sent.
  void fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const override {
    const auto beta = static_cast<float>(options_.filter);
    for (std::size_t i = 0; i < gradient.size(); ++i) memory[at + i] += beta * gradient[i];
  }

  void encode(Rank, Step step, const float*, std::span<float> memory, float* packet) const override {
    const std::span<float> p = memory.last(memory.size() / vectors());
    for (const Part& part : parts_)
      for (const std::uint32_t place :
           largest_magnitudes(p.subspan(part.offset, part.size), kept_of(options_.ratio_at(step), part.size)))
        *packet++ = std::bit_cast<float>(static_cast<std::uint32_t>(part.offset) + place);
  }

  void encode_second(Step step, const float* places, std::span<float> memory, float* packet) const override {
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

  void decode(const Received& received, std::span<float> sum) const override {
    for (std::size_t i = 0; i < kept(received.step); ++i)
      sum[std::bit_cast<std::uint32_t>(received.between[i])] = received.packets.front()[i];
  }

 private:
  bool is_filtered() const { return options_.filter < 1; }
  std::size_t kept(Step step) const { return kept_of(options_.ratio_at(step), parts_); }

  std::vector<Part> parts_;
  int workers_;
};

// Gradients of embeddings as the rows that a step's tokens have touched, with their places. All other parameters are
// summed densely.
// Source:  indexed slices in Horovod, which all-gathers them unless told to make them dense.
// Cost:    all-reduce of 4 bytes per parameter outside the tables; all-gather of 4 (c + 1) bytes for each row of c
//          values that is not all zeros, and 4 bytes more. With N workers: fewer bytes than a dense sum where less than
//          about 2 / N of the rows are touched.
// Differs: Horovod sends indices, of 8 bytes, and values apart, and repeats rows that a worker has several times; here
//          a worker's micro-batches are added up first. Only the transport of gradients changes: the step is that along
//          the dense sum, with moments and decay of untouched rows, unlike an optimizer for sparse gradients. A table
//          whose rows are all touched, such as one tied to an output layer, is sent whole, with places.
// Checks:  equals the dense sum up to the order of additions, for any optimizer; bytes by the rows of each worker.
class SparseRows : public Compressor {
 public:
  // Parts with rows are the tables.
  SparseRows(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
      : Compressor(options, seed) {
    std::size_t dense = 0, most = 1;
    for (const Part& part : parts) {
      (part.rows > 0 ? tables_ : dense_).push_back(part);
      (part.rows > 0 ? most : dense) += part.size + part.rows;
    }
    exchanges_ = {{Operation::all_reduce, bytes_of_words(dense)}, {Operation::all_gather, bytes_of_words(most)}};
  }

  void encode(Rank, Step, const float*, std::span<float> p, float* packet) const override {
    for (const Part& part : dense_) packet = std::ranges::copy(p.subspan(part.offset, part.size), packet).out;
  }

  bool has_own_sizes() const override { return true; }
  std::size_t second_words(std::span<const float> p) const override {
    std::size_t words = 1;
    for_touched_rows(p, [&](std::size_t, std::span<const float> values) { words += 1 + values.size(); });
    return words;
  }

  // The number of rows, then for each row its first place and its values.
  void encode_second(Step, const float*, std::span<float> p, float* packet) const override {
    float* const count = packet++;
    std::uint32_t rows = 0;
    for_touched_rows(p, [&](std::size_t place, std::span<const float> values) {
      *packet++ = std::bit_cast<float>(static_cast<std::uint32_t>(place));
      packet = std::ranges::copy(values, packet).out;
      ++rows;
    });
    *count = std::bit_cast<float>(rows);
  }

  void decode(const Received& received, std::span<float> sum) const override {
    copy_parts(received.between, dense_, sum);
    for (const float* packet : received.packets) {
      const auto rows = std::bit_cast<std::uint32_t>(*packet++);
      for (std::uint32_t row = 0; row < rows; ++row) {
        const std::size_t place = std::bit_cast<std::uint32_t>(*packet++), columns = columns_at(place);
        for (std::size_t i = 0; i < columns; ++i) sum[place + i] += packet[i];
        packet += columns;
      }
    }
  }

 private:
  // Calls use(first place, values) for each row that is not all zeros.
  template <typename Use>
  void for_touched_rows(std::span<const float> p, const Use& use) const {
    for (const Part& table : tables_) {
      const std::size_t columns = table.size / table.rows;
      for (std::size_t row = 0; row < table.rows; ++row) {
        const std::size_t place = table.offset + row * columns;
        const std::span<const float> values = p.subspan(place, columns);
        if (std::ranges::any_of(values, [](float value) { return value != 0; })) use(place, values);  // NaN is no zero
      }
    }
  }

  std::size_t columns_at(std::size_t place) const {
    const auto table = std::ranges::find_if(tables_, [&](const Part& part) { return place < part.offset + part.size; });
    return table->size / table->rows;
  }

  std::vector<Part> tables_;
  std::vector<Part> dense_;
};

// Top-k: the largest values of a gradient, with their places.
// Source:  Aji and Heafield 2017, "Sparse Communication for Distributed Gradient Descent"; Stich, Cordonnier, Jaggi
//          2018, "Sparsified SGD with Memory".
// Cost:    all-gather of 8 bytes (place and value) per value kept.
// Differs: top-k of the whole model unless `scope` says otherwise; ties go to the lowest place.
class TopK : public Compressor {
 public:
  TopK(const CompressionOptions& options, std::vector<Part> parts, std::uint64_t seed)
      : Compressor(options, seed), parts_(std::move(parts)) {}

  std::vector<Exchange> exchanges(Step step) const override {
    return {{Operation::all_gather, bytes_of_words(2 * kept_of(options_.ratio_at(step), parts_))}};
  }

  // Per part: the places, then the values.
  void encode(Rank, Step step, const float*, std::span<float> p, float* packet) const override {
    for (const Part& part : parts_) {
      const std::size_t kept = kept_of_part(step, part);
      const std::span<float> values = p.subspan(part.offset, part.size);
      for (const std::uint32_t place : largest_magnitudes(values, kept)) {
        *packet = std::bit_cast<float>(static_cast<std::uint32_t>(part.offset) + place);
        packet[kept] = std::exchange(values[place], 0.0f);
        ++packet;
      }
      packet += kept;
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    for (const float* packet : received.packets)
      for (const Part& part : parts_) {
        const std::size_t kept = kept_of_part(received.step, part);
        for (std::size_t i = 0; i < kept; ++i) sum[std::bit_cast<std::uint32_t>(packet[i])] += packet[kept + i];
        packet += 2 * kept;
      }
  }

 protected:
  std::size_t kept_of_part(Step step, const Part& part) const { return kept_of(options_.ratio_at(step), part.size); }

  std::vector<Part> parts_;
};

// Top-k with momentum correction: u = m u + g and p = p + u. The largest values of p are sent; with masking their u
// becomes 0, too. The optimizer steps along the mean of what was sent, and needs no momentum of its own.
// Source:  Lin, Han, Mao, Wang, Dally 2018, "Deep Gradient Compression"; their code.
// Cost:    as top-k; `dense_vectors` adds an all-reduce of the tensors of one dimension, before it.
// Differs: exact top-k, in their code from a sampled threshold; of the whole model unless `scope` says otherwise, in
//          their code of each tensor. Tensors of one dimension take part in the selection. With `dense_vectors`, as in
//          their code, all of their u is sent: their mean's momentum, as if the optimizer had it. The ratio holds from
//          the first step unless `warmup_ratios` has others. Their code warms up over 0.316, 0.1, 0.0316, 0.01 and
//          0.00316 to 0.001, an epoch each; its page over 0.25, 0.063, 0.015 and 0.004.
//          With `nesterov`, as in their code, u = m (u + g) and p = p + u + g. The code's recipes choose; here the
//          plain form is the default. `clip` bounds a worker's mean gradient before it is taken in, by the norm of the
//          whole or, as in their code, by the norm of each tensor or by each value. It is off by default, here and
//          there. That the paper multiplies its bound by N^(-1/2) (`clip_scaling`) is from memory, not established. A
//          gradient that is folded in is clipped by itself.
// Checks:  a golden recursion; ratio 1 without masking is momentum SGD, with `nesterov` Nesterov's.
class DeepGradientCompression : public TopK {
 public:
  DeepGradientCompression(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed,
                          int workers)
      : TopK(options, {}, seed), clipped_(parts), bound_(options.clip.value_or(0)) {
    if (options.clip_by_workers) bound_ /= std::sqrt(workers);
    if (options.clipped_by == CompressionOptions::ClippedBy::norm)
      clipped_ = {{.offset = 0, .size = parts.back().offset + parts.back().size}};
    for (const Part& part : parts) (options.dense_vectors && part.rows == 0 ? dense_ : parts_).push_back(part);
    if (parts_.empty())
      throw RunFailure(options.written + "; must be false: the model has no matrix, so that nothing is compressed");
    if (options.scope == CompressionOptions::Scope::model) {  // matrices come first, without gaps (Objective)
      const std::size_t begin = parts_.front().offset, end = parts_.back().offset + parts_.back().size;
      parts_ = {{.offset = begin, .size = end - begin}};
    }
    for (const Part& part : dense_) dense_words_ += part.size;
  }

  std::vector<Exchange> exchanges(Step step) const override {
    std::vector<Exchange> exchanges = TopK::exchanges(step);
    if (!dense_.empty()) exchanges.insert(exchanges.begin(), {Operation::all_reduce, bytes_of_words(dense_words_)});
    return exchanges;
  }
  // u stands behind p.
  std::size_t vectors() const override { return 2; }
  bool accumulates_by_adding() const override { return false; }
  bool clips() const override { return options_.clip.has_value(); }

  // NaN stays NaN.
  void clip(std::span<float> gradient, std::int64_t micro_batches) const override {
    const double bound = bound_ * static_cast<double>(micro_batches);
    if (options_.clipped_by == CompressionOptions::ClippedBy::value) {
      const auto most = static_cast<float>(bound);
      for (float& value : gradient)
        if (std::abs(value) > most) value = std::copysign(most, value);
      return;
    }
    for (const Part& part : clipped_) {
      const double norm = std::sqrt(sum_of_squares(gradient.data() + part.offset, part.size));
      if (norm > bound) scale(gradient.data() + part.offset, static_cast<float>(bound / norm), part.size);
    }
  }

  void accumulate(std::span<const float> gradient, std::size_t at, float, std::span<float> memory) const override {
    const auto momentum = static_cast<float>(options_.momentum);
    float* const p = memory.data() + at;
    float* const u = p + memory.size() / 2;
    if (options_.nesterov)
      for (std::size_t i = 0; i < gradient.size(); ++i) p[i] += (u[i] = momentum * (u[i] + gradient[i])) + gradient[i];
    else
      for (std::size_t i = 0; i < gradient.size(); ++i) p[i] += u[i] = momentum * u[i] + gradient[i];
  }

  // The step itself has taken in a gradient of zeros.
  void fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const override {
    float* const p = memory.data() + at;
    float* const u = p + memory.size() / 2;
    const auto of_velocity = options_.nesterov ? static_cast<float>(options_.momentum) : 1.0f;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      p[i] += options_.nesterov ? of_velocity * gradient[i] + gradient[i] : gradient[i];
      u[i] += of_velocity * gradient[i];
    }
  }

  void encode(Rank, Step step, const float*, std::span<float> memory, float* packet) const override {
    if (dense_.empty()) return encode_second(step, nullptr, memory, packet);
    for (const Part& part : dense_) {
      const std::span<float> p = memory.subspan(part.offset, part.size);
      packet = std::ranges::copy(p, packet).out;
      std::ranges::fill(p, 0.0f);
    }
  }

  // The largest values; the only packet where nothing is dense.
  void encode_second(Step step, const float*, std::span<float> memory, float* packet) const override {
    const std::span<float> p = memory.first(memory.size() / 2), velocity = memory.last(memory.size() / 2);
    TopK::encode({}, step, nullptr, p, packet);
    if (!options_.masking) return;
    for (const Part& part : parts_) {
      const std::size_t kept = kept_of_part(step, part);
      for (std::size_t i = 0; i < kept; ++i) velocity[std::bit_cast<std::uint32_t>(packet[i])] = 0;
      packet += 2 * kept;
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    TopK::decode(received, sum);
    copy_parts(received.between, dense_, sum);
  }

 private:
  std::vector<Part> clipped_;  // each by itself
  double bound_ = 0;           // of each
  std::vector<Part> dense_;
  std::size_t dense_words_ = 0;
};

// Random-k: values at random places, the same on all workers. With error feedback the value is sent; without it the
// value times 1 / ratio, which has the right mean.
// Source:  Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory".
// Cost:    all-reduce of 4 bytes per value kept: all workers draw the places, so that these are not sent.
// Differs: places are drawn without replacement from a stream of their own.
class RandomK : public Compressor {
 public:
  RandomK(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
      : Compressor(options, seed), size_(parts.front().size) {}

  std::vector<Exchange> exchanges(Step step) const override {
    return {{Operation::all_reduce, bytes_of_words(kept(step))}};
  }

  void encode(Rank, Step step, const float*, std::span<float> p, float* packet) const override {
    const float scale =
        options_.error_feedback ? 1 : static_cast<float>(static_cast<double>(size_) / static_cast<double>(kept(step)));
    for (const std::uint32_t place : places(step)) *packet++ = scale * std::exchange(p[place], 0.0f);
  }

  void decode(const Received& received, std::span<float> sum) const override {
    const float* value = received.packets.front();
    for (const std::uint32_t place : places(received.step)) sum[place] = *value++;
  }

 private:
  std::size_t kept(Step step) const { return kept_of(options_.ratio_at(step), size_); }

  // Floyd's algorithm, with a bit per place.
  std::vector<std::uint32_t> places(Step step) const {
    std::vector<double> uniform(kept(step));
    RandomStream{.seed = seed_, .purpose = Purpose::compression, .stream = 0, .worker = {}, .step = step}.fill_uniform(
        0, uniform);
    std::vector<bool> is_drawn(size_);
    std::vector<std::uint32_t> places;
    places.reserve(uniform.size());
    for (std::size_t i = 0; i < uniform.size(); ++i) {
      const std::size_t top = size_ - uniform.size() + i;
      const std::size_t drawn = std::min(top, static_cast<std::size_t>(uniform[i] * static_cast<double>(top + 1)));
      const std::size_t place = is_drawn[drawn] ? top : drawn;
      is_drawn[place] = true;
      places.push_back(static_cast<std::uint32_t>(place));
    }
    return places;
  }

  std::size_t size_;
};

// The pieces of parts in [begin, end). Their offsets count from `begin`.
std::vector<Part> cut(const std::vector<Part>& parts, std::size_t begin, std::size_t end) {
  std::vector<Part> pieces;
  for (const Part& part : parts) {
    const std::size_t from = std::max(part.offset, begin), to = std::min(part.offset + part.size, end);
    if (from < to)
      pieces.push_back({.offset = from - begin, .size = to - from, .rows = 0, .columns = part.columns, .place = from});
  }
  return pieces;
}

// Two phases: every worker owns a chunk of the gradient, an Nth. It decodes everybody's packets of the chunk, adds them
// up in single precision, and sends the sum, compressed again, to all.
// Source:  the exchange of 1-bit SGD (Seide et al. 2014) and of 1-bit Adam's code (Tang et al. 2021). That the owners
//          of the former keep a residual too is from accounts of it, not from its text.
// Shapes:  chunks of ceil(d / N) values, the last ones shorter or empty. Each is compressed by itself, with a scale,
//          means and buckets of its own. A piece of a matrix has all columns that reach into it.
// Cost:    all-to-all of N packets of a chunk, and all-gather of N: 2 (N - 1) packets per worker, where an all-gather
//          moves N - 1 packets of the whole, N times as long. Packets are as long as the longest.
// Differs: with error feedback the error of the second compression is the owner's residual. An owner that loses its
//          state loses that, too. An owner adds its own chunk as it sends it, not as it is.
// Checks:  telescoping with both residuals; exact packets give the exact sum.
class TwoPhase : public Compressor {
 public:
  TwoPhase(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed, int workers)
      : Compressor(options, seed) {
    CompressionOptions of_chunk = options;
    of_chunk.pattern = CompressionOptions::Pattern::gather;
    const std::size_t size = parts.back().offset + parts.back().size, owners = static_cast<std::size_t>(workers);
    const std::size_t most = (size + owners - 1) / owners;
    for (std::size_t owner = 0; owner < owners; ++owner) {
      const std::size_t begin = std::min(size, owner * most), end = std::min(size, begin + most);
      Chunk& chunk = chunks_.emplace_back(Chunk{.offset = begin, .size = end - begin});
      if (chunk.size == 0) continue;
      chunk.compressor = make_compressor(of_chunk, cut(parts, begin, end), seed, workers);
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

  // An owner draws random numbers as a rank behind those of the workers.
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
    std::shared_ptr<const Compressor> compressor{};  // of its values; null: it has none
  };

  std::vector<Chunk> chunks_;
  std::size_t words_ = 0;  // of a chunk's packet
};

}  // namespace

std::vector<Part> parts_of(const CompressionOptions& options, std::span<const ParameterTensor> tensors,
                           Bytes parameters) {
  const auto size = static_cast<std::size_t>(parameters.value()) / sizeof(float);
  if (!options.needs_tensors()) return {{.offset = 0, .size = size}};
  const std::vector<std::string>& tables = options.tables;
  const bool by_rows = options.kind == Kind::rows;
  if (by_rows && !has_table(tables, tensors))
    throw RunFailure(fmt::format(
        "{}; {}", options.written.empty() ? fmt::format("compression.tables = [{}]", quoted(tables)) : options.written,
        must_name_a_matrix(tensors)));
  std::vector<Part> parts;
  for (const ParameterTensor& tensor : tensors)
    if (tensor.size > 0)
      parts.push_back({.offset = tensor.offset,
                       .size = tensor.size,
                       .rows = by_rows && !is_table(tables, tensor) ? 0 : tensor.rows,
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
