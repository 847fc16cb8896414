#include "workers/training/gradient_sum.hpp"

#include <cassert>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "workers/training/checkpoint_log.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

class KeptOfPass {
 public:
  // Shared by all chunks of the pass. `gradients` is null until the pass has run.
  struct Pass {
    std::shared_ptr<const Objective> objective;
    std::unique_ptr<const GradientsApart> gradients{};
  };

  KeptOfPass(std::shared_ptr<const Pass> pass, std::size_t list) : pass_(std::move(pass)), list_(list) {}

  // The chunk's gradient, without the loss.
  const std::vector<GradientSegment>& values() const {
    std::call_once(made_, [&] { values_ = pass_->gradients->of(list_).segments; });
    return values_;
  }
  void add_to(float* out) const { pass_->gradients->add_to(out, list_); }

 private:
  std::shared_ptr<const Pass> pass_;
  std::size_t list_;
  mutable std::once_flag made_;
  mutable std::vector<GradientSegment> values_;
};

const std::vector<GradientSegment>& GradientSum::Chunk::segments() const {
  return kept ? kept->values() : result.segments;
}

namespace {

// The sum from which to read a nested chunk: the nested sum itself or, if each process has only a part of it, its
// exchanged values.
const GradientSum& values_of(const GradientSum::Chunk& nested) {
  return nested.sum->at.empty() ? *nested.sum->whole : *nested.sum;
}

// The processes that have a model's parameters and normalisation statistics. If no process has both, sends the
// statistics to one that has the parameters.
ProcessSet places_of(const ModelState& model, DividedWork& divided) {
  const ProcessSet parameters = model.parameters->at;
  if (!model.buffers) return parameters;
  const ProcessSet both = parameters & model.buffers->at;
  if (!both.empty()) return both;
  const ProcessSet first = ProcessSet::only(parameters.lowest());
  divided.bring(model.buffers, first);
  return first;
}

// Returns the process whose workers have all micro-batches of the sum; nullopt if there are several processes or none.
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
  return chunk.sum ? values_of(chunk).at : divided.normalised(ProcessSet::only(chunk.evaluator));
}

// The process that contributes the chunk to the exchanged sum.
int giver(const GradientSum::Chunk& chunk, const GradientSum& sum, const DividedWork& divided) {
  return (sum.at.empty() ? places_of(chunk, divided) : sum.at).lowest();
}

// Returns the values of the part that this process contributes. Releases the values of chunks that nothing else needs.
FlatVector part_of(GradientSum& sum, const Objective& objective, const DividedWork& divided) {
  GradientSum part;
  part.wide = sum.wide;
  part.factors = sum.factors;
  for (GradientSum::Chunk& chunk : sum.chunks) {
    if (giver(chunk, sum, divided) != divided.self()) continue;
    part.chunks.push_back(chunk);
    if (!sum.at.empty() || chunk.sum) continue;  // these chunks may still be read
    chunk.result.segments.clear();
    chunk.result.buffers_sum.clear();
    chunk.kept = nullptr;
  }
  FlatVector values(values_size(objective, sum.wide));
  write_values(part, 1, objective, sum.wide, values.data());
  return values;
}

FlatVector sum_of(const std::vector<Payload>& parts, const Objective& objective, bool wide) {
  FlatVector values(values_size(objective, wide));
  float* const out = values.data();
  std::copy_n(floats(parts.front()), values.size(), out);
  for (std::size_t i = 1; i < parts.size() && !wide; ++i) add(out, floats(parts[i]), values.size());
  if (!wide) return values;
  const std::size_t size = objective.parameters();
  for (std::size_t at = 0; at < size; ++at) {
    double sum = 0;
    for (const Payload& part : parts) sum += static_cast<double>(floats(part)[at]) + floats(part)[size + at];
    out[at] = static_cast<float>(sum);
    out[size + at] = static_cast<float>(sum - out[at]);
  }
  for (std::size_t i = 1; i < parts.size(); ++i) add(out + 2 * size, floats(parts[i]) + 2 * size, objective.buffers());
  return values;
}

