#include "workers/training/training.hpp"

#include <cassert>
#include <cmath>
#include <map>
#include <mutex>

#include "workers/training/checkpoint_log.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

namespace {

// The terms of the two functions below are those of a gradient, or the chunks of a sum.
//
// Adds the number of micro-batches that contribute to each tensor's gradient to `counts`.
template <typename Terms>
void add_counts(std::vector<double>& counts, const BackwardOrder& order, const Terms& terms) {
  for (const Gradient::Term& term : terms) {
    if (term.scale == 0) continue;
    if (term.sum) add_counts(counts, order, term.sum->chunks);
    for (std::size_t tensor = 0; tensor < counts.size(); ++tensor)
      if (order.is_done(tensor, term.layers)) counts[tensor] += static_cast<double>(term.micro_batches.size());
  }
}

// Appends the known micro-batches of the terms, except those that contribute only statistics or only some layers.
template <typename Terms>
void append_micro_batches(const Terms& terms, std::vector<MicroBatch>& out) {
  for (const Gradient::Term& term : terms) {
    if (term.scale == 0 || !term.layers.are_all()) continue;
    out.insert(out.end(), term.micro_batches.begin(), term.micro_batches.end());
    if (!term.sum) continue;
    out.insert(out.end(), term.sum->carried.begin(), term.sum->carried.end());
    append_micro_batches(term.sum->chunks, out);
  }
}

// The process that contributes the cell to an exchange, if several processes have it.
int giver_of(const Cell& cell) { return cell.at.lowest(); }

double distance_of(const Cell& a, const Cell& b, std::size_t offset, std::size_t size) {
  const float* const x = a.value.data() + offset;
  const float* const y = b.value.data() + offset;
  double sum_of_squares = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const double difference = static_cast<double>(x[i]) - y[i];
    sum_of_squares += difference * difference;
  }
  return std::sqrt(sum_of_squares);
}

// The values of cells with their weights.
template <typename Terms>
std::vector<WeightedVector> vectors_of(const Terms& terms) {
  std::vector<WeightedVector> vectors;
  for (const auto& [weight, cell] : terms) vectors.push_back({weight, values_of(cell)});
  return vectors;
}

// Returns all cells of a state; null for cells that the state lacks.
std::vector<CellPtr> all_cells(const ModelState& state) {
  return {state.parameters, state.moments[0].values, state.moments[1].values, state.moments[2].values, state.buffers};
}

// The number of executor tasks for arithmetic on a flat vector.
std::size_t number_of_ranges(std::size_t size) {
  // Arithmetic on fewer elements takes less time than waking another thread.
  constexpr std::size_t smallest_range = 64 * 1024;
  constexpr std::size_t most_ranges = 16;
  const std::size_t ranges = std::clamp(size / smallest_range, std::size_t{1}, most_ranges);
  return ranges == 1 ? 1 : ranges + ranges % 2;  // even, so that two cores finish at the same time
}

}  // namespace

ModelStatePtr Training::combine(std::span<const WeightedState> terms, const ModelStatePtr& buffers_of) {
  if (!objective_) return nullptr;
  assert(!terms.empty());
  Memo<const ModelState>::Key key{{buffers_of ? buffers_of->id : 0, 0.0}};
  std::vector<WeightedCell> parameters;
  std::vector<WeightedCell> buffers;
  std::vector<CellPtr> read;
  for (const auto& [weight, state] : terms) {
    assert(std::isfinite(weight));
    key.emplace_back(state->id, weight);
    parameters.push_back({weight, state->parameters});
    buffers.push_back({weight, state->buffers});
    if (weight != 0) read.insert(read.end(), {state->parameters, buffers_of ? nullptr : state->buffers});
  }
  const auto known = combined_.find(key);
  if (known && !known->parameters->stepped_from) return known;

  const ModelStatePtr& first = terms.front().state;
  auto state = std::make_shared<ModelState>(*first);
  const ProcessSet places = place_of_reader(read);
  state->parameters = submit_combination(parameters, objective_->parameters(), places);
  if (buffers_of)
    state->buffers = buffers_of->buffers;
  else if (objective_->buffers() > 0)
    state->buffers = submit_combination(buffers, objective_->buffers(), places);
  if (state->parameters == first->parameters && state->buffers == first->buffers) return first;
  state->id = new_state_id();
  combined_.remember(std::move(key), state);
  return state;
}

ModelStatePtr Training::evaluated(const ModelStatePtr& state) {
  const double factor = objective_ ? optimizer_->evaluated_factor() : 0;
  if (factor == 0 || !state->moments[0].values) return state;
  auto result = new_state(*state);
  result->moments = {};
  const CellPtr read[] = {state->parameters, state->moments[0].values};
  result->parameters = submit_combination(std::vector<WeightedCell>{{1, read[0]}, {factor, read[1]}},
                                          objective_->parameters(), place_of_reader(read));
  return result;
}

CellPtr Training::submit_combination(std::span<const WeightedCell> terms, std::size_t size, ProcessSet places) {
  auto summands = std::make_shared<std::vector<WeightedCell>>();
  std::vector<CellPtr> read;
  double total = 0;
  for (const WeightedCell& term : terms) {
    if (!term.cell || term.weight == 0) continue;
    summands->push_back(term);
    read.push_back(term.cell);
    total += term.weight;
  }
  const auto is_first = [&](const WeightedCell& term) { return term.cell == summands->front().cell; };
  if (total == 1 && std::all_of(summands->begin(), summands->end(), is_first)) return summands->front().cell;

  if (std::ranges::any_of(read, [&](const CellPtr& each) { return !each->at.covers(places); }))
    return submit_combination_of_processes(std::move(*summands), size, places);

  // One task computes the whole sum: the next step finds it in that core's cache, and other cores compute other sums.
  auto cell = new_cell();
  const auto fill = [cell, summands, size] {
    cell->value = FlatVector(size > 0 ? size : summands->front().cell->value.size());
    write_weighted_sum(cell->value.data(), vectors_of(*summands), cell->value.size());
  };
  compute({.reads = std::move(read), .writes = {cell}, .work = fill}, places);
  return cell;
}

