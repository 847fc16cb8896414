#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>

#include "algorithms/registry.hpp"
#include "experiments/sections/definition.hpp"
#include "workers/base/arrays.hpp"
#include "workers/base/files.hpp"
#include "workers/config/patch.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

namespace {

constexpr std::array lengths = {"steps", "epochs"};
constexpr std::array described_tables = {"models", "datasets"};
constexpr const char* common_phase_label = "common phase";

TomlNode text(std::string value) { return {std::move(value), {}}; }

using Shape = LearningRate::Shape;
constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
constexpr Range non_negative = Range::finite_from_zero();
constexpr Range above_zero = Range::finite_positive();

constexpr std::array learning_rate_rows = {
    LearningRateRow{"constant", "stays at `peak`", Shape::constant},
    LearningRateRow{"step", "is multiplied by `factor` at each of `decay_epochs` or `decay_steps`", Shape::step},
    LearningRateRow{"exponential", "is multiplied by `factor` at a fixed interval, gradually or at once (a staircase)",
                    Shape::exponential},
    LearningRateRow{"linear", "falls from `peak` to `final` on a straight line", Shape::linear},
    LearningRateRow{"polynomial", "falls from `peak` to `final` as a power of the remaining share of steps",
                    Shape::polynomial},
    LearningRateRow{"cosine", "falls from `peak` to `final` on half a cosine", Shape::cosine},
    LearningRateRow{"modified-cosine", "falls on half a cosine, and stays constant from a given step on",
                    Shape::modified_cosine},
    LearningRateRow{"cosine-step", "falls on half a cosine, rounded to the nearest power of `base`",
                    Shape::cosine_step},
};

bool has_hold(Shape shape) { return shape != Shape::constant && shape != Shape::step; }
bool has_end(Shape shape) { return has_hold(shape) && shape != Shape::exponential; }

void exclusive(Settings& settings, std::string_view key, std::string_view other) {
  settings.fault(key, fmt::format("cannot be combined with {}", other));
}

// The length of a part of the schedule. Files give it in steps, in epochs or as a share of all steps.
struct Length {
  std::string_view key;  // as written in the file
  Step steps{};
  double share = 0;
  bool is_known = true;  // false: unknown because of a fault
};

struct LengthKeys {
  Key steps, epochs, share;
};
const LengthKeys warmup_keys{
    .steps = {"warmup_steps", "Steps in which the rate rises to `peak` on a straight line.", "steps"},
    .epochs = {"warmup_epochs", "Length of the warm-up in epochs, instead of warmup_steps.", "epochs", "warmup_steps"},
    .share = {"warmup_share", "Length of the warm-up as a share of all steps; not rounded to a step.", "",
              "warmup_steps"}};
const LengthKeys hold_keys{
    .steps = {"hold_steps", "Steps after the warm-up in which the rate stays at `peak`.", "steps"},
    .epochs = {"hold_epochs", "Length of the hold in epochs, instead of hold_steps.", "epochs", "hold_steps"},
    .share = {"hold_share", "Length of the hold as a share of all steps; not rounded to a step.", "", "hold_steps"}};

Length read_length(Settings& rate, const LengthKeys& keys, const EpochLength& epoch) {
  const auto epochs = rate.optional_number(keys.epochs, non_negative);
  const auto share = rate.optional_number(keys.share, Range::below_one());
  const std::string_view key = epochs ? keys.epochs.name : share ? keys.share.name : keys.steps.name;
  for (const std::string_view other : {keys.steps.name, keys.share.name})
    if (key != other && rate.has(other)) exclusive(rate, other, key);
  if (epochs) {
    const auto steps = steps_of_epochs(rate, keys.epochs.name, *epochs, epoch);
    return {.key = key, .steps = steps.value_or(0), .is_known = steps.has_value()};
  }
  if (share) return {.key = key, .share = *share};
  return {.key = key, .steps = rate.integer(keys.steps, 0, no_limit, 0)};
}

std::vector<Step> read_decay_points(Settings& rate, const EpochLength& epoch) {
  const bool in_epochs = rate.has("decay_epochs");
  const std::string_view key = in_epochs ? "decay_epochs" : "decay_steps";
  if (in_epochs && rate.has("decay_steps")) exclusive(rate, "decay_steps", "decay_epochs");
  std::vector<Step> points;
  const std::size_t faults = rate.faults_so_far();
  if (in_epochs) {
    const Key described{key, "Epochs at which the rate is multiplied by `factor`, instead of decay_steps.", "epochs"};
    for (const double epochs : rate.numbers(described, non_negative)) {
      const auto point = steps_of_epochs(rate, key, epochs, epoch);
      if (!point) return {};
      points.push_back(*point);
    }
  } else {
    const Key described{key, "Steps at which the rate is multiplied by `factor`, in ascending order.", "steps"};
    for (const std::int64_t step : rate.integers(described, 0, no_limit)) points.emplace_back(step);
  }
  if (std::ranges::adjacent_find(points, std::greater_equal<>{}) != points.end()) {
    if (rate.faults_so_far() == faults) rate.fault(key, "must be in ascending order, at least one step apart");
    points.clear();
  }
  return points;
}

// Returns T, the total number of steps: total_steps or else that of the budget. Returns nullopt after a fault.
std::optional<Step> read_total(Settings& rate, const StepBudget& budget, std::string_view schedule) {
  const Key total{"total_steps", "The step at which the schedule ends; by default the end of the budget.", "steps"};
  if (const auto steps = rate.optional_integer(total, 1, no_limit)) return *steps;
  if (budget.is_counted) return budget.steps;
  rate.fault("total_steps", fmt::format("is required: the {} schedule needs an end, and the budget is not in steps or "
                                        "epochs",
                                        schedule));
  return std::nullopt;
}

// Reads a number of steps, at least `least`, or a number of epochs in its place.
Step read_steps(Settings& rate, const Key& in_steps, std::int64_t least, const Key& in_epochs, Range epochs_range,
                const EpochLength& epoch) {
  const auto epochs = rate.optional_number(in_epochs, epochs_range);
  if (!epochs) return rate.integer(in_steps, least, no_limit);
  if (rate.has(in_steps.name)) exclusive(rate, in_steps.name, in_epochs.name);
  return std::max(steps_of_epochs(rate, in_epochs.name, *epochs, epoch).value_or(least), Step{least});
}

void read_decay(Settings& rate, const EpochLength& epoch, LearningRate::Options& options) {
  if (options.shape == Shape::step) options.decay_steps = read_decay_points(rate, epoch);
  if (options.shape == Shape::exponential)
    options.decay_every = read_steps(
        rate, {"decay_every_steps", "The interval at which the rate is multiplied by `factor`.", "steps"}, 1,
        {"decay_every_epochs", "The interval in epochs, instead of decay_every_steps.", "epochs", "decay_every_steps"},
        above_zero, epoch);
  if (options.shape == Shape::step || options.shape == Shape::exponential)
    options.decay_factor =
        rate.number({"factor", "The factor by which the rate is multiplied."}, above_zero, options.decay_factor);
  if (options.shape == Shape::exponential)
    options.staircase = rate.flag({"staircase", "Whether the rate falls once per interval, instead of at each step."},
                                  options.staircase);
  if (options.shape == Shape::polynomial)
    options.power = rate.number({"power", "The power; 1 is a straight line."}, above_zero, options.power);
  if (options.shape == Shape::modified_cosine)
    options.constant_from = read_steps(
        rate, {"constant_from_step", "The step from which on the rate stays constant.", "steps"}, 0,
        {"constant_from_epoch", "The epoch from which on the rate stays constant.", "epochs", "constant_from_step"},
        non_negative, epoch);
  if (options.shape == Shape::cosine_step)
    options.base = rate.number({"base", "The rate is rounded to the nearest power of this number."},
                               {.low = 1, .low_open = true, .high_open = true}, options.base);
}

// Removes lengths from `options` that do not fit into the schedule. Reports them if `is_certain`. If not, they may be
// consequences of faults that are already reported.
void check_lengths(Settings& rate, const Length& warmup, const Length& hold, bool is_certain,
                   LearningRate::Options& options) {
  const auto T = static_cast<double>(options.total_steps.value());
  const double warmed = static_cast<double>(warmup.steps.value()) + warmup.share * T;
  const double held = warmed + static_cast<double>(hold.steps.value()) + hold.share * T;
  if (const bool is_limited = has_end(options.shape) || warmup.share + hold.share > 0; is_limited && held >= T) {
    const std::string_view key = warmed >= T ? warmup.key : hold.key;
    if (is_certain)
      rate.fault(key, fmt::format("must end before the schedule does, at step {}", options.total_steps.value()));
    options.warmup_steps = options.hold_steps = 0;
    options.warmup_share = options.hold_share = 0;
  }
  if (options.shape != Shape::modified_cosine || static_cast<double>(options.constant_from.value()) >= warmed) return;
  if (is_certain)
    rate.fault(rate.has("constant_from_epoch") ? "constant_from_epoch" : "constant_from_step",
               "must not be within the warm-up");
  options.constant_from = no_limit;
}

constexpr Range share = Range::below_one();

WeightDecay read_weight_decay(Settings& optimizer, WeightDecay decay) {
  decay.rate = optimizer.number({"weight_decay", "Rate of the weight decay; 0: none."}, non_negative, decay.rate);
  decay.scope = optimizer.choice({"decay", "Which parameters decay: only weights, or also biases and normalisation."},
                                 {{"weights", DecayScope::weights}, {"all", DecayScope::all}}, decay.scope);
  decay.exclude = optimizer.texts(
      {"exclude", "Tensors whose names contain one of these parts never decay. At least one tensor must match."},
      std::vector<std::string>{});
  return decay;
}

DecayForm read_decay_form(Settings& optimizer, DecayForm form) {
  const bool decoupled =
      optimizer.flag({"decoupled", "Whether weights decay separately (as in AdamW), not as a part of the gradient."},
                     form == DecayForm::decoupled);
  return decoupled ? DecayForm::decoupled : DecayForm::coupled;
}

double read_momentum(Settings& optimizer, double momentum) {
  return optimizer.number(
      {"momentum", "The momentum coefficient: the share of the momentum that a step keeps; 0: none."}, share, momentum);
}

MomentumOf read_momentum_of(Settings& optimizer, MomentumOf of) {
  return optimizer.choice(
      {"momentum_of",
       "What momentum accumulates: gradients (PyTorch), or gradients times learning rate (TensorFlow, MLPerf)."},
      {{"gradients", MomentumOf::gradients}, {"updates", MomentumOf::updates}}, of);
}

TrustScope read_trust_scope(Settings& optimizer, TrustScope scope) {
  return optimizer.choice({"trust_ratio", "Which tensors are scaled by a trust ratio: those that decay, or all."},
                          {{"decayed", TrustScope::decayed}, {"all", TrustScope::all}}, scope);
}

double read_max_norm(Settings& optimizer, double norm) {
  return optimizer.number({"max_norm", "Clips the gradient to this global norm; 0: does not clip."}, non_negative,
                          norm);
}

template <typename Options>
void read_second(Settings& optimizer, Options& options) {
  options.beta2 = optimizer.number({"beta2", "Decay of the second moment."}, share, options.beta2);
  options.epsilon = optimizer.number({"epsilon", "A number that is added to the root of the second moment."},
                                     above_zero, options.epsilon);
}

template <typename Options>
void read_betas(Settings& optimizer, Options& options) {
  options.beta1 = optimizer.number({"beta1", "Decay of the first moment."}, share, options.beta1);
  read_second(optimizer, options);
}

std::unique_ptr<Optimizer> read_sgd(Settings& optimizer) {
  SgdOptions options;
  const std::size_t faults = optimizer.faults_so_far();
  options.momentum = read_momentum(optimizer, options.momentum);
  options.momentum_of = read_momentum_of(optimizer, options.momentum_of);
  options.nesterov = optimizer.flag({"nesterov", "Whether the momentum is Nesterov's."}, options.nesterov);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  options.weight_decay.form = read_decay_form(optimizer, options.weight_decay.form);
  if (options.nesterov && options.momentum == 0) {
    if (optimizer.faults_so_far() == faults) optimizer.fault("nesterov", "must be false without momentum");
    options.nesterov = false;
  }
  return make_sgd(options);
}

std::unique_ptr<Optimizer> read_adam_form(Settings& optimizer, AdamWOptions options) {
  read_betas(optimizer, options);
  options.corrects_bias =
      optimizer.flag({"bias_correction", "Whether moments, which begin at zero, are divided by 1 - beta^step."},
                     options.corrects_bias);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_adamw(options);
}

std::unique_ptr<Optimizer> read_adam(Settings& optimizer) {
  return read_adam_form(optimizer, {.weight_decay = {.scope = DecayScope::all, .form = DecayForm::coupled}});
}

std::unique_ptr<Optimizer> read_adamw(Settings& optimizer) { return read_adam_form(optimizer, {}); }

std::unique_ptr<Optimizer> read_rmsprop(Settings& optimizer) {
  RmsPropOptions options;
  options.form = optimizer.choice(
      {"form", "Epsilon in the root and learning rate in the momentum (TensorFlow), or both outside (PyTorch)."},
      {{"tensorflow", RmsPropForm::tensorflow}, {"pytorch", RmsPropForm::pytorch}}, options.form);
  options.rho = optimizer.number({"rho", "Share of the mean square that a step keeps."}, share, options.rho);
  options.momentum = read_momentum(optimizer, options.momentum);
  options.epsilon = optimizer.number({"epsilon", "A number that is added to the mean square, or to its root."},
                                     above_zero, options.epsilon);
  const bool is_of_pytorch = options.form == RmsPropForm::pytorch;
  options.mean_square_start =
      optimizer.number({"mean_square_start", "The mean square before the first step."}, non_negative,
                       Stated(is_of_pytorch ? 0.0 : 1.0, "1, or 0 with form = \"pytorch\""));
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_rmsprop(options);
}

std::unique_ptr<Optimizer> read_lars(Settings& optimizer) {
  LarsOptions options;
  options.momentum = read_momentum(optimizer, options.momentum);
  options.momentum_of = read_momentum_of(optimizer, options.momentum_of);
  options.trust_coefficient = optimizer.number({"trust_coefficient", "The factor of the ratio of norms."}, above_zero,
                                               options.trust_coefficient);
  options.epsilon = optimizer.number({"epsilon", "A number that is added to the norms in the denominator."},
                                     non_negative, options.epsilon);
  options.trust = read_trust_scope(optimizer, options.trust);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_lars(options);
}

std::unique_ptr<Optimizer> read_lamb(Settings& optimizer) {
  LambOptions options;
  read_betas(optimizer, options);
  options.averages_gradients = optimizer.flag(
      {"grad_averaging", "Whether gradients are multiplied by 1 - beta1 when added to the first moment."},
      options.averages_gradients);
  options.max_norm = read_max_norm(optimizer, options.max_norm);
  options.trust = read_trust_scope(optimizer, options.trust);
  const std::size_t faults = optimizer.faults_so_far();
  options.ratio_min = optimizer.number({"ratio_min", "The smallest trust ratio."}, non_negative, options.ratio_min);
  options.ratio_max = optimizer.number({"ratio_max", "The largest trust ratio."}, Range::positive(), options.ratio_max);
  if (options.ratio_max < options.ratio_min) {
    if (optimizer.faults_so_far() == faults) optimizer.fault("ratio_max", "must be at least ratio_min");
    options.ratio_max = options.ratio_min;
  }
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  options.weight_decay.form = read_decay_form(optimizer, options.weight_decay.form);
  return make_lamb(options);
}

std::unique_ptr<Optimizer> read_lans(Settings& optimizer) {
  LansOptions options;
  read_betas(optimizer, options);
  options.max_norm = read_max_norm(optimizer, options.max_norm);
  options.trust = read_trust_scope(optimizer, options.trust);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_lans(options);
}

// Reads which matrices an optimizer updates as a whole, and the settings of AdamW for the other tensors.
template <typename Options>
void read_matrices(Settings& optimizer, Options& options) {
  options.all_matrices = optimizer.choice(
      {"matrices", "Matrices with orthogonal steps: hidden ones (no embedding, not the first, not the head), or all."},
      {{"hidden", false}, {"all", true}}, options.all_matrices);
  options.others = optimizer.texts({"adamw", "Matrices that AdamW updates instead: parts of their names."},
                                   std::vector<std::string>{});
  options.adamw_rate = optimizer.number({"adamw_rate", "AdamW's learning rate, as a share of the schedule's."},
                                        above_zero, options.adamw_rate);
  read_betas(optimizer, options);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
}

std::unique_ptr<Optimizer> read_muon(Settings& optimizer) {
  MuonOptions options;
  options.momentum = read_momentum(optimizer, options.momentum);
  options.nesterov = optimizer.flag({"nesterov", "Whether the momentum is Nesterov's."}, options.nesterov);
  if (options.nesterov && options.momentum == 0) optimizer.fault("nesterov", "must be false without momentum");
  options.scale = optimizer.choice(
      {"scale", "Factor of a matrix's step: sqrt(max(1, rows / columns)), without the max, or 0.2 sqrt(larger side)."},
      {{"jordan", MuonScale::jordan}, {"spectral", MuonScale::spectral}, {"rms-match", MuonScale::rms_match}},
      options.scale);
  options.iterations = optimizer.choice(
      {"iterations", "Coefficients of the five Newton-Schulz iterations: those of Jordan's code, or of Dion's."},
      {{"jordan", MuonOptions::Iterations::jordan}, {"dion", MuonOptions::Iterations::dion}}, options.iterations);
  read_matrices(optimizer, options);
  return make_muon(options, [](float* matrix, std::size_t rows, std::size_t columns, NewtonSchulz iterations) {
    torch_functions().orthogonalise(matrix, rows, columns, iterations);
  });
}

std::unique_ptr<Optimizer> read_dion(Settings& optimizer) {
  DionOptions options;
  options.momentum = read_momentum(optimizer, options.momentum);
  options.rank_share = optimizer.number({"rank_share", "Rank of a matrix's step, as a share of its smaller side."},
                                        {.low = 0, .high = 1, .low_open = true}, options.rank_share);
  read_matrices(optimizer, options);
  return make_dion(options, [](float* momentum, float* basis, float* direction, std::size_t rows, std::size_t columns,
                               std::size_t rank, double moved) {
    torch_functions().iterate_power(momentum, basis, direction, rows, columns, rank, moved);
  });
}

void read_schedule_free(Settings& optimizer, AveragedOptions& options) {
  constexpr Range inside{.low = 0, .high = 1, .low_open = true, .high_open = true};
  options.share_of_x = optimizer.number(
      {"momentum", "Share of the evaluated average x in the model y at which gradients are taken (beta, beta1)."},
      inside, options.share_of_x);
  options.rate_power = optimizer.number(
      {"weight_power", "A step's weight in x is the largest learning rate so far, raised to this power."}, non_negative,
      options.rate_power);
  options.step_power = optimizer.number(
      {"step_power", "A step's weight in x is multiplied by the step's number, raised to this power (r)."},
      non_negative, options.step_power);
  if (!optimizer.has("step_power")) optimizer.leave_out("step_power");
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
}

std::unique_ptr<Optimizer> read_schedule_free_sgd(Settings& optimizer) {
  AveragedOptions options;
  read_schedule_free(optimizer, options);
  return make_averaged(options);
}

std::unique_ptr<Optimizer> read_schedule_free_adamw(Settings& optimizer) {
  AveragedOptions options{.base = AveragedOptions::Base::rms};
  read_schedule_free(optimizer, options);
  read_second(optimizer, options);
  options.scales_rate = optimizer.choice(
      {"bias_correction", "Whether it divides the second moment (the code), or multiplies the rate (the paper)."},
      {{"moment", false}, {"rate", true}}, options.scales_rate);
  options.decays_at_z = optimizer.choice({"decay_at", "The model that weight decay multiplies: y, or the stepped z."},
                                         {{"y", false}, {"z", true}}, options.decays_at_z);
  return make_averaged(options);
}

std::unique_ptr<Optimizer> read_gpa(Settings& optimizer) {
  using Base = AveragedOptions::Base;
  AveragedOptions options{.share_of_x = 0.7};
  options.base = optimizer.choice({"base", "The optimizer whose steps are averaged."},
                                  {{"adamw", Base::adamw}, {"sgd", Base::sgd}}, Base::adamw);
  options.share_of_x = optimizer.number(
      {"mu_y", "Weight of x, which is evaluated, in the model mu_y x + (1 - mu_y) z that gradients are taken at."},
      {.low = 0, .high = 1, .low_open = true}, options.share_of_x);
  options.kept_of_x = optimizer.number(
      {"mu_x", "Share of the average x that a step keeps; 0.9^(1/H) corresponds to DiLoCo with H steps."}, share,
      0.9967);
  if (options.base == Base::adamw) read_betas(optimizer, options);
  options.weight_decay = read_weight_decay(optimizer, options.weight_decay);
  return make_averaged(options);
}

constexpr std::array optimizer_rows = {
    OptimizerRow{"sgd", "stochastic gradient descent, with momentum or Nesterov's, and weight decay", read_sgd},
    OptimizerRow{"adam", "Adam, with its weight decay, if any, in the gradient", read_adam},
    OptimizerRow{"adamw", "Adam with decoupled weight decay", read_adamw},
    OptimizerRow{"rmsprop",
                 "gradients divided by the root of their mean square, with momentum; TensorFlow's or PyTorch's",
                 read_rmsprop},
    OptimizerRow{"lars", "momentum SGD in which each tensor's step is in proportion to its norm", read_lars},
    OptimizerRow{"lamb", "Adam in which each tensor's step is in proportion to its norm", read_lamb},
    OptimizerRow{"lans", "LAMB on normalised gradients, with Nesterov's look-ahead", read_lans},
    OptimizerRow{"muon", "momentum SGD whose step of each hidden matrix is made nearly orthogonal; AdamW for the rest",
                 read_muon},
    OptimizerRow{"dion",
                 "momentum SGD whose step of each hidden matrix is orthonormal and of low rank; AdamW for the rest",
                 read_dion},
    OptimizerRow{"schedule-free-sgd", "SGD without a schedule: gradients near a running average, which is evaluated",
                 read_schedule_free_sgd},
    OptimizerRow{"schedule-free-adamw", "Schedule-Free with steps along gradients divided by their root mean square",
                 read_schedule_free_adamw},
    OptimizerRow{"gpa", "AdamW whose steps are averaged with constant weights; the average is evaluated (GPA)",
                 read_gpa},
};

// Returns a list for users: "a, b and 7 others".
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 10;
  if (names.size() <= most + 1) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{} and {} others", fmt::join(std::span(names).first(most), ", "), names.size() - most);
}

