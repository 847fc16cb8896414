#include "workers/datasets/partition_section.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace syncopate {

// A data set gives labels with the samples that they are of: some at a time.
std::vector<std::int64_t> labels_of(const Dataset& dataset) {
  constexpr std::size_t most_at_once = 256;
  const DatasetSize& size = dataset.size();
  std::vector<std::int64_t> labels(static_cast<std::size_t>(size.train));
  std::vector<float> inputs(most_at_once * static_cast<std::size_t>(size.shape.features()));
  std::vector<std::uint32_t> numbers(most_at_once);
  for (std::size_t begin = 0; begin < labels.size(); begin += most_at_once) {
    const std::size_t count = std::min(most_at_once, labels.size() - begin);
    std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(begin));
    dataset.gather(Split::train, std::span(numbers).first(count), inputs.data(), labels.data() + begin);
  }
  return labels;
}

std::optional<PartitionOptions> read_partition(Settings& training) {
  using Kind = PartitionOptions::Kind;
  Settings table = training.section(
      {"partition",
       "How training data are divided among workers, whose models count alike unless `weights` says otherwise."});
  const auto kind = table.choice<std::optional<Kind>>(
      {"kind", "Anew in every epoch, equally, or once for the run: by shares of each class, by label, by sizes."},
      {{"shuffled", std::nullopt}, {"dirichlet", Kind::dirichlet}, {"label", Kind::label}, {"size", Kind::size}},
      std::nullopt);
  if (!kind) return std::nullopt;
  PartitionOptions options{.kind = *kind};
  if (options.kind == Kind::label)
    options.shards = static_cast<int>(
        table.integer({"shards", "How many shards of the sorted data each worker gets."}, 1, 1 << 20, options.shards));
  else
    options.alpha = table.number({"alpha", "Dirichlet's parameter: the smaller, the more unequal."},
                                 {.low = 1e-6, .high = 1e6}, options.alpha);
  return options;
}

std::vector<std::vector<std::uint32_t>> divide(const Dataset& dataset, int workers, const PartitionOptions& options,
                                               std::uint64_t seed) {
  return divide(labels_of(dataset), dataset.size().classes, workers, options, seed);
}

}  // namespace syncopate
