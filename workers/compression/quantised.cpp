// Compressors with a few bits per value: the levels of QSGD, uniform eight-bit bins, and four-bit floats.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "workers/base/random.hpp"
#include "workers/compression/kernels.hpp"
#include "workers/compression/kinds.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {

namespace {

std::size_t read_bucket(CompressionKeys& keys, std::string_view sentence) {
  return static_cast<std::size_t>(keys.table.integer({"bucket", sentence}, 1, 1 << 20, 128));
}
double read_range(CompressionKeys& keys) {
  return keys.table.number({"range_std", "Half the range of the bins, in standard deviations around the mean."},
                           Range{.low = 0, .low_open = true, .high_open = true}, 3);
}

// Returns the bits of the narrowest code that has this many numbers.
std::size_t bits_of_code(std::size_t numbers) { return numbers <= 4 ? 2 : numbers <= 16 ? 4 : 8; }

// Each bucket of a part's values has a table of numbers, and each value a code of a few bits. The table is a scale for
// the codes, or a mean for each code.
struct CodeOptions {
  std::size_t bucket = 0;   // values per bucket; 0: a part is one bucket
  std::size_t table = 1;    // numbers per table
  std::size_t bits = 4;     // per code
  std::uint8_t stream = 0;  // of Purpose::compression
  bool draws = false;       // encoding needs a uniform random number per value
  // Writes the codes of a bucket's values, which are zeros on entry, and the bucket's table. With error feedback it
  // leaves in `values` what the codes do not express.
  std::function<void(std::span<float> values, std::span<const double> uniform, std::uint8_t* codes, float* table)>
      encode{};
  // Adds the values of a bucket's codes to `sum`.
  std::function<void(const std::uint8_t* codes, const float* table, std::span<float> sum)> add{};
};

class Codes : public PartByPart {
 public:
  Codes(const CodeOptions& own, const CompressorInput& input) : PartByPart(input), own_(own) {}

 protected:
  std::size_t words(const Part& part, Step) const override {
    return own_.table * buckets(part.size) + words_of_bits(own_.bits * part.size);
  }

  // Writes the tables, then the codes.
  void encode_part(const Part& part, Rank worker, Step step, std::span<float> p, float* packet) const override {
    const RandomStream stream{
        .seed = seed_, .purpose = Purpose::compression, .stream = own_.stream, .worker = worker, .step = step};
    std::vector<std::uint8_t> codes(p.size());
    std::vector<double> uniform(own_.draws ? own_.bucket : 0);
    for_buckets(p, [&](std::span<float> values, std::size_t at) {
      const std::span<double> drawn = std::span(uniform).first(std::min(uniform.size(), values.size()));
      stream.fill_uniform(static_cast<std::uint32_t>(part.place + at), drawn);
      own_.encode(values, drawn, codes.data() + at, packet);
      packet += own_.table;
    });
    append(pack_numbers<std::uint8_t>(codes, own_.bits), packet);
  }

  void decode_part(const Part&, const Received& received, std::size_t begin, std::span<float> sum) const override {
    std::vector<std::uint8_t> codes(sum.size());
    for (const float* packet : received.packets) {
      packet += begin;
      unpack_numbers<std::uint8_t>(packet + own_.table * buckets(sum.size()), own_.bits, codes);
      for_buckets(sum, [&](std::span<float> values, std::size_t at) {
        own_.add(codes.data() + at, packet, values);
        packet += own_.table;
      });
    }
  }

 private:
  std::size_t buckets(std::size_t size) const { return own_.bucket == 0 ? 1 : (size + own_.bucket - 1) / own_.bucket; }

  // Calls use(values, index of the first value) for each bucket.
  template <typename Use>
  void for_buckets(std::span<float> values, const Use& use) const {
    const std::size_t most = own_.bucket == 0 ? values.size() : own_.bucket;
    for (std::size_t i = 0; i < buckets(values.size()); ++i)
      use(values.subspan(i * most, std::min(most, values.size() - i * most)), i * most);
  }

