// tuning.json beside an experiment's runs: what each method was tried with, and what was chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace syncopate {

inline constexpr int tuning_schema_version = 1;

// The file of trials on virtual time, or under MPI.
const char* tuning_file(bool mpi);

struct TunedTrial {
  std::uint64_t seed = 0;
  std::string hash;
  std::string status;             // as that of a run
  std::optional<double> value{};  // the measure; none: the trial has none, and counts as the worst
  // Of a trial that missed its target, by how much, in the target's unit; `value` is then until its end. None: it
  // reached the target, or the measure goes by none.
  std::optional<double> missed_by{};
};

struct TriedSetting {
  std::vector<std::pair<std::string, std::string>> values{};  // key and value
  std::optional<double> mean{};  // over the seeds, up to the method's horizon; none: a trial has no value
  std::vector<TunedTrial> trials{};
};

struct TunedMethod {
  std::string method{};
  std::vector<std::pair<std::string, std::string>> point{};  // of what varies: where it was tuned by itself
  std::optional<std::size_t> chosen{};                       // of the settings; none: no setting has a mean
  // Where trials missed their target: up to when all of them are known. Means are restricted to it.
  std::optional<double> horizon{};
  std::vector<std::string> extended{};  // keys whose grid was extended
  std::vector<std::string> at_edge{};   // keys that are at an edge of the grid in what was chosen
  std::vector<TriedSetting> settings{};

  std::size_t trials() const;
  // Of a setting, those that reached the target by the horizon.
  std::size_t reached(const TriedSetting& setting) const;
};

struct Tuning {
  std::string experiment{};
  std::string measure{};
  std::vector<std::uint64_t> seeds{};
  std::vector<std::pair<std::string, std::string>> where{};  // at which values of what varies, for all of them
  std::vector<TunedMethod> methods{};
};

std::string to_json(const Tuning& tuning);

// Nothing if the text is not of this schema version, or is no longer as it was written.
std::optional<Tuning> tuning_from_json(const std::string& text);

}  // namespace syncopate