// Decides where each chunk is evaluated, and at which processes the sum can be read afterwards. A chunk is evaluated
// where its model is, if possible at the process of its first worker. If the model is everywhere and the sum's workers
// belong to several processes, chunks are divided among all processes. Nested sums are submitted, and exchanged if each
// process has only a part.
void place_chunks(GradientSum& sum, const std::shared_ptr<const Objective>& objective, Executor& executor,
                  DividedWork& divided) {
  const std::optional<int> only = only_process(sum, divided);
  std::vector<GradientSum::Chunk*> free;
  for (GradientSum::Chunk& chunk : sum.chunks) {
    if (chunk.sum) {
      submit_chunks(chunk.sum, objective, executor, &divided);
      if (chunk.sum->at.empty()) sum_at(chunk.sum, ProcessSet::everywhere(), objective, executor, &divided);
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

// Groups micro-batches by model, weight and remaining layers. Each group is sorted, and groups are ordered by their
// first micro-batch, and not by addresses, which differ from run to run. Cut micro-batches come last.
std::vector<Gradient::Term> group(std::span<const Gradient::Term> terms) {
  std::vector<Gradient::Term> groups;
  // Compares only parameters and buffers, on which gradients depend, because models that workers have adopted differ in
  // their moments.
  std::map<std::tuple<const Cell*, const Cell*, double, PartialBackward>, std::size_t> place;
  for (const Gradient::Term& term : terms) {
    if (!term.at) continue;
    const auto [found, is_new] =
        place.try_emplace({term.at->parameters.get(), term.at->buffers.get(), term.scale, term.layers}, groups.size());
    if (is_new) groups.push_back({.at = term.at, .scale = term.scale, .layers = term.layers});
    auto& list = groups[found->second].micro_batches;
    list.insert(list.end(), term.micro_batches.begin(), term.micro_batches.end());
  }
  for (Gradient::Term& each : groups) std::ranges::sort(each.micro_batches);
  std::sort(groups.begin(), groups.end(), [](const Gradient::Term& a, const Gradient::Term& b) {
    const bool a_is_cut = !a.layers.are_all(), b_is_cut = !b.layers.are_all();
    return std::tie(a_is_cut, a.micro_batches.front(), a.scale, a.layers) <
           std::tie(b_is_cut, b.micro_batches.front(), b.scale, b.layers);
  });
  return groups;
}

// Small batches are one chunk. Others are divided into an even number of equal chunks of at most `chunk_samples`, so
// that two cores finish at the same time.
std::int64_t number_of_chunks(std::int64_t samples, std::int64_t chunk_samples) {
  if (4 * samples <= chunk_samples) return 1;
  return 2 * ((samples + 2 * chunk_samples - 1) / (2 * chunk_samples));
}

// The number of chunks of a group. If its workers belong to several processes, it is a multiple of their number, so
// that each process gets equally many chunks.
std::int64_t number_of_pieces(const Gradient::Term& group, const Objective& objective, const DividedWork* divided) {
  const auto count = static_cast<std::int64_t>(group.micro_batches.size());
  const std::int64_t pieces = number_of_chunks(count * objective.samples_per_micro_batch(), objective.chunk_samples());
  if (!divided || pieces == 1 ||
      divided->process_of(group.micro_batches.front().worker) == divided->process_of(group.micro_batches.back().worker))
    return std::min(count, pieces);
  const std::int64_t processes = divided->processes();
  return std::min(count, (pieces + processes - 1) / processes * processes);
}

void cut_chunk(GradientSum::Chunk& chunk, const Objective& objective) {
  chunk.result.segments = chunk.segments();
  chunk.kept = nullptr;
  leave_layers(chunk.result.segments, chunk.layers, objective.weights());
  chunk.result.buffers_sum.clear();
}

// Adds factor x the elements of a partial gradient to `out`, or assigns them to `out` if `first` is true.
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
    if (chunk.sum) {
      add_block(values_of(chunk), factor * chunk.scale, begin, out, first);
    } else if (const auto& segments = chunk.segments(); !segments.empty()) {
      if (first && !chunk.layers.are_all()) {  // the segments have gaps
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

// Calls `use(at, block)` block by block. `block` has the elements of the sum from begin + at on, in double precision.
template <typename Use>
void for_wide_blocks(const GradientSum& sum, double scale, std::size_t begin, std::size_t size, const Use& use) {
  constexpr std::size_t block_size = 2048;  // fits into the first-level cache
  double block[block_size];
  for (std::size_t at = 0; at < size; at += block_size) {
    const std::span<double> part(block, std::min(block_size, size - at));
    fill_block(sum, scale, begin + at, part);
    use(at, part);
  }
}

// The parameters at which the whole sum is evaluated; null for several models, or if nothing is left to evaluate.
const Cell* only_model(const GradientSum& sum) {
  if (sum.submitted || sum.chunks.empty()) return nullptr;
  const ModelStatePtr& at = sum.chunks.front().at;
  const auto is_usual = [&](const GradientSum::Chunk& chunk) {
    return chunk.at && chunk.at->parameters == at->parameters && chunk.scale != 0 && chunk.layers.are_all();
  };
  return at && std::ranges::all_of(sum.chunks, is_usual) ? at->parameters.get() : nullptr;
}

std::int64_t micro_batches_in(const GradientSum& sum) {
  std::int64_t count = 0;
  for (const GradientSum::Chunk& chunk : sum.chunks) count += std::ssize(chunk.micro_batches);
  return count;
}

// A sum of weights below this share of the sum of their magnitudes counts as zero, because it is a rounding error.
constexpr double rounding = 0x1p-44;
// Weights whose relative difference is below this count as equal.
constexpr double agreement = 0x1p-30;

double sum_of(std::vector<double>& weights) {
  std::sort(weights.begin(), weights.end());  // so that the sum does not depend on the order
  double sum = 0;
  double magnitude = 0;
  for (const double weight : weights) {
    sum += weight;
    magnitude += std::abs(weight);
  }
  return std::abs(sum) <= rounding * magnitude ? 0 : sum;
}

// Sorts the weights and splits them into runs of (nearly) equal weights. Each weight becomes the middle of its run.
void unite_weights(std::span<Gradient::Term> terms) {
  std::vector<Gradient::Term*> order;
  for (Gradient::Term& term : terms) order.push_back(&term);
  std::sort(order.begin(), order.end(),
            [](const Gradient::Term* a, const Gradient::Term* b) { return a->scale < b->scale; });
  for (auto begin = order.begin(); begin != order.end();) {
    const double lowest = (*begin)->scale;
    const auto end = std::find_if(begin, order.end(), [&](const Gradient::Term* term) {
      return term->scale - lowest > agreement * std::abs(lowest);
    });
    const double middle = std::midpoint(lowest, (*(end - 1))->scale);
    for (; begin != end; ++begin) (*begin)->scale = middle;
  }
}

// The number of micro-batches whose normalisation buffers are in the sum: the merged ones, and those in `terms`' sums.
std::int64_t count_buffers(std::span<const Gradient::Term> terms, std::span<const Gradient::Term> merged) {
  auto count = std::ranges::count_if(merged, [](const Gradient::Term& term) { return term.layers.are_all(); });
  for (const Gradient::Term& term : terms)
    if (term.sum) count += term.sum->micro_batches;
  return count;
}

DividedWork::Numbers numbers_of(const Payload& payload) {
  DividedWork::Numbers numbers(payload.bytes / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), payload.data, payload.bytes);
  return numbers;
}

}  // namespace

Payload payload_of(FlatVector values) {
  const auto owner = std::make_shared<const FlatVector>(std::move(values));
  return {.owner = owner, .data = owner->data(), .bytes = owner->size() * sizeof(float)};
}

ScaledSum fix_sum(const Gradient& gradient, const Objective& objective, const DividedWork* divided) {
  const auto& terms = gradient.terms();
  if (terms.size() == 1 && terms.front().sum && terms.front().sum->wide >= gradient.wide())
    return {terms.front().sum, terms.front().scale};
  auto sum = new_sum();
  sum->wide = gradient.wide();
  sum->micro_batches = gradient.micro_batches();
  std::vector<Gradient::Term> merged;
  if (sum->wide) {
    merged = merge_weights(terms);
    sum->micro_batches = count_buffers(terms, merged);
  }
  for (const Gradient::Term& group : group(sum->wide ? merged : terms)) {
    const auto count = static_cast<std::int64_t>(group.micro_batches.size());
    const std::int64_t pieces = number_of_pieces(group, objective, divided);
    for (std::int64_t i = 0; i < pieces; ++i) {
      const auto begin = group.micro_batches.begin() + count * i / pieces;
      const auto end = group.micro_batches.begin() + count * (i + 1) / pieces;
      sum->chunks.push_back(
          {{.at = group.at, .micro_batches = {begin, end}, .scale = group.scale, .layers = group.layers}});
    }
  }
  for (const Gradient::Term& term : terms)
    if (term.sum) sum->chunks.push_back({{.sum = term.sum, .scale = term.scale}});
  return {std::move(sum)};
}

void cut_sum(GradientSum& sum, const PartialBackward& layers, const Objective& objective) {
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
  objective.next_parameters_belong_to(at->parameters);
  chunk.result = objective.gradient(values_of(at->parameters), values_of(at->buffers), chunk.micro_batches);
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
    if (chunk.sum) {
      submit_chunks(chunk.sum, objective, executor, divided);
      const auto& tasks = values_of(chunk).tasks;
      sum->tasks.insert(sum->tasks.end(), tasks.begin(), tasks.end());
    } else if (divided && chunk.evaluator != divided->self()) {
      chunk.at = nullptr;
    } else if (chunk.at) {
      const std::shared_ptr<Task> inputs[] = {chunk.at->parameters->producer, producer(chunk.at->buffers)};
      sum->tasks.push_back(executor.submit(
          [sum, objective, i, at = held_by_task(std::exchange(chunk.at, nullptr))] {
            evaluate_chunk(sum->chunks[i], at, *objective);
          },
          inputs));
    }
  }
}

std::shared_ptr<GradientSum> sum_at(const std::shared_ptr<GradientSum>& sum, ProcessSet places,
                                    const std::shared_ptr<const Objective>& objective, Executor& executor,
                                    DividedWork* divided) {
  submit_chunks(sum, objective, executor, divided);
  if (!divided || sum->at.covers(places)) return sum;
  if (sum->whole) return sum->whole;
  ProcessSet givers = ProcessSet::none();
  for (const GradientSum::Chunk& chunk : sum->chunks) givers = givers | ProcessSet::only(giver(chunk, *sum, *divided));
  const auto whole = new_sum();
  whole->submitted = true;
  whole->wide = sum->wide;
  whole->micro_batches = sum->micro_batches;
  whole->chunks.resize(sum->wide ? 2 : 1);
  const auto give = [sum, objective, divided] { return payload_of(part_of(*sum, *objective, *divided)); };
  const auto take = [whole = std::weak_ptr(whole), objective](const std::vector<Payload>& parts) {
    const auto filled = whole.lock();
    if (!filled) return;  // nothing needs the sum any more
    read_values(*filled, parts.size() > 1 ? payload_of(sum_of(parts, *objective, filled->wide)) : parts.front(),
                *objective);
  };
  whole->tasks.push_back(divided->exchange(givers, ProcessSet::everywhere(), sum->tasks, give, take));
  sum->whole = whole;
  return whole;
}

void write_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> out) {
  if (!sum.wide) return fill_block(sum, scale, begin, out);
  for_wide_blocks(sum, scale, begin, out.size(), [&](std::size_t at, std::span<const double> block) {
    for (std::size_t i = 0; i < block.size(); ++i) out[at + i] = static_cast<float>(block[i]);
  });
}

double norm_of(const GradientSum& sum, double scale, std::size_t begin, std::size_t end) {
  double sum_of_squares = 0;
  float block[longest_block];
  for (std::size_t at = begin; at < end; at += longest_block) {
    const std::size_t n = std::min(longest_block, end - at);
    write_block(sum, scale, at, {block, n});
    for (std::size_t i = 0; i < n; ++i) sum_of_squares += static_cast<double>(block[i]) * block[i];
  }
  return std::sqrt(sum_of_squares);
}

bool is_kept_of_pass(const GradientSum& sum, double scale) {
  return sum.chunks.size() == 1 && sum.chunks.front().kept && sum.chunks.front().layers.are_all() &&
         sum.factors.empty() && !sum.wide && scale * sum.chunks.front().scale == 1;
}

void add_kept_of_pass(const GradientSum& sum, float* out) { sum.chunks.front().kept->add_to(out); }

const float* block_in_memory(const GradientSum& sum, double scale, std::size_t begin, std::size_t size) {
  if (sum.chunks.size() != 1 || !sum.factors.empty() || scale != 1) return nullptr;
  const GradientSum::Chunk& chunk = sum.chunks.front();
  if (chunk.sum || chunk.scale != 1) return nullptr;
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
    const LossSum part = chunk.sum
                             ? loss_of(*chunk.sum)
                             : LossSum{chunk.result.loss_sum, static_cast<std::int64_t>(chunk.micro_batches.size())};
    total.loss += part.loss;
    total.micro_batches += part.micro_batches;
  }
  return total;
}

