// Methods of 2025 and 2026 and the federated classics, compared with an independent implementation in double precision
// (tests/golden/methods_2026_reference.py). tests/golden/methods_2026.py has written its results.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "algorithms/asynchronous/heloco.hpp"
#include "algorithms/local_sgd/post_local_sgd.hpp"
#include "tests/algorithms/method_settings.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/engine.hpp"
#include "workers/compression/kernels.hpp"
#include "workers/models/matrix_steps.hpp"

namespace syncopate {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json json = [] {
    std::ifstream file(SYNCOPATE_SOURCE_DIR "/tests/golden/methods_2026.json");
    return Json::parse(file);
  }();
  return json;
}

void expect_near(const std::vector<float>& found, const Json& expected, const std::string& what, double within = 2e-5) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i].get<double>(), within) << what << ", element " << i;
}

// Worker i's gradient at x is h x - b_i (methods_2026.py). The parameters are one matrix of (8, 6) and a vector. With
// `curved` workers also differ in h.
class Unequal : public PullObjective {
 public:
  static constexpr std::size_t size = 54, of_matrix = 48, curved = 13;
  explicit Unequal(std::size_t bend = 0) : PullObjective(size, of_matrix), bend_(bend) {}

  std::vector<ParameterTensor> tensors() const override {
    return {{.name = "weight", .offset = 0, .size = of_matrix, .place = 0, .rows = 8},
            {.name = "bias", .offset = of_matrix, .size = size - of_matrix, .place = 1}};
  }
  PartialGradient gradient(const float* x, const float*, std::span<const MicroBatch> micro_batches) const override {
    const auto values = std::make_shared<std::vector<float>>(size);
    for (const MicroBatch& micro_batch : micro_batches)
      for (std::size_t j = 0; j < size; ++j) {
        const std::size_t turned = j + bend_ * static_cast<std::size_t>(micro_batch.worker.value);
        const double h = static_cast<double>(32 + turned % 40) / 64;
        const double phase = 1 + 1.7 * micro_batch.worker.value + 0.6 * static_cast<double>(j);
        (*values)[j] += static_cast<float>(h * x[j] - std::round(64 * std::sin(phase)) / 64);
      }
    return {.segments = {{.offset = 0, .size = size, .data = values->data(), .owner = values}},
            .loss_sum = 0,
            .buffers_sum = {}};
  }

 private:
  std::size_t bend_;
};

class UnequalSamples final : public Unequal {
 public:
  std::int64_t samples_of(Rank worker) const override {
    return std::vector{10, 40, 25}.at(static_cast<std::size_t>(worker.value));
  }
};

// Worker i's gradient at x is h x - b_i, for given numbers. It records the first element of each model at which it is
// computed.
class Straight final : public PullObjective {
 public:
  Straight(double h, std::vector<std::vector<double>> b)
      : PullObjective(b.front().size(), b.front().size()), h_(h), b_(std::move(b)) {}

  PartialGradient gradient(const float* x, const float*, std::span<const MicroBatch> micro_batches) const override {
    const auto values = std::make_shared<std::vector<float>>(parameters());
    for (const MicroBatch& micro_batch : micro_batches) {
      const std::vector<double>& b = b_.at(static_cast<std::size_t>(micro_batch.worker.value));
      for (std::size_t j = 0; j < values->size(); ++j) (*values)[j] += static_cast<float>(h_ * x[j] - b[j]);
      const std::lock_guard lock(mutex_);
      seen_[micro_batch] = *x;
    }
    return {.segments = {{.offset = 0, .size = values->size(), .data = values->data(), .owner = values}},
            .loss_sum = 0,
            .buffers_sum = {}};
  }
  float model_of(int worker, int step) const { return seen_.at({Rank{worker}, Step{step}, 0}); }

 private:
  double h_;
  std::vector<std::vector<double>> b_;
  mutable std::mutex mutex_;
  mutable std::map<MicroBatch, float> seen_;
};

SimulatedRun setup(int steps, double rate) {
  return {.network_s = 0,
          .rate = rate,
          .budget = {.steps = steps},
          .delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 0.31, 1.73})},
          .objective = std::make_shared<Unequal>()};
}

SimulatedRun::Outcome run(const std::string& toml, const SimulatedRun& setup, double momentum = 0) {
  AlgorithmContext context{.workers = setup.workers};
  context.divides_data = setup.objective->samples_of(Rank{0}) > 0;
  if (momentum > 0) context.moment_decays = {momentum};
  const MethodReading method = read_method(toml, context);
  EXPECT_EQ(method.faults, "");
  return setup.run(*method.algorithm);
}

const std::string period = "period = { rule = \"constant\", steps = 3 }\n";

TEST(Muon, NewtonSchulzIterationsGiveTheGoldenMatrices) {
  for (const Json& one : golden().at("newton_schulz")) {
    std::vector<float> matrix;
    for (const Json& row : one.at("matrix"))
      for (const Json& value : row) matrix.push_back(value.get<float>());
    const bool is_jordan = one.at("coefficients") == "JORDAN";
    const std::size_t rows = one.at("matrix").size();
    orthogonalise_by_torch(matrix.data(), rows, matrix.size() / rows,
                           is_jordan ? NewtonSchulz(newton_schulz_of_jordan) : newton_schulz_of_dion);
    std::size_t i = 0;
    for (const Json& row : one.at("result"))
      for (const Json& value : row) EXPECT_NEAR(matrix[i++], value.get<double>(), 2e-5) << one.dump();
  }
}

// The expected numbers were computed independently of this program.
TEST(Muon, NewtonSchulzIterationsGiveThePublishedDigits) {
  std::vector<float> u = {1, 2, 3, 4};
  orthogonalise_by_torch(u.data(), 2, 2, newton_schulz_of_jordan);
  const std::vector<double> of_jordan = {-0.680661, 0.825540, 0.741295, 0.259440};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(u[i], of_jordan[i], 2e-5);
  std::vector<float> v = {1, 2, 3, 4};
  orthogonalise_by_torch(v.data(), 2, 2, newton_schulz_of_dion);
  const std::vector<double> of_dion = {-0.520873, 0.854186, 0.850385, 0.501870};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(v[i], of_dion[i], 2e-5);
}

const std::vector<NewtonSchulz> both_iterations = {newton_schulz_of_jordan, newton_schulz_of_dion};

at::Tensor orthogonalised(const at::Tensor& matrix, NewtonSchulz iterations) {
  const at::Tensor result = matrix.to(at::kFloat).contiguous().clone();
  orthogonalise_by_torch(result.data_ptr<float>(), static_cast<std::size_t>(result.size(0)),
                         static_cast<std::size_t>(result.size(1)), iterations);
  return result.to(at::kDouble);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

// The iterations apply a polynomial to each singular value.
TEST(Muon, NewtonSchulzIterationsApplyTheirPolynomialsToSingularValues) {
  for (const NewtonSchulz iterations : both_iterations)
    for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{{7, 12}, {12, 7}, {9, 1}}) {
      const at::Tensor g = at::randn({rows, columns}, at::kDouble);
      auto [u, s, v] = at::linalg_svd(g, /*full_matrices=*/false);
      s = s / g.norm();
      for (const auto& [a, b, c] : iterations) s = a * s + b * s.pow(3) + c * s.pow(5);
      EXPECT_LE(largest_difference(orthogonalised(g, iterations), at::matmul(u * s, v)), 2e-5)
          << rows << " x " << columns;
    }
}

// The expected numbers were computed independently of this program. A matrix of rank one has one singular value, which
// is its norm. The singular values of an identity of size n are 1 / sqrt(n) of its norm.
TEST(Muon, NewtonSchulzIterationsGiveThePublishedDigitsForRankOneAndForIdentities) {
  const at::Tensor left = at::tensor({2.0, -1.0, 2.0}, at::kDouble) / 3, right = at::tensor({0.6, 0.8}, at::kDouble);
  const at::Tensor direction = at::outer(left, right);
  EXPECT_LE(largest_difference(orthogonalised(7 * direction, newton_schulz_of_jordan), 0.696436 * direction), 5e-6);
  EXPECT_LE(largest_difference(orthogonalised(7 * direction, newton_schulz_of_dion), 0.978346 * direction), 5e-6);
  for (const auto& [n, diagonal] :
       std::vector<std::pair<std::int64_t, double>>{{2, 1.108112}, {4, 0.765439}, {16, 0.714526}}) {
    const at::Tensor one = at::eye(n, at::kDouble);
    EXPECT_LE(largest_difference(orthogonalised(one, newton_schulz_of_jordan), diagonal * one), 5e-6) << n;
  }
}

TEST(Muon, NewtonSchulzIterationsIgnoreScaleAndTurnWithTheMatrix) {
  const auto filled = [](std::int64_t rows, std::int64_t columns) {
    return at::sin(0.37 * at::arange(1, rows * columns + 1, at::kDouble).pow(2)).reshape({rows, columns});
  };
  const at::Tensor u = filled(4, 6);
  const at::Tensor p = std::get<0>(at::linalg_qr(filled(4, 4))), q = std::get<0>(at::linalg_qr(filled(6, 6)));
  for (const NewtonSchulz iterations : both_iterations) {
    const at::Tensor o = orthogonalised(u, iterations);
    for (const double k : {0.25, 3.0, 1e4}) EXPECT_LE(largest_difference(orthogonalised(k * u, iterations), o), 1e-5);
    EXPECT_LE(largest_difference(orthogonalised(u.t(), iterations), o.t()), 1e-5);
    EXPECT_LE(largest_difference(orthogonalised(p.matmul(u).matmul(q), iterations), p.matmul(o).matmul(q)), 1e-5);
    EXPECT_GT(largest_difference(o, u), 0.1);
  }
}

class Shaped final : public PullObjective {
 public:
  Shaped(std::vector<ParameterTensor> tensors, std::size_t size) : PullObjective(size, size), tensors_(tensors) {}
  std::vector<ParameterTensor> tensors() const override { return tensors_; }
  std::vector<float> initial_parameters(std::uint64_t) const override {
    std::vector<float> values(parameters());
    for (std::size_t j = 0; j < values.size(); ++j)
      values[j] = static_cast<float>(std::cos(0.3 * static_cast<double>(j)));
    return values;
  }

 private:
  std::vector<ParameterTensor> tensors_;
};

FlatVector wave(std::size_t size, int step) {
  FlatVector values(size);
  for (std::size_t j = 0; j < size; ++j)
    values.data()[j] =
        static_cast<float>(std::sin(0.7 * static_cast<double>(j) + 1.3 * step + 0.05 * static_cast<double>(j) * step));
  return values;
}

