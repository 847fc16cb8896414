#include "workers/training/gradient_sum.hpp"

#include <algorithm>
#include <cassert>
#include <tuple>
#include <utility>

#include "workers/training/course_log.hpp"
#include "workers/training/divided_sums.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/wide_gradient.hpp"

namespace syncopate {

namespace {

struct Group {
  ModelStatePtr at;
  double scale;
  LastLayers layers;
  std::vector<MicroBatch> micro_batches;
};

// Micro-batches of one model and weight, of which as much is left, together, each group sorted, the groups by their
// first micro-batch: never by address, which differs from run to run. What has been cut comes last.
std::vector<Group> group(std::span<const Gradient::Term> terms) {
  std::vector<Group> groups;
  // A gradient depends on parameters and buffers alone: models that workers adopted differ in the rest.
  std::map<std::tuple<const Cell*, const Cell*, double, LastLayers>, std::size_t> place;
  for (const Gradient::Term& term : terms) {
    if (!term.at) continue;
    const auto [found, is_new] =
        place.try_emplace({term.at->parameters.get(), term.at->buffers.get(), term.scale, term.layers}, groups.size());
    if (is_new) groups.push_back({term.at, term.scale, term.layers, {}});
    auto& list = groups[found->second].micro_batches;
    list.insert(list.end(), term.micro_batches.begin(), term.micro_batches.end());
  }
  for (Group& g : groups) std::sort(g.micro_batches.begin(), g.micro_batches.end());
  std::sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    const bool a_is_cut = !a.layers.are_all(), b_is_cut = !b.layers.are_all();
    return std::tie(a_is_cut, a.micro_batches.front(), a.scale, a.layers) <
           std::tie(b_is_cut, b.micro_batches.front(), b.scale, b.layers);
  });
  return groups;
}

}  // namespace

void append_micro_batches(const GradientSum& sum, std::vector<MicroBatch>& out) {
  out.insert(out.end(), sum.carried.begin(), sum.carried.end());
  for (const GradientSum::Chunk& chunk : sum.chunks) {
    if (chunk.scale == 0 || !chunk.layers.are_all()) continue;
    out.insert(out.end(), chunk.micro_batches.begin(), chunk.micro_batches.end());
    if (chunk.nested) append_micro_batches(*chunk.nested, out);
  }
}

void append_micro_batches(const Gradient& gradient, std::vector<MicroBatch>& out) {
  for (const Gradient::Term& term : gradient.terms()) {
    if (term.scale == 0 || !term.layers.are_all()) continue;
    out.insert(out.end(), term.micro_batches.begin(), term.micro_batches.end());
    if (term.sum) append_micro_batches(*term.sum, out);
  }
}

std::int64_t number_of_chunks(std::int64_t samples, std::int64_t chunk_samples) {
  if (4 * samples <= chunk_samples) return 1;
  return 2 * ((samples + 2 * chunk_samples - 1) / (2 * chunk_samples));
}

namespace {

// Cut as evenly as for one process, and for each of several the same number.
std::int64_t number_of_pieces(const Group& group, const Objective& objective, const DividedWork* divided) {
  const auto count = static_cast<std::int64_t>(group.micro_batches.size());
  const std::int64_t pieces = number_of_chunks(count * objective.samples_per_micro_batch(), objective.chunk_samples());
  if (!divided || pieces == 1 ||
      divided->process_of(group.micro_batches.front().worker) == divided->process_of(group.micro_batches.back().worker))
    return std::min(count, pieces);
  const std::int64_t processes = divided->processes();
  return std::min(count, (pieces + processes - 1) / processes * processes);
}

}  // namespace