ModelStatePtr Training::combine_tensors(const ModelStatePtr& from, const ModelStatePtr& to,
                                        std::span<const double> shares) {
  if (!objective_) return nullptr;
  const auto all_are = [&](double share) { return std::ranges::all_of(shares, [&](double s) { return s == share; }); };
  if (all_are(0)) return from;
  if (from->parameters == to->parameters || all_are(1)) return to;
  Memo<const ModelState>::Key key{{from->id, 1.0}, {to->id, 1.0}};  // combine()'s keys begin with weight 0
  for (const double share : shares) key.emplace_back(0, share);
  const auto known = combined_.find(key);
  if (known && !known->parameters->stepped_from) return known;

  auto state = new_state(*to);
  state->parameters = new_cell();
  const std::size_t size = objective_->parameters();
  auto tensors = objective_->tensors();
  if (shares.size() == 1) tensors = {{.name = "all", .offset = 0, .size = size, .place = 0}};
  assert(shares.size() == tensors.size());
  const auto fill = [cell = state->parameters, a = from->parameters, b = to->parameters, tensors = std::move(tensors),
                     shares = std::vector(shares.begin(), shares.end()), size] {
    cell->value = FlatVector(size);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::size_t at = tensors[i].offset, count = tensors[i].size;
      const float* const x = values_of(a) + at;
      const float* const y = values_of(b) + at;
      float* const out = cell->value.data() + at;
      // Copies instead of multiplying by 0, because 0 x NaN is NaN.
      if (shares[i] == 0 || shares[i] == 1)
        std::copy_n(shares[i] == 0 ? x : y, count, out);
      else
        write_weighted_sum(out, std::array<WeightedVector, 2>{{{1 - shares[i], x}, {shares[i], y}}}, count);
    }
  };
  const std::vector<CellPtr> read = {from->parameters, to->parameters};
  compute({.reads = read, .writes = {state->parameters}, .work = fill}, place_of_reader(read));
  combined_.remember(std::move(key), state);
  return state;
}

ModelStatePtr Training::elementwise(std::span<const ModelStatePtr> inputs, std::uint64_t rule,
                                    const ElementRule& work) {
  if (!objective_) return nullptr;
  Memo<const ModelState>::Key key{{rule, 0.0}};  // no state has this number, so no sum has this key
  std::vector<CellPtr> read;
  for (const ModelStatePtr& input : inputs) {
    key.emplace_back(input->id, 1.0);
    read.push_back(input->parameters);
  }
  const auto known = combined_.find(key);
  if (known && !known->parameters->stepped_from) return known;
  auto state = new_state(*inputs.front());
  const auto fill = [read, work](float* out, std::size_t from, std::size_t to) {
    std::vector<const float*> values;
    for (const CellPtr& cell : read) values.push_back(values_of(cell) + from);
    work(values, out + from, to - from);
  };
  state->parameters = submit_cell(objective_->parameters(), read, place_of_reader(read), fill);
  combined_.remember(std::move(key), state);
  return state;
}

CellPtr Training::sum_of(std::vector<CellPtr> cells) {
  std::vector<WeightedCell> terms;
  for (CellPtr& cell : cells) terms.push_back({1, std::move(cell)});
  constexpr std::size_t as_they_have = 0;
  return submit_combination(terms, as_they_have, ProcessSet::everywhere());
}

ModelStatePtr Training::assemble(const ModelStatePtr& self, std::span<const ModelStatePtr> slices) {
  if (!objective_) return nullptr;
  assert(!slices.empty());
  auto state = new_state(*self);
  state->parameters = submit_assembly(slices);
  state->buffers = slices.front()->buffers;
  return state;
}

ModelStatePtr Training::with_slice(const ModelStatePtr& whole, const ModelStatePtr& part, Slice slice) {
  if (!objective_) return nullptr;
  const CellPtr& buffers = slice.index == 0 ? part->buffers : whole->buffers;
  if (whole->parameters == part->parameters && whole->buffers == buffers) return whole;
  Memo<const ModelState>::Key key{{whole->id, slice.index}, {part->id, slice.count}};
  const auto known = mixed_.find(key);
  if (known && !known->parameters->stepped_from) return known;

  auto state = new_state(*whole);
  state->buffers = buffers;
  const std::size_t size = objective_->parameters();
  const std::size_t begin = slice.begin(size), end = slice.end(size);
  const CellPtr read[] = {whole->parameters, part->parameters};
  const auto copy = [around = whole->parameters, inside = part->parameters, begin, end](float* out, std::size_t from,
                                                                                        std::size_t to) {
    const std::size_t first = std::clamp(begin, from, to), last = std::clamp(end, from, to);
    const float* const outer = values_of(around);
    std::copy(outer + from, outer + first, out + from);
    std::copy_n(values_of(inside) + first, last - first, out + first);
    std::copy(outer + last, outer + to, out + last);
  };
  const bool is_all = begin == 0 && end == size;
  state->parameters = is_all ? part->parameters : submit_cell(size, read, place_of_reader(read), copy);
  mixed_.remember(std::move(key), state);
  return state;
}

CellPtr Training::submit_assembly(std::span<const ModelStatePtr> slices) {
  Memo<Cell>::Key key;
  auto parts = std::make_shared<std::vector<CellPtr>>();
  for (const ModelStatePtr& slice : slices) {
    key.emplace_back(slice->id, 1.0);
    parts->push_back(slice->parameters);
  }
  if (std::all_of(parts->begin(), parts->end(), [&](const CellPtr& part) { return part == parts->front(); }))
    return parts->front();
  CellPtr known = assembled_.find(key);
  if (known && known->stepped_from) known = nullptr;
  if (divided_ && known != last_assembled_) known = nullptr;
  if (CheckpointLog* const log = CheckpointLog::here()) {  // because perhaps only tasks hold the cell
    known = log->found(std::move(known));
    if (known) assembled_.remember(key, known);
  }
  if (known) return known;

  const std::size_t size = objective_->parameters();
  const auto copy = [parts, size](float* out, std::size_t from, std::size_t to) {
    Slice slice{.index = 0, .count = static_cast<int>(parts->size())};
    for (const CellPtr& part : *parts) {
      const std::size_t begin = std::max(from, slice.begin(size)), end = std::min(to, slice.end(size));
      if (begin < end) std::copy_n(part->value.data() + begin, end - begin, out + begin);
      ++slice.index;
    }
  };
  CellPtr whole = submit_cell(size, *parts, place_of_reader(*parts), copy);
  assembled_.remember(std::move(key), whole);
  if (divided_) last_assembled_ = whole;
  return whole;
}

