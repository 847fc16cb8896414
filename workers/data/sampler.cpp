#include "workers/data/sampler.hpp"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "workers/base/files.hpp"

namespace syncopate {

EpochBatches packed(std::vector<std::uint32_t> order, std::span<const std::int32_t> lengths,
                    std::int64_t token_budget) {
  EpochBatches batches{.order = std::move(order), .begins = {0}};
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < batches.order.size(); ++i) {
    const std::int64_t length = lengths[batches.order[i]];
    if (i > batches.begins.back() && tokens + length > token_budget) {
      batches.begins.push_back(i);
      tokens = 0;
    }
    tokens += length;
  }
  if (!batches.order.empty()) batches.begins.push_back(batches.order.size());
  return batches;
}

EpochBatches bucketed(std::vector<std::uint32_t> order, std::span<const std::int32_t> lengths, std::int64_t samples,
                      std::int64_t size, const RandomStream& stream) {
  order.resize(static_cast<std::size_t>(samples));
  std::ranges::stable_sort(order, {}, [&](std::uint32_t sample) { return lengths[sample]; });
  const auto count = static_cast<std::size_t>(samples / size), length = static_cast<std::size_t>(size);
  EpochBatches batches{.begins = {0}};
  batches.order.reserve(order.size());
  for (const std::uint32_t bucket : permutation(stream, count)) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(bucket * length);
    batches.order.insert(batches.order.end(), begin, begin + static_cast<std::ptrdiff_t>(length));
    batches.begins.push_back(batches.order.size());
  }
  return batches;
}

Sampler::Sampler(SamplerOptions options)
    : options_(std::move(options)),
      steps_per_epoch_(options_.steps_per_epoch()),
      samples_per_micro_batch_(options_.micro_batch_size),
      // Caches more orders if each worker has its own. Otherwise workers are seldom more than an epoch apart.
      remembered_(std::max(static_cast<std::size_t>(std::clamp(options_.workers + 1, 4, 33)), options_.shards.size())) {
  if (options_.batching == Batching::packed) {
    const std::int64_t packed = order({}, 0, static_cast<std::size_t>(options_.samples))->micro_batches();
    steps_per_epoch_ = packed / (std::int64_t{options_.workers} * options_.micro_batches);
    const double mean = static_cast<double>(options_.samples) / static_cast<double>(std::max<std::int64_t>(packed, 1));
    samples_per_micro_batch_ = std::max<std::int64_t>(1, std::llround(mean));
  }
  check();
}

void Sampler::check() const {
  assert(!options_.is_formed() || (options_.lengths && options_.shards.empty()));
  assert(!options_.repeats_longest || options_.lengths);
  if (steps_per_epoch_ < 1 && options_.batching == Batching::packed)
    throw DataFault(
        fmt::format("{} training samples, packed to {} tokens, are fewer than one step's {} workers x {} micro-batches",
                    options_.samples, options_.token_budget, options_.workers, options_.micro_batches));
  if (steps_per_epoch_ < 1)
    throw DataFault(
        fmt::format("{} training samples are fewer than one step's {} workers x {} micro-batches x {} samples",
                    options_.samples, options_.workers, options_.micro_batches, options_.micro_batch_size));
  if (options_.samples > std::numeric_limits<std::uint32_t>::max())
    throw DataFault(fmt::format("{} training samples are too many; must be at most 2^32 - 1", options_.samples));
  for (std::size_t worker = 0; worker < options_.shards.size(); ++worker)
    if (std::ssize(options_.shards[worker]) < options_.micro_batch_size)
      throw DataFault(fmt::format("the partition gives worker {} only {} samples, fewer than a micro-batch of {}",
                                  worker, options_.shards[worker].size(), options_.micro_batch_size));
}

