#include "workers/training/optimizers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "workers/base/random.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/vector_clones.hpp"

namespace syncopate {

namespace {

// The share of a moment with decay beta that still comes from its initial value; the rest comes from gradients.
double left_of_start(double beta, const MomentAge& age) {
  return age.left * std::pow(beta, static_cast<double>(age.steps.value()));
}

// The decays of an optimizer's moments; the first function is for optimizers with Adam's moments.
template <typename Options>
std::vector<double> decays_of(const Options& options) {
  return {options.beta1, options.beta2};
}
std::vector<double> decays_of(const LarsOptions& options) { return {options.momentum}; }
std::vector<double> decays_of(const SgdOptions& options) {
  return options.momentum == 0 ? std::vector<double>() : std::vector{options.momentum};
}
std::vector<double> decays_of(const RmsPropOptions& options) {
  return options.momentum == 0 ? std::vector{options.rho} : std::vector{options.momentum, options.rho};
}
std::vector<double> decays_of(const AveragedOptions& options) {
  std::vector<double> decays = {options.kept_of_x.value_or(options.share_of_x), options.beta2, options.beta1};
  decays.resize(static_cast<std::size_t>(options.base) + 1);
  return decays;
}

template <typename Options>
class OptimizerWith : public Optimizer {
 public:
  explicit OptimizerWith(const Options& options) : options_(options), decays_(decays_of(options)) {}
  int moments() const override { return static_cast<int>(decays_.size()); }
  std::vector<double> decays() const override { return decays_; }
  const WeightDecay& weight_decay() const override { return options_.weight_decay; }

 protected:
  Options options_;

 private:
  std::vector<double> decays_;
};

// All scalars of a step are computed in double precision and rounded once to single precision.
//
// AdamW (Loshchilov and Hutter 2019), and Adam, whose weight decay is added to the gradient. With c_i = 1 -
// beta_i^step, the step lr (m / c_1) / (sqrt(s / c_2) + epsilon)  equals  rate m / (sqrt(s) + epsilon')  where  rate =
// lr sqrt(c_2) / c_1 and epsilon' = epsilon sqrt(c_2): one square root and one division per parameter.
struct AdamWScalars {
  float rate = 0;
  float epsilon = 0;
  float beta1 = 0, beta2 = 0;
  float rest1 = 0, rest2 = 0;  // 1 - beta, rounded from double
  float l2 = 0;                // coupled decay: l2 theta is added to the gradient
  float shrink = 1;            // decoupled decay: theta is multiplied by this
};

// Moments that are zero before this step (first_from_zero, second_from_zero) have no vector to read.
template <bool first_from_zero, bool second_from_zero, bool keeps_second>
[[gnu::always_inline]] inline void pass(const OptimizerBlock& block, const AdamWScalars s) {
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const m_before = block.moments_before[0];
  const float* const s_before = block.moments_before[1];
  float* const after = block.after;
  float* const m_after = block.moments_after[0];
  float* const s_after = block.moments_after[1];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float direction = g[i] + s.l2 * before[i];
    float first = s.rest1 * direction;
    float second = keeps_second ? 0.0f : s.rest2 * direction * direction;
    if constexpr (!first_from_zero) first = s.beta1 * m_before[i] + first;
    if constexpr (!second_from_zero) second = keeps_second ? s_before[i] : s.beta2 * s_before[i] + second;
    if constexpr (keeps_second) first = second == 0 ? 0.0f : first;
    m_after[i] = first;
    s_after[i] = second;
    after[i] = before[i] * s.shrink - s.rate * (first / (std::sqrt(second) + s.epsilon));
  }
}

template <bool keeps_second>
[[gnu::always_inline]] inline void adamw_pass_of(const OptimizerBlock& block, const AdamWScalars s) {
  if (block.moments_before[0] != nullptr) {
    if (block.moments_before[1] != nullptr) return pass<false, false, keeps_second>(block, s);
    return pass<false, true, keeps_second>(block, s);
  }
  if (block.moments_before[1] != nullptr) return pass<true, false, keeps_second>(block, s);
  pass<true, true, keeps_second>(block, s);
}

// If the step keeps the second moment, a moment that was never written remains zero. Where the second moment is zero,
// the step would have no scale, so the first moment becomes zero, too.
SYNCOPATE_VECTOR_CLONES
void adamw_pass(const OptimizerBlock& block, const AdamWScalars s, bool keeps_second) {
  if (keeps_second) return adamw_pass_of<true>(block, s);
  adamw_pass_of<false>(block, s);
}

class AdamW final : public OptimizerWith<AdamWOptions> {
 public:
  using OptimizerWith::OptimizerWith;