std::shared_ptr<GradientSum> fix_sum(const Gradient& gradient, const Objective& objective, double& scale,
                                     const DividedWork* divided) {
  const auto& terms = gradient.terms();
  scale = 1;
  if (terms.size() == 1 && terms.front().sum && terms.front().sum->wide >= gradient.wide()) {
    scale = terms.front().scale;
    return terms.front().sum;
  }
  auto sum = new_sum();
  sum->wide = gradient.wide();
  sum->micro_batches = gradient.micro_batches();
  std::vector<Gradient::Term> merged;
  if (sum->wide) {
    merged = merge_weights(terms);
    sum->micro_batches = count_buffers(terms, merged);
  }
  for (Group& group : group(sum->wide ? merged : terms)) {
    const auto count = static_cast<std::int64_t>(group.micro_batches.size());
    const std::int64_t pieces = number_of_pieces(group, objective, divided);
    for (std::int64_t i = 0; i < pieces; ++i) {
      const auto begin = group.micro_batches.begin() + count * i / pieces;
      const auto end = group.micro_batches.begin() + count * (i + 1) / pieces;
      sum->chunks.push_back({.at = group.at,
                             .micro_batches = {begin, end},
                             .scale = group.scale,
                             .layers = group.layers,
                             .nested = {},
                             .result = {}});
    }
  }
  for (const Gradient::Term& term : terms)
    if (term.sum)
      sum->chunks.push_back(
          {.at = {}, .micro_batches = {}, .scale = term.scale, .layers = {}, .nested = term.sum, .result = {}});
  return sum;
}

namespace {

void cut_chunk(GradientSum::Chunk& chunk, const Objective& objective) {
  chunk.result.segments = chunk.segments();
  chunk.kept = nullptr;
  leave_layers(chunk.result.segments, chunk.layers, objective.weights());
  chunk.result.buffers_sum.clear();
}

}  // namespace

void cut_sum(GradientSum& sum, const LastLayers& layers, const Objective& objective) {
  sum.micro_batches = 0;
  for (auto& chunk : sum.chunks) {
    chunk.layers = layers;
    cut_chunk(chunk, objective);
  }
}

void evaluate_chunk(GradientSum::Chunk& chunk, const ModelStatePtr& at, const Objective& objective) {
  if (!at) return;
  const bool is_for_statistics = chunk.scale == 0;
  if (is_for_statistics && objective.buffers() == 0) return;
  chunk.result = objective.gradient(at->parameters->value.data(), at->buffers ? at->buffers->value.data() : nullptr,
                                    chunk.micro_batches);
  if (is_for_statistics) chunk.result.segments.clear();
  if (!chunk.layers.are_all()) cut_chunk(chunk, objective);
}

void submit_chunks(const std::shared_ptr<GradientSum>& sum, const std::shared_ptr<const Objective>& objective,
                   Executor& executor, DividedWork* divided) {
  if (sum->submitted) return;
  sum->submitted = true;
  if (divided) place_chunks(*sum, objective, executor, *divided);
  for (std::size_t i = 0; i < sum->chunks.size(); ++i) {
    auto& chunk = sum->chunks[i];
    if (chunk.nested) {
      submit_chunks(chunk.nested, objective, executor, divided);
      const auto& tasks = values_of(chunk).tasks;
      sum->tasks.insert(sum->tasks.end(), tasks.begin(), tasks.end());
    } else if (divided && chunk.evaluator != divided->self()) {
      chunk.at = nullptr;
    } else if (chunk.at) {
      const std::shared_ptr<Task> inputs[] = {chunk.at->parameters->producer,
                                              chunk.at->buffers ? chunk.at->buffers->producer : nullptr};
      sum->tasks.push_back(executor.submit(
          [sum, objective, i, at = held_by_task(std::exchange(chunk.at, nullptr))] {
            evaluate_chunk(sum->chunks[i], at, *objective);
          },
          inputs));
    }
  }
}

