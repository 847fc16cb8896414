#include "results/claims/scoreboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "workers/process/printable.hpp"

namespace syncopate {
namespace {

// Two digits of the interval's half width, or four of the number.
int decimals(const JudgedPoint& point) {
  const double half = point.interval ? (point.interval->high - point.interval->low) / 2 : 0;
  const double shown = half > 0 ? half : std::abs(point.mean) / 100;
  if (!(shown > 0) || !std::isfinite(shown)) return 0;
  return std::clamp(1 - static_cast<int>(std::floor(std::log10(shown))), 0, 6);
}

std::string figure_of(const JudgedPoint& point) {
  const int digits = decimals(point);
  const std::string mean = fmt::format("{:.{}f}", point.mean, digits);
  if (!point.interval) return fmt::format("{}, n = {}", mean, point.n);
  return fmt::format("{} [{:.{}f}, {:.{}f}], n = {}", mean, point.interval->low, digits, point.interval->high, digits,
                     point.n);
}

std::string paper_of(const Claim& claim) {
  if (!claim.published) return "-";
  return fmt::format("{} ({}; {})", claim.published->figure, claim.published->source, claim.published->certainty);
}

}  // namespace

std::string our_figure(const ClaimResult& result) {
  if (result.points.empty()) return "-";
  if (result.points.size() == 1) return figure_of(result.points.front());
  const auto [lowest, highest] = std::ranges::minmax_element(result.points, {}, &JudgedPoint::mean);
  return fmt::format("{} to {}, {} points", figure_of(*lowest), figure_of(*highest), result.points.size());
}

std::string scoreboard_text(std::span<const JudgedClaims> experiments) {
  constexpr std::size_t width = 16;
  const std::string indent(width, ' ');
  std::string text;
  for (const JudgedClaims& experiment : experiments) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", printable(experiment.experiment));
    for (const ClaimResult& result : experiment.results) {
      text += fmt::format("{:<{}}{}\n", to_string(result.verdict), width, printable(result.claim.sentence));
      if (result.claim.published) text += fmt::format("{}paper: {}\n", indent, printable(paper_of(result.claim)));
      text += fmt::format("{}ours:  {}\n", indent, our_figure(result));
    }
  }
  return text;
}

TextTable scoreboard_table(std::span<const JudgedClaims> experiments) {
  TextTable table;
  for (const char* const heading : {"experiment", "claim", "paper", "ours", "verdict"})
    table.add_column(heading, Align::left);
  for (const JudgedClaims& experiment : experiments)
    for (const ClaimResult& result : experiment.results)
      table.add_row({experiment.experiment, result.claim.sentence, paper_of(result.claim), our_figure(result),
                     to_string(result.verdict)});
  return table;
}

std::string scoreboard_notes(std::span<const JudgedClaims> experiments) {
  std::array<int, 3> counts{};
  std::string reasons;
  for (const JudgedClaims& experiment : experiments)
    for (const ClaimResult& result : experiment.results) {
      ++counts[static_cast<std::size_t>(result.verdict)];
      if (!result.reason.empty())
        reasons += fmt::format("{}: \"{}\": {}: {}\n", experiment.experiment, result.claim.sentence,
                               to_string(result.verdict), result.reason);
    }
  return fmt::format(
      "{} reproduced, {} not reproduced, {} inconclusive. In brackets: the 95 % interval of the mean over n "
      "seeds (90 % where a margin is claimed).\n{}",
      counts[0], counts[1], counts[2], reasons);
}

}  // namespace syncopate
