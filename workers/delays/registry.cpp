#include "workers/delays/registry.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "workers/delays/bounded_lognormal.hpp"
#include "workers/delays/constant.hpp"
#include "workers/delays/exponential.hpp"
#include "workers/delays/gamma.hpp"
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

std::shared_ptr<const DelayProcess> make_delay(Settings& settings, double base_s) {
  static constexpr std::array<std::string_view, 2> units = {"seconds", "micro_batch"};
  const DelayRow* row = chosen(settings, delay_rows);
  const double unit_s = settings.choice("unit", units, "seconds") == "micro_batch" ? base_s : 1.0;
  return row ? row->make(settings, unit_s) : constant_delay(0);
}

}  // namespace syncopate
