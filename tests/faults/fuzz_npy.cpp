#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/faults/fuzzing.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "workers/data/datasets.hpp"

namespace syncopate {
namespace {

// Reads the first samples of each split, as a run would.
void read_samples(const Dataset& data) {
  const DatasetSize& size = data.size();
  must(size.train > 0 && size.test > 0, "both splits have samples");
  for (const Split split : {Split::train, Split::test}) {
    std::vector<std::uint32_t> samples(static_cast<std::size_t>(std::min<std::int64_t>(size.samples(split), 3)));
    std::iota(samples.begin(), samples.end(), 0);
    std::vector<std::int64_t> labels(samples.size());
    std::vector<float> inputs, targets(samples.size() * static_cast<std::size_t>(size.targets));
    if (!size.shape.has_tokens()) inputs.resize(samples.size() * static_cast<std::size_t>(size.shape.features()));
    data.gather(split, samples, size.shape.has_tokens() ? nullptr : inputs.data(), labels.data());
    for (const float input : inputs) must(std::isfinite(input), "inputs are finite");
    if (size.targets > 0) data.gather_targets(split, samples, targets.data());
    for (const std::uint32_t sample : samples) {
      for (const std::int32_t token : sample_tokens(data, split, sample))
        must(token >= 0 && token < size.shape.vocabulary, "tokens are of the vocabulary");
      for (const std::int32_t label : data.token_labels(split, sample))
        must(label == ignored_label || (label >= 0 && label < size.token_classes), "tokens' labels are classes");
    }
    if (size.targets == 0 && size.token_classes == 0)
      for (const std::int64_t label : labels) must(label >= 0 && label < size.classes, "labels are classes");
  }
}

}  // namespace

// The four arrays. Missing test arrays are copies of the training arrays. A fifth part is the padding value.
void fuzz_npy(std::string_view input) {
  static const FuzzFolder folder;
  constexpr std::array names = {"x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"};
  const std::vector<std::string_view> parts = files_in(input, names.size() + 1);
  for (std::size_t i = 0; i < names.size(); ++i)
    folder.write(names[i], i < parts.size() ? parts[i] : parts[std::min(i % 2, parts.size() - 1)]);
  TokenMarks tokens;
  if (parts.size() > names.size() && !parts.back().empty()) tokens.padding = parts.back().front();
  try {
    const DatasetSize size = npy_arrays(tokens).size(folder.path());
    const std::shared_ptr<const Dataset> data = npy_arrays(tokens).load(folder.path());
    must(size.train == data->size().train && size.shape == data->size().shape, "the size is that of the data");
    read_samples(*data);
  } catch (const DataFault& fault) {
    must(std::string_view(fault.what()).starts_with(folder.path().string()), "a fault begins with the file's name");
  }
}

}  // namespace syncopate
