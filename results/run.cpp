#include "results/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace syncopate {

std::optional<Step> planned_steps(const Run& run) {
  std::optional<Step> planned = run.budget.steps;
  if (run.budget.samples) {
    const std::int64_t per_step = static_cast<std::int64_t>(run.cluster.workers) * run.cluster.micro_batches *
                                  run.training.samples_per_micro_batch;
    const Step by_samples = std::max<std::int64_t>(1, *run.budget.samples / per_step);
    planned = planned ? std::min(*planned, by_samples) : by_samples;
  }
  return planned;
}

namespace {

// The last part of a key: "threshold_s" for methods.drop.threshold_s, but "delays.0" for delays.0, since a number alone
// says nothing.
std::string_view last_name(std::string_view key) {
  const std::size_t dot = key.rfind('.');
  if (dot == key.npos) return key;
  const bool is_number = key.find_first_not_of("0123456789", dot + 1) == key.npos;
  const std::size_t before = is_number && dot > 0 ? key.rfind('.', dot - 1) : dot;
  return before == key.npos ? key : key.substr(before + 1);
}

void add_leaves(const TomlNode& node, const std::string& key, bool by_label, KeyValues& leaves) {
  const std::string prefix = key.empty() ? "" : key + ".";
  if (node.is_table()) {
    for (const TomlNode::Member& member : node.table())
      add_leaves(member.value, prefix + toml_key(member.key), by_label, leaves);
  } else if (node.is_array_of_tables()) {
    for (std::size_t i = 0; i < node.array().size(); ++i) {
      const TomlNode* label = by_label ? node.array()[i].find("label") : nullptr;
      const bool is_named = label && std::holds_alternative<std::string>(label->value);
      add_leaves(node.array()[i], prefix + (is_named ? toml_key(text_in(label)) : std::to_string(i)), by_label, leaves);
    }
  } else {
    leaves.emplace_back(key, inline_toml(node));
  }
}

constexpr std::array<std::pair<double, char>, 3> sizes = {{{1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}}};

// "1.25G" for 1250000000; nullopt if six digits do not give the exact number, or if it is below 1000.
std::optional<std::string> in_thousands(double number) {
  constexpr double rounding = 1e-12;
  for (const auto& [size, letter] : sizes) {
    if (std::abs(number) < size) continue;
    const std::string text = fmt::format("{:.6g}", number / size);
    const bool is_same = std::abs(number_in(text).value_or(0) * size - number) <= rounding * std::abs(number);
    return is_same ? std::optional(text + letter) : std::nullopt;
  }
  return {};
}

// Shortens a number if it is at least 10000, as figures do: "1.25G" for 1250000000.0.
std::string short_value(const std::string& value) {
  constexpr double shortened_from = 1e4;
  const std::optional<double> number = number_in(value);
  return number && std::abs(*number) >= shortened_from ? in_thousands(*number).value_or(value) : value;
}

bool is_rate(const std::string& value) {
  const std::size_t end = value.find_first_not_of("0123456789.");
  if (end == 0 || end == value.npos || value[end] != ' ') return false;
  std::string_view unit = std::string_view(value).substr(end + 1);
  if (!unit.empty() && std::string_view("kMGT").find(unit.front()) != unit.npos) unit.remove_prefix(1);
  return unit == "bit/s" || unit == "B/s" || unit == "bytes/s";
}

// The text of a value that needs no key: a variant, or a bandwidth as "10 Gbit/s", even if the file has it in bytes.
// Empty for other values. Figures use the same rule (plots/comparison.py).
std::string alone(const std::string& key, const std::string& value) {
  if (key == "variant") return value;
  if (!key.ends_with("bandwidth_bytes_per_s")) return {};
  if (is_rate(value)) return value;
  const std::optional<double> number = number_in(value);
  if (!number || !(*number > 0)) return {};
  std::string text = in_thousands(8 * *number).value_or("");
  return text.empty() ? text : text.insert(text.size() - 1, 1, ' ') + "bit/s";
}

}  // namespace

std::optional<double> number_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

KeyValues leaves_of(const TomlNode& document, bool by_label) {
  KeyValues leaves;
  add_leaves(document, "", by_label, leaves);
  return leaves;
}

std::string run_label(const std::string& method, const KeyValues& sweep) {
  std::string label = method;
  for (const auto& [key, value] : sweep) {
    const std::string text = alone(key, value);
    label += text.empty() ? fmt::format(", {} = {}", last_name(key), short_value(value)) : ", " + text;
  }
  return label;
}

std::string run_label(const RunName& run) { return run_label(run.method, run.sweep); }
std::string label_with_seed(const RunName& run) { return fmt::format("{}, seed {}", run_label(run), run.seed); }

TomlNode keys_of_training(const TomlNode& resolved, std::span<const char* const> keys) {
  TomlNode found;
  const TomlNode* training = resolved.find("training");
  for (const char* const key : keys)
    if (const TomlNode* value = training ? training->find(key) : nullptr) found.set(key, {}, *value);
  for (const auto& [tables, chosen] : {std::pair{"models", "model"}, std::pair{"datasets", "dataset"}}) {
    const TomlNode* described = resolved.find(tables);
    const TomlNode* table = described ? described->find(text_in(found.find(chosen))) : nullptr;
    if (table) found.set(tables, {}, *table);
  }
  return found;
}