std::optional<Gradient> Training::partial_gradient(const ModelStatePtr& at, const MicroBatch& micro_batch,
                                                   double backward_share) const {
  if (!at) return std::nullopt;
  const auto done = backward_order_->done_by(backward_share);
  return done ? std::optional(Gradient::of_layers(at, micro_batch, *done)) : std::nullopt;
}

std::optional<Gradient> Training::partial_gradient(std::shared_ptr<GradientSum> evaluated,
                                                   double backward_share) const {
  if (!evaluated) return std::nullopt;
  const auto done = backward_order_->done_by(backward_share);
  if (!done) return std::nullopt;
  cut_sum(*evaluated, *done, *objective_);
  Gradient gradient(std::move(evaluated), 0);
  gradient.mark_cut();
  return gradient;
}

std::vector<double> Training::contributions(const Gradient& gradient) const {
  if (!objective_) return {static_cast<double>(gradient.micro_batches())};
  std::vector<double> counts(backward_order_->tensors());
  add_counts(counts, *backward_order_, gradient.terms());
  return counts;
}

void Training::weigh_tensors(const Gradient& shared, std::span<const double> contributions) const {
  if (!objective_) return;
  assert(shared.terms().size() == 1 && shared.terms().front().sum);
  assert(contributions.size() == backward_order_->tensors());
  const auto micro_batches = static_cast<double>(std::max<std::int64_t>(shared.micro_batches(), 1));
  const auto is_usual = [&](double count) { return count == micro_batches; };
  auto& factors = shared.terms().front().sum->factors;
  if (!factors.empty() || std::ranges::all_of(contributions, is_usual)) return;
  for (std::size_t tensor = 0; tensor < contributions.size(); ++tensor)
    factors.push_back({backward_order_->end_of(tensor), micro_batches / std::max(contributions[tensor], 1.0)});
}

Gradient Training::clipped(Gradient gradient, std::int64_t micro_batches) {
  if (!objective_ || options_.clip_norm == 0) return gradient;
  const CellPtr cell = new_cell();
  const auto clip = [micro_batches, objective = objective_, most = options_.clip_norm, cell](const GradientSum& sum,
                                                                                             double scale) {
    const double norm = norm_of(sum, scale, 0, objective->parameters()) / static_cast<double>(micro_batches);
    cell->value = FlatVector(values_size(*objective, /*wide=*/false));
    syncopate::write_values(sum, scale * clipping_factor(norm, most), *objective, /*wide=*/false, cell->value.data());
  };
  cell->at = place();
  cell->producer = submit_on(gradient, {}, clip);
  const auto copy = [cell](float* out) { std::ranges::copy(std::as_const(cell->value).span(), out); };
  const CellPtr read[] = {cell};
  return promised(gradient.micro_batches(), travelling(gradient), read, copy, gradient.compute_time());
}

std::vector<std::shared_ptr<Task>> Training::brought(std::span<const CellPtr> cells, ProcessSet places) {
  std::vector<std::shared_ptr<Task>> producers;
  for (const CellPtr& cell : cells) {
    if (divided_) divided_->bring(cell, places);
    producers.push_back(producer(cell));
  }
  return producers;
}

std::shared_ptr<Task> Training::compute(CellWork&& what, ProcessSet places) {
  const auto inputs = brought(what.reads, places);
  for (const CellPtr& cell : what.writes) {
    cell->at = places;
    cell->producer = nullptr;
  }
  if (!is_here(places)) return nullptr;
  auto task = executor_.submit(std::move(what.work), inputs);
  for (const CellPtr& cell : what.writes) cell->producer = task;
  return task;
}

ProcessSet Training::place_of_reader(std::span<const CellPtr> reads) const {
  const auto is_everywhere = [](const CellPtr& cell) { return !cell || cell->at.is_everywhere(); };
  return !divided_ || std::ranges::all_of(reads, is_everywhere) ? ProcessSet::everywhere() : place();
}

// A step along a reduced gradient is taken everywhere if all processes have the state. A worker's own step is taken at
// its process.
ProcessSet Training::place_of_step(const ModelState& state, const Gradient& gradient) const {
  if (!divided_) return ProcessSet::everywhere();
  return gradient.reduced() ? place_of_reader(all_cells(state)) : place();
}

std::vector<double> Training::agreed_numbers(std::size_t count, ProcessSet places,
                                             const std::function<std::vector<double>()>& numbers) {
  return logged_numbers(count, [&] {
    if (!divided_ || places.is_everywhere()) return numbers();
    auto all = divided_->exchanged_numbers(ProcessSet::only(places.lowest()), numbers);
    assert(all.front().size() == count);
    return std::move(all.front());
  });
}

// Each process sends the sum of its inputs. Outside the slice the values are those of the first input.
CellPtr Training::submit_mean_of_processes(std::vector<CellPtr> inputs, std::size_t size, Slice slice,
                                           ProcessSet places) {
  const std::size_t begin = slice.begin(size), end = slice.end(size);
  const float factor = 1.0f / static_cast<float>(inputs.size());
  ProcessSet givers = ProcessSet::none();
  std::vector<CellPtr> mine;
  std::vector<std::shared_ptr<Task>> prerequisites;
  for (const CellPtr& cell : inputs) {
    if (!cell) continue;
    givers = givers | ProcessSet::only(giver_of(*cell));
    if (giver_of(*cell) != divided_->self()) continue;
    mine.push_back(cell);
    prerequisites.push_back(cell->producer);
  }
  const bool is_all = begin == 0 && end == size;
  const CellPtr& first = inputs.front();  // not null if there is a slice, since slices are of parameters
  const bool has_first = !is_all && giver_of(*first) == divided_->self();
  const auto give = [mine, size, begin, end, rest = has_first ? first : nullptr] {
    FlatVector sum(size);
    float* const out = sum.data();
    std::fill_n(out, size, 0.0f);
    for (const CellPtr& cell : mine) add(out, values_of(cell), size);
    std::fill(out, out + begin, 0.0f);
    std::fill(out + end, out + size, 0.0f);
    if (rest) {
      const float* const values = values_of(rest);
      std::copy(values, values + begin, out);
      std::copy(values + end, values + size, out + end);
    }
    return payload_of(std::move(sum));
  };
  auto mean = new_cell();
  mean->at = places;
  const auto take = [mean, size, begin, end, factor](const std::vector<Payload>& parts) {
    mean->value = FlatVector(size);
    float* const out = mean->value.data();
    std::copy_n(floats(parts.front()), size, out);
    for (std::size_t i = 1; i < parts.size(); ++i) add(out, floats(parts[i]), size);
    scale(out + begin, factor, end - begin);
  };
  mean->producer = divided_->exchange(givers, places, prerequisites, give, take);
  return mean;
}