void write_values(const GradientSum& sum, double scale, const Objective& objective, bool wide, float* out) {
  const std::size_t size = objective.parameters();
  if (wide)
    write_wide_block(sum, scale, 0, {out, size}, {out + size, size});
  else
    write_block(sum, scale, 0, {out, size});
  const std::span<float> buffers(out + (wide ? 2 : 1) * size, objective.buffers());
  std::ranges::fill(buffers, 0.0f);
  add_buffers(sum, buffers);
}

void read_values(GradientSum& sum, const Payload& values, const Objective& objective) {
  const float* part = floats(values);
  for (GradientSum::Chunk& chunk : sum.chunks) {
    chunk.result.segments.push_back({.offset = 0, .size = objective.parameters(), .data = part, .owner = values.owner});
    part += objective.parameters();
  }
  sum.chunks.front().result.buffers_sum.assign(part, part + objective.buffers());
}

void add_buffers(const GradientSum& sum, std::span<float> total) {
  for (const auto& chunk : sum.chunks) {
    if (chunk.sum) add_buffers(values_of(chunk), total);
    assert(chunk.result.buffers_sum.empty() || chunk.result.buffers_sum.size() == total.size());
    for (std::size_t i = 0; i < chunk.result.buffers_sum.size(); ++i) total[i] += chunk.result.buffers_sum[i];
  }
}

