#include "results/directory/tuning_json.hpp"

#include <algorithm>
#include <exception>

#include "results/formats/digested_json.hpp"
#include "results/formats/json.hpp"
#include "results/formats/optional_json.hpp"

namespace syncopate {
namespace {

using Names = std::vector<std::pair<std::string, std::string>>;

Json json_of(const Names& names) {
  Json json = Json::object();
  for (const auto& [key, value] : names) json[key] = value;
  return json;
}

Names names_of(const Json& json) {
  Names names;
  for (const auto& [key, value] : json.items()) names.emplace_back(key, value.get<std::string>());
  return names;
}

// Of a key that is written only where there is something to say.
std::optional<double> written_at(const Json& json, const char* key) {
  return json.contains(key) ? std::optional(json.at(key).get<double>()) : std::nullopt;
}

Json json_of(const TriedSetting& setting) {
  Json json{{"values", json_of(setting.values)}, {"mean", or_null(setting.mean)}, {"trials", Json::array()}};
  for (const TunedTrial& trial : setting.trials) {
    json["trials"].push_back(
        {{"seed", trial.seed}, {"hash", trial.hash}, {"status", trial.status}, {"value", or_null(trial.value)}});
    if (trial.missed_by) json["trials"].back()["missed_by"] = *trial.missed_by;
  }
  return json;
}

TriedSetting setting_of(const Json& json) {
  TriedSetting setting{.values = names_of(json.at("values")), .mean = optional_at<double>(json, "mean")};
  for (const Json& trial : json.at("trials"))
    setting.trials.push_back({.seed = trial.at("seed"),
                              .hash = trial.at("hash"),
                              .status = trial.at("status"),
                              .value = optional_at<double>(trial, "value"),
                              .missed_by = written_at(trial, "missed_by")});
  return setting;
}

Json json_of(const TunedMethod& method) {
  Json json{{"method", method.method}, {"point", json_of(method.point)}};
  json["chosen"] = method.chosen ? json_of(method.settings[*method.chosen].values) : Json(nullptr);
  json["mean"] = method.chosen ? or_null(method.settings[*method.chosen].mean) : Json(nullptr);
  json["number_of_trials"] = method.trials();
  if (method.horizon) json["horizon"] = *method.horizon;
  json["extended"] = method.extended;
  json["at_edge"] = method.at_edge;
  json["settings"] = Json::array();
  for (const TriedSetting& setting : method.settings) json["settings"].push_back(json_of(setting));
  return json;
}

TunedMethod method_of(const Json& json) {
  TunedMethod method{.method = json.at("method"),
                     .point = names_of(json.at("point")),
                     .horizon = written_at(json, "horizon"),
                     .extended = json.at("extended"),
                     .at_edge = json.at("at_edge")};
  for (const Json& setting : json.at("settings")) {
    method.settings.push_back(setting_of(setting));
    if (setting.at("values") == json.at("chosen")) method.chosen = method.settings.size() - 1;
  }
  return method;
}

}  // namespace

const char* tuning_file(bool mpi) { return mpi ? "tuning-mpi.json" : "tuning.json"; }

std::size_t TunedMethod::trials() const {
  std::size_t number = 0;
  for (const TriedSetting& setting : settings) number += setting.trials.size();
  return number;
}

std::size_t TunedMethod::reached(const TriedSetting& setting) const {
  return static_cast<std::size_t>(std::ranges::count_if(setting.trials, [&](const TunedTrial& trial) {
    return trial.value && !trial.missed_by && (!horizon || *trial.value <= *horizon);
  }));
}

std::string to_json(const Tuning& tuning) {
  Json json{{"schema_version", tuning_schema_version},
            {"experiment", tuning.experiment},
            {"measure", tuning.measure},
            {"seeds", tuning.seeds},
            {"where", json_of(tuning.where)},
            {"methods", Json::array()}};
  for (const TunedMethod& method : tuning.methods) json["methods"].push_back(json_of(method));
  return with_digest(json);
}

std::optional<Tuning> tuning_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema_version") != tuning_schema_version || !is_as_written(text, json, "methods")) return {};
    Tuning tuning{.experiment = json.at("experiment"),
                  .measure = json.at("measure"),
                  .seeds = json.at("seeds"),
                  .where = names_of(json.at("where"))};
    for (const Json& method : json.at("methods")) tuning.methods.push_back(method_of(method));
    return tuning;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace syncopate