// Checks that a list of parts of tensors' names matches at least one tensor, or it would silently do nothing. Published
// lists are for several models, so not every name must match.
void check_names(Settings& optimizer, std::string_view key, const std::vector<std::string>& parts,
                 const std::vector<ParameterTensor>& tensors) {
  std::vector<std::string> names;
  for (const ParameterTensor& tensor : tensors) names.push_back(tensor.name);
  const auto fits = [&](const std::string& name) { return is_named(name, parts); };
  if (parts.empty() || names.empty() || std::ranges::any_of(names, fits)) return;
  optimizer.fault(key,
                  fmt::format("{} in no tensor's name; give at least one text that occurs in one of these names: {}",
                              parts.size() == 1 ? "occurs" : "occur", some_of(names)));
}

// Muon or Dion without a matrix would be AdamW under another name.
void check_matrices(Settings& optimizer, const Optimizer& made, const ObjectivePlan& objective) {
  const std::vector<ParameterTensor>& tensors = objective.tensors;
  const auto chosen = made.matrices(tensors);
  const bool is_unknown = tensors.empty() && !objective.is_formula();
  if (is_unknown || std::ranges::find(chosen, true) != chosen.end()) return;
  const bool has_any = std::ranges::any_of(tensors, [](const ParameterTensor& tensor) { return tensor.rows > 0; });
  optimizer.fault("name", has_any
                              ? "finds no matrix to orthogonalise. It leaves out those that `adamw` names and, unless "
                                "matrices = \"all\", embeddings, the model's first matrix and its head"
                              : "finds no matrix to orthogonalise: the model has none");
}

