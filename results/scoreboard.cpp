#include "results/claims/scoreboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "results/claims/shown_effect.hpp"
#include "results/tables/folded_text.hpp"
#include "workers/process/printable.hpp"
#include "workers/process/shown_number.hpp"

namespace syncopate {
namespace {

// As the measure is shown: a share in percent.
JudgedPoint shown(JudgedPoint point, const ShownEffect& effect) {
  point.mean *= effect.times;
  if (point.interval)
    point.interval = Interval{point.interval->low * effect.times, point.interval->high * effect.times};
  return point;
}

std::string figure_of(const JudgedPoint& judged, const ShownEffect& effect) {
  const JudgedPoint point = shown(judged, effect);
  const double half = point.interval ? (point.interval->high - point.interval->low) / 2 : 0;
  const SamePlace text = SamePlace::of(point.mean, half);
  std::string figure = text(point.mean);
  if (!effect.unit.empty()) figure += " " + effect.unit;
  if (point.interval) figure += fmt::format(" [{}, {}]", text(point.interval->low), text(point.interval->high));
  figure += fmt::format(", n = {}", point.n);
  const bool is_in_hours = effect.unit == "h";
  if (const auto& restricted = point.restricted)
    figure += fmt::format(" (up to {} {}, reached by {} and {})",
                          shown_number(is_in_hours ? restricted->horizon_s * effect.times : restricted->horizon_s),
                          is_in_hours ? "h" : "s", restricted->own_reached, restricted->other_reached);
  return figure;
}

// Of claims that were judged before sign flips had a say.
const char* rule_of(const ClaimResult& result) {
  const auto is_by_interval = [&](const JudgedPoint& point) {
    return is_by_interval_alone(point, result.claim.order.empty() ? result.claim.criterion : Criterion{.above = 0.0});
  };
  return std::ranges::any_of(result.points, is_by_interval) ? " (t alone)" : "";
}

std::string paper_of(const Claim& claim) {
  if (!claim.published) return "-";
  return fmt::format("{} ({}; {})", claim.published->figure, claim.published->source, claim.published->certainty);
}

// The interval and what was wanted say it.
bool goes_without_saying(const ClaimResult& result) { return result.reason.empty() || result.reason == both_answers; }

std::string verdict_text(const ClaimResult& result) {
  const std::string verdict = to_string(result.verdict) + rule_of(result);
  return goes_without_saying(result) ? verdict : fmt::format("{}: {}", verdict, result.reason);
}

}  // namespace

std::string our_figure(const ClaimResult& result) {
  if (result.points.empty()) return "-";
  const ShownEffect effect = readable_effect(result.claim, result.points);
  if (result.points.size() == 1) return figure_of(result.points.front(), effect);
  const auto [lowest, highest] = std::ranges::minmax_element(result.points, {}, &JudgedPoint::mean);
  return fmt::format("{} to {}, {} points", figure_of(*lowest, effect), figure_of(*highest, effect),
                     result.points.size());
}

std::string scoreboard_text(std::span<const JudgedClaims> experiments, std::size_t width) {
  constexpr std::size_t place = 16, place_of_figures = 24;
  const std::string indent(place, ' ');
  std::string text;
  const auto add = [&](const char* what, const std::string& figures) {
    text += fold_lines(fmt::format("{}{:<8}{}\n", indent, what, figures), width, place_of_figures);
  };
  for (const JudgedClaims& experiment : experiments) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", printable(experiment.experiment));
    for (const ClaimResult& result : experiment.results) {
      text += fold_lines(fmt::format("{:<{}}{}\n", to_string(result.verdict), place, printable(result.claim.sentence)),
                         width, place);
      if (result.claim.published) add("paper:", printable(paper_of(result.claim)));
      add("wanted:", printable(subject_of(result.claim)) + ": " + wanted_by(result.claim, result.points));
      add("ours:", our_figure(result) + rule_of(result));
      if (!goes_without_saying(result)) add("reason:", printable(result.reason));
    }
  }
  return text;
}

TextTable scoreboard_table(std::span<const JudgedClaims> experiments) {
  TextTable table;
  for (const char* const heading : {"experiment", "claim", "wanted", "paper", "ours", "verdict"})
    table.add_column(heading, Align::left);
  for (const JudgedClaims& experiment : experiments)
    for (const ClaimResult& result : experiment.results)
      table.add_row({experiment.experiment, result.claim.sentence, wanted_by(result.claim, result.points),
                     paper_of(result.claim), our_figure(result), verdict_text(result)});
  return table;
}

std::string scoreboard_notes(std::span<const JudgedClaims> experiments) {
  constexpr const char* alone_note =
      "(t alone): judged by the interval alone, before a sign-flip test over 6 to 20 seeds had to agree.\n";
  constexpr const char* restricted_note =
      "(up to T s, reached by k and m): not all seeds reached the target; times count up to T (restricted means).\n";
  std::array<int, 3> counts{};
  bool alone = false, restricted = false;
  for (const JudgedClaims& experiment : experiments)
    for (const ClaimResult& result : experiment.results) {
      ++counts[static_cast<std::size_t>(result.verdict)];
      alone = alone || *rule_of(result) != '\0';
      restricted = restricted || std::ranges::any_of(result.points, [](const JudgedPoint& point) {
                     return point.restricted.has_value();
                   });
    }
  return fmt::format(
      "{} reproduced, {} not reproduced, {} inconclusive.\n"
      "In brackets: the 95 % interval of the mean over n seeds (90 % where a margin is claimed);\n"
      "where it holds both answers, or another reason is given, a claim is inconclusive.\n{}{}",
      counts[0], counts[1], counts[2], alone ? alone_note : "", restricted ? restricted_note : "");
}

}  // namespace syncopate