void Sampler::append_own(const MicroBatch& micro_batch, std::vector<std::uint32_t>& out) const {
  assert(micro_batch.worker.value >= 0 && micro_batch.worker.value < options_.workers);
  const std::int64_t size = options_.micro_batch_size, workers = options_.workers, worker = micro_batch.worker.value;
  const std::int64_t step = step_of(micro_batch);
  if (!options_.shards.empty()) {
    const auto& own = options_.shards[static_cast<std::size_t>(worker)];
    const std::int64_t of_pass = micro_batches_of_pass(micro_batch.worker);
    const std::int64_t number = step * options_.micro_batches + micro_batch.index;
    const Order pass = order(micro_batch.worker, number / of_pass, own.size());
    auto next = pass->order.begin() + number % of_pass * size;
    for (std::int64_t i = 0; i < size; ++i) out.push_back(own[*next++]);
    return;
  }
  const Order all = order({}, step / steps_per_epoch_, static_cast<std::size_t>(options_.samples));
  const std::int64_t number = step % steps_per_epoch_ * options_.micro_batches + micro_batch.index;
  if (options_.is_formed()) {
    const auto samples = (*all)[(number * workers + worker) % all->micro_batches()];
    out.insert(out.end(), samples.begin(), samples.end());
    return;
  }
  const std::int64_t shard = (options_.samples - worker + workers - 1) / workers;
  for (std::int64_t i = 0; i < size; ++i)
    out.push_back(all->order[static_cast<std::size_t>(worker + (number * size + i) % shard * workers)]);
}

void Sampler::append(const MicroBatch& micro_batch, std::vector<std::int32_t>& lengths) const {
  thread_local std::vector<std::uint32_t> samples;
  samples.clear();
  append_own(micro_batch, samples);
  for (const std::uint32_t sample : samples) lengths.push_back((*options_.lengths)[sample]);
}

void Sampler::append_samples(const MicroBatch& micro_batch, std::vector<std::uint32_t>& out) const {
  const std::size_t before = out.size();
  append_own(micro_batch, out);
  if (!options_.repeats_longest) return;
  const auto own = std::span(out).subspan(before);
  const std::uint32_t longest =
      *std::ranges::max_element(own, {}, [this](std::uint32_t sample) { return (*options_.lengths)[sample]; });
  std::ranges::fill(own, longest);
}

std::int64_t Sampler::epoch(const MicroBatch& micro_batch) const {
  const auto step = step_of(micro_batch);
  if (options_.shards.empty()) return step / steps_per_epoch_;
  return (step * options_.micro_batches + micro_batch.index) / micro_batches_of_pass(micro_batch.worker);
}

Sampler::Order Sampler::order(Rank worker, std::int64_t epoch, std::size_t size) const {
  const auto find = [&]() -> Order {
    const auto found = std::ranges::find_if(
        recent_, [&](const Drawn& drawn) { return drawn.worker == worker && drawn.epoch == epoch; });
    if (found == recent_.end()) return nullptr;
    std::rotate(recent_.begin(), found, found + 1);
    return recent_.front().order;
  };
  {
    std::lock_guard lock(mutex_);
    if (auto known = find()) return known;
  }
  // Draws without holding the lock, so that other threads can continue with their epochs.
  auto drawn = std::make_shared<const EpochBatches>(draw_order(worker, epoch, size));
  std::lock_guard lock(mutex_);
  if (auto known = find()) return known;  // another thread has drawn the same order meanwhile
  if (recent_.size() >= remembered_) recent_.pop_back();
  recent_.insert(recent_.begin(), {worker, epoch, drawn});
  return drawn;
}

// Leaves `begins` empty unless micro-batches are packed or bucketed.
EpochBatches Sampler::draw_order(Rank worker, std::int64_t epoch, std::size_t size) const {
  RandomStream stream{.seed = options_.seed, .purpose = Purpose::data_order, .worker = worker, .step = epoch};
  std::vector<std::uint32_t> drawn = permutation(stream, size);
  if (options_.batching == Batching::packed) return packed(std::move(drawn), *options_.lengths, options_.token_budget);
  if (options_.batching != Batching::bucketed) return {.order = std::move(drawn)};
  stream.stream = 1;
  const std::int64_t samples = steps_per_epoch_ * options_.workers * options_.micro_batches * options_.micro_batch_size;
  return bucketed(std::move(drawn), *options_.lengths, samples, options_.micro_batch_size, stream);
}

}  // namespace syncopate