// Reads [training.optimizer]. Never returns null.
std::unique_ptr<Optimizer> read_optimizer(Settings& training, const ObjectivePlan& objective) {
  Settings optimizer = training.section({"optimizer", "Which optimizer, and its settings."});
  const auto* const row = optimizer.row({"name", "Which optimizer."}, optimizer_rows, objective.time_only ? "sgd" : "");
  auto made = row ? row->make(optimizer) : make_sgd({});  // a placeholder if the name is faulty
  check_names(optimizer, "exclude", made->weight_decay().exclude, objective.tensors);
  std::vector<ParameterTensor> matrices;
  std::ranges::copy_if(objective.tensors, std::back_inserter(matrices), [](const auto& each) { return each.rows > 0; });
  check_names(optimizer, "adamw", made->excluded_matrices(), matrices);
  if (row && (row->name == "muon" || row->name == "dion")) check_matrices(optimizer, *made, objective);
  return made;
}

// Returns the table of [training] with this name. `read` resolves it from `keys`, so it contains all defaults.
template <typename Read>
TomlNode resolved_with(std::string_view table, TomlNode keys, const Read& read) {
  SettingsDocument document({TomlNode::Table{{std::string(table), {}, std::move(keys)}}, {}});
  Settings root = document.root();
  read(root);
  return *document.resolved().find(table);
}

