// Compressors of tiles of matrices: the largest values of each tile (SparseLoCo), or of its cosine transform (DeMo).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "workers/compression/kernels.hpp"
#include "workers/compression/kinds.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {

namespace {

// The largest values of each tile of each tensor. A matrix is cut into tiles of at most `side` rows and columns, whose
// sides divide the matrix's; a tensor of one dimension is cut into chunks.
// Source:  Sarfi, Therien, Lidin, Belilovsky 2025, "SparseLoCo", for outer gradients, and the code of its run of 72
//          billion parameters: values in two bits, residuals that decay, senders' means, messages of at most the median
//          norm. Peng, Quesnelle, Kingma 2024, "DeMo", for gradients, and its code: a cosine transform, float values, a
//          momentum in place of the residual, steps along signs.
// Shapes:  a tile of a x b values and its transform C_a T C_b^T, C the orthonormal matrices of the DCT-II.
// Cost:    all-gather. Per kept value an index of ceil(log2(a b)) bits, without one where all values are kept, and 2 or
//          32 bits; per tensor four means if values take two bits. With `packing = "published"` as many bytes as the
//          authors' code sends: a byte per two-bit value, twelve bytes per float with its index. A transform takes
//          a b (a + b) multiply-adds.
// Differs: `kept` is not rounded to even numbers. The median of an even number of norms is the mean of the middle two.
//          A value that is not finite makes the model not finite; SparseLoCo's code skips such tensors. That code also
//          sends a fifth float per tensor, and has rounds at first that set residuals to 0. In DeMo's code the momentum
//          holds rates times gradients, here gradients that are rescaled when the rate changes (residual = "step").
//          DeMo's code may clip each worker's gradient, here `training.clip_norm` must be 0 with steps along signs.
//          Where coefficients cancel up to rounding, the sign is 0; in DeMo's code it is that of the rounding error.
// Checks:  golden rounds of both methods; what a packet decodes to is what has left the residual; all values kept is a
//          dense average, with signs signSGD of the mean gradient; bytes by formula.
struct TileOptions {
  std::size_t side = 64;
  std::size_t kept = 64;  // per tile
  bool two_bits = false;  // values as the means of four bins
  bool transforms = false;
  bool signs = false;      // the result is the sign of the mean
  bool by_senders = true;  // a value's mean is that of the workers that sent it; false: of all workers
  bool clips_to_median = false;
  bool published_bytes = false;
};

constexpr std::size_t bins_of_two_bits = 4;

// The largest divisor of n that is at most `side`.
std::size_t divisor(std::size_t n, std::size_t side) {
  std::size_t best = std::min(n, side);
  while (n % best != 0) --best;
  return best;
}

// The orthonormal DCT-II of n values, by rows.
std::vector<float> cosines(std::size_t n) {
  std::vector<float> matrix(n * n);
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = 0; i < n; ++i)
      matrix[j * n + i] = static_cast<float>(
          std::sqrt((j == 0 ? 1.0 : 2.0) / static_cast<double>(n)) *
          std::cos(std::numbers::pi * static_cast<double>((2 * i + 1) * j) / (2 * static_cast<double>(n))));
  return matrix;
}

// Some columns of a product, from `first` on. Sums stay in registers and are added in the order of k.
template <std::size_t count>
[[gnu::always_inline]] inline void product_columns(const float* __restrict left, const float* __restrict right,
                                                   std::size_t n, std::size_t m, std::size_t columns, std::size_t first,
                                                   float* __restrict out) {
  for (std::size_t i = 0; i < n; ++i) {
    float sums[count] = {};
    for (std::size_t k = 0; k < m; ++k)
      for (std::size_t j = 0; j < count; ++j) sums[j] += left[i * m + k] * right[k * columns + first + j];
    std::copy_n(sums, count, out + i * columns + first);
  }
}

// out = left x right, for matrices (n, m) and (m, columns).
SYNCOPATE_VECTOR_CLONES
void product(const float* __restrict left, const float* __restrict right, std::size_t n, std::size_t m,
             std::size_t columns, float* __restrict out) {
  std::size_t first = 0;
  for (; first + 32 <= columns; first += 32) product_columns<32>(left, right, n, m, columns, first, out);
  for (; first + 8 <= columns; first += 8) product_columns<8>(left, right, n, m, columns, first, out);
  for (; first < columns; ++first) product_columns<1>(left, right, n, m, columns, first, out);
}

std::vector<float> transposed(const std::vector<float>& matrix, std::size_t n) {
  std::vector<float> result(n * n);
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = 0; i < n; ++i) result[i * n + j] = matrix[j * n + i];
  return result;
}