// Terms that all of `places` have are added there. The processes that have the other terms send their sums.
CellPtr Training::submit_combination_of_processes(std::vector<WeightedCell> terms, std::size_t size,
                                                  ProcessSet places) {
  ProcessSet givers = ProcessSet::none();
  std::vector<WeightedCell> common, mine;
  std::vector<std::shared_ptr<Task>> prerequisites, of_taking;
  for (const WeightedCell& term : terms) {
    if (term.cell->at.covers(places)) {
      common.push_back(term);
      of_taking.push_back(term.cell->producer);
      continue;
    }
    givers = givers | ProcessSet::only(giver_of(*term.cell));
    if (giver_of(*term.cell) != divided_->self()) continue;
    mine.push_back(term);
    prerequisites.push_back(term.cell->producer);
  }
  const auto give = [mine, size] {
    FlatVector sum(size > 0 ? size : mine.front().cell->value.size());
    write_weighted_sum(sum.data(), vectors_of(mine), sum.size());
    return payload_of(std::move(sum));
  };
  auto cell = new_cell();
  cell->at = places;
  const auto parts = std::make_shared<std::vector<Payload>>();
  auto taken = divided_->exchange(givers, places, prerequisites, give,
                                  [parts](std::vector<Payload> payloads) { *parts = std::move(payloads); });
  if (!is_here(places)) return cell;
  of_taking.push_back(std::move(taken));
  const auto add_up = [cell, common, parts] {
    std::vector<WeightedVector> vectors = vectors_of(common);
    for (const Payload& part : *parts) vectors.push_back({1, floats(part)});
    FlatVector sum(parts->front().bytes / sizeof(float));
    write_weighted_sum(sum.data(), vectors, sum.size());
    cell->value = std::move(sum);
    parts->clear();
  };
  cell->producer = executor_.submit(add_up, of_taking);
  return cell;
}

// All processes compute the mean; then each adds up the squared distances of its own models.
void Training::measure_spread_of_processes(std::vector<WeightedState> states, std::function<void(double)> done) {
  const AskedBy all(*this, ProcessSet::everywhere());
  double weights = 0;
  for (const WeightedState& each : states) weights += each.weight;
  std::vector<WeightedCell> terms;
  std::vector<CellPtr> mine;
  for (const auto& [weight, state] : states) {
    terms.push_back({weight / weights, state->parameters});
    if (giver_of(*state->parameters) == divided_->self()) mine.push_back(state->parameters);
  }
  const std::size_t size = objective_->parameters();
  const CellPtr mean = submit_combination(terms, size, ProcessSet::everywhere());
  std::vector<std::shared_ptr<Task>> inputs = {mean->producer};
  for (const CellPtr& cell : mine) inputs.push_back(cell->producer);
  const auto give = [mean, mine = std::move(mine), size] {
    double squares = 0;
    const float* const middle = values_of(mean);
    for (const CellPtr& cell : mine) {
      const float* const values = values_of(cell);
      for (std::size_t i = 0; i < size; ++i) {
        const double difference = static_cast<double>(values[i]) - middle[i];
        squares += difference * difference;
      }
    }
    return DividedWork::Numbers{squares};
  };
  const auto take = [done = std::move(done), models = states.size()](const std::vector<DividedWork::Numbers>& parts) {
    double squares = 0;
    for (const auto& part : parts) squares += part.front();
    done(std::sqrt(squares / static_cast<double>(models)));
  };
  divided_->exchange_numbers(ProcessSet::everywhere(), inputs, give, take);
}

namespace {

// Collects the sums measured in the passes of a layer-wise step.
class Measures {
 public:
  explicit Measures(std::size_t tensors) : by_tensor_(tensors) {}

  // Adds the sums of each tensor over the range of the parameters that begins at `range`. Any thread may call it.
  void add(std::size_t range, std::vector<TensorSums> sums) {
    std::lock_guard lock(mutex_);
    ranges_.emplace(range, std::move(sums));
  }
  // Adds up the ranges in their order. Call it after all ranges of a pass have been added.
  void end_pass(int pass) {
    const auto at = static_cast<std::size_t>(pass);
    for (const auto& [range, sums] : ranges_)
      for (std::size_t tensor = 0; tensor < sums.size(); ++tensor)
        for (std::size_t i = 0; i < sums[tensor].size(); ++i) {
          by_tensor_[tensor][at][i] += sums[tensor][i];
          of_model_[at][i] += sums[tensor][i];
        }
    ranges_.clear();
  }
  const PassSums& of_tensor(std::size_t tensor) const { return by_tensor_[tensor]; }
  const PassSums& of_model() const { return of_model_; }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<TensorSums>> ranges_;
  std::vector<PassSums> by_tensor_;
  PassSums of_model_{};
};

// Whether this is the only holder, so that no other thread reads the object any more. Releasing a temporary holder
// synchronises with the others' releases. A fence would do the same, but ThreadSanitizer does not understand fences.
template <typename Held>
bool only_ours(const std::shared_ptr<Held>& held) {
  if (held.use_count() != 1) return false;
  std::shared_ptr<Held>(held).reset();
  return true;
}

// Gives `output` memory: the input's if nothing else holds it. Returns the address from which to read the input.
const float* take_over(const CellPtr& input, Cell& output, bool state_is_ours, std::size_t size) {
  if (input && state_is_ours && only_ours(input)) {
    output.value = std::move(input->value);
    return output.value.data();
  }
  output.value = FlatVector(size);
  return values_of(input);
}

// An optimizer step as executor tasks: evaluate the remaining promises, make the passes of a layer-wise optimizer, then
// update block by block. A block of parameters, moments and gradient fits into the first-level cache.
struct StepWork {
  std::shared_ptr<const Objective> objective;
  std::shared_ptr<const Optimizer> optimizer;
  std::shared_ptr<const std::vector<ParameterRange>> ranges;
  ModelStatePtr from;  // input state; null once it is taken over or no longer needed
  std::shared_ptr<GradientSum> sum;
  double scale = 1;
  StepContext context;
  double clip_norm = 0;
  std::uint64_t seed = 0;
  std::size_t first = 0;  // the step changes the parameters [first, last)
  std::size_t last = 0;
  CellPtr parameters;  // output, as are the moments and buffers
  std::array<CellPtr, most_moments> moments;
  CellPtr buffers;
  const float* before = nullptr;  // the input's parameters; in the output's memory if updated in place
  const float* moments_before[most_moments] = {};
  FlatVector gradient;  // used by layer-wise steps only
  std::unique_ptr<Measures> measures;