bool is_named(std::string_view tensor, const std::vector<std::string>& parts) {
  return std::ranges::any_of(parts, [&](const std::string& part) { return tensor.find(part) != tensor.npos; });
}

std::vector<ParameterRange> ranges_of(const Objective& objective, const Optimizer& optimizer) {
  const WeightDecay& decay = optimizer.weight_decay();
  std::vector<ParameterRange> ranges;
  const std::vector<ParameterTensor> tensors = objective.tensors();
  const std::vector<bool> matrices = optimizer.matrices(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ParameterTensor& tensor = tensors[i];
    if (tensor.size == 0) continue;
    const bool is_weight = tensor.offset < objective.weights();
    const bool excluded = (decay.scope == DecayScope::weights && !is_weight) || is_named(tensor.name, decay.exclude);
    const bool continues = optimizer.passes() == 0 && !ranges.empty() && ranges.back().excluded == excluded;
    if (continues)
      ranges.back().end += tensor.size;
    else
      ranges.push_back({tensor.offset, tensor.offset + tensor.size, excluded, matrices[i] ? tensor.rows : 0});
  }
  return ranges;
}

std::vector<std::vector<std::size_t>> passes_of(std::span<const std::shared_ptr<GradientSum>> sums,
                                                const Objective& objective) {
  std::vector<std::size_t> together;
  std::vector<std::vector<std::size_t>> alone;
  std::set<const GradientSum*> seen;  // because several gradients may contain the same shared sum
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (seen.insert(sums[i].get()).second && only_model(*sums[i]))
      together.push_back(i);
    else
      alone.push_back({i});
  const auto first_of = [&](std::size_t i) { return sums[i]->chunks.front().micro_batches.front(); };
  std::ranges::stable_sort(together, {}, first_of);

  std::vector<std::vector<std::size_t>> at_one_model;
  std::map<const Cell*, std::size_t> place;  // looked up, never iterated
  for (const std::size_t i : together) {
    const auto [found, is_new] = place.try_emplace(only_model(*sums[i]), at_one_model.size());
    if (is_new) at_one_model.emplace_back();
    at_one_model[found->second].push_back(i);
  }

  std::vector<std::vector<std::size_t>> passes;
  for (const std::vector<std::size_t>& of_model : at_one_model) {
    std::int64_t all = 0, before = 0;
    for (const std::size_t i : of_model) all += micro_batches_in(*sums[i]);
    const std::int64_t pieces = number_of_chunks(all * objective.samples_per_micro_batch(), objective.chunk_samples());
    std::int64_t piece = -1;
    for (const std::size_t i : of_model) {
      if (std::exchange(piece, before * pieces / all) != before * pieces / all) passes.emplace_back();
      passes.back().push_back(i);
      before += micro_batches_in(*sums[i]);
    }
  }
  passes.insert(passes.end(), alone.begin(), alone.end());
  return passes;
}