// A tensor that is cut into tiles of a x b values.
struct Tiled {
  Part part;
  std::size_t a = 1, b = 1;
  std::size_t columns = 1;                          // the tensor's columns
  std::size_t kept = 0;                             // per tile
  std::size_t index_bits = 0;                       // 0: all values of a tile are kept
  std::vector<float> rows{}, rows_back{};           // C_a and its transpose, empty without a transform
  std::vector<float> columns_by{}, columns_back{};  // C_b^T and C_b

  std::size_t size() const { return a * b; }
  std::size_t tiles() const { return part.size / size(); }
  std::size_t values() const { return tiles() * kept; }  // number of values that are sent
  // The index in the tensor of the first value of a row of a tile.
  std::size_t begin(std::size_t tile, std::size_t row) const {
    const std::size_t across = columns / b;
    return (tile / across * a + row) * columns + tile % across * b;
  }
};

Tiled cut(const Part& part, std::size_t side) {
  Tiled tensor{.part = part};
  tensor.columns = part.rows > 0 ? part.columns : part.size;
  tensor.a = part.rows > 0 ? divisor(part.rows, side) : 1;
  tensor.b = divisor(tensor.columns, side);
  return tensor;
}

class TiledTopK : public PartByPart {
 public:
  TiledTopK(const TileOptions& own, const CompressorInput& input) : PartByPart(input), own_(own) {
    for (const Part& part : input.parts) {
      Tiled tensor = cut(part, own.side);
      tensor.kept = std::min(own.kept, tensor.size());
      if (tensor.kept < tensor.size()) tensor.index_bits = static_cast<std::size_t>(std::bit_width(tensor.size() - 1));
      if (own.transforms) {
        tensor.rows = cosines(tensor.a), tensor.rows_back = transposed(tensor.rows, tensor.a);
        tensor.columns_back = cosines(tensor.b), tensor.columns_by = transposed(tensor.columns_back, tensor.b);
      }
      if (own.published_bytes) published_ += published_words(tensor);
      tensors_.emplace(part.offset, std::move(tensor));
    }
  }

  std::vector<Exchange> exchanges(Step step) const override {
    std::vector<Exchange> exchanges = PartByPart::exchanges(step);
    exchanges.front().packet = std::max(exchanges.front().packet, bytes_of_words(published_));
    return exchanges;
  }

 protected:
  std::size_t words(const Part& part, Step) const override {
    const Tiled& tensor = tensors_.at(part.offset);
    const std::size_t values = tensor.values();
    return words_of_bits(values * tensor.index_bits) +
           (own_.two_bits ? bins_of_two_bits + words_of_bits(2 * values) : values);
  }

  void encode_part(const Part& part, Rank, Step, std::span<float> p, float* packet) const override {
    const Tiled& tensor = tensors_.at(part.offset);
    const std::size_t size = tensor.size(), all = tensor.values();
    std::vector<float> values;
    std::vector<std::uint32_t> places;
    std::vector<float> tile(size), turned(size);
    for (std::size_t t = 0; t < tensor.tiles(); ++t) {
      for (std::size_t i = 0; i < tensor.a; ++i)
        std::copy_n(p.data() + tensor.begin(t, i), tensor.b, tile.data() + i * tensor.b);
      if (own_.transforms) multiply(tensor, tensor.rows, tile.data(), tensor.columns_by, turned.data(), Zeros::few);
      const std::vector<float>& from = own_.transforms ? turned : tile;
      for (const std::uint32_t place : largest_magnitudes(from, tensor.kept)) {
        places.push_back(place);
        values.push_back(from[place]);
      }
    }
    packet = append(pack_numbers<std::uint32_t>(places, tensor.index_bits), packet);
    if (own_.two_bits) {
      std::vector<std::uint8_t> levels(all);
      const std::vector<float> means =
          means_of_bins(values, bins_of_two_bits, 6, options_.of_averages(), levels.data());
      packet = std::ranges::copy(means, packet).out;
      append(pack_numbers<std::uint8_t>(levels, 2), packet);
      for (std::size_t i = 0; i < all; ++i) values[i] = means[levels[i]];
    } else {
      std::ranges::copy(values, packet);
    }
    // The sent values leave p.
    for (std::size_t t = 0; t < tensor.tiles(); ++t) {
      std::ranges::fill(tile, 0.0f);
      for (std::size_t k = t * tensor.kept; k < (t + 1) * tensor.kept; ++k) tile[places[k]] = values[k];
      if (own_.transforms)
        multiply(tensor, tensor.rows_back, std::vector(tile).data(), tensor.columns_back, tile.data(), Zeros::many);
      for (std::size_t i = 0; i < tensor.a; ++i)
        add_scaled(p.data() + tensor.begin(t, i), -1.0f, tile.data() + i * tensor.b, tensor.b);
    }
  }