  std::optional<double> beta1_of_frozen() const override {
    const bool decays_in_gradient = options_.weight_decay.form == DecayForm::coupled && options_.weight_decay.rate > 0;
    return options_.corrects_bias || decays_in_gradient ? std::nullopt : std::optional(options_.beta1);
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    const double correction1 = options_.corrects_bias ? 1 - left_of_start(options_.beta1, context.ages[0]) : 1;
    const double root2 = options_.corrects_bias ? std::sqrt(1 - left_of_start(options_.beta2, context.ages[1])) : 1;
    AdamWScalars scalars{.rate = static_cast<float>(context.learning_rate * root2 / correction1),
                         .epsilon = static_cast<float>(options_.epsilon * root2),
                         .beta1 = static_cast<float>(options_.beta1),
                         .beta2 = static_cast<float>(options_.beta2),
                         .rest1 = static_cast<float>(1 - options_.beta1),
                         .rest2 = static_cast<float>(1 - options_.beta2)};
    if (options_.weight_decay.form == DecayForm::coupled)
      scalars.l2 = static_cast<float>(context.decay);
    else
      scalars.shrink = static_cast<float>(1 - context.learning_rate * context.decay);
    adamw_pass(block, scalars, context.keeps_second);
  }
};

struct AdamScalars {
  float beta1 = 0, beta2 = 0;
  float rest1 = 0, rest2 = 0;              // 1 - beta, rounded from double
  float correction1 = 1, correction2 = 1;  // 1 / (1 - beta^t)
  float epsilon = 0;
  float decay = 0;  // decoupled
};

template <typename Options>
AdamScalars adam_scalars(const Options& options, const StepContext& context) {
  return {.beta1 = static_cast<float>(options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .rest1 = static_cast<float>(1 - options.beta1),
          .rest2 = static_cast<float>(1 - options.beta2),
          .correction1 = static_cast<float>(1 / (1 - left_of_start(options.beta1, context.ages[0]))),
          .correction2 = static_cast<float>(1 / (1 - left_of_start(options.beta2, context.ages[1]))),
          .epsilon = static_cast<float>(options.epsilon),
          .decay = static_cast<float>(context.decay)};
}

struct LambScalars : AdamScalars {
  float clip = 1;  // multiplies g
  float l2 = 0;    // coupled decay
};

// Computes the direction u and overwrites the gradient with it.
SYNCOPATE_VECTOR_CLONES
void direction_pass(const OptimizerBlock& block, const LambScalars c) {
  const float* const before = block.before;
  const float* const m_before = read_moment(block, 0);
  const float* const s_before = read_moment(block, 1);
  float* const m_after = block.moments_after[0];
  float* const s_after = block.moments_after[1];
  float* const kept = block.kept;
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float g = c.clip * kept[i] + c.l2 * before[i];
    const float m = c.beta1 * m_before[i] + c.rest1 * g;
    const float s = c.beta2 * s_before[i] + c.rest2 * g * g;
    m_after[i] = m;
    s_after[i] = s;
    kept[i] = c.correction1 * m / (std::sqrt(c.correction2 * s) + c.epsilon) + c.decay * before[i];
  }
}

SYNCOPATE_VECTOR_CLONES
void step_pass(const OptimizerBlock& block, const float shrink, const float rate) {
  const float* const direction = block.gradient;
  const float* const before = block.before;
  float* const after = block.after;
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) after[i] = shrink * before[i] - rate * direction[i];
}

