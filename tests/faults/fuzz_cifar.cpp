#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/faults/fuzzing.hpp"
#include "workers/data/images.hpp"

namespace syncopate {
namespace {

// Fills the part with zeros up to whole records, so that their contents are read, too.
std::string in_records(std::string_view part, std::size_t bytes) {
  std::string whole(part);
  whole.resize((part.size() + bytes) / bytes * bytes, '\0');
  return whole;
}

}  // namespace

// A byte chooses the data set, its scaling, and whether files are filled up to whole records. Then follow the training
// batches and the test batch. Missing batches are copies of the first one.
void fuzz_cifar(std::string_view input) {
  static const FuzzFolder folder;
  if (input.empty()) return;
  const auto choice = static_cast<unsigned char>(input.front());
  const CifarLabels labels = std::array{CifarLabels::ten, CifarLabels::hundred, CifarLabels::twenty}[choice % 3];
  const CifarScale scale = choice & 4 ? CifarScale::measured : CifarScale::published;
  const bool is_ten = labels == CifarLabels::ten, fills_up = choice & 8;
  const std::vector<std::string> names =
      is_ten ? std::vector<std::string>{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}
             : std::vector<std::string>{"train.bin", "test.bin"};
  const std::vector<std::string_view> parts = files_in(input.substr(1), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view part = i < parts.size() ? parts[i] : parts.front();
    folder.write(names[i], fills_up ? in_records(part, is_ten ? 3073 : 3074) : std::string(part));
  }
  try {
    const DatasetSize size = cifar(labels, CifarScale::published, CifarRecords::any).size(folder.path());
    const std::shared_ptr<const Dataset> data = cifar(labels, scale, CifarRecords::any).load(folder.path());
    must(size.train == data->size().train && size.test == data->size().test, "the size is that of the data");
    std::vector<float> inputs(static_cast<std::size_t>(size.shape.features()));
    std::int64_t label = -1;
    const std::array<std::uint32_t, 1> last = {static_cast<std::uint32_t>(size.train - 1)};
    data->gather(Split::train, last, inputs.data(), &label);
    must(label >= 0 && label < size.classes, "labels are classes");
    for (const float value : inputs) must(std::isfinite(value), "inputs are finite");
  } catch (const DataFault& fault) {
    must(std::string_view(fault.what()).starts_with(folder.path().string()), "a fault begins with the file's name");
  }
  if (choice & 16) {
    try {
      cifar(labels, CifarScale::published, CifarRecords::all).size(folder.path());
    } catch (const DataFault&) {
    }
  }
}

}  // namespace syncopate
