#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/fuzzing.hpp"
#include "workers/base/files.hpp"
#include "workers/data/token_stream.hpp"

namespace syncopate {

// A training file, a test file and a text of options: type, context, number of test windows.
void fuzz_tokens(std::string_view input) {
  static const FuzzFolder folder;
  const std::vector<std::string_view> parts = files_in(input, 3);
  folder.write("train.bin", parts.front());
  folder.write("test.bin", parts[std::min<std::size_t>(1, parts.size() - 1)]);
  const std::string_view chosen = parts.size() > 2 ? parts.back() : std::string_view();
  const auto number = [&](std::size_t i) { return i < chosen.size() ? static_cast<unsigned char>(chosen[i]) : 0; };
  constexpr std::array types = {TokenType::uint8, TokenType::uint16, TokenType::uint32};
  TokenStreamOptions options{.context = 1 + number(1), .random = number(2) % 2 == 1};
  if (number(0) % 4 < static_cast<int>(types.size())) options.type = types[static_cast<std::size_t>(number(0) % 4)];
  if (number(3) > 0) options.test_windows = number(3);
  try {
    const DatasetSize size = token_stream(options).size(folder.path());
    const std::shared_ptr<const Dataset> data = token_stream(options).load(folder.path());
    must(size.train == data->size().train && size.shape == data->size().shape, "the size is that of the data");
    must(size.train > 0 && size.test > 0, "both splits have windows");
    std::vector<std::int32_t> space;
    for (const Split split : {Split::train, Split::test})
      for (const std::int64_t sample : {std::int64_t{0}, size.samples(split) - 1}) {
        const auto tokens = data->tokens(split, static_cast<std::uint32_t>(sample), {.seed = 3}, space);
        must(std::ssize(tokens) == options.context + 1, "windows have their length");
        for (const std::int32_t token : tokens)
          must(token >= 0 && token < size.shape.vocabulary, "tokens are of the vocabulary");
      }
  } catch (const DataFault& fault) {
    must(std::string_view(fault.what()).starts_with(folder.path().string()), "a fault begins with the file's name");
  }
}

}  // namespace syncopate