class Lamb final : public OptimizerWith<LambOptions> {
 public:
  using OptimizerWith::OptimizerWith;

  int passes() const override { return clips() ? 2 : 1; }
  TensorSums measure(int pass, const OptimizerBlock& block, const StepContext& context) const override {
    if (clips() && pass == 0) return {sum_of_squares(block.gradient, block.size)};
    direction_pass(block, scalars(context));
    return {sum_of_squares(block.before, block.size), sum_of_squares(block.kept, block.size)};
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    step_pass(block, 1, static_cast<float>(context.learning_rate * ratio(context)));
  }

 private:
  bool clips() const { return options_.max_norm > 0; }

  LambScalars scalars(const StepContext& context) const {
    LambScalars scalars{adam_scalars(options_, context)};
    if (!options_.averages_gradients) scalars.rest1 = 1;
    if (clips()) {
      const double norm = std::sqrt((*context.model)[0][0]);
      scalars.clip = static_cast<float>(1 / std::max(1.0, norm / options_.max_norm));
    }
    if (options_.weight_decay.form == DecayForm::coupled) std::swap(scalars.l2, scalars.decay);
    return scalars;
  }

  double ratio(const StepContext& context) const {
    if (context.decay == 0 && options_.trust == TrustScope::decayed) return 1;
    const auto& [theta2, u2, unused] = (*context.tensor)[clips() ? 1 : 0];
    if (theta2 == 0 || u2 == 0) return 1;
    return std::clamp(std::sqrt(theta2 / u2), options_.ratio_min, options_.ratio_max);
  }
};

// The scalars for one tensor.
struct LansScalars : AdamScalars {
  float normalise = 1;  // factor of the gradient: h = normalise g
};

// The two directions r and c of a step at parameters theta.
struct Directions {
  float r;
  float c;
};
[[gnu::always_inline]] inline Directions directions(float h, float m, float s, float theta, const LansScalars& k) {
  const float d = std::sqrt(k.correction2 * s) + k.epsilon;
  return {k.correction1 * m / d + k.decay * theta, h / d + k.decay * theta};
}

SYNCOPATE_VECTOR_CLONES
void moments_pass(const OptimizerBlock& block, const LansScalars k, float* r, float* c) {
  const float* const g = block.gradient;
  const float* const theta = block.before;
  const float* const m_before = read_moment(block, 0);
  const float* const s_before = read_moment(block, 1);
  float* const m_after = block.moments_after[0];
  float* const s_after = block.moments_after[1];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float h = k.normalise * g[i];
    const float m = k.beta1 * m_before[i] + k.rest1 * h;
    const float s = k.beta2 * s_before[i] + k.rest2 * h * h;
    m_after[i] = m;
    s_after[i] = s;
    const Directions both = directions(h, m, s, theta[i], k);
    r[i] = both.r;
    c[i] = both.c;
  }
}

SYNCOPATE_VECTOR_CLONES
void step_pass(const OptimizerBlock& block, const LansScalars k, const float rate_r, const float rate_c) {
  const float* const g = block.gradient;
  const float* const theta = block.before;
  const float* const m = block.moments_after[0];
  const float* const s = block.moments_after[1];
  float* const after = block.after;
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const Directions both = directions(k.normalise * g[i], m[i], s[i], theta[i], k);
    after[i] = theta[i] - (rate_r * both.r + rate_c * both.c);
  }
}

class Lans final : public OptimizerWith<LansOptions> {
 public:
  using OptimizerWith::OptimizerWith;

