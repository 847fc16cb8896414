#include "workers/compression/compressed_average.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "workers/training/course_log.hpp"

namespace syncopate {
namespace {

const float* values_of(const CellPtr& cell) { return std::as_const(cell->value).data(); }

// p = residual + (mine - from), in the residual's place.
void take_in(const float* mine, const float* from, bool adds, std::span<float> p) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    const float difference = from ? mine[i] - from[i] : mine[i];
    p[i] = adds ? p[i] + difference : difference;
  }
}

}  // namespace

// They go with the first slice.
std::size_t CompressedAverage::buffers(const SentDifference& sent) const {
  const bool are_averaged = sent.slice.index == 0 && sent.policy.buffers == StatePolicy::average;
  return !training_.time_only() && are_averaged ? training_.objective().buffers() : 0;
}

Collective CompressedAverage::exchange(const Collective& average) {
  ++rounds_;
  newest_ = {.mine = average.model,
             .from = average.from,
             .policy = average.policy,
             .slice = average.slice,
             .rest_is_needed = average.rest_is_needed,
             .round = rounds_};
  OfSlice& own = this->own(newest_);
  const std::vector<Exchange> exchanges = own.compressor->exchanges(rounds_);
  const Exchange exchange = exchanges.front();
  const bool is_last = exchanges.size() == 1;
  Collective what = is_last ? last_exchange(exchange, newest_)
                            : Collective{.kind = Collective::first_exchange(exchange.operation),
                                         .packet = {.words = {}, .size = exchange.packet}};
  if (training_.time_only()) return what;
  const std::size_t statistics = is_last ? buffers(newest_) : 0;
  const auto parameters = static_cast<std::int64_t>(training_.objective().parameters());
  const std::int64_t begin = newest_.slice.begin(parameters);
  const auto size = static_cast<std::size_t>(newest_.slice.end(parameters) - begin);
  const bool is_first = !own.residual;
  if (is_first) own.residual = new_cell();
  const CellPtr mine = newest_.mine->parameters, own_buffers = newest_.mine->buffers;
  const CellPtr from = newest_.from ? newest_.from->parameters : nullptr;
  what.packet.words = new_cell();
  const auto encode = [=, compressor = own.compressor, residual = own.residual, worker = worker_, round = newest_.round,
                       words = static_cast<std::size_t>(exchange.packet.value()) / 4, out = what.packet.words] {
    if (is_first) residual->value = FlatVector(size);
    const bool adds = !is_first && compressor->options().error_feedback;
    take_in(values_of(mine) + begin, from ? values_of(from) + begin : nullptr, adds, residual->value.span());
    FlatVector values(words + statistics);
    compressor->encode(worker, round, nullptr, residual->value.span(), values.data());
    if (statistics > 0) std::copy_n(values_of(own_buffers), statistics, values.data() + words);
    out->value = std::move(values);
  };
  training_.compute({.reads = {is_first ? nullptr : own.residual, mine, from, own_buffers},
                     .writes = {own.residual, what.packet.words},
                     .work = encode});
  return what;
}

Collective CompressedAverage::last_exchange(const Exchange& exchange, const SentDifference& sent) const {
  Collective what{.kind = Collective::last_of_average(exchange.operation)};
  what.packet.size = exchange.packet + Bytes{static_cast<Bytes::Rep>(4 * buffers(sent))};
  return what;
}