  void decode_part(const Part& part, const Received& received, std::size_t begin, std::span<float> sum) const override {
    const Tiled& tensor = tensors_.at(part.offset);
    const std::size_t size = tensor.size();
    std::vector<Kept> all;
    std::vector<double> norms;
    for (const float* const packet : received.packets) {
      all.push_back(kept_of(tensor, packet + begin));
      norms.push_back(std::sqrt(sum_of_squares(all.back().values.data(), all.back().values.size())));
    }
    std::vector<double> sorted = norms;
    for (double& norm : sorted)
      if (std::isnan(norm)) norm = std::numeric_limits<double>::infinity();
    std::ranges::sort(sorted);
    const double median = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
    std::vector<float> senders(tensor.part.size);
    std::vector<float> sums(tensor.part.size);  // tile by tile
    for (std::size_t worker = 0; worker < all.size(); ++worker) {
      const bool clips = own_.clips_to_median && norms[worker] > median;
      const auto factor = static_cast<float>(clips ? median / norms[worker] : 1);
      for (std::size_t k = 0; k < all[worker].values.size(); ++k) {
        const std::size_t at = k / tensor.kept * size + all[worker].places[k];
        sums[at] += factor * all[worker].values[k];
        ++senders[at];
      }
    }
    // The method divides by the number of workers, so a senders' mean is multiplied by it.
    if (own_.by_senders)
      for (std::size_t i = 0; i < sums.size(); ++i)
        if (senders[i] > 0) sums[i] *= static_cast<float>(received.workers) / senders[i];
    std::vector<float> tile(size);
    for (std::size_t t = 0; t < tensor.tiles(); ++t) {
      const float* const of_tile = sums.data() + t * size;
      if (own_.transforms)
        multiply(tensor, tensor.rows_back, of_tile, tensor.columns_back, tile.data(), Zeros::many);
      else
        std::copy_n(of_tile, size, tile.data());
      if (own_.transforms && own_.signs) remove_noise(tile);
      for (std::size_t i = 0; i < tensor.a; ++i)
        std::copy_n(tile.data() + i * tensor.b, tensor.b, sum.data() + tensor.begin(t, i));
    }
    if (own_.signs) write_signs(sum.data(), static_cast<float>(received.micro_batches), sum.size());
  }

 private:
  std::size_t published_words(const Tiled& tensor) const {
    const auto index_bits = static_cast<std::size_t>(std::bit_width(tensor.size() - 1));
    if (own_.two_bits) return words_of_bits(tensor.values() * (index_bits + 8)) + bins_of_two_bits;
    return 3 * tensor.values();
  }

  enum class Zeros { few, many };

  // out = left x tile x right, for matrices (a, a) and (b, b). `zeros`: how many of the tile's values are zero.
  static void multiply(const Tiled& tensor, const std::vector<float>& left, const float* tile,
                       const std::vector<float>& right, float* out, Zeros zeros) {
    std::vector<float> half(tensor.size());
    if (zeros == Zeros::few) {
      product(tile, right.data(), tensor.a, tensor.b, tensor.b, half.data());
    } else {
      for (std::size_t i = 0; i < tensor.a; ++i)
        for (std::size_t k = 0; k < tensor.b; ++k)
          if (const float value = tile[i * tensor.b + k]; value != 0)
            add_scaled(half.data() + i * tensor.b, value, right.data() + k * tensor.b, tensor.b);
    }
    product(left.data(), half.data(), tensor.a, tensor.a, tensor.b, out);
  }

  // If few coefficients are kept, some values of a tile often cancel. The rounding error left there has no meaningful
  // sign.
  static void remove_noise(std::span<float> tile) {
    float largest = 0;
    for (const float value : tile) largest = std::max(largest, std::fabs(value));
    for (float& value : tile)
      if (std::fabs(value) < 1e-5f * largest) value = 0;
  }