TomlNode only(std::initializer_list<const char*> names, const TomlNode& table) {
  TomlNode result;
  for (const char* const name : names)
    if (const TomlNode* value = table.find(name)) result.set(name, {}, *value);
  return result;
}

// Erases keys with default values. `read` resolves these for a table with this name that has only the key `deciding`,
// which names the table's kind.
template <typename Read>
void leave_out_defaults(TomlNode& table, std::string_view name, const char* deciding, const Read& read) {
  if (!table.find(deciding)) return;
  const TomlNode usual = resolved_with(name, only({deciding}, table), read);
  std::erase_if(table.table(), [&](const TomlNode::Member& member) {
    return member.key != deciding && is_same(usual.find(member.key), &member.value);
  });
}

// Erases keys of a method's learning rate that have the same value as in the file's complete table `common`.
void leave_out_same(TomlNode& rate, const TomlNode& common) {
  const auto starts_at_its_end = [](const TomlNode& one) {
    return is_same(one.find("warmup_start"), one.find("final"));
  };
  if (starts_at_its_end(rate) && starts_at_its_end(common)) rate.erase("warmup_start");
  const TomlNode usual = resolved_with("learning_rate", only({"schedule", "peak"}, rate), [](Settings& training) {
    read_learning_rate(training, {.is_counted = true}, {}, /*time_only=*/true);
  });
  std::erase_if(rate.table(), [&](const TomlNode::Member& member) {
    const TomlNode* other = common.find(member.key);
    return is_same(other ? other : usual.find(member.key), &member.value);
  });
}

