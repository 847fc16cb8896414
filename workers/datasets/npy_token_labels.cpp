#include "workers/datasets/npy_token_labels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "workers/datasets/dataset.hpp"
#include "workers/datasets/npy_dataset.hpp"

namespace syncopate {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw DataFault(fmt::format("{}: {}", file.string(), what));
}

template <typename Label, typename Token>
std::vector<std::int32_t> labels_of(const std::filesystem::path& file, const NpyArray& y, const NpyArray& x,
                                    std::int32_t padding) {
  const auto rows = static_cast<std::size_t>(x.shape()[0]), length = static_cast<std::size_t>(x.shape()[1]);
  const std::span<const Label> all(y.data<Label>(), rows * length);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto labels = all.subspan(row * length, length);
    const std::span<const Token> tokens(x.data<Token>() + row * length, length);
    std::size_t own = length;
    while (own > 0 && tokens[own - 1] == padding) --own;
    bool asks = false;
    for (std::size_t place = 0; place < length; ++place) {
      const Label label = labels[place];
      if (label == ignored_label) continue;
      asks = true;
      if (label < 0 || label > largest_token)
        fail(file, fmt::format("label ({}, {}) = {}; must be in 0 .. {}, or {} where nothing is asked for", row, place,
                               label, largest_token, ignored_label));
      if (place >= own)
        fail(file, fmt::format("label ({}, {}) = {}, of padding; must be {}", row, place, label, ignored_label));
    }
    if (!asks) fail(file, fmt::format("row {} is all {}; must ask for a token at least", row, ignored_label));
  }
  return {all.begin(), all.end()};
}

}  // namespace

std::vector<std::int32_t> token_labels_in(const std::filesystem::path& file, const NpyArray& y, const NpyArray& x,
                                          std::int32_t padding) {
  const auto text = [](const NpyArray& of) { return fmt::format("({}, {})", of.shape()[0], of.shape()[1]); };
  if (y.shape() != x.shape())
    fail(file, fmt::format("has shape {}; a label of each token must be {}, as the tokens are", text(y), text(x)));
  const bool wide_tokens = x.type() == "<i8";
  if (y.type() == "<i8")
    return wide_tokens ? labels_of<std::int64_t, std::int64_t>(file, y, x, padding)
                       : labels_of<std::int64_t, std::int32_t>(file, y, x, padding);
  if (y.type() == "<i4")
    return wide_tokens ? labels_of<std::int32_t, std::int64_t>(file, y, x, padding)
                       : labels_of<std::int32_t, std::int32_t>(file, y, x, padding);
  fail(file, fmt::format("has elements of type {}; labels of tokens must be int64 or int32: {}",
                         described_type(y.type()), way_to_save(file, "<i8")));
}

}  // namespace syncopate