  CodeOptions own_;
};

// Each part has `bins` bins. A value's code is its bin, and a bin represents the mean of its values. means_of(values,
// codes) writes the codes, which are zeros on entry, and returns the means.
template <typename MeansOf>
CodeOptions codes_of_bins(std::size_t bins, const MeansOf& means_of) {
  CodeOptions own{.table = bins, .bits = bits_of_code(bins)};
  own.encode = [means_of](std::span<float> values, std::span<const double>, std::uint8_t* codes, float* means) {
    std::ranges::copy(means_of(values, codes), means);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= means[codes[i]];
  };
  own.add = [](const std::uint8_t* codes, const float* means, std::span<float> sum) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += means[codes[i]];
  };
  return own;
}

// QSGD: each value is rounded up or down at random to a multiple of its bucket's norm / s, without bias.
// Source:  Alistarh et al. 2017, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding".
// Cost:    all-gather of 2, 4 or 8 bits per value and 4 bytes per bucket; or two phases.
// Differs: levels have a fixed number of bits, without Elias coding; a bucket of zeros stays zeros.
// The scale is the norm, and codes are levels from -s to s as numbers from 0 to 2 s. If a norm is not finite, all
// decoded values of its bucket are not finite.
void encode_levels(int levels, std::span<const float> values, std::span<const double> uniform, std::uint8_t* codes,
                   float* table) {
  const double norm = std::sqrt(sum_of_squares(values.data(), values.size()));
  const double factor = norm > 0 && std::isfinite(norm) ? levels / norm : 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = factor > 0 ? values[i] : 0;
    const int level = std::min(levels, static_cast<int>(factor * std::abs(value) + uniform[i]));
    codes[i] = static_cast<std::uint8_t>(levels + (value < 0 ? -level : level));
  }
  *table = static_cast<float>(norm);
}

void add_levels(int levels, const std::uint8_t* codes, const float* norm, std::span<float> sum) {
  const float factor = *norm / static_cast<float>(levels);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * static_cast<float>(codes[i] - levels);
}

constexpr std::size_t uniform_bins = 256;

// The lower end of the bins, and the number of bins per unit. If all values are equal, `per_unit` is 0, which puts them
// in the first bin.
struct BinRange {
  float low = 0;
  float per_unit = 0;
};

BinRange range_of(std::span<const float> values, double range_std) {
  const auto size = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / size;
  const double square = sum_of_squares(values.data(), values.size()) / size - mean * mean;
  const double range = range_std * std::sqrt(std::max(0.0, square));
  const auto per_unit = static_cast<float>(uniform_bins / (2 * range));
  return {static_cast<float>(mean - range), range > 0 && std::isfinite(per_unit) ? per_unit : 0.0f};
}

SYNCOPATE_VECTOR_CLONES
void write_bins(const float* __restrict values, std::size_t size, const BinRange of, std::uint8_t* __restrict levels) {
  constexpr float last = uniform_bins - 1;
  for (std::size_t i = 0; i < size; ++i) {
    const float at = (values[i] - of.low) * of.per_unit;
    const float within = at < 0 ? 0.0f : at > last ? last : at;
    levels[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(within));
  }
}

// Each bin has two sums, because consecutive values in the same bin would wait for each other's addition.
std::vector<float> means_of(std::span<const float> values, const std::uint8_t* levels) {
  std::array<std::array<double, uniform_bins>, 2> sums{};
  std::array<std::array<std::int32_t, uniform_bins>, 2> counts{};
  const auto take = [&](std::size_t i, std::size_t lane) {
    sums[lane][levels[i]] += static_cast<double>(values[i]);
    ++counts[lane][levels[i]];
  };
  for (std::size_t i = 0; i + 1 < values.size(); i += 2) take(i, 0), take(i + 1, 1);
  if (values.size() % 2 == 1) take(values.size() - 1, 0);
  std::vector<float> means(uniform_bins);
  for (std::size_t b = 0; b < uniform_bins; ++b)
    if (const double count = static_cast<double>(counts[0][b]) + counts[1][b]; count > 0)
      means[b] = static_cast<float>((sums[0][b] + sums[1][b]) / count);
  return means;
}