  int passes() const override { return 2; }
  TensorSums measure(int pass, const OptimizerBlock& block, const StepContext& context) const override {
    if (pass == 0) return {sum_of_squares(block.gradient, block.size)};
    std::array<float, longest_block> r, c;
    moments_pass(block, scalars(context), r.data(), c.data());
    return {sum_of_squares(block.before, block.size), sum_of_squares(r.data(), block.size),
            sum_of_squares(c.data(), block.size)};
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    const double theta2 = (*context.tensor)[1][0], r2 = (*context.tensor)[1][1], c2 = (*context.tensor)[1][2];
    const bool scales = options_.trust == TrustScope::all || !context.excluded;
    const auto rate = [&](double share, double norm2) {
      const double ratio = scales && theta2 > 0 && norm2 > 0 ? std::sqrt(theta2 / norm2) : 1;
      return static_cast<float>(context.learning_rate * share * ratio);
    };
    step_pass(block, scalars(context), rate(options_.beta1, r2), rate(1 - options_.beta1, c2));
  }

 private:
  LansScalars scalars(const StepContext& context) const {
    double clip = 1;
    if (options_.max_norm > 0) clip = 1 / std::max(1.0, std::sqrt((*context.model)[0][0]) / options_.max_norm);
    const double norm = clip * std::sqrt((*context.tensor)[0][0]);
    return {adam_scalars(options_, context), static_cast<float>(norm == 0 ? 1 : clip / (norm + options_.epsilon))};
  }
};

// The scalars for one tensor.
struct LarsScalars {
  float momentum = 0;
  float of_gradient = 0;    // r; multiplied by the rate if the momentum sums updates
  float of_parameters = 0;  // of_gradient times the decay
  float rate = 1;           // factor of v in the step
};

SYNCOPATE_VECTOR_CLONES
void lars_pass(const OptimizerBlock& block, const LarsScalars s) {
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const v_before = read_moment(block, 0);
  float* const after = block.after;
  float* const v_after = block.moments_after[0];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float d = s.of_gradient * g[i] + s.of_parameters * before[i];
    const float v = s.momentum * v_before[i] + d;
    v_after[i] = v;
    after[i] = before[i] - s.rate * v;
  }
}

class Lars final : public OptimizerWith<LarsOptions> {
 public:
  using OptimizerWith::OptimizerWith;

  int passes() const override { return 1; }
  TensorSums measure(int, const OptimizerBlock& block, const StepContext&) const override {
    return {sum_of_squares(block.gradient, block.size), sum_of_squares(block.before, block.size)};
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    double r = ratio(context);
    double rate = context.learning_rate;
    if (options_.momentum_of == MomentumOf::updates) {
      r *= rate;
      rate = 1;
    }
    lars_pass(block, {.momentum = static_cast<float>(options_.momentum),
                      .of_gradient = static_cast<float>(r),
                      .of_parameters = static_cast<float>(r * context.decay),
                      .rate = static_cast<float>(rate)});
  }

 private:
  double ratio(const StepContext& context) const {
    if (context.excluded && options_.trust == TrustScope::decayed) return 1;
    const auto& [g2, theta2, unused] = (*context.tensor)[0];
    if (g2 == 0 || theta2 == 0) return 1;
    const double theta = std::sqrt(theta2);
    return options_.trust_coefficient * theta / (std::sqrt(g2) + context.decay * theta + options_.epsilon);
  }
};

// Updates a matrix's momentum, and computes the direction that Newton-Schulz iterations then orthogonalise.
SYNCOPATE_VECTOR_CLONES
void muon_pass(const OptimizerBlock& block, const float momentum, const float rest, const bool nesterov) {
  const float* const g = block.gradient;
  const float* const m_before = read_moment(block, 0);
  float* const m_after = block.moments_after[0];
  float* const direction = block.kept;
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float m = momentum * m_before[i] + rest * g[i];
    m_after[i] = m;
    direction[i] = nesterov ? rest * g[i] + momentum * m : m;
  }
}

// Updates some matrices as a whole, and all other tensors by AdamW.
template <typename Options>
class MatrixOptimizer : public OptimizerWith<Options> {
 public:
  explicit MatrixOptimizer(const Options& options)
      : OptimizerWith<Options>(options),
        adamw_({.beta1 = options.beta1,
                .beta2 = options.beta2,
                .epsilon = options.epsilon,
                .weight_decay = {.form = DecayForm::decoupled}}) {}