void submit_pass(std::span<const std::shared_ptr<GradientSum>> sums, const std::shared_ptr<const Objective>& objective,
                 Executor& executor) {
  if (sums.size() == 1) return submit_chunks(sums.front(), objective, executor);
  std::vector<GradientSum::Chunk*> chunks;
  for (const auto& sum : sums)
    for (GradientSum::Chunk& chunk : sum->chunks) chunks.push_back(&chunk);
  const ModelStatePtr at = held_by_task(chunks.front()->at);
  for (GradientSum::Chunk* chunk : chunks) chunk->at = nullptr;  // so that only the task holds the model
  const std::vector<std::shared_ptr<Task>> inputs = {at->parameters->producer, producer(at->buffers)};
  const auto pass = std::make_shared<KeptOfPass::Pass>(KeptOfPass::Pass{.objective = objective});
  const auto begin = [pass, chunks, at, held = std::vector(sums.begin(), sums.end())] {
    std::vector<std::span<const MicroBatch>> lists;
    for (const GradientSum::Chunk* chunk : chunks) lists.emplace_back(chunk->micro_batches);
    pass->gradients = pass->objective->batched_gradients(values_of(at->parameters), values_of(at->buffers), lists);
    for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i]->result.loss_sum = pass->gradients->loss_sum(i);
  };
  for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i]->kept = std::make_shared<KeptOfPass>(pass, i);
  const std::shared_ptr<Task> gone_through = executor.submit(begin, inputs);
  for (const auto& sum : sums) {
    sum->submitted = true;
    sum->tasks.push_back(gone_through);
  }
}

