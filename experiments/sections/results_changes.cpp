#include "experiments/sections/results_changes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "results/run/results_version.hpp"

namespace syncopate {
namespace {

// A change that altered the results of some runs. Where the exact set is hard to tell, name too many runs rather than too
// few: such a run is only repeated. What only rows say differently, such as the learning rate of the first row, is no
// change of a run; nor is it one that only runs show which diverge.
struct ResultsChange {
  int version;
  bool (*alters)(const TomlNode& resolved);
};

// The one method of a run; null in a document without methods.
const TomlNode* method_of(const TomlNode& resolved) {
  const TomlNode* const methods = resolved.find("methods");
  return methods && methods->is_array() && !methods->array().empty() ? &methods->array().front() : nullptr;
}

// A key of [training], or of the method's own; null if neither has it.
const TomlNode* training_key(const TomlNode& resolved, std::string_view key) {
  const TomlNode* const method = method_of(resolved);
  const TomlNode* const own = method ? method->find("training") : nullptr;
  if (const TomlNode* const found = own ? own->find(key) : nullptr) return found;
  const TomlNode* const training = resolved.find("training");
  return training ? training->find(key) : nullptr;
}

std::string_view text(const TomlNode* node) {
  const auto* const value = node ? std::get_if<std::string>(&node->value) : nullptr;
  return value ? std::string_view(*value) : std::string_view();
}

// 0 for what is no number.
double number(const TomlNode* node) {
  if (!node) return 0;
  if (const auto* const whole = std::get_if<std::int64_t>(&node->value)) return static_cast<double>(*whole);
  const auto* const real = std::get_if<double>(&node->value);
  return real ? *real : 0;
}

bool has_a_model(const TomlNode& resolved) { return text(training_key(resolved, "model")) != "none"; }

// Workers clip the gradients that they send; before, the server clipped each step's, after weights and means.
bool clips_what_workers_send(const TomlNode& resolved) {
  static constexpr std::string_view servers_of_gradients[] = {
      "backup-workers", "backup-tokens", "backup-timeout", "dynamic-backup",    "k-sync",        "k-batch-sync",
      "mindflayer",     "async-sgd",     "softsync",       "k-async",           "k-batch-async", "ringmaster",
      "throttle",       "bounded-delay", "sliding-window", "stale-synchronous",
  };
  const TomlNode* const method = method_of(resolved);
  return method && has_a_model(resolved) && number(training_key(resolved, "clip_norm")) > 0 &&
         std::ranges::find(servers_of_gradients, text(method->find("algorithm"))) != std::end(servers_of_gradients);
}

// The weight of a stale gradient, or of a repeat, is one of the rate; before, it was one of the gradient.
bool weighs_updates(const TomlNode& resolved) {
  const TomlNode* const method = method_of(resolved);
  if (!method || !has_a_model(resolved)) return false;
  if (text(method->find("algorithm")) == "throttle") {
    const double divisor = number(method->find("divisor"));
    const bool weighs_all_alike = divisor == 1 && text(method->find("repeats")) != "alone";
    return !weighs_all_alike && !std::isinf(divisor);  // an endless one drops repeats
  }
  const std::string_view rule = text(method->find("staleness_weight"));
  return !rule.empty() && rule != "none";
}

// Whether a table anywhere in it gives this text to this key.
bool says(const TomlNode& node, std::string_view key, std::string_view word) {
  if (node.is_array())
    return std::ranges::any_of(node.array(), [&](const TomlNode& each) { return says(each, key, word); });
  if (!node.is_table()) return false;
  return text(node.find(key)) == word || std::ranges::any_of(node.table(), [&](const TomlNode::Member& member) {
           return says(member.value, key, word);
         });
}

bool says_one_of(const TomlNode& node, std::string_view key, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return says(node, key, word); });
}

// Bias was corrected by one step count for both moments, which went on where one of them was reset, or lost with a
// worker's state, and was each worker's own where moments were averaged.
bool corrects_bias_otherwise(const TomlNode& resolved) {
  if (!says_one_of(resolved, "name", {"adam", "adamw", "lamb", "lans", "rmsprop"})) return false;
  const bool one_is_reset = says(resolved, "first_moment", "reset") != says(resolved, "second_moment", "reset");
  // DES-LOC's workers all count the same steps.
  const bool is_averaged = says(resolved, "first_moment", "average") || says(resolved, "second_moment", "average");
  return one_is_reset || is_averaged || says(resolved, "state", "lost");
}

// buffers.npy had the statistics before they were estimated.
bool recalibrates(const TomlNode& resolved) { return says(resolved, "buffers", "recalibrate"); }

// Parameters without gradients moved by the scale of the others.
bool is_one_bit_adam(const TomlNode& resolved) { return says(resolved, "algorithm", "one-bit-adam"); }

// Messages share links with all that passes them; before, each took what it takes alone. On all networks what a worker
// has sent is communication of its account until it has arrived, if it has nothing else to do; before, it waited.
bool sends_messages(const TomlNode& resolved) {
  static constexpr std::string_view collectives_alone[] = {
      "sync-sgd",
      "dropcompute",
      "random-drop",
      "stale-sgd",
      "one-bit-adam",
      "backup-all-reduce",
      "eager-sgd",
      "local-sgd",
      "adacomm",
      "des-loc",
      "outer-local-sgd",
      "palsgd",
      "edit",
      "co2",
      "cocod-sgd",
      "overlap-local-sgd",
      "overlapped-diloco",
      "streaming-diloco",
      "dropcompute-local-sgd",
      "branch-train-merge",
  };
  const TomlNode* const network = resolved.find("network");
  const TomlNode* const method = method_of(resolved);
  if (!network || !method) return false;
  const std::string_view kind = text(network->find("kind")), algorithm = text(method->find("algorithm"));
  if (kind == "free") return false;
  // Jitter multiplies each of a star's two ways, which are rounded to nanoseconds one by one.
  if (kind == "parameter-server" && number(network->find("jitter")) > 0) return true;
  // Averages of its groups share the uplinks of networks with groups, and meet nobody elsewhere.
  if (algorithm == "hierarchical-sgd") return kind == "two-level";
  // Without a server.
  if (algorithm == "elastic-averaging" && text(method->find("exchange")) == "synchronous") return false;
  if (algorithm == "dynamic-averaging" && text(method->find("checks")) == "gathered") return false;
  return std::ranges::find(collectives_alone, algorithm) == std::end(collectives_alone);
}

// Each worker, and each server, begins its slices with another one; before, all went to the first one first, whatever the
// network.
bool sends_slices(const TomlNode& resolved) {
  const TomlNode* const method = method_of(resolved);
  return method && number(method->find("servers")) > 1;
}

// Newest last. A version is raised once per release; several changes may share it.
const std::vector<ResultsChange>& results_changes() {
  static const std::vector<ResultsChange> changes = {
      {6, clips_what_workers_send},
      {6, weighs_updates},
      {6, corrects_bias_otherwise},
      {6, recalibrates},
      {6, is_one_bit_adam},
      {7, sends_messages},
      {7, sends_slices},
  };
  return changes;
}

}  // namespace

int results_version_of(const TomlNode& resolved) {
  int version = first_selective_results_version;
  for (const ResultsChange& change : results_changes())
    if (change.alters(resolved)) version = std::max(version, change.version);
  return version;
}

}  // namespace syncopate
