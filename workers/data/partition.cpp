#include "workers/datasets/partition.hpp"

#include <algorithm>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <numeric>

#include "workers/random/permutation.hpp"

namespace syncopate {
namespace {

using Numbers = std::vector<std::uint32_t>;
using Shares = std::vector<double>;

// Streams of Purpose::data_partition; the stream's step is the class.
constexpr std::uint8_t share_stream = 0;
constexpr std::uint8_t order_stream = 1;
constexpr std::uint8_t shard_stream = 2;

RandomStream stream_of(std::uint64_t seed, std::uint8_t stream, std::int64_t step) {
  return {.seed = seed, .purpose = Purpose::data_partition, .stream = stream, .step = step};
}

// The logarithm of a gamma variate of scale 1. Where the variate x is small, P(alpha, x) is x^alpha / Gamma(1 + alpha)
// up to a share of x, also where x itself is too small for a double and what libraries then return differs.
double log_gamma_variate(double alpha, double uniform) {
  constexpr double small = -25;
  const double log_if_small = (std::log(uniform) + std::lgamma(1 + alpha)) / alpha;
  return log_if_small < small ? log_if_small : std::log(boost::math::gamma_p_inv(alpha, uniform));
}

// Gamma variates over their sum.
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

// Consecutive parts of `numbers`, as long as the shares say, up to rounding.
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

// Those of one class, in an order drawn at random.
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

}  // namespace

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

}  // namespace syncopate