namespace {

// out += (or =, for the first) factor x the elements of one partial gradient.
template <typename Real>
void add_partial(std::span<const GradientSegment> segments, double factor, std::size_t begin, std::span<Real> out,
                 bool first) {
  const std::size_t end = begin + out.size();
  const auto scale = static_cast<Real>(factor);
  for (const GradientSegment& segment : segments) {
    const std::size_t from = std::max(begin, segment.offset);
    const std::size_t to = std::min(end, segment.offset + segment.size);
    if (from >= to) continue;
    const float* source = segment.data + (from - segment.offset);
    Real* target = out.data() + (from - begin);
    if (first)
      write_scaled(target, scale, source, to - from);
    else
      add_scaled(target, scale, source, to - from);
  }
}

template <typename Real>
void add_block(const GradientSum& sum, double factor, std::size_t begin, std::span<Real> out, bool& first);

template <typename Real>
void add_chunks(const GradientSum& sum, double factor, std::size_t begin, std::span<Real> out, bool& first) {
  for (const auto& chunk : sum.chunks) {
    if (chunk.nested) {
      add_block(values_of(chunk), factor * chunk.scale, begin, out, first);
    } else if (const auto& segments = chunk.segments(); !segments.empty()) {
      if (first && !chunk.layers.are_all()) {  // which has gaps
        std::fill(out.begin(), out.end(), Real{0});
        first = false;
      }
      add_partial<Real>(segments, factor * chunk.scale, begin, out, first);
      first = false;
    }
  }
}

template <typename Real>
void add_block(const GradientSum& sum, double factor, std::size_t begin, std::span<Real> out, bool& first) {
  if (sum.factors.empty()) return add_chunks(sum, factor, begin, out, first);
  std::size_t at = begin;
  for (const auto& [end, of_range] : sum.factors) {
    if (end <= at) continue;
    const auto range = out.subspan(at - begin, std::min(end, begin + out.size()) - at);
    bool is_first = first;
    add_chunks(sum, factor * of_range, at, range, is_first);
    if (is_first) std::fill(range.begin(), range.end(), Real{0});
    at += range.size();
    if (at == begin + out.size()) break;
  }
  first = false;
}

template <typename Real>
void fill_block(const GradientSum& sum, double scale, std::size_t begin, std::span<Real> out) {
  bool first = true;
  add_block(sum, scale, begin, out, first);
  if (first) std::fill(out.begin(), out.end(), Real{0});
}

// Calls `use(at, block)` for the elements begin + at .. of the sum in double precision, block by block.
template <typename Use>
void for_wide_blocks(const GradientSum& sum, double scale, std::size_t begin, std::size_t size, const Use& use) {
  constexpr std::size_t block_size = 2048;  // fits the first-level cache
  double block[block_size];
  for (std::size_t at = 0; at < size; at += block_size) {
    const std::span<double> part(block, std::min(block_size, size - at));
    fill_block(sum, scale, begin + at, part);
    use(at, part);
  }
}

}  // namespace

void write_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> out) {
  if (!sum.wide) return fill_block(sum, scale, begin, out);
  for_wide_blocks(sum, scale, begin, out.size(), [&](std::size_t at, std::span<const double> block) {
    for (std::size_t i = 0; i < block.size(); ++i) out[at + i] = static_cast<float>(block[i]);
  });
}

bool is_kept_of_pass(const GradientSum& sum, double scale) {
  return sum.chunks.size() == 1 && sum.chunks.front().kept && sum.chunks.front().layers.are_all() &&
         sum.factors.empty() && !sum.wide && scale * sum.chunks.front().scale == 1;
}

void add_kept_of_pass(const GradientSum& sum, float* out) { sum.chunks.front().kept->add_to(out); }

const float* block_in_memory(const GradientSum& sum, double scale, std::size_t begin, std::size_t size) {
  if (sum.chunks.size() != 1 || !sum.factors.empty() || scale != 1) return nullptr;
  const GradientSum::Chunk& chunk = sum.chunks.front();
  if (chunk.nested || chunk.scale != 1) return nullptr;
  for (const GradientSegment& segment : chunk.segments())
    if (segment.offset <= begin && begin + size <= segment.offset + segment.size)
      return segment.data + (begin - segment.offset);
  return nullptr;
}

void write_wide_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> high,
                      std::span<float> low) {
  for_wide_blocks(sum, scale, begin, high.size(), [&](std::size_t at, std::span<const double> block) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      high[at + i] = static_cast<float>(block[i]);
      low[at + i] = static_cast<float>(block[i] - high[at + i]);
    }
  });
}

LossSum loss_of(const GradientSum& sum) {
  LossSum total;
  for (const auto& chunk : sum.chunks) {
    if (!chunk.layers.are_all()) continue;
    const LossSum part = chunk.nested
                             ? loss_of(*chunk.nested)
                             : LossSum{chunk.result.loss_sum, static_cast<std::int64_t>(chunk.micro_batches.size())};
    total.loss += part.loss;
    total.micro_batches += part.micro_batches;
  }
  return total;
}

void add_buffers(const GradientSum& sum, std::span<float> total) {
  for (const auto& chunk : sum.chunks) {
    if (chunk.nested) add_buffers(values_of(chunk), total);
    assert(chunk.result.buffers_sum.empty() || chunk.result.buffers_sum.size() == total.size());
    for (std::size_t i = 0; i < chunk.result.buffers_sum.size(); ++i) total[i] += chunk.result.buffers_sum[i];
  }
}

}  // namespace syncopate
