#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/fuzzing.hpp"
#include "workers/data/images.hpp"

namespace syncopate {

// The four files of a directory in MNIST's format. Missing test files are copies of the training files.
void fuzz_idx(std::string_view input) {
  static const FuzzFolder folder;
  constexpr std::array names = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                "t10k-labels-idx1-ubyte"};
  const std::vector<std::string_view> parts = files_in(input, names.size());
  for (std::size_t i = 0; i < names.size(); ++i)
    folder.write(names[i], i < parts.size() ? parts[i] : parts[std::min(i % 2, parts.size() - 1)]);
  try {
    const DatasetSize size = idx_images().size(folder.path());
    const std::shared_ptr<const Dataset> data = idx_images().load(folder.path());
    must(size.train == data->size().train && size.shape == data->size().shape, "the size is that of the data");
    std::vector<float> inputs(static_cast<std::size_t>(size.shape.features()));
    std::int64_t label = -1;
    const std::array<std::uint32_t, 1> last = {static_cast<std::uint32_t>(size.test - 1)};
    data->gather(Split::test, last, inputs.data(), &label);
    must(label >= 0 && label < size.classes, "labels are classes");
    for (const float value : inputs) must(std::isfinite(value), "inputs are finite");
  } catch (const DataFault& fault) {
    must(std::string_view(fault.what()).starts_with(folder.path().string()), "a fault begins with the file's name");
  }
}

}  // namespace syncopate