TEST(Muon, SixStepsOfFiveTensorsAgreeWithTheReference) {
  for (const Json& one : golden().at("muon")) {
    std::vector<ParameterTensor> tensors;
    std::size_t size = 0;
    for (const Json& shape : one.at("shapes")) {
      const std::size_t rows = shape.size() > 1 ? shape[0].get<std::size_t>() : 0;
      const std::size_t count = shape[0].get<std::size_t>() * (rows > 0 ? shape[1].get<std::size_t>() : 1);
      tensors.push_back({.name = "tensor" + std::to_string(tensors.size()),
                         .offset = size,
                         .size = count,
                         .place = tensors.size(),
                         .rows = rows});
      size += count;
    }
    const std::string rule = one.at("rule"), coefficients = one.at("coefficients");
    MuonOptions options{.momentum = one.at("beta"), .nesterov = one.at("nesterov"), .all_matrices = true};
    options.others = {"tensor3"};
    options.scale = rule == "jordan"     ? MuonScale::jordan
                    : rule == "spectral" ? MuonScale::spectral
                                         : MuonScale::rms_match;
    options.iterations = coefficients == "JORDAN" ? MuonOptions::Iterations::jordan : MuonOptions::Iterations::dion;
    options.weight_decay.rate = one.at("decay");
    for (const int threads : {1, 3}) {
      Engine engine(std::make_shared<Shaped>(tensors, size), make_muon(options, orthogonalise_by_torch), {}, threads);
      ModelStatePtr state = engine.training.initial_state();
      for (int step = 0; step < one.at("steps").get<int>(); ++step) {
        state = engine.training.descend(std::move(state), engine.training.gradient_from(wave(size, step), 1),
                                        one.at("rate"));
      }
      expect_near(engine.training.values(state), one.at("result"), rule);
    }
  }
}

TEST(Muon, TakesHiddenMatricesUnlessToldOtherwise) {
  const std::vector<ParameterTensor> tensors = {{.name = "words.embedding", .size = 6, .place = 0, .rows = 3},
                                                {.name = "block.weight", .offset = 6, .size = 4, .place = 2, .rows = 2},
                                                {.name = "head.weight", .offset = 10, .size = 4, .place = 4, .rows = 2},
                                                {.name = "block.bias", .offset = 14, .size = 2, .place = 3}};
  using Chosen = std::vector<bool>;
  EXPECT_EQ(make_muon({}, nullptr)->matrices(tensors), (Chosen{false, true, false, false}));
  EXPECT_EQ(make_muon({.all_matrices = true}, nullptr)->matrices(tensors), (Chosen{true, true, true, false}));
  EXPECT_EQ(make_muon({.all_matrices = true, .others = {"head"}}, nullptr)->matrices(tensors),
            (Chosen{true, true, false, false}));
}

// Engine and reference tensors of a list of shapes.
std::vector<ParameterTensor> matrices_of(const Json& shapes) {
  std::vector<ParameterTensor> tensors;
  for (const Json& shape : shapes) {
    const std::size_t offset = tensors.empty() ? 0 : tensors.back().offset + tensors.back().size;
    const auto rows = shape[0].get<std::size_t>(), columns = shape[1].get<std::size_t>();
    tensors.push_back({.name = "tensor" + std::to_string(tensors.size()),
                       .offset = offset,
                       .size = rows * columns,
                       .place = tensors.size(),
                       .rows = rows});
  }
  return tensors;
}

// Without a gradient there is no direction, but weight decay still acts.
TEST(Muon, OnlyDecaysMatricesWithoutAGradient) {
  const auto tensors = matrices_of(Json::parse("[[6, 4], [3, 5]]"));
  for (const auto iterations : {MuonOptions::Iterations::jordan, MuonOptions::Iterations::dion}) {
    MuonOptions options;
    options.iterations = iterations;
    options.all_matrices = true;
    options.weight_decay.rate = 0.1;
    Engine engine(std::make_shared<Shaped>(tensors, 39), make_muon(options, orthogonalise_by_torch));
    ModelStatePtr state = engine.training.initial_state();
    const std::vector<float> before = engine.training.values(state);
    for (int step = 0; step < 2; ++step) {
      FlatVector zeros(39);
      std::fill_n(zeros.data(), 39, 0.0f);
      state = engine.training.descend(state, engine.training.gradient_from(std::move(zeros), 1), 0.5);
    }
    const std::vector<float> after = engine.training.values(state);
    for (std::size_t j = 0; j < 39; ++j) EXPECT_NEAR(after[j], 0.95 * 0.95 * before[j], 1e-6) << j;
  }
}

// Matrices of full rank, so that a QR decomposition has no arbitrary columns.
FlatVector rough(std::size_t size, int step) {
  FlatVector values(size);
  for (std::size_t j = 0; j < size; ++j) {
    const auto square = static_cast<double>((j + 1) * (j + 1));
    values.data()[j] = static_cast<float>(std::sin((0.37 + 0.11 * step) * square));
  }
  return values;
}

// In the reference, each worker has its own momentum, and all workers share P and R.
TEST(Dion, SixStepsOfThreeMatricesAgreeWithTheReference) {
  for (const Json& one : golden().at("dion")) {
    const auto tensors = matrices_of(one.at("shapes"));
    const std::size_t size = tensors.back().offset + tensors.back().size;
    const bool is_full = one.at("ranks")[0] == 4;
    const auto mean_of = [&](Engine& engine, int step) {
      const int workers = one.at("workers");
      Gradient sum;
      for (int worker = 0; worker < workers; ++worker)
        sum += engine.training.gradient_from(rough(size, step + 7 * worker), 1);
      return sum / workers;
    };
    std::vector<float> starts(size);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      std::ranges::copy(one.at("starts")[i].get<std::vector<float>>(), &starts[tensors[i].offset]);
    for (const int threads : {1, 3}) {
      Engine engine(std::make_shared<Shaped>(tensors, size),
                    make_dion({.momentum = one.at("mu"),
                               .rank_share = is_full ? 1 : 0.4,  // ranks of 1.6 and 2, rounded up
                               .all_matrices = true,
                               .weight_decay = {.rate = one.at("decay"), .form = DecayForm::decoupled}},
                              iterate_power_by_torch),
                    {}, threads);
      const auto begin = new_state(*engine.training.initial_state());
      begin->moments[1].values = filled_cell(starts);
      ModelStatePtr state = begin;
      for (int step = 0; step < one.at("steps").get<int>(); ++step)
        state = engine.training.descend(std::move(state), mean_of(engine, step), one.at("rate"));
      expect_near(engine.training.values(state), one.at("result"), "Dion");
      expect_near(engine.values(state->moments[0].values), one.at("momentum"), "momentum of Dion", 1e-4);
    }
  }
}

// The run's seed draws the starting basis. At full rank one step removes the share 1 - mu of the momentum, and the
// step is along unit vectors. Without momentum only weight decay acts.
TEST(Dion, StartsFromTheSeedAndMovesNothingWithoutMomentum) {
  const auto tensors = matrices_of(Json::parse("[[6, 4], [3, 5]]"));
  const auto step = [&](std::uint64_t seed, bool is_zero) {
    Engine engine(std::make_shared<Shaped>(tensors, 39),
                  make_dion({.momentum = 0.9, .all_matrices = true}, iterate_power_by_torch), {.seed = seed});
    const ModelStatePtr begin = engine.training.initial_state();
    FlatVector gradient = rough(39, 0);
    if (is_zero) std::fill_n(gradient.data(), 39, 0.0f);
    const auto end = engine.training.descend(begin, engine.training.gradient_from(std::move(gradient), 1), 0.5);
    return std::array{engine.training.values(begin), engine.training.values(end),
                      engine.values(end->moments[0].values)};
  };
  const auto [before, after, momentum] = step(1, false);
  EXPECT_EQ(step(1, false)[1], after);
  EXPECT_NE(step(2, false)[1], after);
  const FlatVector gradient = rough(39, 0);
  for (std::size_t j = 0; j < 39; ++j) EXPECT_NEAR(momentum[j], 0.9 * gradient.data()[j], 2e-6);
  // P Q^T has the squared length of Q. Q's columns have length 1, so this is their number: the smaller side.
  for (const ParameterTensor& tensor : tensors) {
    const auto rows = static_cast<double>(tensor.rows), columns = static_cast<double>(tensor.size) / rows;
    double squares = 0;
    for (std::size_t j = tensor.offset; j < tensor.offset + tensor.size; ++j)
      squares += std::pow((0.995 * before[j] - after[j]) / 0.5, 2) * columns / rows;
    EXPECT_NEAR(squares, std::min(rows, columns), 1e-4);
  }
  const auto unmoved = step(1, true);
  for (std::size_t j = 0; j < 39; ++j) EXPECT_NEAR(unmoved[1][j], 0.995 * before[j], 1e-6);
}

AveragedOptions averaged_options(const Json& one) {
  using Base = AveragedOptions::Base;
  const std::string optimizer = one.at("optimizer");
  AveragedOptions options;
  options.weight_decay.rate = one.at("decay");
  options.scales_rate = one.value("kind", "") == "adamw-paper";
  options.decays_at_z = one.value("decay_at", "y") == "z";
  options.rate_power = one.value("p", 2.0);
  options.step_power = one.value("r", 0.0);
  options.share_of_x = optimizer == "gpa" ? one.at("mu_y") : one.at("beta");
  if (optimizer == "gpa") options.kept_of_x = one.at("mu_x");
  if (optimizer == "schedule-free-adamw") options.base = Base::rms;
  if (optimizer == "gpa" && one.at("base") == "adamw") options.base = Base::adamw;
  return options;
}

TEST(AveragedIterates, FollowTheReferences) {
  for (const Json& one : golden().at("averaged_iterates")) {
    Engine engine(std::make_shared<Unequal>(), make_averaged(averaged_options(one)));
    ModelStatePtr state = engine.training.initial_state();
    EXPECT_EQ(engine.training.evaluated(state), state) << "at the start x = y = z";
    for (const double rate : one.at("lr").get<std::vector<double>>())
      state = engine.training.descend(state, engine.promise(state, 0), rate);
    const std::string what = one.at("optimizer").get<std::string>() + " " + one.dump().substr(0, 120);
    expect_near(engine.training.values(state), one.at("y"), "y of " + what);
    expect_near(engine.training.values(engine.training.evaluated(state)), one.at("x"), "x of " + what);
  }
}

// Simulated runs publish x, of a worker and of a server.
TEST(AveragedIterates, AreWhatIsEvaluated) {
  for (const Json& one : golden().at("averaged_iterates")) {
    if (one.at("rates") != "constant") continue;
    SimulatedRun alone = setup(static_cast<int>(one.at("lr").size()), one.at("lr")[0]);
    alone.workers = 1;
    alone.optimizer = make_averaged(averaged_options(one));
    for (const char* const method : {"sync-sgd", "async-sgd"})
      expect_near(run(std::string("algorithm = \"") + method + "\"\n", alone).parameters, one.at("x"), method);
  }
}