std::vector<float> floats_in(const std::filesystem::path& file) {
  try {
    const NpyArray array(file);
    if (array.shape().size() != 1 || array.type() != "<f4")
      throw NpyFault(
          fmt::format("has {} dimensions and elements of type {}; must contain one model's parameters, float32 of "
                      "shape (n,): numpy.save(\"{}\", a.astype(\"<f4\").ravel())",
                      array.shape().size(), described_type(array.type()), file.filename().string()));
    std::vector<float> values(array.data<float>(), array.data<float>() + array.shape().front());
    const auto wrong = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
    if (wrong != values.end())
      throw NpyFault(fmt::format("element {} is {}; must be finite", wrong - values.begin(), *wrong));
    return values;
  } catch (const NpyFault& problem) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), problem.what()));
  } catch (const std::system_error& problem) {
    throw std::runtime_error(fmt::format("{}: {}", file.string(), problem.code().message()));
  }
}

StartingPoint load(const std::filesystem::path& file) {
  StartingPoint start{.parameters = floats_in(file)};
  const std::filesystem::path buffers = std::filesystem::path(file).replace_filename("buffers.npy");
  if (std::filesystem::exists(buffers)) start.buffers = floats_in(buffers);
  return start;
}

std::string digest_of(const StartingPoint& start) {
  std::string bytes;
  for (const auto* values : {&start.parameters, &start.buffers}) {
    bytes += fmt::format("{} ", values->size());
    bytes.append(reinterpret_cast<const char*>(values->data()), values->size() * sizeof(float));
  }
  return content_hash(bytes);
}