  void begin() {
    const std::size_t size = objective->parameters();
    if (clip_norm > 0) scale *= clipping_factor(norm_of(*sum, scale, first, last), clip_norm);
    const bool ours = only_ours(from);
    if (buffers) {
      buffers->value = FlatVector(objective->buffers());
      std::fill_n(buffers->value.data(), buffers->value.size(), 0.0f);
      add_buffers(*sum, buffers->value.span());
      for (float& value : buffers->value.span()) value /= static_cast<float>(sum->micro_batches);
    }
    before = take_over(from->parameters, *parameters, ours, size);
    for (int i = 0; i < optimizer->moments(); ++i)
      moments_before[i] = take_over(from->moments[i].values, *moments[i], ours, size);
    if (optimizer->passes() > 0) {
      gradient = FlatVector(size);
      measures = std::make_unique<Measures>(ranges->size());
    }
  }

  void measure(int pass, std::size_t begin, std::size_t end) {
    std::vector<TensorSums> sums(ranges->size());
    for_blocks(begin, end, [&](std::size_t at, std::size_t size, std::size_t range) {
      float* const kept = gradient.data() + at;
      if (pass == 0) write_block(*sum, scale, at, {kept, size});
      OptimizerBlock here = block(at, size, kept);
      here.kept = kept;
      const TensorSums share = optimizer->measure(pass, here, context_of(range));
      for (std::size_t i = 0; i < share.size(); ++i) sums[range][i] += share[i];
    });
    measures->add(begin, std::move(sums));
  }

  // Calls the optimizer for a matrix that it updates as a whole. Does nothing for other ranges.
  void turn_matrix(std::size_t range) {
    const auto [begin, end, excluded, rows] = (*ranges)[range];
    if (rows == 0) return;
    MatrixBlock matrix{
        .rows = rows, .columns = (end - begin) / rows, .kept = gradient.data() + begin, .offset = begin, .seed = seed};
    for (int i = 0; i < optimizer->moments(); ++i) matrix.moments[i] = moments[i]->value.data() + begin;
    optimizer->turn_matrix(matrix);
  }

  void update(std::size_t begin, std::size_t end) {
    float of_block[longest_block];
    for_blocks(begin, end, [&](std::size_t at, std::size_t size, std::size_t range) {
      if (!measures) write_block(*sum, scale, at, {of_block, size});
      optimizer->update(block(at, size, measures ? gradient.data() + at : of_block), context_of(range));
    });
  }

  // Calls use(begin, size, range) for each block, where `range` is the index of the ParameterRange that contains it.
  template <typename Use>
  void for_blocks(std::size_t begin, std::size_t end, const Use& use) {
    const auto is_before = [](const ParameterRange& range, std::size_t at) { return range.end <= at; };
    auto range = std::lower_bound(ranges->begin(), ranges->end(), begin, is_before);
    for (std::size_t at = begin; at < end; ++range) {
      for (const std::size_t last = std::min(end, range->end); at < last;) {
        const std::size_t size = std::min(longest_block, last - at);
        use(at, size, static_cast<std::size_t>(range - ranges->begin()));
        at += size;
      }
    }
  }

  OptimizerBlock block(std::size_t begin, std::size_t size, const float* of_gradient) const {
    OptimizerBlock block{
        .size = size, .gradient = of_gradient, .before = before + begin, .after = parameters->value.data() + begin};
    for (int i = 0; i < optimizer->moments(); ++i) {
      block.moments_before[i] = moments_before[i] ? moments_before[i] + begin : nullptr;
      block.moments_after[i] = moments[i]->value.data() + begin;
    }
    return block;
  }

  StepContext context_of(std::size_t range) const {
    StepContext here = context;
    here.excluded = (*ranges)[range].excluded;
    here.decay = here.excluded ? 0 : optimizer->weight_decay().rate;
    here.rows = (*ranges)[range].rows;
    here.columns = here.rows > 0 ? ((*ranges)[range].end - (*ranges)[range].begin) / here.rows : 0;
    if (measures) {
      here.tensor = &measures->of_tensor(range);
      here.model = &measures->of_model();
    }
    return here;
  }
};

bool is_taken_at(const GradientSum& sum, const ModelState& state) {
  if (sum.chunks.empty()) return true;
  const ModelStatePtr& at = sum.chunks.front().at;
  return sum.chunks.size() == 1 && at && at->parameters == state.parameters && at->buffers == state.buffers;
}

}  // namespace

// Whether all of the sum's micro-batches are evaluated at `places`, the process that takes the step.
bool Training::is_evaluated_at(const GradientSum& sum, ProcessSet places) const {
  if (!divided_ || sum.chunks.empty()) return true;
  const auto& micro_batches = sum.chunks.front().micro_batches;
  return std::ranges::all_of(micro_batches, [&](const MicroBatch& micro_batch) {
    return divided_->place_of_samples(micro_batch.worker) == places;
  });
}