// At a constant rate all weights are equal: x is the mean of z_1 ... z_t.
TEST(AveragedIterates, OfScheduleFreeAtAConstantRateAreMeansOfZ) {
  for (const auto base : {AveragedOptions::Base::sgd, AveragedOptions::Base::rms}) {
    Engine engine(std::make_shared<Unequal>(), make_averaged({.base = base, .share_of_x = 0.8}));
    ModelStatePtr state = engine.training.initial_state();
    std::vector<double> sum(Unequal::size);
    for (int step = 1; step <= 9; ++step) {
      state = engine.training.descend(state, engine.promise(state, 1), 0.1);
      const auto y = engine.training.values(state), d = engine.values(state->moments[0].values);
      const auto x = engine.training.values(engine.training.evaluated(state));
      for (std::size_t j = 0; j < sum.size(); ++j) {
        sum[j] += static_cast<double>(y[j]) + d[j];
        EXPECT_NEAR(x[j], sum[j] / step, 2e-6) << "step " << step;
      }
    }
  }
}

TEST(AveragedIterates, OfGpaInTheirLimitsAreAdamWAndMomentum) {
  SimulatedRun limit = setup(20, 0.05);
  const auto with = [&](std::unique_ptr<Optimizer> optimizer, double rate) {
    limit.rate = rate;
    limit.optimizer = std::move(optimizer);
    return run("algorithm = \"sync-sgd\"\n", limit).parameters;
  };
  const WeightDecay decay{.rate = 0.1, .scope = DecayScope::all, .form = DecayForm::decoupled};
  const auto gpa = with(
      make_averaged({.base = AveragedOptions::Base::adamw, .share_of_x = 0.7, .kept_of_x = 0, .weight_decay = decay}),
      0.05);
  const auto adamw = with(make_adamw({.weight_decay = decay}), 0.05);
  const auto primal = with(make_averaged({.share_of_x = 1, .kept_of_x = 0.8}), 0.1);
  const auto momentum = with(make_sgd({.momentum = 0.8}), 0.02);
  for (std::size_t j = 0; j < Unequal::size; ++j) {
    EXPECT_NEAR(gpa[j], adamw[j], 2e-6);
    EXPECT_NEAR(primal[j], momentum[j], 2e-6);
  }
}

// If averages include the displacement of z from y, rounds of one step are synchronous steps.
TEST(AveragedIterates, AverageAsOneStateInLocalSgd) {
  for (const auto& kept : {std::optional<double>(), std::optional(0.9)}) {
    SimulatedRun three = setup(12, 0.1);
    three.optimizer = make_averaged({.share_of_x = 0.7, .kept_of_x = kept});
    const auto synchronous = run("algorithm = \"sync-sgd\"\n", three).parameters;
    const auto local = run(
        "algorithm = \"local-sgd\"\nfirst_moment = \"average\"\nperiod = { rule = \"constant\", steps = 1 }\n", three);
    for (std::size_t j = 0; j < Unequal::size; ++j) EXPECT_NEAR(local.parameters[j], synchronous[j], 2e-6);
  }
}

// SNOO is DiLoCo on one worker. Without momentum it is Lookahead: phi += rate (theta_H - phi).
TEST(Snoo, WithoutMomentumIsLookahead) {
  SimulatedRun alone = setup(12, 0.1);
  alone.workers = 1;
  const auto found =
      run("algorithm = \"outer-local-sgd\"\n" + period + "outer = { name = \"diloco\", rate = 0.6, momentum = 0 }\n",
          alone);
  for (std::size_t j = 0; j < Unequal::size; ++j) {
    const double h = static_cast<double>(32 + j % 40) / 64, b = std::round(64 * std::sin(1 + 0.6 * j)) / 64;
    double phi = 1;
    for (int round = 0; round < 4; ++round) {
      double theta = phi;
      for (int step = 0; step < 3; ++step) theta -= 0.1 * (h * theta - b);
      phi += 0.6 * (theta - phi);
    }
    EXPECT_NEAR(found.parameters[j], phi, 2e-6);
  }
}

TEST(AdaptiveOuterOptimizers, FollowTheReference) {
  for (const auto& [name, expected] : golden().at("outer").items())
    expect_near(run("algorithm = \"outer-local-sgd\"\n" + period + "outer = { name = \"" + name +
                        "\", rate = 0.05, tau = 1e-2 }\n",
                    setup(12, 0.1))
                    .parameters,
                expected, name);
}

// A large tau dominates the denominator. So the rule is momentum, as a mean of the progress, at the rate `rate / tau`.
TEST(AdaptiveOuterOptimizers, WithALargeTauAreMomentum) {
  const auto adam = run("algorithm = \"outer-local-sgd\"\n" + period +
                            "outer = { name = \"adam\", rate = 2e4, beta1 = 0.9, tau = 1e4 }\n",
                        setup(12, 0.1));
  // v starts at tau^2 and keeps 0.99 of it per step, so the denominator is tau (1 + 0.99^(t / 2)).
  std::vector<double> x(Unequal::size, 1), m(Unequal::size, 0);
  for (int round = 1; round <= 4; ++round)
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double h = static_cast<double>(32 + j % 40) / 64;
      double mean = 0;
      for (int worker = 0; worker < 3; ++worker) {
        double y = x[j];
        const double b = std::round(64 * std::sin(1 + 1.7 * worker + 0.6 * static_cast<double>(j))) / 64;
        for (int step = 0; step < 3; ++step) y -= 0.1 * (h * y - b);
        mean += y / 3;
      }
      m[j] = 0.9 * m[j] + 0.1 * (mean - x[j]);
      x[j] += 2 * m[j] / (1 + std::pow(0.99, round / 2.0));
    }
  for (std::size_t j = 0; j < x.size(); ++j) EXPECT_NEAR(adam.parameters[j], x[j], 1e-4);
}

// Returns values that are mostly near zero, and some that are beyond all bins on both sides.
std::vector<float> skewed_values() {
  std::vector<float> values(120);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] =
        static_cast<float>(std::pow(std::sin(1.3 * static_cast<double>(i)), 3) * static_cast<double>(1 + i % 7));
  return values;
}

TEST(StatisticalQuantiser, KeepsTheMeanAndGivesTheGoldenBins) {
  const std::vector<float> values = {1, 2, 3, 10};
  std::vector<std::uint8_t> levels(4);
  const std::vector<float> means = means_of_bins(values, 4, 6, false, levels.data());
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(means[levels[i]], golden().at("quantiser").at("result")[i].get<float>());
  const std::vector<float> skewed = skewed_values();
  levels.resize(skewed.size());
  for (const std::size_t bins : {4u, 16u, 256u})
    for (const bool mirrored : {false, true}) {
      const std::vector<float> decoded = means_of_bins(skewed, bins, 6, mirrored, levels.data());
      std::vector<double> sums(bins), counts(bins);
      double of_values = 0, of_decoded = 0;
      for (std::size_t i = 0; i < skewed.size(); ++i) {
        sums[levels[i]] += static_cast<double>(skewed[i]);
        ++counts[levels[i]];
        of_values += static_cast<double>(skewed[i]);
        of_decoded += static_cast<double>(decoded[levels[i]]);
      }
      for (std::size_t bin = 0; bin < bins; ++bin)
        EXPECT_NEAR(decoded[bin], counts[bin] > 0 ? sums[bin] / counts[bin] : 0, 1e-6) << bins << ", bin " << bin;
      EXPECT_NEAR(of_decoded, of_values, 1e-4) << bins;
      EXPECT_GT(std::ranges::count_if(counts, [](double count) { return count > 1; }), 3) << "bins have several values";
    }
}

// Four bins over six standard deviations have their edges at -2.25, -0.75 and 0.75 deviations.
TEST(StatisticalQuantiser, HasThePublishedEdges) {
  const std::vector<float> values = skewed_values();
  const auto size = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const float value : values) mean += value / size;
  for (const float value : values) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / (size - 1));
  std::vector<std::uint8_t> levels(values.size()), mirrored(values.size());
  means_of_bins(values, 4, 6, false, levels.data());
  means_of_bins(values, 4, 6, true, mirrored.data());
  std::set<int> used;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bin_of = [&](double in_deviations) {
      return (in_deviations > -2.25 ? 1 : 0) + (in_deviations > -0.75 ? 1 : 0) + (in_deviations > 0.75 ? 1 : 0);
    };
    EXPECT_EQ(levels[i], bin_of((values[i] - mean) / deviation)) << i;
    EXPECT_EQ(mirrored[i], bin_of((mean - values[i]) / deviation)) << i;
    used.insert(levels[i]);
  }
  EXPECT_EQ(used.size(), 4u);
}

// The model after each round of three steps.
void expect_rounds(const std::string& toml, const Json& rounds, const std::string& what, double rate = 0.1,
                   const std::shared_ptr<const Optimizer>& optimizer = nullptr) {
  for (std::size_t round = 0; round < rounds.size(); ++round) {
    SimulatedRun of = setup(3 * (static_cast<int>(round) + 1), rate);
    of.optimizer = optimizer;
    expect_near(run(toml, of).parameters, rounds[round], what + ", round " + std::to_string(round + 1));
  }
}

TEST(SparseLoCo, FollowsTheReferenceInAllItsForms) {
  const Json& expected = golden().at("sparse_loco");
  const auto follows = [&](const std::string& rate, const std::string& compression, const std::string& form) {
    expect_rounds("algorithm = \"outer-local-sgd\"\n" + period + "outer = { name = \"plain\", rate = " + rate +
                      " }\ncompression = { name = \"tiles\", tile = 4, kept = 4" + compression + " }\n",
                  expected.at(form), form);
  };
  follows("0.4", "", "senders");
  follows("0.4", ", mean_of = \"all\", clip_to_median = false", "all");
  follows("0.7", ", values = \"float\", residual_decay = 0.9", "floats");
}

TEST(SparseLoCo, WithAllValuesKeptIsLocalSgd) {
  const auto sparse =
      run("algorithm = \"outer-local-sgd\"\n" + period +
              "outer = { name = \"plain\", rate = 1 }\ncompression = { name = \"tiles\", tile = 4, kept = "
              "16, values = \"float\", clip_to_median = false }\n",
          setup(12, 0.1));
  const auto dense = run("algorithm = \"local-sgd\"\n" + period, setup(12, 0.1));
  for (std::size_t i = 0; i < Unequal::size; ++i) EXPECT_NEAR(sparse.parameters[i], dense.parameters[i], 2e-6);
}

// A tile of 64 x 64 with 64 kept values takes 112 bytes, 160 as published, and each tensor four means.
TEST(SparseLoCo, PacketsHaveThePublishedSizes) {
  const std::vector<Part> parts = {{.offset = 0, .size = 128 * 64, .rows = 128, .columns = 64}};
  const auto bytes = [&](const std::string& packing) {
    const MethodReading method = read_method("algorithm = \"local-sgd\"\n" + period +
                                             "compression = { name = \"tiles\", packing = \"" + packing + "\" }\n");
    EXPECT_EQ(method.faults, "");
    return make_compressor(*method.algorithm->compression(), parts, 1, 3)->exchanges(Step{1}).front().packet.value();
  };
  EXPECT_EQ(bytes("tight"), 2 * 112 + 16);
  EXPECT_EQ(bytes("published"), 2 * 160 + 16);
}