  std::vector<bool> matrices(std::span<const ParameterTensor> tensors) const override {
    const auto is_earlier = [&](std::size_t a, std::size_t b) { return tensors[a].place < tensors[b].place; };
    std::vector<std::size_t> in_use;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].rows > 0) in_use.push_back(i);
    std::ranges::stable_sort(in_use, is_earlier);
    const bool has_own_head = std::ranges::none_of(tensors, &ParameterTensor::is_tied);
    std::vector<bool> chosen(tensors.size());
    for (const std::size_t i : in_use) {
      const bool is_head = has_own_head && i == in_use.back();
      const bool is_hidden = i != in_use.front() && !is_head && !is_embedding(tensors[i].name);
      chosen[i] = (this->options_.all_matrices || is_hidden) && !is_named(tensors[i].name, this->options_.others);
    }
    return chosen;
  }

  std::vector<std::string> excluded_matrices() const override { return this->options_.others; }

  int passes() const override { return 1; }
  TensorSums measure(int, const OptimizerBlock& block, const StepContext& context) const override {
    if (context.rows == 0) return {};
    accumulate(block);
    const float* const second = read_moment(block, 1);
    if (second != block.moments_after[1]) std::copy_n(second, block.size, block.moments_after[1]);
    return {};
  }
  void update(const OptimizerBlock& block, const StepContext& context) const override {
    if (context.rows > 0)
      return step_pass(block, static_cast<float>(1 - context.learning_rate * context.decay),
                       static_cast<float>(context.learning_rate * scale_of(context)));
    StepContext of_adamw = context;
    of_adamw.learning_rate *= this->options_.adamw_rate;
    adamw_.update(block, of_adamw);
  }

 private:
  virtual void accumulate(const OptimizerBlock& block) const = 0;  // updates the first moment
  virtual double scale_of(const StepContext& context) const = 0;   // the factor of a matrix's step

  AdamW adamw_;
};

// For matrices the second moment stays zero. It exists because the other tensors, which AdamW updates, need it.
class Muon final : public MatrixOptimizer<MuonOptions> {
 public:
  Muon(const MuonOptions& options, Orthogonalise orthogonalise)
      : MatrixOptimizer(options), orthogonalise_(orthogonalise) {}

  void turn_matrix(const MatrixBlock& matrix) const override {
    const bool of_jordan = options_.iterations == MuonOptions::Iterations::jordan;
    orthogonalise_(matrix.kept, matrix.rows, matrix.columns,
                   of_jordan ? NewtonSchulz(newton_schulz_of_jordan) : newton_schulz_of_dion);
  }

 private:
  void accumulate(const OptimizerBlock& block) const override {
    muon_pass(block, static_cast<float>(options_.momentum), static_cast<float>(1 - options_.momentum),
              options_.nesterov);
  }
  double scale_of(const StepContext& context) const override {
    const auto rows = static_cast<double>(context.rows), columns = static_cast<double>(context.columns);
    if (options_.scale == MuonScale::rms_match) return 0.2 * std::sqrt(std::max(rows, columns));
    const double ratio = options_.scale == MuonScale::jordan ? std::max(1.0, rows / columns) : rows / columns;
    return std::sqrt(ratio);
  }

  Orthogonalise orthogonalise_;
};

class Dion final : public MatrixOptimizer<DionOptions> {
 public:
  Dion(const DionOptions& options, PowerIteration iterate) : MatrixOptimizer(options), iterate_(iterate) {}

