#include "workers/data/partition.hpp"

#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <numeric>
#include <utility>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"

namespace syncopate {

namespace {

using Numbers = std::vector<std::uint32_t>;
using Shares = std::vector<double>;

// Random streams of Purpose::data_partition; a stream's `step` is the class.
constexpr std::uint8_t share_stream = 0;
constexpr std::uint8_t order_stream = 1;
constexpr std::uint8_t shard_stream = 2;

RandomStream stream_of(std::uint64_t seed, std::uint8_t stream, std::int64_t step) {
  return {.seed = seed, .purpose = Purpose::data_partition, .stream = stream, .step = step};
}

// Returns the logarithm of a gamma variate of scale 1, by inversion. For a small variate x, the distribution function
// P(alpha, x) is x^alpha / Gamma(1 + alpha) up to a relative error of x. This formula also works if x itself is too
// small for a double, where results of libraries differ.
double log_gamma_variate(double alpha, double uniform) {
  constexpr double small = -25;
  const double log_if_small = (std::log(uniform) + std::lgamma(1 + alpha)) / alpha;
  return log_if_small < small ? log_if_small : std::log(boost::math::gamma_p_inv(alpha, uniform));
}

// Draws shares from Dirichlet(alpha): gamma variates divided by their sum.
Shares dirichlet(const RandomStream& stream, int workers, double alpha) {
  Shares shares(static_cast<std::size_t>(workers));
  stream.fill_uniform(0, shares);
  for (double& share : shares) share = log_gamma_variate(alpha, share);
  const double largest = std::ranges::max(shares);
  for (double& share : shares) share = std::exp(share - largest);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

// Appends consecutive parts of `numbers` to the workers, in proportion to their shares, up to rounding.
void deal(const Numbers& numbers, const Shares& shares, std::vector<Numbers>& workers) {
  double share_so_far = 0;
  std::size_t begin = 0;
  for (std::size_t worker = 0; worker < shares.size(); ++worker) {
    share_so_far += shares[worker];
    const bool is_last = worker + 1 == shares.size();
    const auto upto = static_cast<std::size_t>(std::llround(share_so_far * static_cast<double>(numbers.size())));
    const std::size_t end = is_last ? numbers.size() : std::clamp(upto, begin, numbers.size());
    workers[worker].insert(workers[worker].end(), numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                           numbers.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
}

// Returns the samples of each class, in a random order.
std::vector<Numbers> by_class(std::span<const std::int64_t> labels, std::int64_t classes, std::uint64_t seed) {
  std::vector<Numbers> classes_of(static_cast<std::size_t>(classes));
  for (const std::uint32_t number : permutation(stream_of(seed, order_stream, 0), labels.size()))
    classes_of[static_cast<std::size_t>(labels[number])].push_back(number);
  return classes_of;
}

void divide_by_shards(const std::vector<Numbers>& classes, int shards, std::uint64_t seed,
                      std::vector<Numbers>& workers) {
  Numbers sorted;
  for (const Numbers& one : classes) sorted.insert(sorted.end(), one.begin(), one.end());
  const std::size_t count = workers.size() * static_cast<std::size_t>(shards);
  const Numbers order = permutation(stream_of(seed, shard_stream, 0), count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = static_cast<std::ptrdiff_t>(sorted.size() * order[i] / count);
    const auto end = static_cast<std::ptrdiff_t>(sorted.size() * (order[i] + 1) / count);
    Numbers& worker = workers[i / static_cast<std::size_t>(shards)];
    worker.insert(worker.end(), sorted.begin() + begin, sorted.begin() + end);
  }
}

constexpr std::size_t most_bins = 8;

// Returns the longest length in each bin. All samples of that length are in the bin, even if the bin then has more than
// an eighth of the samples.
std::vector<std::int32_t> bin_ends(std::vector<std::int32_t> lengths) {
  std::ranges::sort(lengths);
  std::vector<std::int32_t> ends;
  for (std::size_t bin = 1; bin <= most_bins; ++bin) {
    const std::int32_t end = lengths[bin * lengths.size() / most_bins - 1];
    if (ends.empty() || end > ends.back()) ends.push_back(end);
  }
  return ends;
}

}  // namespace

void read_batching(Settings& training, SamplerOptions& sampling) {
  sampling.batching = training.choice(
      {"batching",
       "How sequences form a micro-batch: by number, padded, packed to a token budget, or of similar length."},
      {{"count", Batching::count},
       {"padded", Batching::padded},
       {"packed", Batching::packed},
       {"bucketed", Batching::bucketed}},
      sampling.batching);
  const char* const name = "token_budget";
  constexpr std::int64_t most = 1 << 30;
  if (sampling.batching == Batching::packed)
    sampling.token_budget = training.integer(
        {name, "Maximum number of tokens of a packed micro-batch; a longer sequence is a micro-batch of its own.",
         "tokens"},
        1, most);
  else
    training.optional_integer(
        {name, "Used only with batching = \"packed\"; allowed with others so that batching can be swept.", "tokens"}, 1,
        most);
}

std::vector<Numbers> divide(std::span<const std::int64_t> labels, std::int64_t classes, int workers,
                            const PartitionOptions& options, std::uint64_t seed) {
  std::vector<Numbers> result(static_cast<std::size_t>(workers));
  const auto shares = [&](std::int64_t of_class) {
    return dirichlet(stream_of(seed, share_stream, of_class), workers, options.alpha);
  };
  switch (options.kind) {
    case PartitionOptions::Kind::dirichlet: {
      std::int64_t of_class = 0;
      for (const Numbers& one : by_class(labels, classes, seed)) deal(one, shares(of_class++), result);
      break;
    }
    case PartitionOptions::Kind::label:
      divide_by_shards(by_class(labels, classes, seed), options.shards, seed, result);
      break;
    case PartitionOptions::Kind::size:
      deal(permutation(stream_of(seed, order_stream, 0), labels.size()), shares(0), result);
  }
  for (Numbers& numbers : result) std::ranges::sort(numbers);
  return result;
}

// Reads a few samples at a time, because a data set returns labels only together with inputs.
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
       "How training data are divided among workers. Averages weight models equally, unless `weights` is set."});
  const auto kind = table.choice<std::optional<Kind>>(
      {"kind", "Equally and again in every epoch, or once per run: by shares of each class, by label, or by size."},
      {{"shuffled", std::nullopt}, {"dirichlet", Kind::dirichlet}, {"label", Kind::label}, {"size", Kind::size}},
      std::nullopt);
  if (!kind) return std::nullopt;
  PartitionOptions options{.kind = *kind};
  if (options.kind == Kind::label)
    options.shards = static_cast<int>(table.integer(
        {"shards", "Number of shards of the sorted data that each worker gets."}, 1, 1 << 20, options.shards));
  else
    options.alpha =
        table.number({"alpha", "Parameter of the Dirichlet distribution: the smaller, the more unequal the shares."},
                     {.low = 1e-6, .high = 1e6}, options.alpha);
  return options;
}

SampleKinds::SampleKinds(const Dataset& dataset, std::shared_ptr<const Sampler> sampler, const ComputedTokens& computed)
    : sampler_(std::move(sampler)), classes_(labels_of(dataset)), class_count_(dataset.size().classes) {
  if (!dataset.size().shape.has_tokens() || static_cast<std::size_t>(dataset.size().train) < most_bins) return;
  const std::vector<std::int32_t> lengths = training_lengths(dataset, computed);
  longest_ = bin_ends(lengths);
  for (const std::int32_t length : lengths)
    bins_.push_back(static_cast<std::uint8_t>(std::ranges::lower_bound(longest_, length) - longest_.begin()));
  test_samples_.resize(longest_.size());
  for (std::uint32_t sample = 0; sample < dataset.size().test; ++sample) {
    const std::int32_t length = computed.of(dataset.length(Split::test, sample));
    const auto bin = std::ranges::lower_bound(longest_, length) - longest_.begin();
    test_samples_[static_cast<std::size_t>(std::min(bin, std::ssize(longest_) - 1))].push_back(sample);
  }
}

void SampleKinds::add(const MicroBatch& micro_batch, KindCounts& counts) const {
  thread_local Numbers samples;
  samples.clear();
  sampler_->append_samples(micro_batch, samples);
  for (const std::uint32_t sample : samples) {
    if (class_count_ > 0) ++counts.by_class[static_cast<std::size_t>(classes_[sample])];
    if (!bins_.empty()) ++counts.by_length[bins_[sample]];
  }
}

KindCounts SampleKinds::of_steps(Step steps) const {
  const SamplerOptions& options = sampler_->options();
  return of_first(std::vector(static_cast<std::size_t>(options.workers), steps.value() * options.micro_batches));
}

KindCounts SampleKinds::of_first(std::span<const std::int64_t> micro_batches) const {
  const std::int64_t of_step = sampler_->options().micro_batches;
  KindCounts counts = none();
  for (std::size_t worker = 0; worker < micro_batches.size(); ++worker)
    for (std::int64_t i = 0; i < micro_batches[worker]; ++i) {
      if (i % of_step == 0) throw_if_interrupted();
      add({Rank{static_cast<int>(worker)}, i / of_step, static_cast<int>(i % of_step)}, counts);
    }
  return counts;
}

std::vector<std::int32_t> training_lengths(const Dataset& dataset, const ComputedTokens& computed) {
  if (!dataset.size().shape.has_tokens()) throw DataFault("the samples are not sequences, so they have no lengths");
  std::vector<std::int32_t> lengths(static_cast<std::size_t>(dataset.size().train));
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lengths[i] = computed.of(dataset.length(Split::train, static_cast<std::uint32_t>(i)));
  return lengths;
}

}  // namespace syncopate