// Values that are not sent stay: the residual shrinks by exactly the decoded packet.
TEST(SparseLoCo, SendsWhatLeavesTheResidual) {
  const std::vector<Part> parts = {{.offset = 0, .size = 48, .rows = 8, .columns = 6}, {.offset = 48, .size = 6}};
  for (const char* keys :
       {"name = \"tiles\", tile = 4, kept = 3", "name = \"tiles\", tile = 4, kept = 3, values = \"float\"",
        "name = \"demo\", tile = 4, kept = 3, signs = false"}) {
    const MethodReading method = read_method("algorithm = \"sync-sgd\"\ncompression = { " + std::string(keys) + " }\n");
    ASSERT_EQ(method.faults, "");
    const auto compressor = make_compressor(*method.algorithm->compression(), parts, 1, 1);
    std::vector<float> memory(54);
    for (std::size_t i = 0; i < 54; ++i) memory[i] = static_cast<float>(std::sin(1.3 * static_cast<double>(i)));
    const std::vector<float> before = memory;
    std::vector<float> packet(static_cast<std::size_t>(compressor->exchanges(Step{0}).front().packet.value()) / 4);
    compressor->encode(Rank{0}, Step{0}, nullptr, memory, packet.data());
    const float* const packets[] = {packet.data()};
    std::vector<float> sent(54);
    compressor->decode({.packets = packets, .workers = 1, .micro_batches = 1}, sent);
    int differ = 0;
    for (std::size_t i = 0; i < 54; ++i) {
      EXPECT_NEAR(sent[i], before[i] - memory[i], 1e-6) << keys << ", element " << i;
      differ += sent[i] != 0 ? 1 : 0;
    }
    EXPECT_GT(differ, 10) << keys;
  }
}

// A residual e loses the share 1 - beta in each round. So over all rounds
// sum of sent + last e = sum of Delta - (1 - beta) x sum of each round's first e.
TEST(SparseLoCo, LosesOfItsResidualsWhatTheirDecayTakes) {
  const std::vector<Part> parts = {{.offset = 0, .size = 48, .rows = 8, .columns = 6}, {.offset = 48, .size = 6}};
  for (const auto& [keys, beta] : std::vector<std::pair<std::string, double>>{
           {"name = \"tiles\", tile = 4, kept = 3", 0.95},
           {"name = \"tiles\", tile = 4, kept = 3, values = \"float\", residual_decay = 0.5", 0.5},
           {"name = \"bins\", residual_decay = 0.9", 0.9},
           {"name = \"bins\"", 1}}) {
    const MethodReading method =
        read_method("algorithm = \"local-sgd\"\n" + period + "compression = { " + keys + " }\n");
    ASSERT_EQ(method.faults, "");
    const CompressionOptions& options = *method.algorithm->compression();
    const auto compressor = make_compressor(options, parts, 1, 1);
    std::vector<float> e(54);
    std::vector<double> deltas(54), sent(54), firsts(54);
    for (int round = 0; round < 8; ++round) {
      const FlatVector delta = wave(54, round);
      for (std::size_t i = 0; i < 54; ++i) {
        deltas[i] += delta.data()[i];
        firsts[i] += e[i];
      }
      compressor->accumulate({delta.data(), 54}, 0, options.of_residual(), e);
      std::vector<float> packet(static_cast<std::size_t>(compressor->exchanges(Step{round}).front().packet.value()) /
                                4);
      compressor->encode(Rank{0}, Step{round}, nullptr, e, packet.data());
      const float* const packets[] = {packet.data()};
      std::vector<float> decoded(54);
      compressor->decode({.packets = packets, .workers = 1, .micro_batches = 1, .step = Step{round}}, decoded);
      for (std::size_t i = 0; i < 54; ++i) sent[i] += decoded[i];
    }
    double lost = 0;
    for (std::size_t i = 0; i < 54; ++i) {
      EXPECT_NEAR(sent[i] + e[i], deltas[i] - (1 - beta) * firsts[i], 1e-5) << keys << ", element " << i;
      lost = std::max(lost, std::abs(firsts[i]));
    }
    EXPECT_GT(lost, 0.1) << keys;
  }
}

// Each round adds 1 to one value and 1/4 to another, and sends the larger sum. The smaller value's unsent sum is at
// most (1/4) / (1 - beta). For beta = 1/2 it is never the larger sum. Without decay its fifth sum, 5/4, is.
TEST(SparseLoCo, ForgetsSmallValuesThatWouldBeSentWithoutDecay) {
  const auto after = [](int rounds, const std::string& decay) {
    const SimulatedRun of{.rate = 0.25,
                          .budget = {.steps = rounds},
                          .objective = std::make_shared<Straight>(0, std::vector(3, std::vector<double>{-4, -1}))};
    return run("algorithm = \"outer-local-sgd\"\nperiod = { rule = \"constant\", steps = 1 }\nouter = { name = "
               "\"plain\", rate = 1 }\ncompression = { name = \"tiles\", tile = 2, kept = 1, values = \"float\", "
               "residual_decay = " +
                   decay + " }\n",
               of)
        .parameters;
  };
  EXPECT_EQ(after(20, "0.5"), (std::vector<float>{1 - 20, 1}));
  EXPECT_EQ(after(4, "1"), (std::vector<float>{1 - 4, 1}));
  EXPECT_EQ(after(5, "1"), (std::vector<float>{1 - 4, 1 - 1.25f}));
}

// Each tensor is one tile, of which one value is sent.
TEST(SparseLoCo, WithWholeResidualsAndTensorsAsTilesIsTopKWithErrorFeedback) {
  const auto with = [](const std::string& compression) {
    return run("algorithm = \"outer-local-sgd\"\n" + period +
                   "outer = { name = \"plain\", rate = 0.7 }\ncompression = { " + compression + " }\n",
               setup(60, 0.1))
        .parameters;
  };
  const std::string tiles =
      "name = \"tiles\", tile = 8, kept = 1, values = \"float\", mean_of = \"all\", "
      "clip_to_median = false, residual_decay = ";
  const auto whole = with(tiles + "1"), top_k = with("name = \"top-k\", scope = \"tensor\", ratio = 0.021");
  ASSERT_EQ(whole.size(), top_k.size());
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], top_k[i], 1e-6) << i;
  EXPECT_NE(with(tiles + "0.95"), whole);
}

TEST(MuLoCo, WithFourBinsAndErrorFeedbackFollowsTheReference) {
  expect_rounds("algorithm = \"outer-local-sgd\"\n" + period +
                    "outer = { name = \"diloco\", rate = 0.64, momentum = 0.6 }\ncompression = { name = \"bins\", "
                    "residual_decay = 0.9 }\n",
                golden().at("muloco"), "MuLoCo");
}

// MuLoCo's own settings of Muon.
std::shared_ptr<const Optimizer> muon_of_muloco() {
  MuonOptions options;
  options.momentum = 0.9;
  options.nesterov = false;
  options.scale = MuonScale::spectral;
  options.iterations = MuonOptions::Iterations::dion;
  options.all_matrices = true;
  options.adamw_rate = 0.2;
  options.beta2 = 0.99;
  options.weight_decay.rate = 0.1;
  return make_muon(options, orthogonalise_by_torch);
}

// The reference applies its outer rate of 0.8 twice where it has error feedback.
TEST(MuLoCo, WithMuonFollowsTheReferenceWithAndWithoutCompression) {
  const Json& expected = golden().at("muloco_with_muon");
  const std::string diloco = "algorithm = \"diloco\"\n" + period;
  expect_rounds(diloco + "rate = 0.7\nmomentum = 0.6\n", expected.at("dense"), "dense", 0.05, muon_of_muloco());
  expect_rounds(diloco + "rate = 0.64\nmomentum = 0.6\ncompression = { name = \"bins\", residual_decay = 0.9 }\n",
                expected.at("bins"), "four bins", 0.05, muon_of_muloco());
}

TEST(MuLoCo, OfOneWorkerAndRoundsOfOneStepIsMuon) {
  SimulatedRun alone = setup(10, 0.05);
  alone.workers = 1;
  alone.optimizer = muon_of_muloco();
  const auto muon = run("algorithm = \"sync-sgd\"\n", alone).parameters;
  const auto found =
      run("algorithm = \"diloco\"\nperiod = { rule = \"constant\", steps = 1 }\nrate = 1\nmomentum = 0\n", alone);
  for (std::size_t i = 0; i < Unequal::size; ++i) EXPECT_NEAR(found.parameters[i], muon[i], 2e-6) << i;
  alone.optimizer = nullptr;
  EXPECT_NE(run("algorithm = \"sync-sgd\"\n", alone).parameters, muon);
}

TEST(Demo, FollowsTheReferenceWithAndWithoutTheTransform) {
  for (const auto& [name, expected] : golden().at("demo").items())
    expect_near(
        run("algorithm = \"sync-sgd\"\ncompression = { name = \"demo\", tile = 4, kept = 3, residual_decay = 0.9, "
            "transform = " +
                std::string(name == "transform" ? "true" : "false") + " }\n",
            setup(5, 0.05))
            .parameters,
        expected, name);
}

// Steps are along the sign of the mean gradient. No residual is left, so its decay has no effect.
TEST(Demo, WithAllValuesKeptIsSignSgd) {
  constexpr double rate = 0.3;
  std::vector<double> x(Unequal::size, 1);
  std::set<bool> signs;
  for (int step = 1; step <= 5; ++step) {
    for (std::size_t j = 0; j < x.size(); ++j) {
      double mean = static_cast<double>(32 + j % 40) / 64 * x[j];
      for (int worker = 0; worker < 3; ++worker)
        mean -= std::round(64 * std::sin(1 + 1.7 * worker + 0.6 * static_cast<double>(j))) / 64 / 3;
      x[j] -= mean > 0 ? rate : -rate;
      signs.insert(mean > 0);
    }
    for (const std::string keys : {"residual_decay = 0.5", "residual_decay = 0.999", "transform = false"}) {
      const auto found =
          run("algorithm = \"sync-sgd\"\ncompression = { name = \"demo\", tile = 4, kept = 16, " + keys + " }\n",
              setup(step, rate))
              .parameters;
      for (std::size_t j = 0; j < x.size(); ++j) EXPECT_NEAR(found[j], x[j], 2e-6) << keys << ", " << step << ", " << j;
    }
  }
  EXPECT_EQ(signs.size(), 2u) << "some gradients change their sign";
}

