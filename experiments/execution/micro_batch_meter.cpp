#include "experiments/execution/micro_batch_meter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "experiments/execution/mpi_exchange.hpp"
#include "experiments/execution/rank_agreement.hpp"
#include "results/directory/finished_run.hpp"
#include "results/directory/replaced_file.hpp"
#include "results/directory/run_directory.hpp"
#include "results/formats/host.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/process/interrupt.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// [{"host", "work", "micro_batch_s"}, ...]; empty where the file is not there.
Json entries_of(const fs::path& file) {
  const auto text = read_file(file);
  if (!text) return Json::array();
  Json entries = Json::parse(*text);
  if (!entries.is_array()) throw std::runtime_error("not a list");
  return entries;
}

bool is_of(const Json& entry, const MicroBatchWork& work) {
  return entry.at("host") == host_name() && entry.at("work") == work.key;
}

}  // namespace

double measure_micro_batch_s(const Objective& objective, std::uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  constexpr int warm_up = 10, most = 60, fewest = 5;
  constexpr double enough_s = 5;
  const std::vector<float> parameters = objective.initial_parameters(seed);
  const std::vector<float> buffers = objective.initial_buffers();
  const auto spent = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  std::vector<double> times;
  const auto begin = Clock::now();
  for (int i = 0; i < warm_up + most; ++i) {
    if (i >= warm_up + fewest && spent(begin) > enough_s) break;
    const MicroBatch micro_batch{.worker = Rank{0}, .step = i, .index = 0};
    const auto start = Clock::now();
    objective.gradient(parameters.data(), buffers.empty() ? nullptr : buffers.data(), std::span(&micro_batch, 1));
    times.push_back(spent(start));
  }
  times.erase(times.begin(), times.begin() + warm_up);
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return std::max(1.0, std::round(*middle * 1e9)) / 1e9;
}

double MicroBatchMeter::kept_or_measured(const MicroBatchWork& work) const {
  const fs::path file = experiment_directory(options_.results_directory, work.experiment) / "measured.json";
  try {
    Json entries = entries_of(file);
    const auto found = std::ranges::find_if(entries, [&](const Json& entry) { return is_of(entry, work); });
    if (found != entries.end() && !options_.remeasure) {
      const double kept = found->at("micro_batch_s");
      if (!(kept > 0)) throw std::runtime_error("a time that is not above 0");
      return kept;
    }
    const double measured = measure_micro_batch_s(*work.load(), work.seed);
    Json entry = {{"host", host_name()}, {"work", work.key}, {"micro_batch_s", measured}};
    if (found != entries.end()) {
      *found = std::move(entry);
    } else {
      entries.push_back(std::move(entry));
    }
    if (options_.keep) {
      fs::create_directories(file.parent_path());
      replace_file(file, entries.dump(2) + "\n");
    }
    return measured;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    throw ConfigurationFault(
        fmt::format("cluster.micro_batch_s = \"measured\" ({}): {}", file.string(), problem.what()));
  }
}

double MicroBatchMeter::seconds(const MicroBatchWork& work) {
  if (const auto known = known_.find(work.key); known != known_.end()) return known->second;
  if (options_.mpi) {
    const std::string value = fmt::format("to be measured, for {}", work.key);
    agree(*options_.mpi, {.fault = {}, .identity = value, .plan = {{"cluster.micro_batch_s", value}}});
  }
  const bool measures = !options_.mpi || options_.mpi->rank() == 0;
  double value = 0;
  std::string problem;
  if (measures) {
    try {
      value = kept_or_measured(work);
    } catch (const ConfigurationFault& fault) {
      problem = fault.what();
    }
  }
  if (options_.mpi && options_.mpi->active()) value = from_rank_0(*options_.mpi, value);
  if (value == 0) throw ConfigurationFault(problem);  // only rank 0 speaks
  return known_[work.key] = value;
}

}  // namespace syncopate