// Returns why the start does not fit the model; empty if it fits, or if the model is unknown.
std::string misfit(const StartingPoint& start, const ObjectivePlan& objective) {
  const auto parameters = static_cast<std::int64_t>(start.parameters.size());
  const auto buffers = static_cast<std::int64_t>(start.buffers.size());
  if (objective.parameters == 0) return {};
  if (parameters != objective.parameters)
    return fmt::format("contains {} parameters, but the model has {}", parameters, objective.parameters);
  if (buffers > 0 && buffers != objective.buffers)
    return fmt::format("fits the model, but buffers.npy in the same folder contains {} numbers; the model has {}",
                       buffers, objective.buffers);
  return {};
}

// Reads training.start, the file of a finished run's parameters. Returns null without this key, or after a fault.
std::shared_ptr<const StartingPoint> read_start(Settings& training, const ObjectivePlan& objective, bool time_only) {
  const Key key{"start", "A finished run's parameters.npy, from which to start (with buffers.npy in its folder).", "",
                "the model's initial values"};
  const Key hash{"start_hash", "Written by the program: the digest of these files, to notice changed contents.", "",
                 "any content"};
  static_cast<void>(training.has(hash));  // declares the key even if there is no file
  if (!training.has(key)) return nullptr;
  const std::filesystem::path file = training.file("start");
  if (file.empty()) return nullptr;
  if (time_only) {
    training.fault("start", "must be left out: there is no model");
    return nullptr;
  }
  try {
    auto start = std::make_shared<const StartingPoint>(load(file));
    const std::string digest = digest_of(*start);
    if (training.text("start_hash", digest) != digest)
      training.fault("start_hash", fmt::format("the digest of {} is now {}: restore the file, or leave out start_hash",
                                               file.string(), digest));
    const std::string wrong = misfit(*start, objective);
    if (wrong.empty()) return start;
    training.fault("start", fmt::format("{} {}", file.string(), wrong));
  } catch (const std::runtime_error& problem) {
    training.fault("start", problem.what());
  }
  return nullptr;
}

constexpr std::int64_t most_start_steps = 1'000'000'000'000;

}  // namespace