// The orthonormal transform of n equal values has one coefficient, sqrt(n) times the value: 64 for a tile of 64 x 64
// ones. So one kept value is exact.
TEST(Demo, TransformsEqualValuesToOneCoefficient) {
  for (const auto& [part, coefficient] :
       std::vector<std::pair<Part, double>>{{{.offset = 0, .size = 64 * 64, .rows = 64, .columns = 64}, 64},
                                            {{.offset = 0, .size = 48, .rows = 8, .columns = 6}, std::sqrt(48.0)},
                                            {{.offset = 0, .size = 64}, 8}}) {
    const MethodReading method =
        read_method("algorithm = \"sync-sgd\"\ncompression = { name = \"demo\", kept = 1, signs = false }\n");
    ASSERT_EQ(method.faults, "");
    const auto compressor = make_compressor(*method.algorithm->compression(), {part}, 1, 1);
    std::vector<float> memory(part.size, 1.0f), sent(part.size);
    std::vector<float> packet(static_cast<std::size_t>(compressor->exchanges(Step{0}).front().packet.value()) / 4);
    ASSERT_EQ(packet.size(), 2u) << "an index and a value";
    compressor->encode(Rank{0}, Step{0}, nullptr, memory, packet.data());
    EXPECT_NEAR(packet.back(), coefficient, 1e-4);
    const float* const packets[] = {packet.data()};
    compressor->decode({.packets = packets, .workers = 1, .micro_batches = 1}, sent);
    for (std::size_t i = 0; i < part.size; ++i) {
      EXPECT_NEAR(sent[i], 1, 2e-5) << part.size << ", " << i;
      EXPECT_NEAR(memory[i], 0, 2e-5) << part.size << ", " << i;
    }
  }
}

// Clipping to a norm of 1 would shrink a step along P signs by sqrt(P).
TEST(Signs, AreNotClipped) {
  const auto faults = [](const std::string& compression, bool clips) {
    return read_method("algorithm = \"sync-sgd\"\ncompression = { name = " + compression + " }\n",
                       {.workers = 4, .clips_gradients = clips})
        .faults;
  };
  for (const char* signs : {"\"demo\"", "\"majority\""}) {
    EXPECT_THAT(faults(signs, true), testing::HasSubstr("needs training.clip_norm = 0: the vector of signs"));
    EXPECT_EQ(faults(signs, false), "");
  }
  EXPECT_EQ(faults("\"demo\", signs = false", true), "");
}

// A tile of 64 x 64 with 32 kept values takes 12 + 32 bits per value, 12 bytes as published.
TEST(Demo, PacketsHaveThePublishedSizes) {
  const std::vector<Part> parts = {{.offset = 0, .size = 64 * 64, .rows = 64, .columns = 64}};
  for (const auto& [packing, bytes] :
       std::vector<std::pair<std::string, std::int64_t>>{{"tight", 176}, {"published", 384}}) {
    const MethodReading method =
        read_method("algorithm = \"sync-sgd\"\ncompression = { name = \"demo\", packing = \"" + packing + "\" }\n");
    ASSERT_EQ(method.faults, "");
    EXPECT_EQ(make_compressor(*method.algorithm->compression(), parts, 1, 3)->exchanges(Step{0}).front().packet.value(),
              bytes);
  }
}

// A worker's fixed point is (b_i + mu Theta) / (h + mu).
TEST(FederatedClassics, FedProxEndsALongRoundAtItsFixedPoint) {
  const auto outcome =
      run("algorithm = \"fedprox\"\nproximal = 0.7\nperiod = { rule = \"constant\", steps = 400 }\n", setup(400, 0.1));
  for (std::size_t j = 0; j < Unequal::size; ++j) {
    const double h = static_cast<double>(32 + j % 40) / 64;
    double mean = 0;
    for (int worker = 0; worker < 3; ++worker)
      mean += (std::round(64 * std::sin(1 + 1.7 * worker + 0.6 * static_cast<double>(j))) / 64 + 0.7) / (h + 0.7) / 3;
    EXPECT_NEAR(outcome.parameters[j], mean, 1e-5) << j;
  }
}

TEST(FederatedClassics, FollowTheReference) {
  const Json& expected = golden().at("federated");
  const std::string four = "period = { rule = \"constant\", steps = 4 }\nsteps_of_workers = [1, 3, 4]\n";
  std::shared_ptr<const Objective> objective = std::make_shared<Unequal>();
  const auto train = [&](const std::string& toml, int steps, double momentum = 0) {
    SimulatedRun of = setup(steps, 0.1);
    of.momentum = momentum;
    of.objective = objective;
    return run(toml, of, momentum).parameters;
  };
  expect_near(train("algorithm = \"fedprox\"\nproximal = 0.3\n" + four, 16), expected.at("fedprox"), "FedProx");
  expect_near(train("algorithm = \"fednova\"\n" + four, 16), expected.at("fednova"), "FedNova");
  expect_near(train("algorithm = \"fednova\"\n" + four, 16, 0.9), expected.at("fednova_momentum"), "with momentum");
  expect_near(train("algorithm = \"fednova\"\nproximal = 0.3\n" + four, 16), expected.at("fednova_proximal"),
              "proximal");
  expect_near(train("algorithm = \"fednova\"\nproximal = 0.3\n" + four, 16, 0.9), expected.at("fednova_both"), "both");
  objective = std::make_shared<UnequalSamples>();
  const std::string by_samples = "weights = \"samples\"\n" + four;
  expect_near(train("algorithm = \"fedprox\"\nproximal = 0.3\n" + by_samples, 16), expected.at("fedprox_samples"),
              "FedProx, by samples");
  expect_near(train("algorithm = \"fednova\"\n" + by_samples, 16), expected.at("fednova_samples"),
              "FedNova, by samples");
  expect_near(train("algorithm = \"fednova\"\nproximal = 0.3\n" + by_samples, 16, 0.9),
              expected.at("fednova_samples_both"), "both, by samples");
  objective = std::make_shared<Unequal>(Unequal::curved);
  expect_near(train("algorithm = \"scaffold\"\nrate = 0.8\n" + period, 12), expected.at("scaffold_2"), "SCAFFOLD II");
  expect_near(train("algorithm = \"scaffold\"\ncontrol = \"gradient\"\n" + period, 12), expected.at("scaffold_1"),
              "SCAFFOLD I");
}

// Constant gradients of 1, 2 and 6 at a rate of 0.1 make a step of -0.3, and c = 3. In a second round of two steps, the
// first step moves each worker by -0.1 (g_i - c_i + c) = -0.3.
TEST(FederatedClassics, ScaffoldCorrectsConstantGradientsToTheirMean) {
  const auto objective = std::make_shared<Straight>(0, std::vector<std::vector<double>>{{-1}, {-2}, {-6}});
  const auto after = [&](int steps, int of_round) {
    SimulatedRun of = setup(steps, 0.1);
    of.objective = objective;
    return run("algorithm = \"scaffold\"\nperiod = { rule = \"constant\", steps = " + std::to_string(of_round) + " }\n",
               of)
        .parameters.front();
  };
  EXPECT_NEAR(after(1, 1), 1 - 0.3, 1e-6);
  EXPECT_NEAR(after(2, 1), 1 - 0.6, 1e-6);
  EXPECT_NEAR(after(4, 2), 1 - 1.2, 1e-6);
  const std::vector<double> own_steps = {0.1, 0.2, 0.6};
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_NEAR(objective->model_of(worker, 1), 1 - own_steps[static_cast<std::size_t>(worker)], 1e-6);
    EXPECT_NEAR(objective->model_of(worker, 2), 1 - 0.6, 1e-6);
    EXPECT_NEAR(objective->model_of(worker, 3), 1 - 0.9, 1e-6);
  }
}

// The effective steps a are at momentum 0.9. Only worker j has a gradient, of 1, in element j. Its progress is rate x
// a_j, and division by a_j gives the rate. So each element moves by rate / 3 x the mean of all a.
TEST(FederatedClassics, FedNovaCountsThePublishedEffectiveSteps) {
  for (const auto& [taken, effective] : std::vector<std::pair<int, double>>{{1, 1}, {2, 2.9}, {4, 9.049}}) {
    SimulatedRun of = setup(4, 0.1);
    of.momentum = 0.9;
    of.objective = std::make_shared<Straight>(0, std::vector<std::vector<double>>{{-1, 0, 0}, {0, -1, 0}, {0, 0, -1}});
    const auto found =
        run("algorithm = \"fednova\"\nperiod = { rule = \"constant\", steps = 4 }\nsteps_of_workers = [" +
                std::to_string(taken) + ", 1, 2]\n",
            of, of.momentum)
            .parameters;
    for (const float value : found) EXPECT_NEAR(value, 1 - 0.1 / 3 * (effective + 1 + 2.9) / 3, 5e-6) << taken;
  }
}

TEST(FederatedClassics, InTheirLimitsAreLocalOrSynchronousSgd) {
  const auto local = run("algorithm = \"local-sgd\"\n" + period, setup(12, 0.1)).parameters;
  EXPECT_EQ(run("algorithm = \"fedprox\"\nproximal = 0\n" + period, setup(12, 0.1)).parameters, local);
  const auto nova = run("algorithm = \"fednova\"\n" + period, setup(12, 0.1)).parameters;
  const std::string one = "period = { rule = \"constant\", steps = 1 }\n";
  const auto synchronous = run("algorithm = \"sync-sgd\"\n", setup(12, 0.08)).parameters;
  const auto nova_of_one = run("algorithm = \"fednova\"\n" + one, setup(12, 0.08)).parameters;
  const auto scaffold = run("algorithm = \"scaffold\"\nrate = 0.8\n" + one, setup(12, 0.1)).parameters;
  for (std::size_t i = 0; i < Unequal::size; ++i) {
    EXPECT_NEAR(nova[i], local[i], 2e-6);
    EXPECT_NEAR(scaffold[i], synchronous[i], 1e-5);
    EXPECT_NEAR(nova_of_one[i], synchronous[i], 1e-5);
  }
}

// Checks the server's model and the time after every `updates` updates. These are `steps_of_updates` steps of the
// experiment file.
void expect_events(const std::string& toml, const Json& events, SimulatedRun of, int updates, const std::string& what,
                   int steps_of_updates = 1) {
  constexpr double within_s = 1e-6;
  for (std::size_t at = static_cast<std::size_t>(updates); at <= events.size();
       at += static_cast<std::size_t>(updates)) {
    of.budget.steps = Step{static_cast<std::int64_t>(at) / updates * steps_of_updates};
    const auto outcome = run(toml, of);
    expect_near(outcome.parameters, events[at - 1].at("x"), what);
    EXPECT_NEAR(to_seconds(outcome.totals.end.time_since_epoch()), events[at - 1].at("time").get<double>(), within_s)
        << what << " after " << at << " updates";
  }
}
void expect_events(const std::string& toml, const Json& events, double rate, int updates, const std::string& what,
                   int steps_of_updates = 1) {
  expect_events(toml, events, setup(0, rate), updates, what, steps_of_updates);
}