  void turn_matrix(const MatrixBlock& matrix) const override {
    const std::size_t side = std::min(matrix.rows, matrix.columns);
    constexpr double rounding = 1e-12;
    const double share = options_.rank_share * (1 - rounding);
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(side)));
    float* const momentum = matrix.moments[0];
    float* const basis = matrix.moments[1];
    const auto is_zero = [](float value) { return value == 0; };
    const std::size_t size = matrix.rows * matrix.columns;
    if (std::all_of(basis, basis + side * rank, is_zero)) {
      std::vector<double> drawn(side * rank);
      fill_standard_normal({.seed = matrix.seed, .purpose = Purpose::optimizer},
                           static_cast<std::uint32_t>(matrix.offset), drawn);
      std::ranges::copy(drawn, basis);
    }
    if (std::all_of(momentum, momentum + size, is_zero)) {
      std::fill_n(matrix.kept, size, 0.0f);
      return;
    }
    iterate_(momentum, basis, matrix.kept, matrix.rows, matrix.columns, rank, 1 - options_.momentum);
  }

 private:
  void accumulate(const OptimizerBlock& block) const override {
    const float* const before = read_moment(block, 0);
    for (std::size_t i = 0; i < block.size; ++i) block.moments_after[0][i] = before[i] + block.gradient[i];
  }
  double scale_of(const StepContext& context) const override {
    return std::sqrt(static_cast<double>(context.rows) / static_cast<double>(context.columns));
  }

  PowerIteration iterate_;
};

struct AveragedScalars : AdamScalars {
  float rate = 0;
  float inside = 0;       // b lr
  float kept = 0;         // 1 - c
  float decay_ahead = 0;  // decay of z - y; `decay` is that of y
};

template <AveragedOptions::Base base>
[[gnu::always_inline]] inline void pass(const OptimizerBlock& block, const AveragedScalars s) {
  using enum AveragedOptions::Base;
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const d_before = read_moment(block, 0);
  const float* const v_before = base == sgd ? nullptr : read_moment(block, 1);
  const float* const m_before = base == adamw ? read_moment(block, 2) : nullptr;
  float* const after = block.after;
  float* const d_after = block.moments_after[0];
  float* const v_after = block.moments_after[1];
  float* const m_after = block.moments_after[2];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    float u = g[i];
    if constexpr (base == adamw) m_after[i] = u = s.beta1 * m_before[i] + s.rest1 * g[i];
    if constexpr (base != sgd) {
      const float v = s.beta2 * v_before[i] + s.rest2 * g[i] * g[i];
      v_after[i] = v;
      u = s.correction1 * u / (std::sqrt(s.correction2 * v) + s.epsilon);
    }
    const float y = before[i], d = d_before[i];
    u += s.decay * y + s.decay_ahead * d;
    const float ahead = s.kept * (d - s.inside * u);
    d_after[i] = ahead;
    after[i] = y + (d - s.rate * u - ahead);
  }
}

SYNCOPATE_VECTOR_CLONES
void averaged_pass(const OptimizerBlock& block, const AveragedScalars s, AveragedOptions::Base base) {
  using enum AveragedOptions::Base;
  if (base == sgd) return pass<sgd>(block, s);
  if (base == rms) return pass<rms>(block, s);
  pass<adamw>(block, s);
}

class Averaged final : public OptimizerWith<AveragedOptions> {
 public:
  using OptimizerWith::OptimizerWith;

  double evaluated_factor() const override { return 1 - 1 / options_.share_of_x; }
  MomentAge weighed(const MomentAges& ages, double learning_rate) const override {
    MomentAge age = ages[0];
    age.largest_rate = std::max(age.largest_rate, rate_of(ages, learning_rate));
    ++age.iterates;
    age.weights += newest_weight(age);
    return age;
  }

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    AveragedScalars scalars{adam_scalars(options_, context)};
    const double left = left_of_start(options_.beta1, context.ages[2]);
    scalars.correction1 = options_.base == AveragedOptions::Base::adamw ? static_cast<float>(1 / (1 - left)) : 1;
    if (options_.scales_rate) scalars.correction2 = 1;
    const double rate = rate_of(context.ages, context.learning_rate);
    const MomentAge& age = context.ages[0];
    const double weight = newest_weight(age);
    scalars.rate = static_cast<float>(rate);
    scalars.inside = static_cast<float>(options_.share_of_x * rate);
    scalars.kept = static_cast<float>(options_.kept_of_x.value_or(age.weights > 0 ? 1 - weight / age.weights : 1));
    if (options_.decays_at_z) scalars.decay_ahead = scalars.decay;
    averaged_pass(block, scalars, options_.base);
  }

 private:
  double newest_weight(const MomentAge& age) const {
    return std::pow(age.iterates, options_.step_power) * std::pow(age.largest_rate, options_.rate_power);
  }
  double rate_of(const MomentAges& ages, double learning_rate) const {
    return options_.scales_rate ? learning_rate * std::sqrt(1 - left_of_start(options_.beta2, ages[1])) : learning_rate;
  }
};