  // The kept values of a tensor in one packet, and their indices in their tiles.
  struct Kept {
    std::vector<float> values;
    std::vector<std::uint32_t> places;
  };
  Kept kept_of(const Tiled& tensor, const float* packet) const {
    const std::size_t all = tensor.values();
    Kept kept{std::vector<float>(all), std::vector<std::uint32_t>(all)};
    if (tensor.index_bits > 0)
      unpack_numbers<std::uint32_t>(packet, tensor.index_bits, kept.places);
    else
      for (std::size_t i = 0; i < all; ++i) kept.places[i] = static_cast<std::uint32_t>(i % tensor.kept);
    packet += words_of_bits(all * tensor.index_bits);
    if (!own_.two_bits) {
      std::copy_n(packet, all, kept.values.data());
      return kept;
    }
    std::vector<std::uint8_t> levels(all);
    unpack_numbers<std::uint8_t>(packet + bins_of_two_bits, 2, levels);
    for (std::size_t i = 0; i < all; ++i) kept.values[i] = packet[levels[i]];
    return kept;
  }

  TileOptions own_;
  std::map<std::size_t, Tiled> tensors_;  // by offset
  std::size_t published_ = 0;             // words of a packet of the authors' code; 0: packets are as long as needed
};

// Tiles that no tensor fills, or that are sent whole, would compress less than the file says. `is_written`: whether the
// file has the key `tile`; its default is cut to the tensors' sides without a fault.
void check_tiles(Settings& method, const TileOptions& own, bool is_written, const std::vector<Part>& tensors) {
  std::size_t longest = 0, largest = 0;
  for (const Part& part : tensors) {
    const Tiled tensor = cut(part, own.side);
    longest = std::max({longest, part.rows, tensor.columns});
    largest = std::max(largest, tensor.size());
  }
  Settings compression = method.section({"compression"});
  if (is_written && own.side > longest)
    compression.fault("tile", fmt::format("must be at most {}: no tensor of the model has a longer side", longest));
  else if (own.kept > own.side * own.side)
    compression.fault("kept", fmt::format("must be at most {}, the number of values of a tile", own.side * own.side));
  else if (own.kept < own.side * own.side && own.kept >= largest)
    compression.fault("kept", fmt::format("must be less than {}, the number of values of the model's largest tile, or "
                                          "all are sent",
                                          largest));
}

void read_tile_sizes(CompressionKeys& keys, TileOptions& own) {
  constexpr std::int64_t most = 4096;
  own.side = static_cast<std::size_t>(keys.table.integer(
      {"tile", "Largest side of a tile; the largest divisor of each of a matrix's sides up to this."}, 1, most,
      static_cast<std::int64_t>(own.side)));
  own.kept = static_cast<std::size_t>(keys.table.integer({"kept", "Number of values of each tile that are sent."}, 1,
                                                         most * most, static_cast<std::int64_t>(own.kept)));
  own.by_senders =
      keys.table.choice({"mean_of", "Divisor of a value's mean: the number of workers that sent it, or of all."},
                        {{"senders", true}, {"all", false}}, own.by_senders);
  own.published_bytes =
      keys.table.choice({"packing", "Size of packets: without unused bits, or as large as in the authors' code."},
                        {{"tight", false}, {"published", true}}, own.published_bytes);
  keys.need_tensors("name", "needs whole tensors, but");
  keys.options.check = [own, is_written = keys.table.has("tile")](Settings& method, const std::vector<Part>& tensors) {
    check_tiles(method, own, is_written, tensors);
  };
}

}  // namespace

void read_tiles(CompressionKeys& keys) {
  TileOptions own;
  read_tile_sizes(keys, own);
  own.two_bits = keys.table.choice({"values", "How kept values are sent: the mean of one of four bins, or a float."},
                                   {{"two-bit", true}, {"float", false}}, true);
  own.clips_to_median = keys.table.flag(
      {"clip_to_median", "Whether each message's tensors are scaled down to the median norm over the workers."}, true);
  keys.options.residual_decay = 0.95;
  keys.residual();
  keys.refuse_estimates(own.by_senders, "mean_of",
                        "must be \"all\" with feedback = \"ef21\": the step is along the mean of all estimates");
  keys.refuse_estimates(
      own.clips_to_median, "clip_to_median",
      "must be false with feedback = \"ef21\": estimates are sums of what workers send, which must not be scaled");
  keys.options.make = maker_of<TiledTopK>(own);
}

void read_demo(CompressionKeys& keys) {
  TileOptions own{.kept = 32};
  read_tile_sizes(keys, own);
  own.transforms = keys.table.flag({"transform", "Whether the largest values of the cosine transform are sent."}, true);
  own.signs = keys.table.flag({"signs", "Whether the step is along the sign of the mean."}, true);
  if (own.signs) keys.refuse_clipping("signs");
  keys.options.units = CompressionOptions::Units::step;
  keys.options.residual_decay = 0.999;
  keys.why_no_estimates = "must be left out: DeMo's residual is its momentum";
  keys.residual();
  keys.options.make = maker_of<TiledTopK>(own);
}

}  // namespace syncopate