TEST(UnequalWorkers, WithUnequalDataFollowTheReferences) {
  const std::string scaling = "rate_scaling = \"none\"\n";
  expect_events("algorithm = \"ringleader\"\n" + scaling, golden().at("ringleader"), 0.05, 3, "Ringleader");
  expect_events("algorithm = \"malenia\"\n", golden().at("malenia"), 0.1, 1, "Malenia");
  expect_events("algorithm = \"rescaled-sgd\"\ncycle_s = [1.0, 1.31, 2.73]\n" + scaling, golden().at("rescaled"), 0.05,
                3, "Rescaled ASGD");
}

// Asynchronous SGD leans to the fast worker's minimum, because it weights minima by the workers' rates. The other three
// methods do not.
TEST(UnequalWorkers, DoNotLeanToTheFastWorkersMinimum) {
  SimulatedRun long_run = setup(4000, 0.004);
  const auto at = [&](const std::string& toml) { return run(toml, long_run).parameters[0]; };
  const double h = 0.5, b0 = std::round(64 * std::sin(1.0)) / 64, b1 = std::round(64 * std::sin(2.7)) / 64,
               b2 = std::round(64 * std::sin(4.4)) / 64;
  const double fair = (b0 + b1 + b2) / 3 / h, all = 1 + 1 / 1.31 + 1 / 2.73;
  const double leaning = (b0 + b1 / 1.31 + b2 / 2.73) / all / h;
  EXPECT_NEAR(at("algorithm = \"async-sgd\"\n"), leaning, 5e-3);
  EXPECT_NEAR(at("algorithm = \"rescaled-sgd\"\n"), fair, 5e-3);
  EXPECT_NEAR(at("algorithm = \"ringleader\"\n"), fair, 5e-3);
  EXPECT_NEAR(at("algorithm = \"malenia\"\n"), fair, 5e-3);
  EXPECT_GT(std::abs(leaning - fair), 0.1);
}

// Minima are at 0 and 1, gradients take 1 and 3 s, and the rate is 0.002. The expected values are from an independent
// simulation. In a cycle of four updates asynchronous SGD moves between 0.2492 and 0.2508, around 0.24988, and the
// rescaled form between 0.4986 and 0.5007, around 0.49942.
TEST(UnequalWorkers, ReachTheSimulatedPointsOfTheFactSheet) {
  SimulatedRun two = setup(3000, 0.002);
  two.workers = 2;
  two.delays = {std::make_shared<DelayOfWorker>(std::vector{0.0, 2.0})};
  two.objective = std::make_shared<Straight>(1, std::vector<std::vector<double>>{{0}, {1}});
  const auto at = [&](const std::string& toml) {
    return run(toml + "rate_scaling = \"none\"\n", two).parameters.front();
  };
  EXPECT_NEAR(at("algorithm = \"async-sgd\"\n"), 0.24988, 0.001);
  EXPECT_NEAR(at("algorithm = \"rescaled-sgd\"\n"), 0.49942, 0.0014);
  EXPECT_NEAR(at("algorithm = \"rescaled-sgd\"\ncycle_s = [1, 3]\n"), 0.49942, 0.0014);
}

// A worker's k-th gradient takes (3 k + rank) mod 5 s longer.
class ChangingTimes final : public DelayProcess {
 public:
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    for (double& added : added_s) added += static_cast<double>((3 * stream.step.value() + stream.worker.value) % 5);
  }
  double mean_s() const override { return 0; }
};

// A gradient is at most 2 N - 2 updates old when a step uses it for the first time.
TEST(Ringleader, UsesNoGradientFromBeforeTheLastCycle) {
  SimulatedRun of = setup(40, 0.05);
  of.delays.push_back(std::make_shared<ChangingTimes>());
  const std::size_t most = 2 * 3 - 2;
  EXPECT_EQ(run("algorithm = \"ringleader\"\n", of).totals.staleness.size(), most + 1);
  EXPECT_GT(run("algorithm = \"async-sgd\"\n", of).totals.staleness.size(), most + 1);
}

TEST(UnequalWorkers, InTheirLimitsAreOtherMethods) {
  SimulatedRun equal = setup(6, 0.1);
  equal.delays.clear();
  const auto synchronous = run("algorithm = \"sync-sgd\"\n", equal).parameters;
  const auto malenia = run("algorithm = \"malenia\"\n", equal).parameters;
  const auto asynchronous = run("algorithm = \"async-sgd\"\n", equal).parameters;
  const auto rescaled = run("algorithm = \"rescaled-sgd\"\n", equal).parameters;
  for (std::size_t i = 0; i < Unequal::size; ++i) {
    EXPECT_NEAR(malenia[i], synchronous[i], 2e-6);
    EXPECT_NEAR(rescaled[i], asynchronous[i], 2e-6);
  }
  equal.workers = 1;
  EXPECT_EQ(run("algorithm = \"ringleader\"\n", equal).parameters, run("algorithm = \"sync-sgd\"\n", equal).parameters);
}

// Checks the model, the end of the last all-reduce, and the number of gradients after each step. Workers with unequal
// data and times compute one or several micro-batches during an all-reduce, depending on its time.
void expect_overlapped(const std::string& toml, const Json& by_time,
                       const std::shared_ptr<const Optimizer>& optimizer = make_sgd({.momentum = 0.9})) {
  constexpr double within_s = 1e-6;
  for (const auto& [communication_s, steps] : by_time.items())
    for (std::size_t last = 1; last <= steps.size(); ++last) {
      SimulatedRun of = setup(static_cast<int>(last), 0.05);
      of.network_s = std::stod(communication_s);
      of.optimizer = optimizer;
      const auto outcome = run(toml, of);
      const Json& expected = steps[last - 1];
      const std::string what = toml + "step " + std::to_string(last);
      expect_near(outcome.parameters, expected.at("x"), what);
      ASSERT_EQ(outcome.rounds.size(), last) << what;
      EXPECT_NEAR(to_seconds(outcome.rounds.back().end), expected.at("time").get<double>(), within_s) << what;
      EXPECT_EQ(outcome.rounds.back().kept, expected.at("kept").get<std::int64_t>()) << what;
      EXPECT_EQ(outcome.rounds.back().dropped, 0) << what;
    }
}

TEST(Acco, FollowsTheReference) {
  expect_overlapped("algorithm = \"acco\"\n", golden().at("acco"));
  expect_overlapped("algorithm = \"acco\"\n", golden().at("acco_adamw"), make_adamw({}));
}

// Equal workers compute three micro-batches per all-reduce. Together these take longer than the all-reduce, and all are
// used.
TEST(Acco, ComputesTheLeastNumberOfMicroBatches) {
  SimulatedRun of = setup(4, 0.05);
  of.network_s = 0.2;
  of.micro_batches = 2;
  of.delays.clear();
  const auto outcome = run("algorithm = \"acco\"\nleast_micro_batches = 3\n", of);
  for (const StepRow& row : outcome.rounds) EXPECT_EQ(row.kept, 3 * 2 * 3);
  EXPECT_EQ(outcome.totals.kept, std::vector<std::int64_t>(3, 4 * 2 * 3));
  EXPECT_EQ(outcome.totals.dropped, std::vector<std::int64_t>(3, 0));
}

TEST(DelayedUpdate, FollowsTheReference) {
  const std::string toml = "algorithm = \"delayed-update\"\n";
  expect_overlapped(toml, golden().at("delayed_update"));
  expect_overlapped(toml + "cleared = \"every-second-step\"\n", golden().at("delayed_update_as_published"));
}

// Each worker's gradient at x is x.
class Bowl final : public PullObjective {
 public:
  Bowl() : PullObjective(1, 1) {}
  PartialGradient gradient(const float* x, const float*, std::span<const MicroBatch> micro_batches) const override {
    const auto value = std::make_shared<float>(*x * static_cast<float>(micro_batches.size()));
    return {
        .segments = {{.offset = 0, .size = 1, .data = value.get(), .owner = value}}, .loss_sum = 0, .buffers_sum = {}};
  }
};

TEST(Acco, WithoutNoiseIsSynchronousSgd) {
  SimulatedRun of = setup(1, 0.1);
  of.objective = std::make_shared<Bowl>();
  const auto at = [&](const std::string& toml, int steps) {
    of.budget.steps = steps;
    return run(toml, of).parameters.front();
  };
  const std::vector<double> acco = {0.9, 0.81, 0.729, 0.6561}, delayed = {0.9, 0.8, 0.71, 0.63, 0.559, 0.496},
                            as_published = {0.9, 0.8, 0.71, 0.625, 0.554, 0.48725};
  for (std::size_t i = 0; i < acco.size(); ++i)
    EXPECT_NEAR(at("algorithm = \"acco\"\n", static_cast<int>(i) + 1), acco[i], 1e-6);
  for (std::size_t i = 0; i < delayed.size(); ++i)
    EXPECT_NEAR(at("algorithm = \"delayed-update\"\n", static_cast<int>(i) + 1), delayed[i], 1e-6);
  of.delays.clear();  // equal workers compute equally many micro-batches in each step, so two steps' mean is unweighted
  for (std::size_t i = 0; i < as_published.size(); ++i)
    EXPECT_NEAR(at("algorithm = \"delayed-update\"\ncleared = \"every-second-step\"\n", static_cast<int>(i) + 1),
                as_published[i], 1e-6);
}

// A tentative step changes neither the moments nor the number of steps.
TEST(Acco, WithoutNoiseIsSynchronousSgdAlsoWithMoments) {
  const std::vector<std::shared_ptr<const Optimizer>> optimizers = {make_sgd({.momentum = 0.9}), make_adamw({})};
  for (const auto& optimizer : optimizers)
    for (int steps = 1; steps <= 8; ++steps) {
      SimulatedRun of = setup(steps, 0.1);
      of.network_s = 0.4;
      of.objective = std::make_shared<Bowl>();
      of.optimizer = optimizer;
      EXPECT_NEAR(run("algorithm = \"acco\"\n", of).parameters.front(),
                  run("algorithm = \"sync-sgd\"\n", of).parameters.front(), 1e-6)
          << optimizer->moments() << " moments, " << steps << " steps";
    }
}

// The partners of four workers in a round, as the method draws them.
std::vector<std::size_t> partners_in(int round, std::uint64_t seed) {
  std::vector<double> drawn;
  for (int rank = 0; rank < 4; ++rank)
    drawn.push_back(RandomStream{
        .seed = seed, .purpose = Purpose::algorithm, .stream = 1, .worker = {}, .step = Step{4 * round + rank}}
                        .uniform(0));
  std::vector<std::size_t> order = {0, 1, 2, 3}, partners(4);
  std::ranges::sort(order, {}, [&](std::size_t rank) { return drawn[rank]; });
  for (std::size_t i = 0; i < 4; ++i) partners[order[i]] = order[i ^ 1u];
  return partners;
}