void read_common_phase_keys(Settings& root) {
  Settings common = root.section("training").section("common");
  common.refuse("common", "a common phase has no common phase");
  const auto steps =
      common.optional_integer({"steps", "Length of the phase, in optimizer steps.", "steps", "epochs"}, 1, no_limit);
  const auto epochs = common.optional_number(
      {"epochs", "Length of the phase, in passes over the training data.", "epochs", "steps"}, above_zero);
  if (steps && epochs) common.fault("epochs", "cannot be combined with steps");
  if (!steps && !epochs) common.fault("", "must have steps or epochs, the length of the phase");
  Settings method = common.section({"method", "The phase's algorithm with its keys; by default synchronous SGD."});
  method.refuse("label", "the phase already has a name");
  method.refuse("training", "write these keys into training.common");
  static_cast<void>(
      common.choice({"takes", "The part of the phase's model that methods start from: all, or all but the head."},
                    {{"all", false}, {"body", true}}, false));
  for (const char* const tables : described_tables)
    common.section({tables, "Tables [models.*] or [datasets.*] with keys that differ in the phase."});
}

const TomlNode* common_phase_table(const TomlNode& written, FaultList& faults) {
  const TomlNode* common = found_at(written, {"training", "common"});
  if (!common) return nullptr;
  SettingsDocument document(written);
  Settings root = document.root();
  read_common_phase_keys(root);
  faults.add(document.faults());
  const TomlNode* method = common->find("method");
  const bool has_length = common->find("steps") || common->find("epochs");
  return has_length && (!method || method->is_table()) ? common : nullptr;
}

TomlNode with_common_phase_alone(const TomlNode& written, const TomlNode& common, FaultList& faults) {
  TomlNode document = written;
  TomlNode training = *written.find("training");
  training.erase("common");
  TomlNode own = common, budget;
  for (const char* const length : lengths) {
    if (const TomlNode* value = common.find(length)) budget.set(length, value->place, *value);
    own.erase(length);
  }
  for (const char* const tables : described_tables) {
    const TomlNode *of_file = written.find(tables), *of_phase = common.find(tables);
    own.erase(tables);
    if (!of_phase || !of_phase->is_table()) continue;
    const bool joins = of_file && of_file->is_table();
    document.set(
        tables, of_phase->place,
        joins ? with_keys_of(*of_file, *of_phase, fmt::format("training.common.{}", tables), faults) : *of_phase);
  }
  TomlNode method;
  if (const TomlNode* of_phase = common.find("method")) method = *of_phase;
  method.set("label", {}, text(common_phase_label));
  if (!method.find("algorithm")) method.set("algorithm", {}, text("sync-sgd"));
  own.erase("method");
  own.erase("takes");
  document.set("training", common.place, with_keys_of(std::move(training), own, "training.common", faults));
  document.set("budget", common.place, std::move(budget));
  document.set("methods", {}, {TomlNode::Array{std::move(method)}, {}});
  document.set("recording", {}, {TomlNode::Table{{"parameters", {}, {true, {}}}}, {}});
  return without_keys_of_file(std::move(document));
}

TomlNode resolved_common_phase(const TomlNode& written, const TomlNode& all, const TomlNode& alone) {
  TomlNode common;
  for (const char* const key : {"steps", "epochs", "takes"})
    if (const TomlNode* value = written.find(key)) common.set(key, {}, *value);
  if (written.find("method")) {
    TomlNode method = alone.find("methods")->array().front();
    method.erase("label");
    common.set("method", {}, std::move(method));
  }
  const TomlNode differs = difference(*all.find("training"), *alone.find("training"));
  for (const TomlNode::Member& member : differs.table()) common.set(member.key, {}, member.value);
  for (const char* const tables : described_tables) {
    const TomlNode *of_file = all.find(tables), *of_phase = alone.find(tables);
    if (!of_file || !of_phase) continue;
    TomlNode own = difference(*of_file, *of_phase);
    if (!own.table().empty()) common.set(tables, {}, std::move(own));
  }
  return common;
}

bool takes_body_alone(const TomlNode& common) { return text_in(common.find("takes")) == "body"; }

std::vector<TakenElements> taken_body(const ObjectivePlan& of_phase, const ObjectivePlan& of_method) {
  std::vector<TakenElements> taken;
  if (of_phase.body_tensors != of_method.body_tensors) return taken;
  for (const ParameterTensor& own : of_method.tensors) {
    if (own.place >= of_method.body_tensors) continue;
    const auto found = std::ranges::find(of_phase.tensors, own.place, &ParameterTensor::place);
    if (found == of_phase.tensors.end() || found->name != own.name || found->size != own.size) return {};
    taken.push_back({.from = found->offset, .to = own.offset, .size = own.size});
  }
  return taken;
}

std::span<const LearningRateRow> learning_rate_schedules() { return learning_rate_rows; }

