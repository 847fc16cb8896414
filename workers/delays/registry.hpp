// The delay families that an experiment file may name. One row each: its name,
// one sentence for `syncopate list` and the messages, and the factory that reads its keys.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "experiments/settings.hpp"
#include "workers/delays/compute_time.hpp"

namespace syncopate {

// `unit_s`: the seconds that one unit of the entry's quantities stands for.
struct DelayRow {
  std::string_view name;
  std::string_view sentence;
  std::shared_ptr<const DelayProcess> (*make)(Settings& settings, double unit_s);
};

std::span<const DelayRow> delays();

// One entry of [[delays]]: `kind`, the keys of that family, and `unit`: "seconds" (the default) or
// "micro_batch", multiples of base_s (cluster.micro_batch_s). Faults are collected by `settings`;
// with an unknown kind the result is a delay of 0 s, so it is never null.
std::shared_ptr<const DelayProcess> make_delay(Settings& settings, double base_s);

}  // namespace syncopate