TEST(NoLoCo, FollowsItsRecursionInRandomPairs) {
  SimulatedRun four = setup(18, 0.1);
  four.individual_models_every = 15;
  four.workers = 4;
  four.delays.clear();
  four.individual_models_every = 15;
  const auto outcome = run("algorithm = \"noloco\"\nlocal_steps = 3\nmomentum = 0.5\nrate = 0.7\npull = 0.4\n", four);
  std::set<std::vector<std::size_t>> pairings;
  for (std::size_t j = 0; j < Unequal::size; ++j) {
    const double h = static_cast<double>(32 + j % 40) / 64;
    std::vector<double> phi(4, 1), m(4, 0);
    for (int round = 0; round < 5; ++round) {
      std::vector<double> theta = phi;
      for (std::size_t i = 0; i < 4; ++i)
        for (int step = 0; step < 3; ++step)
          theta[i] -=
              0.1 * (h * theta[i] -
                     std::round(64 * std::sin(1 + 1.7 * static_cast<double>(i) + 0.6 * static_cast<double>(j))) / 64);
      const auto partners = partners_in(round, four.seed);
      pairings.insert(partners);
      const std::vector<double> before = phi;
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t k = partners[i];
        const double g = (theta[i] + theta[k] - before[i] - before[k]) / 2, p = (before[i] + before[k]) / 2;
        m[i] = 0.5 * m[i] + 0.7 * g + 0.4 * (p - before[i]);
        phi[i] = before[i] + m[i];
      }
    }
    for (int i = 0; i < 4; ++i)
      EXPECT_NEAR(outcome.own_values.at(Step{15}).at(Rank{i})[j], phi[static_cast<std::size_t>(i)], 2e-5)
          << i << ", " << j;
  }
  EXPECT_GT(pairings.size(), 1u);
}

TEST(NoLoCo, FollowsTheReferenceInAPair) {
  SimulatedRun pair = setup(12, 0.1);
  pair.workers = 2;
  pair.individual_models_every = 12;
  const std::string toml = "algorithm = \"noloco\"\nlocal_steps = 3\nmomentum = 0.5\nrate = 0.7\n";
  std::vector<double> mean(Unequal::size);
  for (std::size_t i = 0; i < mean.size(); ++i)
    mean[i] = (golden().at("noloco")[0][i].get<double>() + golden().at("noloco")[1][i].get<double>()) / 2;
  expect_near(run(toml, pair).parameters, mean, "the mean of both");
  pair.budget.steps = 15;  // workers' own models are reported before the last round
  const auto longer = run(toml, pair);
  for (int worker = 0; worker < 2; ++worker)
    expect_near(longer.own_values.at(Step{12}).at(Rank{worker}),
                golden().at("noloco")[static_cast<std::size_t>(worker)], "worker " + std::to_string(worker));
}

// Pulls within pairs cancel in the mean of all workers. Progress is linear in the model if all workers have the same h.
TEST(NoLoCo, HasAMeanThatFollowsOuterHeavyBallMomentum) {
  for (int rounds = 1; rounds <= 5; ++rounds) {
    SimulatedRun four = setup(3 * rounds, 0.1);
    four.workers = 4;
    four.delays.clear();
    const auto expected = run("algorithm = \"outer-local-sgd\"\n" + period +
                                  "outer = { name = \"heavy-ball\", rate = 0.7, momentum = 0.5 }\n",
                              four)
                              .parameters;
    for (const std::string pull : {"", "pull = 0.4\n"}) {
      const auto found =
          run("algorithm = \"noloco\"\nlocal_steps = 3\nmomentum = 0.5\nrate = 0.7\n" + pull, four).parameters;
      for (std::size_t i = 0; i < Unequal::size; ++i)
        EXPECT_NEAR(found[i], expected[i], 2e-6) << pull << rounds << " rounds, " << i;
    }
  }
}

TEST(LookAhead, FollowsTheReference) {
  expect_events(
      "algorithm = \"async-local-sgd\"\nlocal_steps = 2\nupdate = { name = \"look-ahead\", rate = 0.7, momentum "
      "= 0.9 }\n",
      golden().at("look_ahead"), 0.1, 3, "look-ahead", 2);
  expect_events(
      "algorithm = \"async-local-sgd\"\nlocal_steps = 2\nupdate = { name = \"look-ahead\", rate = 0.7, momentum "
      "= 0.9, hand_out = \"ahead\" }\n",
      golden().at("look_ahead_hand_out"), 0.1, 3, "with the hand-out", 2);
}

// The differences are all 1. The momentum of "look-ahead" is a mean, so its steps tend to 1.9; those of Nesterov's
// momentum tend to 10.
TEST(LookAhead, TakesThePublishedStepsAlongEqualDifferences) {
  for (const auto& [update, steps] : std::vector<std::pair<std::string, std::vector<double>>>{
           {"\"look-ahead\"", {1.09, 1.171, 1.2439}},
           {"\"look-ahead\", hand_out = \"ahead\"", {1.09, 1.171, 1.2439}},
           {"\"nesterov\"", {1.9, 2.71, 3.439}}}) {
    double expected = 1;
    for (std::size_t step = 0; step < steps.size(); ++step) {
      SimulatedRun alone = setup(static_cast<int>(step) + 1, 0.5);
      alone.workers = 1;
      alone.objective = std::make_shared<Straight>(0, std::vector<std::vector<double>>{{-2}});
      expected -= steps[step];
      EXPECT_NEAR(run("algorithm = \"async-local-sgd\"\nlocal_steps = 1\nupdate = { rate = 1, momentum = 0.9, name = " +
                          update + " }\n",
                      alone)
                      .parameters.front(),
                  expected, 5e-6)
          << update << ", step " << step + 1;
    }
  }
}

// Some of the expected numbers were computed independently of this program and of the reference.
TEST(Heloco, CorrectsATensorAsInTheGoldenTable) {
  const auto corrected = [](double x, double y, HelocoCorrection::Turn turn) {
    const HelocoCorrection correction{.turn = turn};
    const auto [own, momentum] = correction.parts(std::hypot(x, y), 1, std::hypot(x - 1, y));
    return std::array{own * x + momentum, own * y};
  };
  using Turn = HelocoCorrection::Turn;
  for (const auto& [delta, expected] : std::vector<std::pair<std::array<double, 2>, std::array<double, 2>>>{
           {{1, 1}, {1, 1}}, {{-1, 0}, {-0.875, 0}}, {{-1, 1}, {-0.886730, 1}}, {{0.1, 1}, {0.166141, 0.991160}}})
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(corrected(delta[0], delta[1], Turn::to_threshold)[i], expected[i], 1e-6);
  for (const Json& one : golden().at("heloco_corrections")) {
    const auto found =
        corrected(one.at("delta")[0], one.at("delta")[1], one.at("paper") ? Turn::to_momentum : Turn::to_threshold);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(found[i], one.at("result")[i].get<double>(), 1e-7) << one.dump();
  }
}

TEST(Heloco, FollowsTheReferenceInAllItsForms) {
  SimulatedRun of = setup(0, 0.1);
  of.momentum = 0.5;
  const auto follows = [&](const std::string& keys, const std::string& form) {
    expect_events("algorithm = \"heloco\"\nlocal_steps = 2\n" + keys, golden().at("heloco").at(form), of, 3, form, 2);
  };
  follows("correction.agreement = 0.9", "code");
  follows("correction = { agreement = 0.9, turn = \"to-momentum\" }", "paper");
  follows("staleness_exponent = 0.5", "by_staleness");
}

TEST(Heloco, WithoutCorrectionIsLookAheadAndWithoutMomentumPlain) {
  SimulatedRun of = setup(12, 0.1);
  of.objective = std::make_shared<PullObjective>();
  const auto same = [&](const std::string& heloco, const std::string& update) {
    const auto expected =
        run("algorithm = \"async-local-sgd\"\nlocal_steps = 2\nrate_scaling = \"1/sqrt(N)\"\nupdate = " + update, of)
            .parameters;
    const auto found =
        run("algorithm = \"heloco\"\nlocal_steps = 2\ncorrection.agreement = -1\n" + heloco, of).parameters;
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-6) << heloco << ", " << i;
    const auto corrected = run("algorithm = \"heloco\"\nlocal_steps = 2\ncorrection.agreement = 1\n" + heloco, of);
    EXPECT_NE(corrected.parameters, found) << "the correction has an effect: " << heloco;
  };
  same("", "{ name = \"look-ahead\", rate = 0.7, momentum = 0.9, hand_out = \"ahead\" }");
  same("momentum = 0", "{ name = \"plain\", rate = 0.7 }");
}

TEST(Cgad, FollowsTheReference) {
  expect_events(
      "algorithm = \"async-local-sgd\"\nlocal_steps = 2\nstaleness_decay = 0.3\nstaleness_cutoff = 3\nupdate = { name "
      "= "
      "\"adam\", rate = 0.05, tau = 1e-2 }\n",
      golden().at("cgad"), 0.1, 3, "CGAD", 2);
}