std::shared_ptr<const LearningRate> read_learning_rate(Settings& training, const StepBudget& budget,
                                                       const EpochLength& epoch, bool time_only) {
  Settings rate = training.section({"learning_rate", "The learning rate as a function of the step."});
  LearningRate::Options options;
  const auto* const row = rate.row({"schedule", "How the rate changes after the warm-up."}, learning_rate_rows,
                                   time_only ? "constant" : "");
  if (row) options.shape = row->shape;
  options.peak = rate.number({"peak", "The highest rate, after the warm-up."}, above_zero,
                             time_only ? std::optional(options.peak) : std::nullopt);
  options.final = rate.number({"final", "The rate at the end of a schedule with an end."}, non_negative, 1e-6);
  options.warmup_start = rate.number({"warmup_start", "The rate of the warm-up's first step."}, non_negative,
                                     Stated(options.final, "final"));
  options.counter = rate.choice(
      {"counter", "What the schedule counts: steps done, the next step, or an optimizer's counter (1, 1, 2, ...)."},
      {{"done", LearningRate::Counter::done},
       {"next", LearningRate::Counter::next},
       {"optimizer", LearningRate::Counter::optimizer}},
      options.counter);
  const std::size_t faults = rate.faults_so_far();
  const Length warmup = read_length(rate, warmup_keys, epoch);
  const Length hold = has_hold(options.shape) ? read_length(rate, hold_keys, epoch) : Length{.key = "hold_steps"};
  options.warmup_steps = warmup.steps, options.warmup_share = warmup.share;
  options.hold_steps = hold.steps, options.hold_share = hold.share;
  read_decay(rate, epoch, options);
  options.total_steps = no_limit;
  bool is_known = warmup.is_known && hold.is_known;
  if (row && (has_end(options.shape) || warmup.share + hold.share > 0)) {
    const std::optional<Step> total_steps = read_total(rate, budget, row->name);
    options.total_steps = total_steps.value_or(no_limit);
    is_known &= total_steps.has_value();
  }
  check_lengths(rate, warmup, hold, is_known && rate.faults_so_far() == faults, options);
  return std::make_shared<LearningRate>(std::move(options));
}

std::span<const OptimizerRow> optimizers() { return optimizer_rows; }

KeyValues shown_differences(TomlNode own, const TomlNode& common, const ObjectivePlan& objective) {
  if (TomlNode* optimizer = own.find("optimizer"))
    leave_out_defaults(*optimizer, "optimizer", "name",
                       [&](Settings& training) { read_optimizer(training, objective); });
  TomlNode* phase = own.find("common");
  if (TomlNode* method = phase ? phase->find("method") : nullptr)
    leave_out_defaults(*method, "method", "algorithm", [](Settings& training) {
      Settings table = training.section("method");
      make_algorithm(table, {});
    });
  TomlNode* rate = own.find("learning_rate");
  const TomlNode* other = common.find("learning_rate");
  if (rate && other) leave_out_same(*rate, *other);  // an empty table has no leaves
  return leaves_of(own);
}

TrainingSection read_training(Settings& root, ObjectiveContext context, std::optional<Step> after_common_phase,
                              bool takes_common) {
  TrainingSection result;
  Settings training = root.section({"training", "The model, its data, and the optimizer."});
  const Step start_steps = training.integer(
      {"start_steps", "Skips the data (and random draws) of this many steps, to continue an earlier run's data.",
       "steps"},
      0, most_start_steps, 0);
  result.first_step = context.first_step = after_common_phase.value_or(start_steps);
  result.objective = plan_objective(training, root, context);
  TrainingPlan& plan = result.plan;
  plan.time_only = result.objective.time_only;
  if (plan.time_only) {
    // The length of an epoch is known only if the file names the data set.
    if (!training.has("dataset")) training.leave_out("dataset");
    const std::int64_t most = std::numeric_limits<std::int32_t>::max();
    const std::int64_t parameters = training.integer(
        {"parameters", "Number of parameters, of 4 bytes each, that a message has instead of the model's number."}, 0,
        most * std::int64_t{sizeof(float)});
    result.objective.parameters = parameters;
  }
  plan.parameter_bytes = result.objective.parameters * static_cast<std::int64_t>(sizeof(float));
  plan.tensors = result.objective.tensors;
  plan.memory = result.objective.memory;
  plan.arithmetic = result.objective.arithmetic;
  plan.arithmetic_places = result.objective.arithmetic_places;
  plan.options.clip_norm = training.number(
      {"clip_norm", "Largest global norm of gradients; 0: none. See algorithms/README.md for which gradients."},
      non_negative, 0.0);
  plan.optimizer = read_optimizer(training, result.objective);
  plan.samples_per_micro_batch = result.objective.samples_per_micro_batch;
  plan.trains_network = result.objective.is_network;
  plan.options.start = read_start(training, result.objective, plan.time_only);
  if (takes_common)
    training.keep_as_written({"common",
                              "A first phase that all methods share: its length in steps or epochs, and its own "
                              "keys of [training]."});
  if (takes_common && plan.time_only && training.has("common"))
    training.fault("common", "must be left out: there is no model");
  plan.make_objective = result.objective.load;
  plan.make_kinds = result.objective.load_kinds;
  if (plan.time_only) plan.make_objective = [] { return nullptr; };
  return result;
}

std::optional<Step> steps_of_epochs(Settings& settings, std::string_view key, double epochs, const EpochLength& epoch) {
  constexpr double most = 1e15;
  if (epoch.steps) return Step{std::llround(std::min(epochs * static_cast<double>(epoch.steps->value()), most))};
  if (!epoch.is_faulty) settings.fault(key, "cannot be in epochs: without a data set an epoch has no length");
  return std::nullopt;
}

}  // namespace syncopate
