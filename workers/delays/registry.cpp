#include "workers/delays/registry.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "workers/delays/bounded_lognormal.hpp"
#include "workers/delays/constant.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/delays/gamma.hpp"
#include "workers/delays/limits.hpp"
#include "workers/delays/normal.hpp"
#include "workers/delays/uniform.hpp"

namespace syncopate {
namespace {

constexpr std::array delay_rows = {
    DelayRow{"constant", "The same delay for every micro-batch: value.", read_constant_delay},
    DelayRow{"uniform", "Uniform between low and high.", read_uniform_delay},
    DelayRow{"normal", "Normal with mean and standard_deviation; may be negative.", read_normal_delay},
    DelayRow{"exponential", "Exponential with mean.", read_exponential_delay},
    DelayRow{"gamma", "Gamma with shape and scale: mean shape x scale.", read_gamma_delay},
    DelayRow{"bounded-lognormal",
             "DropCompute's simulated stragglers: scale x a bounded log-normal, form = \"table\" or \"formula\".",
             read_bounded_lognormal_delay},
};

std::unique_ptr<NetworkModel> read_fixed_network(Settings& settings) {
  return make_fixed_network(settings.number("latency_s", Range::between(0, longest_delay)));
}

std::unique_ptr<NetworkModel> read_ring_network(Settings& settings) {
  const double latency_s = settings.number("latency_s", Range::between(0, longest_delay));
  const double bandwidth_bytes_per_s = settings.number("bandwidth_bytes_per_s", Range::positive());
  return make_ring_network(latency_s, std::max(bandwidth_bytes_per_s, 1e-300));
}

std::unique_ptr<NetworkModel> make_free_network(Settings&) { return make_fixed_network(0); }

constexpr std::array network_rows = {
    NetworkRow{"fixed", "Every collective and message takes latency_s, whatever its size.", read_fixed_network},
    NetworkRow{"ring", "latency_s per hop and bandwidth_bytes_per_s: ring all-reduce, direct messages.",
               read_ring_network},
    NetworkRow{"free", "Communication takes no time.", make_free_network},
};

// The row that `kind` names; nothing after a fault.
template <typename Rows>
auto chosen(Settings& settings, const Rows& rows) -> const typename Rows::value_type* {
  std::vector<std::string_view> names;
  for (const auto& row : rows) names.push_back(row.name);
  const std::string kind = settings.choice("kind", names);
  const auto row = std::ranges::find(rows, kind, &Rows::value_type::name);
  return row != rows.end() ? &*row : nullptr;
}

}  // namespace

std::span<const DelayRow> delays() { return delay_rows; }
std::span<const NetworkRow> networks() { return network_rows; }

std::shared_ptr<const DelayProcess> make_delay(Settings& settings, double base_s) {
  static constexpr std::array<std::string_view, 2> units = {"seconds", "micro_batch"};
  const DelayRow* row = chosen(settings, delay_rows);
  const double unit_s = settings.choice("unit", units, "seconds") == "micro_batch" ? base_s : 1.0;
  return row ? row->make(settings, unit_s) : constant_delay(0);
}

std::unique_ptr<NetworkModel> make_network(Settings& settings) {
  const NetworkRow* row = chosen(settings, network_rows);
  return row ? row->make(settings) : make_fixed_network(0);
}

}  // namespace syncopate