// Uniform eight-bit bins for outer gradients: 256 bins over mean +- range_std standard deviations. A bin represents the
// mean of its values. Values outside the range go to the outermost bins.
// Source:  INTELLECT-1 (Prime Intellect 2024), after hivemind's uniform 8-bit code.
// Cost:    all-gather of one byte per value and 1,024 bytes for the bins' means: as many bytes as a dense sum with 8
//          workers. With `exchange = "two-phase"`: a quarter of a dense sum's bytes with any number of workers, and the
//          means of N chunks.
// Differs: descriptions of INTELLECT-1 say mean +- 6 standard deviations. In hivemind's code 6 standard deviations are
//          the whole range, from -3 to +3; this is the default here (`range_std`). That code rounds to the middle of a
//          bin, and divides squared deviations by n - 1; here the bins' edges assign values, and the divisor is n. All
//          values of the model share a range unless `scope` says otherwise (in hivemind: those of a tensor). There is
//          no residual unless `error_feedback` asks for one.
// If a value is not finite, all means are NaN.
std::vector<float> means_of_uniform_bins(double range_std, std::span<const float> values, std::uint8_t* levels) {
  if (!std::isfinite(sum_of_squares(values.data(), values.size())))
    return std::vector(uniform_bins, std::numeric_limits<float>::quiet_NaN());
  write_bins(values.data(), values.size(), range_of(values, range_std), levels);
  return means_of(values, levels);
}

constexpr std::uint32_t sign = 8;  // the sign bit of a four-bit code

// The magnitude that a code means: 2^(c - 7) for code c > 0, at most 1, as a share of the bucket's scale.
constexpr std::array<float, 8> magnitudes = {0, 1.0f / 64, 1.0f / 32, 1.0f / 16, 1.0f / 8, 1.0f / 4, 1.0f / 2, 1};
// The smallest magnitude that is rounded to the nearest code c: halfway between codes c - 1 and c.
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

// Returns the code above or below the magnitude. The probabilities make the expectation exact.
std::uint32_t at_random(float magnitude, double uniform) {
  std::uint32_t below = 0;
  for (std::size_t c = 1; c < magnitudes.size(); ++c) below += magnitude >= magnitudes[c] ? 1 : 0;
  if (below == magnitudes.size() - 1) return below;
  const double low = magnitudes[below], high = magnitudes[below + 1];
  return below + (uniform * (high - low) < magnitude - low ? 1 : 0);
}

// The exponent bits of 2^(c - 7) as a float are c + 120.
inline float value_of(std::uint32_t code, float scale) {
  const std::uint32_t exponent = (code & 7u) == 0 ? 0u : (code & 7u) + 120u;
  return scale * std::bit_cast<float>((code & sign) << 28 | exponent << 23);
}

SYNCOPATE_VECTOR_CLONES
void take_out(const std::uint8_t* __restrict codes, float scale, std::size_t size, float* __restrict values) {
  for (std::size_t i = 0; i < size; ++i) values[i] -= value_of(codes[i], scale);
}

SYNCOPATE_VECTOR_CLONES
void add_floats(const std::uint8_t* __restrict codes, float scale, std::size_t size, float* __restrict sum) {
  for (std::size_t i = 0; i < size; ++i) sum[i] += value_of(codes[i], scale);
}

// The largest magnitude; NaN if a value is not finite.
float scale_of(std::span<const float> values) {
  if (!std::isfinite(sum_of_magnitudes(values.data(), values.size()))) return std::numeric_limits<float>::quiet_NaN();
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// Four-bit floats for outer gradients: a sign and three bits of exponent, no mantissa. A bucket's scale is its largest
// magnitude s. Values are 0 and +- s 2^-k, k = 0 .. 6.
// Source:  after Streaming DiLoCo (Douillard et al. 2025), which sends outer gradients as 4-bit floats.
// Cost:    all-gather of half a byte per value and 4 bytes per bucket; or two phases.
// Differs: that the paper's floats have three bits of exponent (E3M0), and how it rounds and scales, is not
//          established. Buckets, the scale, a zero instead of the smallest exponent, and both roundings are this
//          project's. `rounding`: to the nearest magnitude, the larger if two are equally near; or up or down at
//          random, without bias. As in the paper there is no residual, unless `error_feedback` asks for one.
void encode_floats(std::span<float> values, std::span<const double> uniform, std::uint8_t* codes, float* table) {
  const float scale = *table = scale_of(values);
  if (!(scale > 0)) return;  // all values are 0, or the scale is NaN and decodes to NaN
  if (uniform.empty()) write_nearest(values.data(), scale, values.size(), codes);
  for (std::size_t i = 0; i < uniform.size(); ++i)
    codes[i] =
        static_cast<std::uint8_t>(at_random(std::fabs(values[i]) / scale, uniform[i]) | (values[i] < 0 ? sign : 0u));
  take_out(codes, scale, values.size(), values.data());
}

}  // namespace