// A single worker's differences are never stale.
TEST(Cgad, AtStalenessZeroIsFedAdam) {
  SimulatedRun alone = setup(12, 0.1);
  alone.workers = 1;
  const auto expected =
      run("algorithm = \"outer-local-sgd\"\n" + period + "outer = { name = \"adam\", rate = 0.05, tau = 1e-2 }\n",
          alone)
          .parameters;
  const auto found = run("algorithm = \"async-local-sgd\"\nlocal_steps = 3\nstaleness_decay = 0.3\nstaleness_cutoff = "
                         "2\nupdate = { name = \"adam\", rate = 0.05, tau = 1e-2 }\n",
                         alone)
                         .parameters;
  for (std::size_t i = 0; i < Unequal::size; ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
}

TEST(Ormo, FollowsTheReference) {
  for (const auto& [momentum, expected] : golden().at("ormo").items())
    expect_events("algorithm = \"ormo\"\nrate_scaling = \"none\"\nmomentum = " + momentum, expected, 0.05, 3,
                  "OrMo, " + momentum);
}

TEST(Ormo, InItsLimitsIsAsynchronousSgdAndSgdWithMomentum) {
  const auto asynchronous = run("algorithm = \"async-sgd\"\n", setup(12, 0.1));
  const auto ormo = run("algorithm = \"ormo\"\nmomentum = 0\n", setup(12, 0.1));
  EXPECT_EQ(ormo.parameters, asynchronous.parameters);
  EXPECT_EQ(ormo.log, asynchronous.log);
  EXPECT_EQ(ormo.totals.staleness, asynchronous.totals.staleness);
  SimulatedRun alone = setup(12, 0.1);
  alone.workers = 1;
  const auto found = run("algorithm = \"ormo\"\nmomentum = 0.9\n", alone).parameters;
  alone.momentum = 0.9;
  const auto expected = run("algorithm = \"sync-sgd\"\n", alone).parameters;
  for (std::size_t i = 0; i < Unequal::size; ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
}

// The times of methods_2026.py's trials: a worker's trials take 0, 1/4, 1/2 or 3/4 s longer than without this delay.
class TimesOfTrials final : public DelayProcess {
 public:
  void add(const RandomStream& stream, std::uint32_t, std::span<double> added_s) const override {
    for (double& added : added_s) added += static_cast<double>((3 * stream.step.value() + stream.worker.value) % 4) / 4;
  }
  double mean_s() const override { return 0; }
};

TEST(Mindflayer, FollowsTheReferenceByBothRules) {
  SimulatedRun of = setup(0, 0.1);
  expect_events(
      "algorithm = \"mindflayer\"\nrule = \"clipping-rennala\"\nlimit_s = 1.7\ntrials = 5\ncorrection = 1.25\n",
      golden().at("clipping_rennala"), of, 3, "clipping Rennala", 5);
  of.delays.push_back(std::make_shared<TimesOfTrials>());
  expect_events(
      "algorithm = \"mindflayer\"\nlimit_s = 1.4\narrival_probability = 0.5\ntrials_per_worker = 3\ngroups = [{ "
      "workers = "
      "[1], trials_per_worker = 2, limit_s = inf }, { workers = [2], trials_per_worker = 1, limit_s = 3.3, "
      "arrival_probability = 0.75 }]\n",
      golden().at("mindflayer"), of, 1, "MindFlayer", 2);
}

TEST(PostLocalSgd, FollowsTheReferenceInEveryStep) {
  const Json& expected = golden().at("post_local");
  const std::shared_ptr<const Optimizer> sgd = make_sgd({.momentum = 0.9});
  const auto follows = [&](const std::string& keys, const std::string& form, auto optimizer, double rate) {
    const Json& means = expected.at(form);  // the last average makes the mean of all models
    for (std::size_t step = 0; step < means.size(); ++step) {
      SimulatedRun run_until = setup(static_cast<int>(step) + 1, rate);
      run_until.objective = std::make_shared<Unequal>(Unequal::curved);
      run_until.optimizer = optimizer;
      expect_near(run("algorithm = \"post-local-sgd\"\n" + keys, run_until).parameters, means[step],
                  form + ", step " + std::to_string(step));
    }
  };
  const std::string groups = "start = 3\nperiod = 4\ngroup_size = 2\n";
  follows(groups, "groups", sgd, 0.1);
  follows(groups, "adamw", std::shared_ptr<const Optimizer>(make_adamw({.weight_decay = {.rate = 0}})), 0.05);
  follows("start = 2\nwarmup = 5\nperiod = 3\ngroup_size = 2\npost_local_gradient_allreduce = false\n", "alone", sgd,
          0.1);
  // A group of three workers contains all workers, so the period is 6 for it, and not 2.
  follows("start = 1\nwarmup = 3\nperiod = 6\ngroup_size = 1\nlevels = [{ group_size = 2, period = 2 }]\n", "levels",
          sgd, 0.1);
}

TEST(PostLocalSgd, AveragesAfterTheStepsOfPyTorchsAveragers) {
  const PostLocalSgd periodic({.start = 10, .warmup = 10, .period = 4, .group_size = 2});
  const PostLocalSgd levels(
      {.start = 10, .warmup = 10, .period = 16, .group_size = 4, .levels = {{.group_size = 8, .period = 4}}});
  std::vector<int> all;
  std::vector<std::vector<int>> of_groups;
  for (int step = 0; step < 26; ++step) {
    if (periodic.members_of_average(step, 16) == 16) all.push_back(step);
    if (const int members = levels.members_of_average(step, 16); members > 0) of_groups.push_back({step, members});
  }
  EXPECT_EQ(Json(all), golden().at("averagers").at("periodic"));
  EXPECT_EQ(Json(of_groups), golden().at("averagers").at("hierarchical"));
}

TEST(Ef21, FollowsTheReference) {
  const Json& expected = golden().at("ef21");
  for (const auto& [form, momentum] : {std::pair("last", ""), std::pair("average", ", momentum = 0.7")})
    for (std::size_t round = 0; round < expected.at(form).size(); ++round)
      expect_near(run("algorithm = \"sync-sgd\"\ncompression = { name = \"top-k\", ratio = 0.093, feedback = "
                      "\"ef21\"" +
                          std::string(momentum) + " }\n",
                      setup(static_cast<int>(round) + 1, 0.1))
                      .parameters,
                  expected.at(form)[round], form + std::string(", round ") + std::to_string(round));
}

TEST(Ef21, WithoutCompressionIsSynchronousSgd) {
  SimulatedRun with_momentum = setup(20, 0.05);
  with_momentum.momentum = 0.9;
  const auto dense = run("algorithm = \"sync-sgd\"\n", with_momentum);
  const auto whole = run(
      "algorithm = \"sync-sgd\"\ncompression = { name = \"top-k\", ratio = 1, feedback = \"ef21\" }\n", with_momentum);
  for (std::size_t i = 0; i < Unequal::size; ++i) EXPECT_NEAR(whole.parameters[i], dense.parameters[i], 2e-6);
}

// Worker i's gradient is always (i + 1) times a multiple of 1/64, so sums of a few gradients are exact.
class Constant final : public PullObjective {
 public:
  static constexpr std::size_t size = 48;
  Constant() : PullObjective(size, size) {}
  static float at(int worker, std::size_t j) {
    return static_cast<float>((worker + 1) * (static_cast<int>(j * 29 % 48) - 20)) / 64;
  }

  std::vector<ParameterTensor> tensors() const override {
    return {{.name = "weight", .offset = 0, .size = size, .place = 0, .rows = 8}};
  }
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    const auto values = std::make_shared<std::vector<float>>(size);
    for (const MicroBatch& micro_batch : micro_batches)
      for (std::size_t j = 0; j < size; ++j) (*values)[j] += at(micro_batch.worker.value, j);
    return {.segments = {{.offset = 0, .size = size, .data = values->data(), .owner = values}},
            .loss_sum = 0,
            .buffers_sum = {}};
  }
};

// The change of the model in the step after `steps` steps, per unit of the learning rate.
std::vector<float> direction_after(int steps, const std::string& compression, int workers = 4) {
  const auto model_after = [&](int count) {
    const SimulatedRun constant{
        .workers = workers, .rate = 0.25, .budget = {.steps = count}, .objective = std::make_shared<Constant>()};
    return run("algorithm = \"sync-sgd\"\ncompression = { " + compression + ", feedback = \"ef21\" }\n", constant)
        .parameters;
  };
  std::vector<float> before = model_after(steps), after = model_after(steps + 1);
  for (std::size_t j = 0; j < after.size(); ++j) after[j] = (before[j] - after[j]) * 4;
  return after;
}

TEST(Ef21, ReachesAConstantGradientInCeilOfDOverKSteps) {
  const auto is_reached = [](int steps) {
    const auto direction = direction_after(steps - 1, "name = \"top-k\", ratio = 0.11");  // 5 of 48
    for (std::size_t j = 0; j < Constant::size; ++j)
      if (direction[j] != Constant::at(0, j) * 2.5f) return false;  // 2.5 is the mean of 1, 2, 3 and 4
    return true;
  };
  EXPECT_FALSE(is_reached(9));
  EXPECT_TRUE(is_reached(10));
  EXPECT_TRUE(is_reached(13));
}

// If a worker's estimate and the others' view of it differed, the sum of the estimates would not reach the gradient.
TEST(Ef21, ReachesAConstantGradientWithEveryKind) {
  for (const std::string kind :
       {"name = \"top-k\", ratio = 0.2, momentum = 0.5", "name = \"top-k\", ratio = 0.2, scope = \"tensor\"",
        "name = \"random-k\", ratio = 0.2", "name = \"scalecom\", ratio = 0.2", "name = \"sign\"", "name = \"one-bit\"",
        "name = \"int8\", error_feedback = true", "name = \"fp4\", error_feedback = true", "name = \"bins\"",
        "name = \"tiles\", tile = 4, kept = 4, mean_of = \"all\", clip_to_median = false",
        "name = \"powersgd\", rank = 2, least_rate = 0",
        "name = \"powersgd\", rank = 2, least_rate = 0, factors = \"in-turn\""}) {
    const auto direction = direction_after(160, kind);
    double error = 0, whole = 0;
    for (std::size_t j = 0; j < Constant::size; ++j) {
      const double mean = 2.5 * Constant::at(0, j);
      error += (direction[j] - mean) * (direction[j] - mean);
      whole += mean * mean;
    }
    EXPECT_LE(error, 1e-6 * whole) << kind;
  }
}

TEST(Ef21, IsRefusedWhereEstimatesHaveNoMeaning) {
  const auto faults = [](const std::string& method, const std::string& keys = "") {
    return read_method("algorithm = " + method +
                       "\ncompression = { name = \"top-k\", ratio = 0.1, feedback = \"ef21\"" + keys + " }\n")
        .faults;
  };
  EXPECT_EQ(faults("\"sync-sgd\""), "");
  EXPECT_EQ(faults("\"stale-sgd\"\nstaleness = 2"), "");
  EXPECT_THAT(faults("\"async-sgd\""), testing::HasSubstr("must be left out: a server uses each message by itself"));
  EXPECT_THAT(faults("\"local-sgd\"\n" + period.substr(0, period.size() - 1)),
              testing::HasSubstr("must be left out: an average of models"));
  EXPECT_THAT(faults("\"one-bit-adam\"\nfreeze_step = 3"),
              testing::HasSubstr("must be left out: estimates of gradients"));
  EXPECT_THAT(faults("\"random-drop\"\ndrop_rate = 0.1\nfrom_step = 0"),
              testing::HasSubstr("this method leaves out micro-batches"));
  EXPECT_THAT(faults("\"sync-sgd\"", ", residual_decay = 0.5"), testing::HasSubstr("which has no residual"));
  EXPECT_THAT(faults("\"sync-sgd\"", ", error_feedback = false"), testing::HasSubstr("must be true with feedback"));
  const auto of_kind = [](const std::string& keys) {
    return read_method("algorithm = \"sync-sgd\"\ncompression = { feedback = \"ef21\", name = " + keys + " }\n").faults;
  };
  EXPECT_THAT(of_kind("\"sign\", exchange = \"two-phase\""), testing::HasSubstr("second compression"));
  EXPECT_THAT(of_kind("\"demo\""), testing::HasSubstr("residual is its momentum"));
  EXPECT_THAT(of_kind("\"tiles\""),
              testing::AllOf(testing::HasSubstr("mean_of"), testing::HasSubstr("clip_to_median")));
  EXPECT_THAT(of_kind("\"scalecom\", ratio = 0.1, filter = 0.5"), testing::HasSubstr("filter"));
  EXPECT_THAT(of_kind("\"powersgd\", removed = \"mean\""), testing::HasSubstr("removed"));
}

}  // namespace
}  // namespace syncopate