ModelStatePtr Training::submit_step(ModelStatePtr state, std::shared_ptr<GradientSum> sum, double scale,
                                    double learning_rate, bool exclusive, const StepRules& rules, ProcessSet places) {
  auto next = new_state(*state);
  next->parameters = new_cell();
  const std::span<Moment> moments(next->moments.data(), static_cast<std::size_t>(optimizer_->moments()));
  for (Moment& moment : moments) moment.values = new_cell();
  for (Moment& moment : rules.keeps_second ? moments.first(1) : moments) ++moment.age.steps;
  if (!moments.empty()) moments[0].age = optimizer_->weighed(ages_of(*next), learning_rate);
  if (state->buffers && sum->micro_batches > 0) next->buffers = new_cell();

  auto work = std::make_shared<StepWork>();
  work->objective = objective_;
  work->optimizer = optimizer_;
  work->ranges = ranges_;
  assert(optimizer_->passes() == 0 || rules.slice.count == 1);
  work->scale = scale;
  work->context = {.learning_rate = learning_rate, .ages = ages_of(*next), .keeps_second = rules.keeps_second};
  work->clip_norm = rules.clipping == Clipping::of_step ? options_.clip_norm : 0;
  work->seed = options_.seed;
  work->first = rules.slice.begin(objective_->parameters());
  work->last = rules.slice.end(objective_->parameters());
  work->parameters = next->parameters;
  for (std::size_t i = 0; i < moments.size(); ++i) work->moments[i] = moments[i].values;
  if (next->buffers != state->buffers) work->buffers = next->buffers;

  // The vector is a temporary: a copy of these pointers would prevent updates in place.
  std::vector<std::shared_ptr<Task>> inputs = brought(all_cells(*state), places);
  // If the gradient is taken at the stepping model, one task computes the gradient and the update. A gradient at
  // another model is a task of its own, which need not wait for this model and can run during earlier steps.
  const bool one_task = exclusive && is_taken_at(*sum, *state) && is_evaluated_at(*sum, places);
  // With one chunk that no other step shares, the whole vector is one range, because other cores do other steps.
  const bool whole = exclusive && sum->chunks.size() <= 1;
  if (!one_task) {
    sum = readable(sum, places);
    inputs.insert(inputs.end(), sum->tasks.begin(), sum->tasks.end());
  }
  work->sum = std::move(sum);
  state->parameters->stepped_from = true;
  next->parameters->at = places;
  for (Moment& moment : moments) moment.values->at = places;
  if (work->buffers) work->buffers->at = places;
  if (!is_here(places)) return next;
  work->from = std::move(state);

  const int passes = optimizer_->passes();
  const auto begin = [work, one_task, whole, passes] {
    if (one_task)
      for (auto& chunk : work->sum->chunks) evaluate_chunk(chunk, std::exchange(chunk.at, nullptr), *work->objective);
    work->begin();
    if (!whole) return;
    for (int pass = 0; pass < passes; ++pass) {
      work->measure(pass, work->first, work->last);
      work->measures->end_pass(pass);
    }
    for (std::size_t range = 0; range < work->ranges->size(); ++range) work->turn_matrix(range);
    work->update(work->first, work->last);
    // If the step has several tasks, the last task releases these members.
    work->sum = nullptr, work->from = nullptr, work->gradient = FlatVector();
  };
  auto done = executor_.submit(begin, inputs);
  if (!whole) {
    for (int pass = 0; pass < passes; ++pass) {
      const auto measure = [work, pass](std::size_t from, std::size_t to) { work->measure(pass, from, to); };
      const std::shared_ptr<Task> measured[] = {submit_ranges(done, work->first, work->last, measure)};
      done = executor_.submit([work, pass] { work->measures->end_pass(pass); }, measured);
    }
    std::vector<std::shared_ptr<Task>> turned = {done};
    for (std::size_t range = 0; range < work->ranges->size(); ++range)
      if ((*work->ranges)[range].rows > 0)
        turned.push_back(executor_.submit([work, range] { work->turn_matrix(range); }, std::vector{done}));
    if (turned.size() > 1) done = executor_.submit([] {}, turned);
    const auto update = [work](std::size_t from, std::size_t to) { work->update(from, to); };
    done = submit_ranges(done, work->first, work->last, update);
  }
  next->parameters->producer = done;
  for (Moment& moment : moments) moment.values->producer = done;
  if (work->buffers) next->buffers->producer = done;
  return next;
}

CellPtr Training::submit_cell(std::size_t size, std::span<const CellPtr> reads, ProcessSet places,
                              std::function<void(float*, std::size_t, std::size_t)> work) {
  auto cell = new_cell();
  if (number_of_ranges(size) == 1) {
    const auto fill = [cell, size, work = std::move(work)] {
      cell->value = FlatVector(size);
      work(cell->value.data(), 0, size);
    };
    compute({.reads = {reads.begin(), reads.end()}, .writes = {cell}, .work = fill}, places);
    return cell;
  }
  const auto prerequisites = brought(reads, places);
  cell->at = places;
  if (!is_here(places)) return cell;
  const auto allocated = executor_.submit([cell, size] { cell->value = FlatVector(size); }, prerequisites);
  cell->producer = submit_ranges(allocated, 0, size, [cell, work = std::move(work)](std::size_t from, std::size_t to) {
    work(cell->value.data(), from, to);
  });
  return cell;
}

std::shared_ptr<Task> Training::submit_ranges(const std::shared_ptr<Task>& first, std::size_t begin, std::size_t end,
                                              std::function<void(std::size_t, std::size_t)> work) {
  const std::size_t size = end - begin;
  const std::size_t ranges = number_of_ranges(size);
  const std::shared_ptr<Task> prerequisites[] = {first};
  std::vector<std::shared_ptr<Task>> parts;
  for (std::size_t i = 0; i < ranges; ++i) {
    const std::size_t from = begin + size * i / ranges;
    const std::size_t to = begin + size * (i + 1) / ranges;
    parts.push_back(executor_.submit([work, from, to] { work(from, to); }, prerequisites));
  }
  return executor_.submit([] {}, parts);
}

Training::Training(std::shared_ptr<const Objective> objective, std::shared_ptr<const Optimizer> optimizer,
                   Options options, Executor& executor)
    : objective_(std::move(objective)), optimizer_(std::move(optimizer)), options_(options), executor_(executor) {
  if (objective_ && optimizer_)
    ranges_ = std::make_shared<const std::vector<ParameterRange>>(ranges_of(*objective_, *optimizer_));
  if (objective_) backward_order_.emplace(*objective_);
  if (objective_ && options_.processes)
    divided_ = std::make_unique<DividedWork>(*options_.processes, executor_, options_.workers);
}

