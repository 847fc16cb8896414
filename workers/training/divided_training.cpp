// What the training engine does where several processes divide its work: where each thing is computed, and how all
// come to what they need of the others.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "workers/training/course_log.hpp"
#include "workers/training/divided_sums.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

std::shared_ptr<GradientSum> Training::fixed(const Gradient& gradient, double& scale) const {
  return fix_sum(gradient, *objective_, scale, divided_.get());
}

std::shared_ptr<GradientSum> Training::readable(const std::shared_ptr<GradientSum>& sum, ProcessSet places) {
  return sum_at(sum, places, objective_, executor_, divided_.get());
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

// Where all share the state, and take the same step, everywhere; a worker's own step is its own.
ProcessSet Training::place_of_step(const ModelState& state, const Gradient& gradient) const {
  if (!divided_) return ProcessSet::everywhere();
  const CellPtr cells[] = {state.parameters, state.moments[0].values, state.moments[1].values, state.buffers};
  return gradient.reduced() ? place_of_reader(cells) : place();
}

std::vector<double> Training::told(std::size_t count, ProcessSet places,
                                   const std::function<std::vector<double>()>& numbers) {
  const auto told_to_all = [&] {
    if (!divided_ || places.is_everywhere()) return numbers();
    auto all = divided_->exchanged_numbers(ProcessSet::only(places.lowest()), numbers);
    assert(all.front().size() == count);
    return std::move(all.front());
  };
  CourseLog* const log = CourseLog::here();
  return log ? log->told(count, told_to_all) : told_to_all();
}

// Each has those of the micro-batches that it evaluates.
double Training::loss_of_processes(const GradientSum& sum) {
  const std::int64_t micro_batches = loss_of(sum).micro_batches;
  if (micro_batches == 0) return std::numeric_limits<double>::quiet_NaN();
  const auto parts = divided_->exchanged_numbers(ProcessSet::everywhere(), [&] {
    for (const auto& task : sum.tasks) executor_.wait(task);
    return std::vector{loss_of(sum).loss};
  });
  double loss = 0;
  for (const auto& part : parts) loss += part.front();
  return loss / static_cast<double>(micro_batches);
}

namespace {

// Of cells that are at several places, the one that counts for them; none where all of `places` have it.
int giver_of(const Cell& cell) { return cell.at.lowest(); }

FlatVector sum_of_cells(const std::vector<CellPtr>& cells, std::size_t size) {
  FlatVector sum(size);
  std::fill_n(sum.data(), size, 0.0f);
  for (const CellPtr& cell : cells) add(sum.data(), std::as_const(cell->value).data(), size);
  return sum;
}

Payload payload_of(FlatVector values) {
  const auto owner = std::make_shared<const FlatVector>(std::move(values));
  return {.owner = owner, .data = owner->data(), .bytes = owner->size() * sizeof(float)};
}

const float* floats(const Payload& payload) { return static_cast<const float*>(payload.data); }

}  // namespace

// What is not in the slice is the first one's.
CellPtr Training::submit_mean_of_processes(std::vector<CellPtr> inputs, std::size_t size, Slice slice,
                                           ProcessSet places) {
  const auto begin = static_cast<std::size_t>(slice.begin(static_cast<std::int64_t>(size)));
  const auto end = static_cast<std::size_t>(slice.end(static_cast<std::int64_t>(size)));
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
  const CellPtr& first = inputs.front();  // of parameters, which no state lacks, where there is a slice
  const bool has_first = !is_all && giver_of(*first) == divided_->self();
  const auto give = [mine, size, begin, end, is_all, rest = has_first ? first : nullptr] {
    FlatVector sum = sum_of_cells(mine, size);
    if (is_all) return payload_of(std::move(sum));
    float* const out = sum.data();
    std::fill(out, out + begin, 0.0f);
    std::fill(out + end, out + size, 0.0f);
    if (rest) {
      const float* const values = std::as_const(rest->value).data();
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

// What all that need it have is added there, the rest by those who have it.
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
  const auto weighted = [](const std::vector<WeightedCell>& cells) {
    std::vector<WeightedVector> vectors;
    for (const auto& [weight, cell] : cells) vectors.push_back({weight, std::as_const(cell->value).data()});
    return vectors;
  };
  const auto give = [mine, weighted, size] {
    FlatVector sum(size > 0 ? size : mine.front().cell->value.size());
    write_weighted_sum(sum.data(), weighted(mine), sum.size());
    return payload_of(std::move(sum));
  };
  auto cell = new_cell();
  cell->at = places;
  const auto parts = std::make_shared<std::vector<Payload>>();
  auto taken = divided_->exchange(givers, places, prerequisites, give,
                                  [parts](std::vector<Payload> payloads) { *parts = std::move(payloads); });
  if (!is_here(places)) return cell;
  of_taking.push_back(std::move(taken));
  const auto add_up = [cell, common, weighted, parts] {
    std::vector<WeightedVector> vectors = weighted(common);
    for (const Payload& part : *parts) vectors.push_back({1, floats(part)});
    FlatVector sum(parts->front().bytes / sizeof(float));
    write_weighted_sum(sum.data(), vectors, sum.size());
    cell->value = std::move(sum);
    parts->clear();
  };
  cell->producer = executor_.submit(add_up, of_taking);
  return cell;
}

// Each process has its part of the squares, from the mean that all have.
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
    const float* const middle = std::as_const(mean->value).data();
    for (const CellPtr& cell : mine) {
      const float* const values = std::as_const(cell->value).data();
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

}  // namespace syncopate