std::string timing_class(const TomlNode& resolved) {
  constexpr std::array keys = {"model",        "dataset", "micro_batch_size", "batching",
                               "token_budget", "device",  "precision",        "device_batch"};
  return resolved.find("training") ? inline_toml(keys_of_training(resolved, keys)) : "";
}

std::optional<SampledTimes> sample_times(const Run& run) {
  if (!run.cluster.compute_time->has_finite_mean()) return std::nullopt;
  try {
    return sample_times(*run.cluster.compute_time, run.cluster.workers, run.cluster.micro_batches, planned_steps(run));
  } catch (const RunFailure&) {  // a trace is shorter than the sample, though perhaps long enough for the run
    return std::nullopt;
  }
}

KnownExchanges known_exchanges(const Run& run) {
  const auto& compression = run.algorithm->compression();
  const std::vector<ParameterTensor>& tensors = run.training.tensors;
  if (compression && compression->needs_tensors && tensors.empty())
    return {.why_none = "its messages depend on the model's tensors, which are unknown before the model is built"};
  if (compression && compression->follows_values)
    return {.why_none = "the sizes of its messages depend on the tokens of each step"};
  try {
    const int workers = run.cluster.workers, slices = run.algorithm->traits().compressed_slices();
    const Bytes bytes = run.training.parameter_bytes;
    KnownExchanges known;
    if (!compression || (!compression->of_averages() && !compression->of_messages())) {
      known.all = exchanges_of(compression, tensors, bytes, workers);
      return known;
    }
    for (int index = 0; index < slices; ++index) {
      const Slice slice{.index = index, .count = slices};
      const auto own = exchanges_of(compression, tensors, slice.bytes_of(bytes), workers).back().exchanges;
      known.of_average.insert(known.of_average.end(), own.begin(), own.end());
    }
    // Use the last slice, because no slice is larger.
    if (compression->of_messages()) known.packet = std::exchange(known.of_average, {}).back().packet;
    return known;
  } catch (const RunFailure& failure) {  // the run would fail in the same way
    return {.why_none = failure.what()};
  }
}

Step settles_after(const Run& run) {
  const auto& compression = run.algorithm->compression();
  return std::max(run.algorithm->traits().settles_after, compression ? compression->warmup_steps : Step{});
}

bool ends_by_steps(const Budget& budget) { return budget.steps && !budget.seconds && !budget.samples && !budget.bytes; }

FormulaTimes predict_by_formula(const Run& run, const std::optional<SampledTimes>& times) {
  const Traits traits = run.algorithm->traits();
  if (!traits.has_formulas) return {};
  // Once a worker has used up its data, a step waits for the slowest of fewer workers. No formula models this.
  if (!run.cluster.data_of.empty()) return {.why_none = "workers run out of data, so later steps wait for fewer"};
  if (run.cluster.outages) return {.why_none = "outages change which workers a step waits for"};
  if (run.cluster.pauses) return {.why_none = "sleeps and trailing work overlap with the next step"};
  KnownExchanges exchanges = known_exchanges(run);
  if (!exchanges.why_none.empty()) return {.why_none = exchanges.why_none};
  if (!times && !run.cluster.compute_time->has_finite_mean())
    return {.why_none = "the duration of a micro-batch has no finite mean"};
  if (!times) return {.why_none = "the trace has too few steps for a sample"};
  // If the number of steps is unknown, so is the share of the warm-up in them.
  if (const auto& compression = run.algorithm->compression();
      compression && compression->warmup_steps > 0 && !ends_by_steps(run.budget))
    return {.why_none = "the share of the compression's warm-up is unknown unless budget.steps is the only limit"};
  const PredictionInput input{.workers = run.cluster.workers,
                              .micro_batches = run.cluster.micro_batches,
                              .times = *times,
                              .network = *run.cluster.network,
                              .parameter_bytes = run.training.parameter_bytes,
                              .moments = run.training.optimizer->moments(),
                              .budget = run.budget,
                              .samples_per_micro_batch = run.training.samples_per_micro_batch,
                              .learning_rate = *run.training.learning_rate,
                              .exchanges = std::move(exchanges.all),
                              .average_exchanges = std::move(exchanges.of_average),
                              .packet = exchanges.packet};
  FormulaTimes result;
  Forecast forecast = run.algorithm->forecast(input);
  if (run.cluster.network->overlap() && !forecast.minds_overlap && !forecast.predictions.empty())
    return {.why_none = "the time that overlap hides depends on when each worker finishes each bucket"};
  if (traits.sends_messages() && run.cluster.network->has_shared_links() && !forecast.predictions.empty())
    return {.why_none = "messages wait on shared links"};
  for (Prediction& prediction : forecast.predictions) {
    const auto total_time_s = time_of_budget(input, prediction);
    result.all.push_back({std::move(prediction), total_time_s});
  }
  result.why_none = std::move(forecast.why_none);
  return result;
}

}  // namespace syncopate
