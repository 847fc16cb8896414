// What a method says about itself to those who arrange its runs, predict them and compare them. None of it
// changes what the method computes. The defaults are those of a method about which nothing is known.
#pragma once

#include <optional>
#include <string_view>

#include "workers/compression/options.hpp"
#include "workers/participant.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

struct Traits {
  // The parameter servers that it needs; each runs Algorithm::serve.
  Servers servers{};
  // Whether its workers send each other messages.
  bool sends_to_neighbours = false;
  // Others are compared with it: speed-ups are against its pace.
  bool is_baseline = false;
  // Whether it decides anything by what is computed (losses, norms, distances), so that time alone says nothing of it.
  bool follows_values = false;
  // Whether what it computes depends on who comes first, or on what is done by when. Where it does not, two runs with
  // equal budgets in steps end with the same model, up to rounding, on any cluster.
  bool follows_clock = true;
  // Steps after which its pace is that of the rest of the run, so that a short simulation can be drawn out.
  Step settles_after{};
  // Steps after which the same comes again, where that is more than a round: part of it says nothing of the pace.
  Step cycle{1};
  // The step from which on all workers take the same course: between two meetings of all, none decides by its own
  // clock, rank or gradients what it does next. (A deadline of compute_gradient is the same for all, and no decision of
  // the worker's.) None: some always may.
  std::optional<Step> same_course_from{};
  // Whether it judges the budget alone (Judged::alone). Under one of seconds that is a decision by its own clock.
  bool judges_alone = false;
  // Whether what it publishes ends a round of many updates, as an average of models that have stepped alone does.
  bool publishes_rounds = false;
  // Whether each step is one along the mean of gradients of the model that it changes: what a batch is good for is then
  // known from the noise of gradients (results/statistics/steps_by_batch.hpp).
  bool steps_along_fresh_mean = false;
  // Whether each worker takes the micro-batches of its data one after the other, however many a step has: what it was
  // offered are then the first ones, as many as its account has. (Not where outages take what was computed.)
  bool takes_data_in_turn = false;
  // Whether each step is along one all-reduced sum of all workers' gradients, which may be compressed.
  bool sums_gradients = false;
  // Whether it exchanges nothing but sums of the gradients of a step, each of which can begin while the last micro-batch is
  // in its backward pass (network.overlap).
  bool can_overlap_backward = false;
  // What its steps leave out of that sum, which a compression may keep for later steps (SumOptions::dropped).
  Drops drops = Drops::nothing;
  // Whether each synchronisation is one average of all workers' whole models, or of a slice of them in turn, all of
  // equal weight, whose differences to a model that all share may be compressed; of how many slices; whether moments are
  // averaged, too, which forbids that; and whether it is waited for at once.
  bool averages_models = false;
  int averaged_slices = 1;
  bool averages_moments = false;
  bool waits_for_averages = true;
  // Whether what it sums, from some step on, are its workers' next first moments, which may be compressed.
  bool sums_moments = false;
  // Whether what its workers send to their server is a gradient or a difference between models, or of a slice of them in
  // turn (averaged_slices), each of which counts by itself or not at all, and may be compressed; and whether some may come
  // too late, or too old, to count.
  bool sends_gradients = false;
  bool rejects_gradients = false;
  // Why nothing that it exchanges can be compressed, as a sentence goes on after "must not be given: "; where that is so.
  std::string_view exchanged_whole{};

  // Whether what it sends may have to wait for what else is on a link.
  bool sends_messages() const { return servers > 0 || sends_to_neighbours; }
  // Whether nothing but what servers send comes to its workers: the simulated cluster then refuses collectives.
  bool has_servers_alone() const { return servers > 0 && !sends_to_neighbours; }

  Compresses compresses() const {
    if (sums_moments) return Compresses::moments;
    if (sums_gradients) return Compresses::gradients;
    if (sends_gradients) return Compresses::messages;
    if (!averages_models) return Compresses::nothing;
    return waits_for_averages ? Compresses::averages : Compresses::averages_under_way;
  }

  // Into how many slices the model is cut that are compressed by themselves.
  int compressed_slices() const { return servers.hold_slices() ? servers.count : averaged_slices; }

  // same_course_from under this budget.
  std::optional<Step> same_course_under(const Budget& budget) const {
    return judges_alone && budget.seconds ? std::nullopt : same_course_from;
  }
};

}  // namespace syncopate
