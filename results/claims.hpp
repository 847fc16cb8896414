// Claims about an experiment, verdicts on whether its runs reproduce them, and the scoreboard of all claims.
#pragma once

#include <array>

#include "results/found_runs.hpp"
#include "results/text_table.hpp"

namespace syncopate {

enum class Effect {
  value,       // the method's measure
  difference,  // the method's measure minus the other method's
  ratio,       // the method's measure divided by the other's; means over seeds are of logarithms
  best,        // the value of the swept key `over` at which the measure is best
};

// Exactly one member is set.
struct Criterion {
  std::optional<double> above{};     // the 95 % interval lies above this number
  std::optional<double> below{};     // the interval lies below this number
  std::optional<Interval> within{};  // the interval lies within these bounds
  std::optional<double> margin{};    // equivalence: the 90 % interval lies this close to 0 (for a ratio: to 1)

  bool operator==(const Criterion&) const = default;
};

struct PublishedFigure {
  std::string figure;             // "18 %"
  std::string source;             // "Giladi et al. 2023, abstract"
  std::string certainty;          // how certain the figure is: "stated", "review", ...
  std::optional<double> value{};  // the figure as a number, which plots show beside this project's

  bool operator==(const PublishedFigure&) const = default;
};

// The purpose of a claim. Verdicts are counted by class, since "reproduced" has another meaning in each class.
enum class ClaimClass {
  headline,  // tests what a paper states, and could have come out otherwise
  theory,    // tests a theorem, a formula or a secondary statement of a paper
  check,     // arithmetic, an identity, a calibrated input: fails only if something is broken
  question,  // a question of this project, or of a paper's reviewers
};
inline constexpr std::array claim_class_names = {"headline", "theory", "check", "question"};  // in ClaimClass's order

// A statement about an experiment, and the criterion by which it counts as reproduced. The experiment file has both, so
// they are fixed before any run.
struct Claim {
  std::string sentence;
  ClaimClass claim_class = ClaimClass::question;
  bool added_after_results = false;  // the claim was written or changed when results of its runs were known
  std::string measure;               // a name in measures(), or time_to_equal_loss_s or steps_to_equal_loss
  std::string method;                // empty if `order` is given
  std::string against;               // the method to compare with; empty: none
  Effect effect = Effect::value;
  std::vector<std::string> order{};            // methods; each must have a higher measure than the previous one
  std::map<std::string, std::string> where{};  // values of swept keys that select points
  bool everywhere = false;     // whether the claim is about all selected points; false: `where` must select one
  std::string over{};          // swept key, for a slope or for Effect::best
  bool per_doubling = false;   // whether a slope is per doubling of the key, not per 1
  bool over_sqrt_log = false;  // whether a slope is over sqrt(2 ln key), as the maximum of `key` normal values grows
  Criterion criterion{};
  std::optional<PublishedFigure> published{};

  bool operator==(const Claim&) const = default;
};

// Measures that are not in measures(): time or steps to the same training loss as another method (equal_loss.hpp).
inline constexpr const char* time_to_equal_loss = "time_to_equal_loss_s";
inline constexpr const char* steps_to_equal_loss = "steps_to_equal_loss";

bool is_equal_loss(std::string_view measure);

enum class Verdict { reproduced, not_reproduced, inconclusive };
std::string to_string(Verdict verdict);  // "reproduced", "not reproduced", "inconclusive"

// The horizon of times to a target (RestrictedTimes), used if some seeds did not reach the target.
struct Restriction {
  double horizon_s = 0;
  std::size_t own_reached = 0, other_reached = 0;  // number of the n seeds that reached the target by the horizon

