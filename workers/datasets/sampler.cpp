#include "workers/datasets/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>

#include "workers/datasets/dataset.hpp"
#include "workers/random/random.hpp"

namespace syncopate {
namespace {

// Workers of one run are seldom more than an epoch apart.
constexpr std::size_t cached_epochs = 4;

}  // namespace

std::int64_t SamplerOptions::steps_per_epoch() const {
  return samples / (std::int64_t{workers} * micro_batches * micro_batch_size);
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), steps_per_epoch_(options.steps_per_epoch()) {
  if (steps_per_epoch_ < 1)
    throw DataFault(fmt::format("{} training samples are fewer than one step's {} workers x {} micro-batches x {}",
                                options.samples, options.workers, options.micro_batches, options.micro_batch_size));
  if (options.samples > std::numeric_limits<std::uint32_t>::max())
    throw DataFault(fmt::format("{} training samples; at most 2^32 - 1 can be numbered", options.samples));
}

void Sampler::sample_numbers(const MicroBatch& micro_batch, std::span<std::uint32_t> out) const {
  assert(std::ssize(out) == options_.micro_batch_size);
  assert(micro_batch.worker.value >= 0 && micro_batch.worker.value < options_.workers);
  const auto step = micro_batch.step.value();
  const auto order = permutation(step / steps_per_epoch_);
  const std::int64_t workers = options_.workers;
  const std::int64_t worker = micro_batch.worker.value;
  const std::int64_t shard = (options_.samples - worker + workers - 1) / workers;
  std::int64_t position =
      ((step % steps_per_epoch_ * options_.micro_batches + micro_batch.index) * options_.micro_batch_size) % shard;
  for (auto& number : out) {
    number = (*order)[static_cast<std::size_t>(worker + position * workers)];
    if (++position == shard) position = 0;
  }
}

Sampler::Permutation Sampler::permutation(std::int64_t epoch) const {
  const auto find = [&]() -> Permutation {
    const auto found = std::find_if(recent_.begin(), recent_.end(), [&](auto& entry) { return entry.first == epoch; });
    if (found == recent_.end()) return nullptr;
    std::rotate(recent_.begin(), found, found + 1);
    return recent_.front().second;
  };
  {
    std::lock_guard lock(mutex_);
    if (auto cached = find()) return cached;
  }
  auto drawn = draw_permutation(epoch);  // without the lock: others go on with their epochs
  std::lock_guard lock(mutex_);
  if (auto cached = find()) return cached;  // another thread was faster with an equal one
  if (recent_.size() >= cached_epochs) recent_.pop_back();
  recent_.insert(recent_.begin(), {epoch, drawn});
  return drawn;
}

// Fisher-Yates. The uniform numbers have 53 bits, so an element's bias is below n / 2^53.
Sampler::Permutation Sampler::draw_permutation(std::int64_t epoch) const {
  const auto n = static_cast<std::size_t>(options_.samples);
  std::vector<double> uniform(n);
  RandomStream{.seed = options_.seed, .purpose = Purpose::data_order, .step = epoch}.fill_uniform(0, uniform);
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t last = n - 1; last > 0; --last) {
    const auto chosen = static_cast<std::size_t>(uniform[last] * static_cast<double>(last + 1));
    std::swap(order[last], order[chosen]);
  }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(order));
}

}  // namespace syncopate
