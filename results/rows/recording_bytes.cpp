#include "results/rows/recording_bytes.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

#include "results/formats/json.hpp"

namespace syncopate {
namespace {

Json json_of(const MetricsRow& row) {
  Json evaluation;
  if (row.evaluation) {
    const Evaluation& e = *row.evaluation;
    evaluation =
        Json::array({e.test_loss, e.test_accuracy, e.train_loss, e.finite, e.validation_loss, e.validation_accuracy});
  }
  const Json epoch = row.epoch ? Json(*row.epoch) : Json();
  return Json::array({row.step.value(), epoch, row.samples, row.time.time_since_epoch().count(), evaluation,
                      row.learning_rate, row.bytes.value()});
}

MetricsRow row_of(const Json& json) {
  MetricsRow row;
  row.step = json.at(0).get<std::int64_t>();
  if (!json.at(1).is_null()) row.epoch = json.at(1).get<double>();
  row.samples = json.at(2);
  row.time = Time{Duration{json.at(3).get<std::int64_t>()}};
  if (const Json& e = json.at(4); !e.is_null()) {
    row.evaluation = Evaluation{.test_loss = e.at(0),
                                .test_accuracy = e.at(1),
                                .train_loss = e.at(2),
                                .finite = e.at(3),
                                .validation_loss = e.at(4),
                                .validation_accuracy = e.at(5)};
  }
  row.learning_rate = json.at(5);
  row.bytes = json.at(6).get<std::int64_t>();
  return row;
}

Json json_of(const StepRow& row) {
  return Json::array({row.step.value(), row.end.time_since_epoch().count(), row.duration.count(), row.kept, row.dropped,
                      row.period.value(), row.bytes.value()});
}

StepRow step_row_of(const Json& json) {
  const auto number = [&json](std::size_t index) { return json.at(index).get<std::int64_t>(); };
  return {.step = number(0),
          .end = Time{Duration{number(1)}},
          .duration = Duration{number(2)},
          .kept = number(3),
          .dropped = number(4),
          .period = number(5),
          .bytes = number(6)};
}

Json json_of(const Measurement& row) {
  return Json::array({row.step.value(), row.time.time_since_epoch().count(), row.quantity, row.value});
}

Measurement measurement_of(const Json& json) {
  return {.step = json.at(0).get<std::int64_t>(),
          .time = Time{Duration{json.at(1).get<std::int64_t>()}},
          .quantity = json.at(2).get<std::string>(),
          .value = json.at(3).get<double>()};
}

Json json_of(const std::vector<std::vector<float>>& vectors) {
  Json list = Json::array();
  for (const std::vector<float>& vector : vectors) {
    std::vector<std::uint8_t> bytes(vector.size() * sizeof(float));
    if (!bytes.empty()) std::memcpy(bytes.data(), vector.data(), bytes.size());
    list.push_back(Json::binary(std::move(bytes)));
  }
  return list;
}

std::vector<float> floats_of(const std::vector<std::uint8_t>& bytes) {
  std::vector<float> vector(bytes.size() / sizeof(float));
  if (!vector.empty()) std::memcpy(vector.data(), bytes.data(), vector.size() * sizeof(float));
  return vector;
}

}  // namespace

std::vector<std::uint8_t> to_bytes(const Recording& recording) {
  Json metrics = Json::array();
  Json steps = Json::array();
  for (const MetricsRow& row : recording.metrics) metrics.push_back(json_of(row));
  for (const StepRow& row : recording.rows) steps.push_back(json_of(row));
  Json measurements = Json::array();
  for (const Measurement& row : recording.measurements) measurements.push_back(json_of(row));
  return Json::to_cbor({{"metrics", metrics},
                        {"steps", steps},
                        {"measurements", measurements},
                        {"diverged", recording.diverged},
                        {"parameters", json_of(recording.parameters)},
                        {"buffers", json_of(recording.buffers)}});
}

Recording recording_from_bytes(std::span<const std::uint8_t> bytes) {
  try {
    const Json json = Json::from_cbor(bytes.begin(), bytes.end());
    Recording recording;
    for (const Json& row : json.at("metrics")) recording.metrics.push_back(row_of(row));
    for (const Json& row : json.at("steps")) recording.rows.push_back(step_row_of(row));
    for (const Json& row : json.at("measurements")) recording.measurements.push_back(measurement_of(row));
    json.at("diverged").get_to(recording.diverged);
    for (const Json& vector : json.at("parameters")) recording.parameters.push_back(floats_of(vector.get_binary()));
    for (const Json& vector : json.at("buffers")) recording.buffers.push_back(floats_of(vector.get_binary()));
    return recording;
  } catch (const Json::exception& problem) {
    throw std::runtime_error(std::string("not a recording: ") + problem.what());
  }
}

}  // namespace syncopate
