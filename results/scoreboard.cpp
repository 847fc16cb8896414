#include "results/scoreboard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

#include "results/claims.hpp"
#include "results/summary.hpp"
#include "results/text_table.hpp"
#include "workers/base/terminal_text.hpp"

namespace syncopate {

namespace {

const char* word_of(Effect effect) {
  return effect == Effect::value        ? "value"
         : effect == Effect::difference ? "difference"
         : effect == Effect::ratio      ? "ratio"
                                        : "best";
}

Effect effect_of(const std::string& word) {
  return word == "ratio"        ? Effect::ratio
         : word == "difference" ? Effect::difference
         : word == "best"       ? Effect::best
                                : Effect::value;
}

Verdict verdict_named(const std::string& word) {
  for (const Verdict verdict : {Verdict::reproduced, Verdict::not_reproduced, Verdict::inconclusive})
    if (to_string(verdict) == word) return verdict;
  throw std::runtime_error("no verdict");
}

Json interval_json(const std::optional<Interval>& interval) {
  return interval ? Json{interval->low, interval->high} : Json();
}

std::optional<Interval> interval_at(const Json& json, const char* key) {
  if (!json.contains(key) || json.at(key).is_null()) return {};
  return Interval{json.at(key).at(0), json.at(key).at(1)};
}

std::optional<double> number_at(const Json& json, const char* key) {
  return json.contains(key) ? std::optional(json.at(key).get<double>()) : std::nullopt;
}

std::optional<Restriction> restriction_at(const Json& point) {
  if (!point.contains("restricted")) return {};
  const Json& json = point.at("restricted");
  return Restriction{json.at("horizon_s"), json.at("own_reached"), json.at("other_reached")};
}

Json criterion_json(const Criterion& criterion) {
  Json json = Json::object();
  if (criterion.above) json["above"] = *criterion.above;
  if (criterion.below) json["below"] = *criterion.below;
  if (criterion.within) json["within"] = interval_json(criterion.within);
  if (criterion.margin) json["margin"] = *criterion.margin;
  return json;
}

Json json_of(const ClaimResult& result) {
  const Claim& claim = result.claim;
  Json json = {{"sentence", claim.sentence}, {"measure", claim.measure}};
  if (claim.order.empty()) {
    json["method"] = claim.method;
    if (!claim.against.empty()) json["against"] = claim.against;
    json["as"] = word_of(claim.effect);
  } else {
    json["order"] = claim.order;
  }
  if (!claim.where.empty()) json["where"] = claim.where;
  if (claim.everywhere) json["everywhere"] = true;
  if (!claim.over.empty()) {
    json["over"] = claim.over;
    json["per_doubling"] = claim.per_doubling;
  }
  json["criterion"] = criterion_json(claim.criterion);
  if (claim.published) {
    json["paper"] = {{"figure", claim.published->figure},
                     {"source", claim.published->source},
                     {"certainty", claim.published->certainty}};
    if (claim.published->value) json["paper"]["value"] = *claim.published->value;
  }
  const ShownEffect shown = shown_effect(claim);  // for programs that show it: it follows from the claim
  json["shown"] = {{"times", shown.times}, {"unit", shown.unit}};
  json["verdict"] = to_string(result.verdict);
  json["reason"] = result.reason;
  json["points"] = Json::array();
  for (const JudgedPoint& point : result.points) {
    Json& shown_point = json["points"].emplace_back();
    shown_point = {{"label", point.label},
                   {"n", point.n},
                   {"mean", point.mean},
                   {"interval", interval_json(point.interval)},
                   {"verdict", to_string(point.verdict)}};
    if (point.sign_flip_p) shown_point["sign_flip_p"] = *point.sign_flip_p;
    if (const auto& restricted = point.restricted)
      shown_point["restricted"] = {{"horizon_s", restricted->horizon_s},
                                   {"own_reached", restricted->own_reached},
                                   {"other_reached", restricted->other_reached}};
  }
  return json;
}

ClaimResult result_of(const Json& json) {
  ClaimResult result;
  Claim& claim = result.claim;
  claim.sentence = json.at("sentence");
  claim.measure = json.at("measure");
  claim.method = json.value("method", "");
  claim.against = json.value("against", "");
  claim.effect = effect_of(json.value("as", "value"));
  if (json.contains("order")) json.at("order").get_to(claim.order);
  if (json.contains("where")) json.at("where").get_to(claim.where);
  claim.everywhere = json.value("everywhere", false);
  claim.over = json.value("over", "");
  claim.per_doubling = json.value("per_doubling", false);
  const Json& criterion = json.at("criterion");
  claim.criterion = {.above = number_at(criterion, "above"),
                     .below = number_at(criterion, "below"),
                     .within = interval_at(criterion, "within"),
                     .margin = number_at(criterion, "margin")};
  if (json.contains("paper")) {
    const Json& paper = json.at("paper");
    claim.published =
        PublishedFigure{paper.at("figure"), paper.at("source"), paper.at("certainty"), number_at(paper, "value")};
  }
  result.verdict = verdict_named(json.at("verdict"));
  result.reason = json.at("reason");
  for (const Json& point : json.at("points"))
    result.points.push_back({.label = point.at("label"),
                             .n = point.at("n"),
                             .mean = point.at("mean"),
                             .interval = interval_at(point, "interval"),
                             .sign_flip_p = number_at(point, "sign_flip_p"),
                             .restricted = restriction_at(point),
                             .verdict = verdict_named(point.at("verdict"))});
  return result;
}

}  // namespace

std::string to_json(const JudgedClaims& claims) {
  Json json = {{"schema_version", claims_schema_version},
               {"experiment", claims.experiment},
               {"description", claims.description},
               {"runs", claims.runs},
               {"commit", claims.at.commit},
               {"processor", claims.at.processor},
               {"cores", claims.at.cores},
               {"time", claims.at.time},
               {"claims", Json::array()}};
  if (claims.judged_runs) json["judged_runs"] = *claims.judged_runs;
  for (const ClaimResult& result : claims.results) json["claims"].push_back(json_of(result));
  return with_digest(json);
}

std::optional<JudgedClaims> claims_from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("schema_version") != claims_schema_version) return {};
    if (!is_as_written(text, json, "claims", "judged_runs")) return {};
    JudgedClaims claims{.experiment = json.at("experiment"),
                        .description = json.at("description"),
                        .runs = json.at("runs"),
                        .at = {.commit = json.at("commit"),
                               .processor = json.at("processor"),
                               .cores = json.at("cores"),
                               .time = json.at("time")},
                        .results = {}};
    if (json.contains("judged_runs")) claims.judged_runs = json.at("judged_runs").get<std::size_t>();
    for (const Json& claim : json.at("claims")) claims.results.push_back(result_of(claim));
    return claims;
  } catch (const std::exception&) {  // not JSON, a missing key, a wrong type
    return {};
  }
}

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