ModelStatePtr Training::initial_state() {
  if (!objective_) return nullptr;
  static const StartingPoint none;
  const StartingPoint& start = options_.start ? *options_.start : none;
  const bool is_copied = !start.parameters.empty() && start.taken.empty();
  std::vector<float> values = is_copied ? start.parameters : objective_->initial_parameters(options_.seed);
  assert(values.size() == objective_->parameters());
  for (const auto& [from, to, size] : start.taken) {
    assert(from + size <= start.parameters.size() && to + size <= values.size());
    std::copy_n(&start.parameters[from], size, &values[to]);
  }
  auto state = new_state({});
  state->parameters = filled_cell(values);
  if (objective_->buffers() > 0)
    state->buffers = filled_cell(!start.buffers.empty() ? start.buffers : objective_->initial_buffers());
  return state;
}

Gradient Training::share(const Gradient& gradient) {
  if (!objective_) return gradient;
  const auto [sum, scale] = fixed(gradient);
  return Gradient(sum, gradient.micro_batches(), gradient.compute_time()) * scale;
}

void Training::set_statistics(const Gradient& shared, std::int64_t micro_batches) {
  if (!objective_) return;
  assert(shared.terms().size() == 1 && shared.terms().front().sum);
  auto& count = shared.terms().front().sum->micro_batches;
  if (count != micro_batches) count = micro_batches;  // writes only once, because other threads may then read it
}

ModelStatePtr Training::descend(ModelStatePtr state, const Gradient& gradient, double learning_rate,
                                const StepRules& rules) {
  if (!objective_) return nullptr;
  if (CheckpointLog* const log = CheckpointLog::here()) log->before_step();
  auto [sum, scale] = fixed(gradient);
  if (options_.on_kept && rules.slice.index == 0) report_kept(*sum);
  const bool is_shared = gradient.terms().size() == 1 && gradient.terms().front().sum == sum;
  const ProcessSet places = place_of_step(*state, gradient);
  if (!is_shared) return submit_step(std::move(state), std::move(sum), scale, learning_rate, true, rules, places);
  auto& use = sum->uses[{.from = state->id,
                         .scale = scale,
                         .learning_rate = learning_rate,
                         .slice = rules.slice,
                         .keeps_second = rules.keeps_second,
                         .clips = rules.clipping == Clipping::of_step}];
  if (!use) use = submit_step(std::move(state), sum, scale, learning_rate, false, rules, places);
  return use;
}

// Reports a sum's micro-batches once, at the first step along it. If servers hold slices, only the first slice reports.
void Training::report_kept(GradientSum& sum) const {
  if (std::exchange(sum.is_reported, true)) return;
  for (const MicroBatch& micro_batch : sum.carried) options_.on_kept(micro_batch);
  for (const GradientSum::Chunk& chunk : sum.chunks) {
    if (chunk.scale == 0 || !chunk.layers.are_all()) continue;
    for (const MicroBatch& micro_batch : chunk.micro_batches) options_.on_kept(micro_batch);
    if (chunk.sum) report_kept(*chunk.sum);
  }
}

std::vector<MicroBatch> Training::travelling(const Gradient& gradient) const {
  std::vector<MicroBatch> micro_batches;
  if (options_.on_kept) append_micro_batches(gradient.terms(), micro_batches);
  return micro_batches;
}

ModelStatePtr Training::adopt(const ModelStatePtr& self, const ModelStatePtr& other) {
  if (!objective_ || self == other) return other;
  auto state = new_state(*self);
  state->parameters = other->parameters;
  state->buffers = other->buffers;
  return state;
}

std::vector<float> Training::values(const CellPtr& cell) {
  if (!cell) return {};
  if (divided_) divided_->bring(cell, ProcessSet::everywhere());
  executor_.wait(cell->producer);
  const auto span = cell->value.span();
  return {span.begin(), span.end()};
}

std::vector<float> Training::values(const Gradient& gradient) {
  std::vector<float> out(gradient_size(gradient.wide()));
  write_values(gradient, out.data());
  out.resize(objective_->parameters());
  return out;
}

double Training::distance(const ModelStatePtr& a, const ModelStatePtr& b) {
  if (!objective_) return std::numeric_limits<double>::quiet_NaN();
  return distances(a, b, {{.name = "all", .offset = 0, .size = objective_->parameters()}}).front();
}

std::vector<double> Training::distances(const ModelStatePtr& a, const ModelStatePtr& b,
                                        const std::vector<ParameterTensor>& tensors) {
  const CellPtr cells[] = {a->parameters, b->parameters};
  const ProcessSet places = place_of_reader(cells);
  const auto tasks = brought(cells, places);
  const auto compute = [&] {
    for (const auto& task : tasks) executor_.wait(task);
    std::vector<double> distances;
    for (const ParameterTensor& tensor : tensors)
      distances.push_back(distance_of(*a->parameters, *b->parameters, tensor.offset, tensor.size));
    return distances;
  };
  return agreed_numbers(tensors.size(), places, compute);
}

double Training::norm(const Gradient& gradient) {
  if (!objective_) return std::numeric_limits<double>::quiet_NaN();
  const ScaledSum scaled = fixed(gradient);
  submit_chunks(scaled.sum, objective_, executor_, divided_.get());
  // Computes at the processes that have the whole sum, or everywhere if none has.
  const ProcessSet places = scaled.sum->at.empty() ? ProcessSet::everywhere() : scaled.sum->at;
  const auto there = readable(scaled.sum, places);
  const auto compute = [&] {
    for (const auto& task : there->tasks) executor_.wait(task);
    return std::vector{norm_of(*there, scaled.scale, 0, objective_->parameters())};
  };
  return agreed_numbers(1, places, compute).front();
}

