#include "workers/training/divided_sums.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "workers/training/course_log.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {
namespace {

// Where the model of a chunk is. Its normalisation statistics follow the parameters.
ProcessSet places_of(const ModelState& model, DividedWork& divided) {
  const ProcessSet parameters = model.parameters->at;
  if (!model.buffers) return parameters;
  const ProcessSet both = parameters & model.buffers->at;
  if (!both.empty()) return both;
  const ProcessSet first = ProcessSet::only(parameters.lowest());
  divided.bring(model.buffers, first);
  return first;
}

// The one whose workers all micro-batches of the sum are of; none: there are several, or none.
std::optional<int> only_process(const GradientSum& sum, const DividedWork& divided) {
  std::optional<int> only;
  for (const GradientSum::Chunk& chunk : sum.chunks)
    for (const MicroBatch& micro_batch : chunk.micro_batches) {
      const int process = divided.process_of(micro_batch.worker);
      if (only && *only != process) return std::nullopt;
      only = process;
    }
  return only;
}

ProcessSet places_of(const GradientSum::Chunk& chunk, const DividedWork& divided) {
  return chunk.nested ? values_of(chunk).at : divided.normalised(ProcessSet::only(chunk.evaluator));
}

// Who brings a chunk into the sum of all.
int giver(const GradientSum::Chunk& chunk, const GradientSum& sum, const DividedWork& divided) {
  return (sum.at.empty() ? places_of(chunk, divided) : sum.at).lowest();
}

// Parameters, what they lack of double precision if the sum is wide, statistics.
struct Layout {
  std::size_t parameters;
  std::size_t buffers;
  bool wide;
  std::size_t size() const { return (wide ? 2 : 1) * parameters + buffers; }
};

// The part of the sum that this process gives. What only it needs of the chunks is not kept.
FlatVector part_of(GradientSum& sum, const Layout& layout, const DividedWork& divided) {
  GradientSum part;
  part.wide = sum.wide;
  part.factors = sum.factors;
  for (GradientSum::Chunk& chunk : sum.chunks) {
    if (giver(chunk, sum, divided) != divided.self()) continue;
    part.chunks.push_back(chunk);
    if (!sum.at.empty() || chunk.nested) continue;  // others read it
    chunk.result.segments.clear();
    chunk.result.buffers_sum.clear();
    chunk.kept = nullptr;
  }
  FlatVector values(layout.size());
  const std::span<float> all = values.span();
  const std::span<float> high = all.first(layout.parameters), buffers = all.last(layout.buffers);
  if (layout.wide)
    write_wide_block(part, 1, 0, high, all.subspan(layout.parameters, layout.parameters));
  else
    write_block(part, 1, 0, high);
  std::ranges::fill(buffers, 0.0f);
  add_buffers(part, buffers);
  return values;
}

const float* floats(const Payload& payload) { return static_cast<const float*>(payload.data); }

// In the order of the processes.
FlatVector sum_of(const std::vector<Payload>& parts, const Layout& layout) {
  FlatVector values(layout.size());
  float* const out = values.data();
  std::copy_n(floats(parts.front()), layout.size(), out);
  for (std::size_t i = 1; i < parts.size() && !layout.wide; ++i) add(out, floats(parts[i]), layout.size());
  if (!layout.wide) return values;
  const std::size_t size = layout.parameters;
  for (std::size_t at = 0; at < size; ++at) {
    double sum = 0;
    for (const Payload& part : parts) sum += static_cast<double>(floats(part)[at]) + floats(part)[size + at];
    out[at] = static_cast<float>(sum);
    out[size + at] = static_cast<float>(sum - out[at]);
  }
  for (std::size_t i = 1; i < parts.size(); ++i) add(out + 2 * size, floats(parts[i]) + 2 * size, layout.buffers);
  return values;
}

void fill(GradientSum& whole, std::vector<Payload> parts, const Layout& layout) {
  Payload values = parts.front();
  if (parts.size() > 1) {
    const auto owner = std::make_shared<const FlatVector>(sum_of(parts, layout));
    values = {.owner = owner, .data = owner->data(), .bytes = owner->size() * sizeof(float)};
  }
  const float* part = floats(values);
  for (GradientSum::Chunk& chunk : whole.chunks) {
    chunk.result.segments.push_back({.offset = 0, .size = layout.parameters, .data = part, .owner = values.owner});
    part += layout.parameters;
  }
  whole.chunks.front().result.buffers_sum.assign(part, part + layout.buffers);
}

}  // namespace

const GradientSum& values_of(const GradientSum::Chunk& nested) {
  return nested.nested->at.empty() ? *nested.nested->whole : *nested.nested;
}

void place_chunks(GradientSum& sum, const std::shared_ptr<const Objective>& objective, Executor& executor,
                  DividedWork& divided) {
  const std::optional<int> only = only_process(sum, divided);
  std::vector<GradientSum::Chunk*> free;
  for (GradientSum::Chunk& chunk : sum.chunks) {
    if (chunk.nested) {
      submit_chunks(chunk.nested, objective, executor, &divided);
      if (chunk.nested->at.empty()) sum_at(chunk.nested, ProcessSet::everywhere(), objective, executor, &divided);
    } else if (chunk.at) {
      const ProcessSet places = places_of(*chunk.at, divided);
      const int own = divided.process_of(chunk.micro_batches.front().worker);
      if (places.is_everywhere() && !only)
        free.push_back(&chunk);
      else
        chunk.evaluator = places.has(own) ? own : places.lowest();
    }
  }
  for (std::size_t i = 0; i < free.size(); ++i)
    free[i]->evaluator = static_cast<int>(i * static_cast<std::size_t>(divided.processes()) / free.size());
  sum.at = ProcessSet::everywhere();
  for (const GradientSum::Chunk& chunk : sum.chunks) sum.at = sum.at & places_of(chunk, divided);
}

std::shared_ptr<GradientSum> sum_at(const std::shared_ptr<GradientSum>& sum, ProcessSet places,
                                    const std::shared_ptr<const Objective>& objective, Executor& executor,
                                    DividedWork* divided) {
  submit_chunks(sum, objective, executor, divided);
  if (!divided || sum->at.covers(places)) return sum;
  if (sum->whole) return sum->whole;
  const Layout layout{objective->parameters(), objective->buffers(), sum->wide};
  ProcessSet givers = ProcessSet::none();
  for (const GradientSum::Chunk& chunk : sum->chunks) givers = givers | ProcessSet::only(giver(chunk, *sum, *divided));
  const auto whole = new_sum();
  whole->submitted = true;
  whole->wide = sum->wide;
  whole->micro_batches = sum->micro_batches;
  whole->chunks.resize(sum->wide ? 2 : 1);
  const auto give = [sum, layout, divided]() -> Payload {
    const auto owner = std::make_shared<const FlatVector>(part_of(*sum, layout, *divided));
    return {.owner = owner, .data = owner->data(), .bytes = owner->size() * sizeof(float)};
  };
  const auto take = [whole = std::weak_ptr(whole), layout](std::vector<Payload> parts) {
    if (const auto filled = whole.lock()) fill(*filled, std::move(parts), layout);
  };
  whole->tasks.push_back(divided->exchange(givers, ProcessSet::everywhere(), sum->tasks, give, take));
  sum->whole = whole;
  return whole;
}

}  // namespace syncopate