struct RmsPropScalars {
  float rate = 0;
  float momentum = 0;
  float rho = 0;
  float rest = 0;   // 1 - rho, rounded from double
  float start = 0;  // the remainder of the mean square's initial value
  float epsilon = 0;
  float l2 = 0;
};

template <bool has_momentum, RmsPropForm form>
[[gnu::always_inline]] inline void pass(const OptimizerBlock& block, const RmsPropScalars s) {
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const v_before = has_momentum ? read_moment(block, 0) : nullptr;
  const float* const ms_before = read_moment(block, has_momentum ? 1 : 0);
  float* const after = block.after;
  float* const v_after = block.moments_after[0];
  float* const ms_after = block.moments_after[has_momentum ? 1 : 0];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    const float gradient = g[i] + s.l2 * before[i];
    const float kept = s.rho * ms_before[i] + s.rest * gradient * gradient;
    ms_after[i] = kept;
    const float ms = kept + s.start;
    float update = 0;
    if constexpr (form == RmsPropForm::tensorflow)
      update = s.rate * gradient / std::sqrt(ms + s.epsilon);
    else
      update = gradient / (std::sqrt(ms) + s.epsilon);
    if constexpr (has_momentum) {
      update = s.momentum * v_before[i] + update;
      v_after[i] = update;
    }
    after[i] = before[i] - (form == RmsPropForm::tensorflow ? update : s.rate * update);
  }
}

SYNCOPATE_VECTOR_CLONES
void rmsprop_pass(const OptimizerBlock& block, const RmsPropScalars s, bool has_momentum, RmsPropForm form) {
  if (form == RmsPropForm::tensorflow) {
    if (has_momentum) return pass<true, RmsPropForm::tensorflow>(block, s);
    return pass<false, RmsPropForm::tensorflow>(block, s);
  }
  if (has_momentum) return pass<true, RmsPropForm::pytorch>(block, s);
  pass<false, RmsPropForm::pytorch>(block, s);
}

class RmsProp final : public OptimizerWith<RmsPropOptions> {
 public:
  using OptimizerWith::OptimizerWith;

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    const double left = left_of_start(options_.rho, context.ages[options_.momentum > 0 ? 1 : 0]);
    const RmsPropScalars scalars{.rate = static_cast<float>(context.learning_rate),
                                 .momentum = static_cast<float>(options_.momentum),
                                 .rho = static_cast<float>(options_.rho),
                                 .rest = static_cast<float>(1 - options_.rho),
                                 .start = static_cast<float>(options_.mean_square_start * left),
                                 .epsilon = static_cast<float>(options_.epsilon),
                                 .l2 = static_cast<float>(context.decay)};
    rmsprop_pass(block, scalars, options_.momentum > 0, options_.form);
  }
};

struct SgdScalars {
  float rate = 0;      // learning rate
  float momentum = 0;  // mu
  float l2 = 0;        // coupled decay: l2 theta is added to the gradient
  float shrink = 1;    // decoupled decay: theta is multiplied by this
};

enum class Momentum { none, from_zero, running };