std::vector<Gradient::Term> merge_weights(std::span<const Gradient::Term> terms) {
  std::vector<Gradient::Term> merged;
  std::vector<std::vector<double>> weights;
  // As in other sums, models with the same parameters and buffers count as one model.
  std::map<std::tuple<const Cell*, const Cell*, PartialBackward, MicroBatch>, std::size_t> place;
  for (const Gradient::Term& term : terms) {
    if (!term.at) continue;
    for (const MicroBatch& micro_batch : term.micro_batches) {
      const auto [found, is_new] = place.try_emplace(
          {term.at->parameters.get(), term.at->buffers.get(), term.layers, micro_batch}, merged.size());
      if (is_new) {
        merged.push_back({.at = term.at, .micro_batches = {micro_batch}, .scale = 0, .layers = term.layers});
        weights.emplace_back();
      }
      weights[found->second].push_back(term.scale);
    }
  }
  for (std::size_t i = 0; i < merged.size(); ++i) merged[i].scale = sum_of(weights[i]);
  std::erase_if(merged, [](const Gradient::Term& term) { return term.scale == 0; });
  unite_weights(merged);
  return merged;
}

DividedWork::DividedWork(ProcessGroup& group, Executor& executor, int workers)
    : group_(group), executor_(executor), workers_(workers) {
  assert(executor.threads() > 0 && group.size() <= most_processes);
  group_.open([&executor](std::exception_ptr failure) { executor.fail(std::move(failure)); });
}

int DividedWork::process_of(Rank worker) const {
  // Inverts the rule that the workers of process p begin at rank workers_ * p / processes(). A rank that only names
  // samples may be above the last worker's.
  const std::int64_t last = std::min(worker.value, workers_ - 1);
  return static_cast<int>(((last + 1) * processes() - 1) / workers_);
}

