#include "experiments/execution/common_phases.hpp"

#include <fmt/format.h>

#include <exception>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "experiments/execution/checkpointing.hpp"
#include "experiments/execution/mpi_exchange.hpp"
#include "results/directory/disk_fault.hpp"
#include "results/directory/finished_run.hpp"
#include "results/directory/run_directory.hpp"
#include "results/formats/npy.hpp"
#include "results/rows/summary.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {

namespace {

std::vector<float> one_after_the_other(const std::vector<std::vector<float>>& models) {
  std::vector<float> all;
  for (const std::vector<float>& model : models) all.insert(all.end(), model.begin(), model.end());
  return all;
}

// Of the model, or models one after the other, that the phase has left.
CommonPhases::Phase end_of(const Run& run, StartingPoint end) {
  const auto one = static_cast<std::size_t>(run.training.parameter_bytes.value()) / sizeof(float);
  if (end.parameters.size() == one) return {.end = std::make_shared<const StartingPoint>(std::move(end))};
  return {.failure = fmt::format("it leaves an ensemble of {} models; must leave one", end.parameters.size() / one)};
}

}  // namespace

const CommonPhases::Phase& CommonPhases::phase(const Run& run, std::size_t before_run, Progress& progress) {
  const auto [place, is_new] = known_.try_emplace(run.hash);
  if (!is_new) return place->second;
  const auto directory = run_directory(options_.results_directory, run, machinery_.mpi != nullptr);
  Phase phase;
  if (is_rank_0() && !options_.rerun) phase = found(directory, run);
  const auto write = [&](const FileContents& files) {
    write_directory(directory, files);
    return true;
  };
  const MpiSession* const all = machinery_.together();
  if (is_rank_0() && !machinery_.mpi && !options_.rerun && !phase.end && phase.failure.empty())
    phase = found_elsewhere(directory, run, write);
  bool is_there = phase.end || !phase.failure.empty();
  if (all) is_there = from_rank_0(*all, std::vector<int>{is_there}).front() != 0;
  if (!is_there) phase = made(run, before_run, progress, write);
  place->second = all ? shared(std::move(phase)) : std::move(phase);
  return place->second;
}

const CommonPhases::Phase* CommonPhases::find(const Run& run, bool may_be_there) {
  const auto known = known_.find(run.hash);
  if (known != known_.end()) return &known->second;
  Phase phase = may_be_there ? found(run_directory(options_.results_directory, run, false), run) : Phase{};
  if (!phase.end && phase.failure.empty()) return nullptr;
  return &(known_[run.hash] = std::move(phase));
}

CommonPhases::Phase CommonPhases::make(const Run& run, std::size_t before_run, Progress& progress,
                                       const Publish& publish) const {
  Phase phase;
  if (!options_.rerun) phase = found_elsewhere(run_directory(options_.results_directory, run, false), run, publish);
  return phase.end || !phase.failure.empty() ? phase : made(run, before_run, progress, publish);
}

const CommonPhases::Phase& CommonPhases::fail(const Run& run, const std::string& reason) {
  return known_[run.hash] = {.failure = reason};
}

// On rank 0. Without an end, where there is none.
CommonPhases::Phase CommonPhases::found(const std::filesystem::path& directory, const Run& run) const {
  try {
    if (!finished_before(directory, run)) return {};
    remove_checkpoint(checkpoint_of(directory));  // of who was killed after it had written the results
    const auto parameters = read_file(directory / "parameters.npy", any_size);
    const auto buffers = read_file(directory / "buffers.npy", any_size);
    if (!parameters) return {};
    return end_of(run, {.parameters = floats_from_npy(*parameters),
                        .buffers = buffers ? floats_from_npy(*buffers) : std::vector<float>{}});
  } catch (const std::exception&) {  // what cannot be read is made anew
    return {};
  }
}

CommonPhases::Phase CommonPhases::found_elsewhere(const std::filesystem::path& directory, const Run& run,
                                                  const Publish& publish) const {
  const auto files = elsewhere_.files_for(run);
  return files && publish(*files) ? found(directory, run) : Phase{};
}

// Complete on rank 0.
CommonPhases::Phase CommonPhases::made(const Run& run, std::size_t before_run, Progress& progress,
                                       const Publish& publish) const {
  const auto write = [&](const Outcome& outcome) {
    return !is_rank_0() || publish(files_of(run, outcome, summarise(run, outcome), machinery_));
  };
  progress.begin_common_phase(before_run, run);
  const auto directory = run_directory(options_.results_directory, run, machinery_.mpi != nullptr);
  const CheckpointUse checkpoints{.file = checkpoint_of(directory),
                                  .below = experiment_directory(options_.results_directory, run.experiment),
                                  .is_taken_up = !options_.rerun};
  const Outcome outcome = execute(run, machinery_, progress, write, &checkpoints);
  progress.end_common_phase();
  if (!is_rank_0()) return {};
  const RunSummary summary = summarise(run, outcome);
  Phase phase;
  try {
    if (!write(outcome)) return {};
    if (summary.status != RunStatus::failed) remove_checkpoint(checkpoints.file);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::filesystem::filesystem_error& problem) {  // what starts at it could not be kept either
    throw ResultsDirectoryFault(disk_fault(experiment_directory(options_.results_directory, run.experiment), problem));
  } catch (const std::exception& problem) {
    phase.failure = fmt::format("its results cannot be written: {}", problem.what());
    return phase;
  }
  if (summary.status != RunStatus::finished)
    phase.failure = summary.reason.empty() ? to_string(summary.status) : summary.reason;
  else
    phase = end_of(run, {.parameters = one_after_the_other(outcome.recording.parameters),
                         .buffers = one_after_the_other(outcome.recording.buffers)});
  return phase;
}

void start_at(Run& run, const CommonPhases::Phase& phase) {
  run.training.start = phase.end;
  if (!phase.end || run.taken.empty()) return;
  StartingPoint start = *phase.end;
  start.taken = run.taken;
  run.training.start = std::make_shared<const StartingPoint>(std::move(start));
}

// What rank 0 has, on all.
CommonPhases::Phase CommonPhases::shared(Phase phase) const {
  const MpiSession& session = *machinery_.together();
  const bool has_failed = from_rank_0(session, std::vector<int>{!phase.failure.empty()}).front() != 0;
  if (has_failed) return {.failure = is_rank_0() ? phase.failure : "on rank 0"};
  const StartingPoint own = phase.end ? *phase.end : StartingPoint{};
  return {.end = std::make_shared<const StartingPoint>(StartingPoint{.parameters = from_rank_0(session, own.parameters),
                                                                     .buffers = from_rank_0(session, own.buffers)})};
}

}  // namespace syncopate