// If weight decay is off, the loop multiplies by 0 or 1, which changes no bit of a finite result and saves loops
// without decay. `before` and `after` are the same memory or disjoint, so iterations are independent. Without the
// pragma the compiler treats equal pointers as an overlap and falls back to a scalar loop.
template <Momentum momentum, bool nesterov, MomentumOf of>
[[gnu::always_inline]] inline void pass(const OptimizerBlock& block, const SgdScalars s) {
  const float* const g = block.gradient;
  const float* const before = block.before;
  const float* const v_before = block.moments_before[0];
  float* const after = block.after;
  float* const v_after = block.moments_after[0];
  SYNCOPATE_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < block.size; ++i) {
    float direction = g[i] + s.l2 * before[i];
    if constexpr (of == MomentumOf::updates) direction = s.rate * direction;
    if constexpr (momentum != Momentum::none) {
      float v = direction;
      if constexpr (momentum == Momentum::running) v = s.momentum * v_before[i] + direction;
      v_after[i] = v;
      direction = nesterov ? direction + s.momentum * v : v;
    }
    if constexpr (of == MomentumOf::gradients) direction = s.rate * direction;
    after[i] = before[i] * s.shrink - direction;
  }
}

template <bool nesterov, MomentumOf of>
[[gnu::always_inline]] inline void momentum_pass(const OptimizerBlock& block, const SgdScalars s) {
  if (block.moments_before[0] == nullptr) return pass<Momentum::from_zero, nesterov, of>(block, s);
  pass<Momentum::running, nesterov, of>(block, s);
}

SYNCOPATE_VECTOR_CLONES
void sgd_pass(const OptimizerBlock& block, const SgdScalars s, const SgdOptions& options) {
  using enum MomentumOf;
  if (options.momentum == 0) return pass<Momentum::none, false, gradients>(block, s);
  if (options.momentum_of == gradients) {
    if (options.nesterov) return momentum_pass<true, gradients>(block, s);
    return momentum_pass<false, gradients>(block, s);
  }
  if (options.nesterov) return momentum_pass<true, updates>(block, s);
  momentum_pass<false, updates>(block, s);
}

class Sgd final : public OptimizerWith<SgdOptions> {
 public:
  using OptimizerWith::OptimizerWith;

  void update(const OptimizerBlock& block, const StepContext& context) const override {
    SgdScalars scalars{.rate = static_cast<float>(context.learning_rate),
                       .momentum = static_cast<float>(options_.momentum)};
    if (options_.weight_decay.form == DecayForm::coupled)
      scalars.l2 = static_cast<float>(context.decay);
    else
      scalars.shrink = static_cast<float>(1 - context.learning_rate * context.decay);
    sgd_pass(block, scalars, options_);
  }
};

}  // namespace

const float* read_moment(const OptimizerBlock& block, std::size_t moment) {
  if (block.moments_before[moment] != nullptr) return block.moments_before[moment];
  std::fill_n(block.moments_after[moment], block.size, 0.0f);
  return block.moments_after[moment];
}

std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options) { return std::make_unique<Sgd>(options); }

std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options) { return std::make_unique<AdamW>(options); }

std::unique_ptr<Optimizer> make_lamb(const LambOptions& options) { return std::make_unique<Lamb>(options); }

std::unique_ptr<Optimizer> make_lans(const LansOptions& options) { return std::make_unique<Lans>(options); }

std::unique_ptr<Optimizer> make_lars(const LarsOptions& options) { return std::make_unique<Lars>(options); }

std::unique_ptr<Optimizer> make_muon(const MuonOptions& options, Orthogonalise orthogonalise) {
  return std::make_unique<Muon>(options, orthogonalise);
}

std::unique_ptr<Optimizer> make_dion(const DionOptions& options, PowerIteration iterate) {
  return std::make_unique<Dion>(options, iterate);
}

std::unique_ptr<Optimizer> make_averaged(const AveragedOptions& options) { return std::make_unique<Averaged>(options); }

std::unique_ptr<Optimizer> make_rmsprop(const RmsPropOptions& options) { return std::make_unique<RmsProp>(options); }

}  // namespace syncopate
