// Linear combinations of states, and whole models out of slices.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <utility>
#include <vector>

#include "workers/training/course_log.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

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

  // In one task: the step that follows finds the sum in that core's cache, and the other cores have those of others.
  auto cell = new_cell();
  const auto fill = [cell, summands, size] {
    std::vector<WeightedVector> parts;
    for (const auto& [weight, summand] : *summands) parts.push_back({weight, std::as_const(summand->value).data()});
    cell->value = FlatVector(size > 0 ? size : summands->front().cell->value.size());
    write_weighted_sum(cell->value.data(), parts, cell->value.size());
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
  Memo<const ModelState>::Key key{{from->id, 1.0}, {to->id, 1.0}};  // those of `combine` begin with a weight of 0
  for (const double share : shares) key.emplace_back(0, share);
  const auto known = combined_.find(key);
  if (known && !known->parameters->stepped_from) return known;

  auto state = std::make_shared<ModelState>(*to);
  state->id = new_state_id();
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
      const float* const x = std::as_const(a->value).data() + at;
      const float* const y = std::as_const(b->value).data() + at;
      float* const out = cell->value.data() + at;
      // Of what is not a number a share of 0 would be none either.
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

CellPtr Training::sum_of(std::vector<CellPtr> cells) {
  std::vector<WeightedCell> terms;
  for (CellPtr& cell : cells) terms.push_back({1, std::move(cell)});
  constexpr std::size_t as_they_have = 0;
  return submit_combination(terms, as_they_have, ProcessSet::everywhere());
}

ModelStatePtr Training::assemble(const ModelStatePtr& self, std::span<const ModelStatePtr> slices) {
  if (!objective_) return nullptr;
  assert(!slices.empty());
  auto state = std::make_shared<ModelState>(*self);
  state->id = new_state_id();
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

  auto state = std::make_shared<ModelState>(*whole);
  state->id = new_state_id();
  state->buffers = buffers;
  const std::size_t size = objective_->parameters();
  const auto begin = static_cast<std::size_t>(slice.begin(static_cast<std::int64_t>(size)));
  const auto end = static_cast<std::size_t>(slice.end(static_cast<std::int64_t>(size)));
  const CellPtr read[] = {whole->parameters, part->parameters};
  const auto copy = [around = whole->parameters, inside = part->parameters, begin, end](float* out, std::size_t from,
                                                                                        std::size_t to) {
    const std::size_t first = std::clamp(begin, from, to), last = std::clamp(end, from, to);
    const float* const outer = std::as_const(around->value).data();
    std::copy(outer + from, outer + first, out + from);
    std::copy_n(std::as_const(inside->value).data() + first, last - first, out + first);
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
  if (CourseLog* const log = CourseLog::here()) {  // it may be that tasks alone hold it
    known = log->found(std::move(known));
    if (known) assembled_.remember(key, known);
  }
  if (known) return known;

  const std::size_t size = objective_->parameters();
  const auto copy = [parts, size](float* out, std::size_t from, std::size_t to) {
    Slice slice{.index = 0, .count = static_cast<int>(parts->size())};
    for (const CellPtr& part : *parts) {
      const auto begin = std::max(from, static_cast<std::size_t>(slice.begin(static_cast<std::int64_t>(size))));
      const auto end = std::min(to, static_cast<std::size_t>(slice.end(static_cast<std::int64_t>(size))));
      if (begin < end) std::copy_n(part->value.data() + begin, end - begin, out + begin);
      ++slice.index;
    }
  };
  CellPtr whole = submit_cell(size, *parts, place_of_reader(*parts), copy);
  assembled_.remember(std::move(key), whole);
  if (divided_) last_assembled_ = whole;
  return whole;
}

}  // namespace syncopate