void read_qsgd(CompressionKeys& keys) {
  keys.options.error_feedback = false;
  const int levels = static_cast<int>(keys.table.integer(
      {"levels", "Number of levels per sign (s); a value takes 2 bits if s = 1, 4 bits up to 7, and 8 bits up to 127."},
      1, 127, 127));
  CodeOptions own{.bucket = read_bucket(keys, "Number of values that share a norm."), .stream = 1, .draws = true};
  own.bits = bits_of_code(static_cast<std::size_t>(2 * levels + 1));  // -s .. s
  own.encode = std::bind_front(encode_levels, levels);
  own.add = std::bind_front(add_levels, levels);
  keys.pattern();
  keys.options.make = maker_of<Codes>(own);
}

void read_int8(CompressionKeys& keys) {
  const double range_std = read_range(keys);
  keys.by_tensors();
  keys.pattern();
  keys.residual(false);
  keys.options.make = maker_of<Codes>(codes_of_bins(uniform_bins, std::bind_front(means_of_uniform_bins, range_std)));
}

// Up to 4, 16 or 256 bins around the mean (2, 4 or 8 bits per value). A bin represents the mean of its values.
// Source:  Therien et al. 2025, "MuLoCo", and its code, for outer gradients (with the optimizer Muon). Its published
//          residual holds the outer rate times the gradient, and the outer step applies that rate again: with error
//          feedback a published rate r is `outer.rate` = r^2 here, and a residual decay of 0.95 or 0.9.
// Cost:    all-gather of 2, 4 or 8 bits per value and 4 bytes per bin, for each tensor; or two phases, which compress
//          the sum again (there: "quantise again after the mean", the default).
// Differs: the mean of a tensor's values is exact. `scope = "model"`, the default without a model, uses one mean and
//          deviation for all values. All residuals are kept by default (`residual_decay`: 0.95 or 0.9 in the code). The
//          code's linear bins, its bins per row, its factor of what leaves the residual (1 by default), and
//          uncompressed norms and embeddings are not offered.
// Checks:  [1, 2, 3, 10] becomes [2, 2, 2, 10] with four bins; rounds with residual against a reference.
void read_bins(CompressionKeys& keys) {
  const auto bins = static_cast<std::size_t>(keys.table.integer(
      {"bins", "Number of bins; a value takes 2 bits for up to 4, 4 bits up to 16, 8 bits up to 256."}, 2, 256, 4));
  const double range_std = read_range(keys);
  keys.by_tensors(!keys.context.time_only);
  keys.pattern();
  keys.residual(true);
  const auto means_of = [=, is_mirrored = keys.options.of_averages()](std::span<const float> values,
                                                                      std::uint8_t* codes) {
    return means_of_bins(values, bins, 2 * range_std, is_mirrored, codes);
  };
  keys.options.make = maker_of<Codes>(codes_of_bins(bins, means_of));
}

void read_fp4(CompressionKeys& keys) {
  CodeOptions own{.bucket = read_bucket(keys, "Number of values that share a scale."), .stream = 2};
  own.draws = keys.table.choice({"rounding", "Rounding to the nearest, or up or down at random without bias."},
                                {{"nearest", false}, {"random", true}}, false);
  own.encode = encode_floats;
  own.add = [](const std::uint8_t* codes, const float* scale, std::span<float> sum) {
    add_floats(codes, *scale, sum.size(), sum.data());
  };
  keys.pattern();
  keys.residual(false);
  keys.options.make = maker_of<Codes>(own);
}

}  // namespace syncopate
