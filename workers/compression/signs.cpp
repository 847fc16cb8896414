// Compressors that send signs, one bit per value: EF-signSGD, majority votes and 1-bit SGD.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "workers/compression/kernels.hpp"
#include "workers/compression/kinds.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {

namespace {

// Adds one part of all packets: a magnitude and signs, from word `begin` on. The sum is processed in pieces that stay
// in the nearest cache.
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
// Cost:    all-gather of one bit per value and 4 bytes; or two phases.
// Differs: workers' packets are averaged; the paper's single process leaves this open. Signs share the mean
//          magnitude of the whole model unless `scope` says otherwise (in the paper's code: of a tensor). The sign of 0
//          is +1 (in the paper's code: 0).
class ScaledSign : public PartByPart {
 public:
  ScaledSign(bool l2_scale, const CompressorInput& input) : PartByPart(input), l2_scale_(l2_scale) {}

 protected:
  std::size_t words(const Part& part, Step) const override { return 1 + words_of_bits(part.size); }

  // Writes the mean magnitude, then the signs.
  void encode_part(const Part& part, Rank, Step, std::span<float> p, float* packet) const override {
    const auto size = static_cast<double>(part.size);
    const auto scale = static_cast<float>(l2_scale_ ? std::sqrt(sum_of_squares(p.data(), part.size) / size)
                                                    : sum_of_magnitudes(p.data(), part.size) / size);
    std::vector<std::uint32_t> words(words_of_bits(part.size));
    // Each piece stays in the nearest cache between the two calls.
    for (std::size_t at = 0; at < part.size; at += piece) {
      const std::size_t count = std::min(piece, part.size - at);
      pack_bits<Bit::is_minus>(p.data() + at, count, words.data() + at / 32);
      take_out_signs(p.data() + at, scale, count);
    }
    *packet = scale;
    append(words, packet + 1);
  }

  void decode_part(const Part&, const Received& received, std::size_t begin, std::span<float> sum) const override {
    add_scaled_signs(received.packets, begin, sum);
  }

 private:
  bool l2_scale_;  // true: scale by the root mean square; false: by the mean magnitude
};

// signSGD and Signum with majority vote: the step is along the sign of the sum of signs.
// Source:  Bernstein et al. 2018, "signSGD: Compressed Optimisation for Non-Convex Problems"; 2019, "signSGD with
//          Majority Vote is Communication Efficient and Fault Tolerant".
// Cost:    all-gather of one bit per value, and of 4 bytes that show whether the gradient is finite; twice that if
//          zeros abstain.
// Differs: a tie gives 0 (in the authors' code: +1 in one decoder, 0 in another). The sign of 0 is +1, so values
//          without any gradient, such as rows of words that are absent from a step, change by the learning rate. With
//          `zeros = "abstain"` the sign of 0 is 0, as in the formula; one bit cannot express that. A worker without any
//          counted micro-batch has only zeros, and abstains (with momentum it votes by its moving average). Votes are
//          gathered, not counted by a server. There is no residual: with momentum, a worker's state is its moving
//          average. If a method divides by all planned micro-batches, the share of them that count multiplies the step.
class MajorityVote : public PartByPart {
 public:
  MajorityVote(bool zeros_abstain, const CompressorInput& input) : PartByPart(input), zeros_abstain_(zeros_abstain) {}

 protected:
  std::size_t words(const Part& part, Step) const override {
    return (zeros_abstain_ ? 2 : 1) * (1 + words_of_bits(part.size));
  }

  // Does not change p, which is not a residual. The packet's first number is the weight of its signs. If zeros abstain,
  // each value has two votes, and a zero gives one vote to each side.
  void encode_part(const Part&, Rank, Step, std::span<float> p, float* packet) const override {
    const double magnitude = sum_of_magnitudes(p.data(), p.size());
    *packet = !std::isfinite(magnitude) ? std::numeric_limits<float>::quiet_NaN() : magnitude > 0 ? 1 : 0;
    std::vector<std::uint32_t> words(words_of_bits(p.size()));
    if (!zeros_abstain_) {
      pack_bits<Bit::is_minus>(p.data(), p.size(), words.data());
      append(words, packet + 1);
      return;
    }
    pack_bits<Bit::is_below_zero>(p.data(), p.size(), words.data());
    float* const second = append(words, packet + 1);
    *second = *packet;
    std::vector<float> negated(p.size());
    std::ranges::transform(p, negated.begin(), std::negate<>());
    pack_bits<Bit::is_below_zero>(negated.data(), negated.size(), words.data());
    for (std::uint32_t& word : words) word = ~word;
    append(words, second + 1);
  }

  // Writes the signs times the number of micro-batches, because the method divides by that number.
  void decode_part(const Part&, const Received& received, std::size_t begin, std::span<float> sum) const override {
    add_scaled_signs(received.packets, begin, sum);
    if (zeros_abstain_) add_scaled_signs(received.packets, begin + 1 + words_of_bits(sum.size()), sum);
    write_signs(sum.data(), static_cast<float>(received.micro_batches), sum.size());
  }