std::vector<bool> DividedWork::dealt(std::size_t count, ProcessSet places) const {
  std::vector<bool> are_here(count, false);
  if (!is_here(places)) return are_here;
  const auto among = static_cast<std::size_t>((places & all()).count(processes()));
  const auto own = static_cast<std::size_t>(places.count(self()));  // this process's index in `places`
  for (std::size_t i = own; i < count; i += among) are_here[i] = true;
  return are_here;
}

std::shared_ptr<Task> DividedWork::exchange(ProcessSet from, ProcessSet to,
                                            std::span<const std::shared_ptr<Task>> prerequisites,
                                            std::function<Payload()> give,
                                            std::function<void(std::vector<Payload>)> take) {
  const std::uint64_t number = ++exchanges_;
  if (CheckpointLog::replays_here())
    return nullptr;  // all processes skip the exchange; its results are restored together with all other values
  from = from & all();
  to = to & all();
  const bool gives = is_here(from), takes = is_here(to);
  if (!gives && !takes) return nullptr;
  const auto given = std::make_shared<std::vector<Payload>>();
  const auto begin = [this, number, from, to, gives, takes, given,
                      give = std::move(give)](const std::shared_ptr<Task>& task) {
    ProcessGroup::Exchange exchange{.number = number, .from = from, .to = to};
    if (gives) exchange.mine = give();
    exchange.done = [this, task, from, gives, takes, given, mine = exchange.mine](std::vector<Payload> others) {
      if (takes) *given = std::move(others);
      if (takes && gives) given->insert(given->begin() + from.count(self()), mine);
      executor_.end(task);
    };
    group_.begin(std::move(exchange));
  };
  const std::shared_ptr<Task> here[] = {
      executor_.submit_elsewhere(begin, gives ? prerequisites : std::span<const std::shared_ptr<Task>>())};
  if (!takes) return nullptr;
  return executor_.submit([given, take = std::move(take)] { take(std::exchange(*given, {})); }, here);
}

std::shared_ptr<Task> DividedWork::exchange_numbers(ProcessSet from,
                                                    std::span<const std::shared_ptr<Task>> prerequisites,
                                                    std::function<Numbers()> give,
                                                    std::function<void(const std::vector<Numbers>&)> take) {
  return exchange(
      from, all(), prerequisites,
      [give = std::move(give)]() -> Payload {
        const auto owner = std::make_shared<const Numbers>(give());
        return {.owner = owner, .data = owner->data(), .bytes = owner->size() * sizeof(double)};
      },
      [take = std::move(take)](const std::vector<Payload>& payloads) {
        std::vector<Numbers> all;
        for (const Payload& payload : payloads) all.push_back(numbers_of(payload));
        take(all);
      });
}

std::vector<DividedWork::Numbers> DividedWork::exchanged_numbers(ProcessSet from,
                                                                 const std::function<Numbers()>& give) {
  const Numbers mine = is_here(from) ? give() : Numbers();
  const auto result = std::make_shared<std::vector<Numbers>>();
  executor_.wait(exchange_numbers(
      from, {}, [mine] { return mine; }, [result](const std::vector<Numbers>& all) { *result = all; }));
  return std::move(*result);
}

void DividedWork::bring(const CellPtr& cell, ProcessSet places) {
  if (!cell || cell->at.covers(places)) return;
  assert(!cell->at.empty());
  const ProcessSet missing = places.without(cell->at) & all();
  if (missing.empty()) return;
  const std::shared_ptr<Task> prerequisites[] = {cell->producer};
  const ProcessSet source = ProcessSet::only(cell->at.lowest());
  const auto give = [cell]() -> Payload {
    return {.owner = cell, .data = values_of(cell), .bytes = cell->value.size() * sizeof(float)};
  };
  const auto take = [cell](const std::vector<Payload>& payloads) {
    const Payload& payload = payloads.front();
    cell->value = FlatVector(payload.bytes / sizeof(float));
    if (payload.bytes > 0) std::memcpy(cell->value.data(), payload.data, payload.bytes);
  };
  auto brought = exchange(source, missing, prerequisites, give, take);
  if (is_here(missing)) cell->producer = std::move(brought);
  cell->at = normalised(cell->at | missing);
}

}  // namespace syncopate