  bool operator==(const Restriction&) const = default;
};

// The result at one point of the sweep, or for two neighbours in Claim::order.
struct JudgedPoint {
  std::string label;  // empty if the claim has only one point
  std::size_t n = 0;  // number of seeds
  double mean = 0;
  std::optional<Interval> interval{};  // interval of the mean, at the criterion's confidence; none below two seeds
  // p of the sign-flip test for the hypothesis that the mean equals the bound that the interval excludes; the larger p
  // if there are two bounds. None if the test does not apply: fewer than 6 or more than 20 seeds, a margin, or an
  // interval that contains the bound. Also none for claims judged before the test was introduced.
  std::optional<double> sign_flip_p{};
  std::optional<Restriction> restricted{};
  Verdict verdict = Verdict::inconclusive;
};

struct ClaimResult {
  Claim claim;
  Verdict verdict = Verdict::inconclusive;
  std::string reason;  // why the claim is inconclusive; otherwise empty
  std::vector<JudgedPoint> points;
};

// The verdict by the interval of the mean over seeds: reproduced if the whole interval meets the criterion, not
// reproduced if no part of it does, otherwise (and without an interval) inconclusive.
Verdict verdict_of(const Criterion& criterion, Effect effect, const std::optional<Interval>& interval);

// The confidence of the criterion's interval: 0.9 for a margin (two one-sided tests at 5 %), otherwise 0.95.
double confidence_of(const Criterion& criterion);

// Judges a claim by the rows of one experiment. Throws std::runtime_error if evaluations are unreadable.
// - A point's verdict is that of its interval, with one exception: it is inconclusive if the sign-flip test applies and
//   does not exclude a bound at 5 %. If one of a few seeds lies on the other side of the bound, a narrow interval is
//   justified only for a normal distribution.
// - A claim with several points is reproduced if all points are, and not reproduced if one of them is not.
// - If a method, point or number is missing, the claim is inconclusive, and the reason says so.
ClaimResult judge(const Claim& claim, std::span<const ResultRow> rows);

struct ShownEffect {
  double times = 1;  // factor for display, such as 100 for percent
  std::string unit;  // "s", "points"; empty: none, as for a ratio
};

// The displayed unit of the claim's measure, as in claims.json. It is never hours, unlike in wanted_by and our_figure.
ShownEffect shown_effect(const Claim& claim);

// The claim's subject: "step_time_s, DropCompute divided by synchronous SGD".
std::string subject_of(const Claim& claim);

// The criterion in words, such as "a difference above 0 points" or "a ratio from 0.8 to 0.9". `points`: the results,
// which decide whether times are in seconds or hours.
std::string wanted_by(const Claim& claim, std::span<const JudgedPoint> points = {});

// claims.json in an experiment's directory: the claims, with their verdicts after the experiment was last started.
inline constexpr const char* claims_file = "claims.json";
inline constexpr int claims_schema_version = 3;  // in 2, the mean was of the seeds' ratios, not of their logarithms

struct JudgedClaims {
  std::string experiment;
  std::string description;
  std::string runs{};    // digest of the hashes of the runs; experiment files with the same runs have the same one
  std::string commit{};  // commit of the program that judged the claims
  std::string processor{};
  int cores = 1;
  std::string time{};                        // ISO 8601, UTC
  std::optional<std::size_t> judged_runs{};  // number of runs that existed then, if known
  std::vector<ClaimResult> results;
};

std::string to_json(const JudgedClaims& claims);

// nullopt if the text has another schema version or is damaged.
std::optional<JudgedClaims> claims_from_json(const std::string& text, int schema_version = claims_schema_version);

// The measured effect with its unit, interval and number of seeds: "1.8 points [1.7, 1.9], n = 3". For several points:
// the lowest and the highest mean, and the number of points.
std::string our_figure(const ClaimResult& result);

// All claims as text for a terminal, by experiment: the verdict and the claim, below them the published figure, the
// criterion and our_figure. `width`: columns at which lines are folded; 0: they are not folded.
std::string scoreboard_text(std::span<const JudgedClaims> experiments, std::size_t width = 0);

// All claims as a table for pages, with columns experiment, claim, class, wanted, paper, ours and verdict.
TextTable scoreboard_table(std::span<const JudgedClaims> experiments);

// Lines below the table: "12 reproduced, 1 not reproduced, 3 inconclusive" for each class and for all, how many
// directions would be reproduced by chance, and the meaning of the brackets.
std::string scoreboard_notes(std::span<const JudgedClaims> experiments);

}  // namespace syncopate