 private:
  bool zeros_abstain_;  // true: zeros do not vote; false: zeros vote plus
};

// Adds a row to sums of a few rows, for which single precision is enough.
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

// values += factor x (below where the mask is ones, others elsewhere)
SYNCOPATE_VECTOR_CLONES
void add_means(const std::uint32_t* __restrict masks, std::size_t size, float factor, const float* __restrict below,
               const float* __restrict others, float* __restrict values) {
  for (std::size_t i = 0; i < size; ++i) values[i] += factor * (masks[i] ? below[i] : others[i]);
}

// Writes each column's mean of the values below 0, then each column's mean of the other values.
void find_means(const float* values, std::size_t size, std::size_t columns, float* means) {
  constexpr std::size_t lanes = 64;  // partial sums of a single column, which is then as fast as many columns
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

// Subtracts each column's mean from its values, and returns the means. Writes to `ends` first minus the mean
// distance of each column's values from their mean, then plus that distance of each column.
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
  std::vector<float> same;  // the two means of a single column, each repeated `piece` times
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

// 1-bit SGD sends one bit per value. In each column of a matrix the bit means either the mean of the values below 0, or
// the mean of the other values.
// Source:  Seide, Fu, Droppo, Li, Yu 2014, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
//          Distributed Training of Speech DNNs"; CNTK's code where the paper leaves a choice.
// Shapes:  M (n, m): a tensor's first dimension by all others; m columns. A tensor of one dimension is one column.
// Cost:    all-gather of one bit per value and 8 bytes per column; or two phases, as in the paper.
// Differs: all-gathered unless the file says otherwise; `scope` can make each tensor, or the whole model, one column. A
//          group without values has mean 0. `threshold = "mean"` is another form in CNTK's code: a bit says on which
//          side of the column's mean a value is, and decodes as the mean minus or plus one deviation. Which deviation
//          CNTK uses is not established; here it is the mean distance, which has the smallest error. The default
//          threshold, 0, keeps each column's mean.
// Checks:  a column with one value on each side of 0, or with two values that are equally frequent, is exact.
struct OneBitOptions {
  bool by_columns = true;     // matrices by columns; false: each part has two means
  bool around_means = false;  // a value's bit changes at its column's mean, not at 0
};

class OneBit : public PartByPart {
 public:
  OneBit(OneBitOptions own, const CompressorInput& input) : PartByPart(input), own_(own) {}

 protected:
  // Values i, i + columns, i + 2 columns, ... form a column. The last row may be shorter.
  std::size_t columns_of(const Part& part) const {
    return own_.by_columns && part.columns > 0 ? std::min(part.columns, part.size) : 1;
  }
  std::size_t words(const Part& part, Step) const override { return 2 * columns_of(part) + words_of_bits(part.size); }

  // Writes the means, then the bits.
  void encode_part(const Part& part, Rank, Step, std::span<float> p, float* packet) const override {
    const std::size_t columns = columns_of(part);
    std::vector<float> means;
    if (own_.around_means)
      means = centre(p.data(), part.size, columns, packet);
    else
      find_means(p.data(), part.size, columns, packet);
    std::vector<std::uint32_t> bits(words_of_bits(part.size));
    pack_bits<Bit::is_below_zero>(p.data(), part.size, bits.data());
    append(bits, packet + 2 * columns);
    add_table(packet, part.size, columns, -1, p.data());
    for (std::size_t i = 0; i < 2 * means.size(); ++i) packet[i] += means[i % means.size()];
  }

  void decode_part(const Part& part, const Received& received, std::size_t begin, std::span<float> sum) const override {
    for (const float* const packet : received.packets)
      add_table(packet + begin, part.size, columns_of(part), 1, sum.data());
  }

 private:
  OneBitOptions own_;
};

}  // namespace

void read_sign(CompressionKeys& keys) {
  bool l2_scale = false;
  if (keys.options.of_moments()) {
    l2_scale = keys.table.choice({"scale", "The factor of the signs: the root mean square, or the mean magnitude."},
                                 {{"l2", true}, {"l1", false}}, true);
    keys.options.pattern = CompressionOptions::Pattern::two_phase;
  }
  keys.by_tensors();
  keys.pattern();
  keys.residual();
  keys.options.make = maker_of<ScaledSign>(l2_scale);
}

void read_one_bit(CompressionKeys& keys) {
  enum class Scope { column, tensor, model };
  const auto scope = keys.table.choice(
      {"scope", "The unit that has its own two means: a column of a matrix (a whole vector), a tensor, or the model."},
      {{"column", Scope::column}, {"tensor", Scope::tensor}, {"model", Scope::model}}, Scope::column);
  OneBitOptions own{.by_columns = scope == Scope::column};
  own.around_means = keys.table.choice({"threshold", "The threshold of a value's bit: 0, or its column's mean."},
                                       {{"zero", false}, {"mean", true}}, own.around_means);
  keys.leave_out_unwritten({"threshold"});
  keys.pattern();
  keys.residual();
  keys.options.needs_tensors = scope != Scope::model;
  keys.options.make = maker_of<OneBit>(own);
}

void read_majority(CompressionKeys& keys) {
  keys.options.error_feedback = false;
  keys.options.momentum = keys.table.number(
      {"momentum", "Decay (beta) of a worker's moving average of gradients, the signs of which it sends."},
      Range{.low = 0, .high = 1, .high_open = true}, keys.options.momentum);
  const bool zeros_abstain =
      keys.table.choice({"zeros", "The vote of a value of 0: plus, or none, which takes two bits."},
                        {{"plus", false}, {"abstain", true}}, false);
  keys.leave_out_unwritten({"zeros"});
  keys.refuse_clipping("name");
  keys.options.make = maker_of<MajorityVote>(zeros_abstain);
}

}  // namespace syncopate
