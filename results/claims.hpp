// Claims about an experiment, verdicts whether its runs reproduce them, and the scoreboard of all claims.
#pragma once

#include "results/result_rows.hpp"
#include "results/text_table.hpp"

namespace syncopate {

enum class Effect {
  value,       // the measure of the method
  difference,  // the measure minus that of the other method
  ratio,       // the measure divided by that of the other method
  best,        // the value of the key `over` at which the measure is best
};

// Exactly one of these is set.
struct Criterion {
  std::optional<double> above{};     // the 95 % interval lies above this number
  std::optional<double> below{};     // the interval lies below this number
  std::optional<Interval> within{};  // the interval lies within these bounds
  std::optional<double> margin{};    // equivalence: the 90 % interval lies this close to no effect (0, or a ratio of 1)

  bool operator==(const Criterion&) const = default;
};

struct PublishedFigure {
  std::string figure;             // "18 %"
  std::string source;             // "Giladi et al. 2023, abstract"
  std::string certainty;          // how well it is established
  std::optional<double> value{};  // the figure as a number, drawn beside ours

  bool operator==(const PublishedFigure&) const = default;
};

// A statement about an experiment, and the criterion by which it counts as shown. The experiment file contains it, so
// that it is fixed before any run.
struct Claim {
  std::string sentence;
  std::string measure;  // a name in measures(), or time_to_equal_loss_s or steps_to_equal_loss
  std::string method;   // empty with an order
  std::string against;  // the other method; empty: none
  Effect effect = Effect::value;
  std::vector<std::string> order{};            // methods by ascending measure: each must be above the previous one
  std::map<std::string, std::string> where{};  // values of swept keys that choose points
  bool everywhere = false;                     // at all points of `where`; otherwise `where` must select one
  std::string over{};                          // swept key of a slope, or of a best value
  bool per_doubling = false;                   // per doubling of the key, not per 1
  Criterion criterion{};
  std::optional<PublishedFigure> published{};

  bool operator==(const Claim&) const = default;
};

// Further measures: the time or steps until the first evaluation at which a method's test loss is at most the other's
// last one. They are compared with the end of the other method.
inline constexpr const char* time_to_equal_loss = "time_to_equal_loss_s";
inline constexpr const char* steps_to_equal_loss = "steps_to_equal_loss";

bool is_equal_loss(std::string_view measure);

enum class Verdict { reproduced, not_reproduced, inconclusive };
std::string to_string(Verdict verdict);  // "reproduced", "not reproduced", "inconclusive"

// Horizon of times to a target that some seeds did not reach.
struct Restriction {
  double horizon_s = 0;
  std::size_t own_reached = 0, other_reached = 0;  // seeds that reached it by then, of n each

  bool operator==(const Restriction&) const = default;
};

// Result at one point of the sweep, or for one pair of neighbours of an order.
struct JudgedPoint {
  std::string label;  // empty if there is only one
  std::size_t n = 0;  // seeds
  double mean = 0;
  std::optional<Interval> interval{};  // interval at the criterion's confidence; none below two seeds
  // Sign-flip test that the mean equals the bound that the interval excludes; with two bounds the larger p. None if the
  // test does not apply: fewer than 6 or more than 20 seeds, a margin, or an interval that holds both answers. None for
  // claims judged before the test was introduced.
  std::optional<double> sign_flip_p{};
  std::optional<Restriction> restricted{};
  Verdict verdict = Verdict::inconclusive;
};

struct ClaimResult {
  Claim claim;
  Verdict verdict = Verdict::inconclusive;
  std::string reason;  // why it is inconclusive
  std::vector<JudgedPoint> points;
};

// The verdict by the interval of the mean over seeds. Reproduced: it lies wholly where the criterion wants it. Not
// reproduced: it lies wholly outside. Otherwise, and without an interval: inconclusive.
Verdict verdict_of(const Criterion& criterion, Effect effect, const std::optional<Interval>& interval);

// 0.9 for a margin (two one-sided tests at 5 %), else 0.95.
double confidence_of(const Criterion& criterion);

// Judges a claim by the rows of one experiment. A point's verdict is that of the interval. It is inconclusive if the
// sign-flip test applies and does not exclude a bound at 5 %: a few seeds, one of them on the other side, can have a
// narrow interval that only the normal distribution justifies. With several points the claim is reproduced if all are,
// and not reproduced if one is not. A missing method, point or number makes the claim inconclusive, with the reason.
// Throws std::runtime_error if evaluations are unreadable.
ClaimResult judge(const Claim& claim, std::span<const ResultRow> rows);

// Displayed unit of a claim's numbers.
struct ShownEffect {
  double times = 1;  // 100: a share displayed in percent
  std::string unit;  // "s", "points"; empty: a plain number, such as a ratio
};

// The measure's unit, as in claims.json.
ShownEffect shown_effect(const Claim& claim);

// "step_time_s, DropCompute divided by synchronous SGD".
std::string subject_of(const Claim& claim);

// The criterion in words, in the unit of the points: "a difference above 0 points", "a ratio from 0.8 to 0.9".
std::string wanted_by(const Claim& claim, std::span<const JudgedPoint> points = {});

// claims.json beside an experiment's runs: its claims, and their verdicts after its latest start.
inline constexpr const char* claims_file = "claims.json";
inline constexpr int claims_schema_version = 2;

// Where and when claims were judged.
struct JudgedAt {
  std::string commit;  // commit of the program
  std::string processor;
  int cores = 1;
  std::string time;  // ISO 8601, UTC
};

struct JudgedClaims {
  std::string experiment;
  std::string description;
  std::string runs{};  // digest of the runs' hashes, to recognise an experiment file with the same runs
  JudgedAt at{};
  std::optional<std::size_t> judged_runs{};  // how many of the runs existed, if known
  std::vector<ClaimResult> results;
};

std::string to_json(const JudgedClaims& claims);

// nullopt if the text has another schema version or is damaged.
std::optional<JudgedClaims> claims_from_json(const std::string& text);

// Our number with unit, interval and seeds: "1.8 points [1.7, 1.9], n = 3". For several points the lowest and the
// highest mean, and the number of points.
std::string our_figure(const ClaimResult& result);

// For a terminal, by experiment: verdict and claim, and below them the paper's figure, the criterion and our figure.
// `width`: where lines are folded; 0: they are not.
std::string scoreboard_text(std::span<const JudgedClaims> experiments, std::size_t width = 0);

// For pages: experiment, claim, wanted, paper, ours, verdict.
TextTable scoreboard_table(std::span<const JudgedClaims> experiments);

// "12 reproduced, 1 not reproduced, 3 inconclusive", and the meaning of brackets.
std::string scoreboard_notes(std::span<const JudgedClaims> experiments);

}  // namespace syncopate
