// Sends only the rows of embeddings that a step's tokens have touched.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "workers/base/process.hpp"
#include "workers/compression/kinds.hpp"

namespace syncopate {

namespace {

struct RowOptions {
  std::vector<std::string> tables{};  // parts of the names of matrices whose rows are sent
  std::string written{};              // position and text of the key `tables`; only a model can show that it is wrong

  bool have(const Part& tensor) const {
    const auto contains = [&](const std::string& name) { return tensor.name.find(name) != std::string::npos; };
    return tensor.rows > 0 && std::ranges::any_of(tables, contains);
  }
  // Returns the text of a fault if the model has no such matrix; empty if it has one.
  std::string why_none(const std::vector<Part>& tensors) const {
    if (std::ranges::any_of(tensors, [&](const Part& tensor) { return have(tensor); })) return "";
    std::string matrices;
    for (const Part& tensor : tensors)
      if (tensor.rows > 0) matrices += fmt::format("{}\"{}\"", matrices.empty() ? "" : ", ", tensor.name);
    return "must contain a part of the name of a matrix of the model: " + (matrices.empty() ? "it has none" : matrices);
  }
};

// Sends gradients of embeddings as the rows that a step's tokens have touched, with their indices. All other parameters
// are summed densely.
// Source:  indexed slices in Horovod, which all-gathers them unless it is set to make them dense.
// Cost:    all-reduce of 4 bytes per parameter outside the tables; all-gather of 4 (c + 1) bytes for each row of c
//          values that is not all zeros, plus 4 bytes. With N workers a table's rows take fewer bytes than its dense
//          sum if fewer than about 2 / N of them are touched.
// Differs: Horovod sends indices, of 8 bytes, separately from values, and repeats rows that a worker has several times.
//          Here a worker's micro-batches are added up first. Only the transport of gradients changes. Unlike an
//          optimizer for sparse gradients, the step also applies moments and decay to untouched rows. A table whose
//          rows are all touched, such as one tied to an output layer, is sent whole, with indices.
// Checks:  equals the dense sum up to the order of additions, for any optimizer; the bytes follow from each worker's
//          rows.
class SparseRows : public Compressor {
 public:
  SparseRows(const RowOptions& own, const CompressorInput& input) : Compressor(input) {
    if (const std::string why = own.why_none(input.parts); !why.empty())
      throw RunFailure(fmt::format("{}; {}", own.written, why));
    std::size_t dense = 0, most = 1;
    for (const Part& part : input.parts) {
      const bool is_table = own.have(part);
      (is_table ? tables_ : dense_).push_back(part);
      (is_table ? most : dense) += part.size + (is_table ? part.rows : 0);
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

  // Writes the number of rows, then for each row its first index and its values.
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
  // Calls use(first index, values) for each row that is not all zeros.
  template <typename Use>
  void for_touched_rows(std::span<const float> p, const Use& use) const {
    for (const Part& table : tables_) {
      const std::size_t columns = table.size / table.rows;
      for (std::size_t row = 0; row < table.rows; ++row) {
        const std::size_t place = table.offset + row * columns;
        const std::span<const float> values = p.subspan(place, columns);
        if (std::ranges::any_of(values, [](float value) { return value != 0; })) use(place, values);  // NaN is not zero
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

}  // namespace

void read_sparse_rows(CompressionKeys& keys) {
  auto& [table, context, options, why_no_estimates] = keys;
  RowOptions own;
  options.error_feedback = false;
  const bool gathers =
      table.choice({"exchange", "Whether embedding rows are gathered, or summed densely like all other parameters."},
                   {{"gather", true}, {"dense", false}}, true);
  own.tables =
      table.texts({"tables", "Parts of the names of embedding matrices; other tensors are summed uncompressed."},
                  std::vector<std::string>{"words.weight", "places.weight", "bag_of_words"});
  own.written = table.written("tables");
  if (own.tables.empty()) table.fault("tables", "must name at least one table");
  options.needs_tensors = options.follows_values = true;
  options.check = [own](Settings& method, const std::vector<Part>& tensors) {
    if (const std::string why = own.why_none(tensors); !own.tables.empty() && !why.empty())
      method.section({"compression"}).fault("tables", why);
  };
  if (gathers) options.make = maker_of<SparseRows>(own);
}

}  // namespace syncopate