double Training::loss(const Gradient& gradient) {
  constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  if (!objective_) return unknown;
  const auto sum = fixed(gradient).sum;
  submit_chunks(sum, objective_, executor_, divided_.get());
  const auto compute = [&] {
    const std::int64_t micro_batches = loss_of(*sum).micro_batches;
    if (micro_batches == 0) return std::vector{unknown};
    const auto of_this_process = [&] {
      for (const auto& task : sum->tasks) executor_.wait(task);
      return std::vector{loss_of(*sum).loss};
    };
    double loss = 0;
    if (!divided_)
      loss = of_this_process().front();
    else
      for (const auto& part : divided_->exchanged_numbers(ProcessSet::everywhere(), of_this_process))
        loss += part.front();
    return std::vector{loss / static_cast<double>(micro_batches)};
  };
  return logged_numbers(1, compute).front();
}

void Training::write_values(const Gradient& gradient, float* out) {
  if (!objective_) return;
  const auto [sum, scale] = fixed(gradient);
  const auto here = readable(sum, ProcessSet::everywhere());
  for (const auto& task : here->tasks) executor_.wait(task);
  syncopate::write_values(*here, scale, *objective_, gradient.wide(), out);
}

Gradient Training::gradient_from(FlatVector values, std::int64_t micro_batches, Duration compute_time, bool wide,
                                 std::vector<MicroBatch> carried) {
  if (!objective_) {
    Gradient empty(nullptr, micro_batches, compute_time);
    if (wide) empty.use_double_precision();
    return empty;
  }
  const bool is_replayed = CheckpointLog::replays_here();  // restored later with all other values
  assert(is_replayed || values.size() == gradient_size(wide));
  auto sum = new_sum();
  sum->submitted = true;
  sum->wide = wide;
  sum->micro_batches = micro_batches;
  sum->carried = std::move(carried);
  sum->chunks.resize(wide ? 2 : 1);  // the second part of a wide gradient is added to the first
  if (!is_replayed) read_values(*sum, payload_of(std::move(values)), *objective_);
  return Gradient(std::move(sum), micro_batches, compute_time);
}

std::shared_ptr<Task> Training::submit_on(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
                                          std::function<void(const GradientSum&, double)> work) {
  const auto [sum, scale] = fixed(gradient);
  return submit_reading(sum, scale, place(), std::move(prerequisites), std::move(work));
}

std::shared_ptr<Task> Training::submit_reading(const std::shared_ptr<GradientSum>& sum, double scale, ProcessSet places,
                                               std::vector<std::shared_ptr<Task>> prerequisites,
                                               std::function<void(const GradientSum&, double)> work) {
  const auto there = readable(sum, places);
  if (!is_here(places)) return nullptr;
  prerequisites.insert(prerequisites.end(), there->tasks.begin(), there->tasks.end());
  return executor_.submit([there, scale, work = std::move(work)] { work(*there, scale); }, prerequisites);
}

void Training::hold(const Gradient& gradient, std::vector<std::shared_ptr<Task>> prerequisites,
                    std::function<void(const GradientSum&, double)> work,
                    std::function<void(const std::shared_ptr<Task>&)> submitted) {
  if (!objective_->has_batched_gradients())
    return submitted(submit_on(gradient, std::move(prerequisites), std::move(work)));
  auto [sum, scale] = fixed(gradient);
  held_.push_back({.sum = std::move(sum),
                   .scale = scale,
                   .places = place(),
                   .prerequisites = std::move(prerequisites),
                   .work = std::move(work),
                   .submitted = std::move(submitted)});
}

// If several processes divide the work, each evaluates the gradients of its own workers.
void Training::begin_held() {
  std::vector<Held> all = std::exchange(held_, {});
  std::erase_if(all, [this](const Held& held) { return is_elsewhere(held); });
  std::vector<std::shared_ptr<GradientSum>> sums;
  for (const Held& held : all) sums.push_back(held.sum);
  for (const std::vector<std::size_t>& together : passes_of(sums, *objective_)) {
    std::vector<std::shared_ptr<GradientSum>> of_pass;
    for (const std::size_t i : together) of_pass.push_back(std::exchange(sums[i], nullptr));
    submit_pass(of_pass, objective_, executor_);
    for (const std::size_t i : together) {
      auto& [sum, scale, places, prerequisites, work, submitted] = all[i];
      submitted(submit_reading(std::exchange(sum, nullptr), scale, places, std::move(prerequisites), std::move(work)));
    }
  }
}

// Whether this process must not evaluate the gradient in one pass with others. If so, submits it separately where it
// has to be evaluated.
bool Training::is_elsewhere(const Held& held) {
  if (!divided_) return false;
  const auto is_of_one = [&](const GradientSum::Chunk& chunk) {
    return chunk.at && chunk.at->parameters->at.covers(held.places) &&
           (!chunk.at->buffers || chunk.at->buffers->at.covers(held.places)) &&
           std::ranges::all_of(chunk.micro_batches, [&](const MicroBatch& micro_batch) {
             return divided_->place_of_samples(micro_batch.worker) == held.places;
           });
  };
  const bool is_own = !held.sum->submitted && std::ranges::all_of(held.sum->chunks, is_of_one);
  if (!is_own) {
    held.submitted(submit_reading(held.sum, held.scale, held.places, held.prerequisites, held.work));
    return true;
  }
  held.sum->at = held.places;
  if (is_here(held.places)) return false;
  held.sum->submitted = true;
  for (GradientSum::Chunk& chunk : held.sum->chunks) chunk.at = nullptr;
  held.submitted(nullptr);
  return true;
}

Gradient Training::promised(std::int64_t micro_batches, std::vector<MicroBatch> carried, std::span<const CellPtr> reads,
                            std::function<void(float* out)> fill, Duration compute_time) {
  auto sum = new_sum();
  sum->submitted = true;
  sum->micro_batches = micro_batches;
  sum->carried = std::move(carried);
  sum->chunks.emplace_back();
  const auto evaluate = [sum = std::weak_ptr(sum), objective = objective_, fill = std::move(fill)] {
    const auto filled = sum.lock();
    if (!filled) return;  // nothing needs the sum any more
    FlatVector values(values_size(*objective, /*wide=*/false));
    fill(values.data());
    read_values(*filled, payload_of(std::move(values)), *objective);
  };
  sum->tasks.push_back(executor_.submit(evaluate, brought(reads, ProcessSet::everywhere())));
  return Gradient(sum, micro_batches, compute_time);
}

}  // namespace syncopate