// The owner's residual is kept where the worker's is.
Collective CompressedAverage::second_exchange(const SentDifference& sent, const SharedPackets& first, int chunk) {
  OfSlice& own = this->own(sent);
  const Exchange exchange = own.compressor->exchanges(sent.round).back();
  Collective what = last_exchange(exchange, sent);
  if (training_.time_only()) return what;
  const bool is_first = !own.owned;
  if (is_first) own.owned = new_cell();
  const std::size_t statistics = buffers(sent);
  const CellPtr own_buffers = sent.mine->buffers;
  std::vector<CellPtr> read = {is_first ? nullptr : own.owned, own_buffers};
  for (const Packet& packet : *first) read.push_back(packet.words);
  what.packet.words = new_cell();
  const auto reduce = [=, compressor = own.compressor, owned = own.owned, worker = worker_, round = sent.round,
                       words = static_cast<std::size_t>(exchange.packet.value()) / 4, out = what.packet.words] {
    if (is_first) owned->value = FlatVector(compressor->owned(worker));
    if (is_first || !compressor->options().error_feedback) std::ranges::fill(owned->value.span(), 0.0f);
    std::vector<const float*> chunks;
    for (const Packet& packet : *first)
      chunks.push_back(values_of(packet.words) + static_cast<std::size_t>(chunk) * words);
    FlatVector values(words + statistics);
    compressor->reduce(worker, round, chunks, owned->value.span(), values.data());
    if (statistics > 0) std::copy_n(values_of(own_buffers), statistics, values.data() + words);
    out->value = std::move(values);
  };
  training_.compute({.reads = std::move(read), .writes = {own.owned, what.packet.words}, .work = reduce});
  return what;
}

ModelStatePtr CompressedAverage::mean(const SentDifference& average, const SharedPackets& packets, int workers) const {
  auto state = std::make_shared<ModelState>(*average.mine);
  state->id = new_state_id();
  state->moments = {};
  if (average.slice.index > 0 && average.from) state->buffers = average.from->buffers;  // the same on all
  const std::size_t size = training_.objective().parameters(), statistics = buffers(average);
  const auto begin = static_cast<std::size_t>(average.slice.begin(static_cast<std::int64_t>(size)));
  const auto end = static_cast<std::size_t>(average.slice.end(static_cast<std::int64_t>(size)));
  const CellPtr from = average.from ? average.from->parameters : nullptr;
  std::vector<CellPtr> read = {from};
  for (const Packet& packet : *packets) read.push_back(packet.words);
  state->parameters = new_cell();
  const auto& compressor = slices_[static_cast<std::size_t>(average.slice.index)].compressor;
  const auto decode = [=, round = average.round, out = state->parameters] {
    FlatVector values(size);
    std::fill_n(values.data(), size, 0.0f);
    std::vector<const float*> words;
    for (const Packet& packet : *packets) words.push_back(values_of(packet.words));
    compressor->decode({.packets = words, .workers = workers, .micro_batches = workers, .step = round},
                       values.span().subspan(begin, end - begin));
    for (std::size_t i = 0; i < size; ++i) {
      const float mean = values.data()[i] / static_cast<float>(workers);
      values.data()[i] = from ? values_of(from)[i] + mean : mean;
    }
    out->value = std::move(values);
  };
  constexpr ProcessSet for_all = ProcessSet::everywhere();
  training_.compute({.reads = read, .writes = {state->parameters}, .work = decode}, for_all);
  if (statistics > 0) {
    state->buffers = new_cell();
    const auto add_up = [=, out = state->buffers] {
      FlatVector values(statistics);
      std::fill_n(values.data(), statistics, 0.0f);
      for (const Packet& packet : *packets) {
        const auto last = std::as_const(packet.words->value).span().last(statistics);
        for (std::size_t i = 0; i < statistics; ++i) values.data()[i] += last[i];
      }
      for (float& value : values.span()) value /= static_cast<float>(workers);
      out->value = std::move(values);
    };
    training_.compute({.reads = read, .writes = {state->buffers}, .work = add_up}, for_all);
  }
  return state;
}

// The same object for all where nothing of it is a worker's own, or nobody looks at that.
ModelStatePtr CompressedAverage::taken_up(const SentDifference& average, const ModelStatePtr& mean) const {
  if (average.slice.index > 0 && !average.rest_is_needed) return mean;
  ModelState changed = *average.mine;
  changed.id = new_state_id();
  changed.parameters = mean->parameters;
  if (average.policy.buffers == StatePolicy::average) changed.buffers = mean->buffers;
  const ModelStatePtr one = std::make_shared<const ModelState>(std::move(changed));
  const ModelStatePtr own = training_.average({&one, 1}, average.policy).front();  // of one model: itself
  const bool is_common = own->buffers == mean->buffers && own->moments == mean->moments;
  return is_common ? mean : own;
}

}  // namespace syncopate
