#include "workers/datasets/npy_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "workers/datasets/npy_dataset.hpp"
#include "workers/files/data_fault.hpp"

namespace syncopate {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw DataFault(fmt::format("{}: {}", file.string(), what));
}

template <typename Element>
TokenSequences rows_of(const std::filesystem::path& file, const NpyArray& x, const RowLabels& labels,
                       std::int32_t padding) {
  TokenSequences sequences;
  const auto length = static_cast<std::size_t>(x.shape()[1]);
  std::vector<std::int32_t> tokens(length);
  for (std::size_t row = 0; row < labels.of_rows.size(); ++row) {
    const std::span<const Element> elements(x.data<Element>() + row * length, length);
    const auto wrong = std::ranges::find_if(elements, [](Element e) { return e < 0 || e > largest_token; });
    if (wrong != elements.end())
      fail(file, fmt::format("row {} has the token {}; must be in 0 .. {}", row, *wrong, largest_token));
    std::ranges::transform(elements, tokens.begin(), [](Element e) { return static_cast<std::int32_t>(e); });
    std::size_t count = length;
    while (count > 0 && tokens[count - 1] == padding) --count;
    if (count == 0) fail(file, fmt::format("row {} is all padding, {}; must have a token", row, padding));
    const auto own = std::span(tokens).first(count);
    if (labels.of_tokens.empty())
      sequences.add(own, labels.of_rows[row]);
    else
      sequences.add(own, std::span(labels.of_tokens).subspan(row * length, count));
  }
  return sequences;
}

}  // namespace

bool holds_tokens(const NpyArray& x) { return x.type() == "<i4" || x.type() == "<i8"; }

TokenSequences read_rows(const std::filesystem::path& file, const NpyArray& x, const RowLabels& labels,
                         std::int32_t padding) {
  return x.type() == "<i4" ? rows_of<std::int32_t>(file, x, labels, padding)
                           : rows_of<std::int64_t>(file, x, labels, padding);
}

}  // namespace syncopate
