#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "workers/base/random.hpp"
#include "workers/training/checkpoint_log.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

namespace {

constexpr std::uint8_t start_stream = 0, sign_stream = 1;

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

bool is_settled(double before, double after, double tolerance) {
  constexpr double nothing = 1e-12;
  return std::abs(after - before) <= tolerance * std::abs(before) + nothing;
}

// Returns the eigenvalue of largest magnitude of H - shift x I.
double dominant_eigenvalue(std::size_t size, const HessianProduct& product, double shift,
                           const CurvatureOptions& options) {
  std::vector<double> vector(size);
  fill_standard_normal({.seed = options.seed, .purpose = Purpose::measurement, .stream = start_stream}, 0, vector);
  double value = 0;
  for (int i = 0; i < options.most_products; ++i) {
    const double length = std::sqrt(dot(vector, vector));
    if (length == 0 || !std::isfinite(length)) return length == 0 ? 0 : length;
    for (double& element : vector) element /= length;
    std::vector<double> next = product(vector);
    for (std::size_t j = 0; j < size; ++j) next[j] -= shift * vector[j];
    const double before = value;
    value = dot(vector, next);
    vector = std::move(next);
    if (i > 0 && is_settled(before, value, options.tolerance)) break;
  }
  return value;
}

// Samples [begin, end) of a split, evaluated by one task.
struct EvaluatedPart {
  Split split;
  std::int64_t begin;
  std::int64_t end;
  EvaluationSums sums{};
};

void evaluate_part(const Objective& objective, std::span<const ModelStatePtr> members, EvaluatedPart& part) {
  std::vector<const float*> parameters;
  std::vector<const float*> buffers;
  for (const auto& state : members) {
    parameters.push_back(values_of(state->parameters));
    buffers.push_back(values_of(state->buffers));
  }
  part.sums = objective.evaluate_ensemble(parameters, buffers, part.split, part.begin, part.end);
}

EvaluationSums sums_of(std::span<const EvaluatedPart> parts, Split split) {
  EvaluationSums total;
  for (const EvaluatedPart& part : parts)
    if (part.split == split) total += part.sums;
  return total;
}

// Returns four numbers (index, loss, correct, samples) for each part that was evaluated in this process.
std::vector<double> numbers_of(std::span<const EvaluatedPart> parts, const std::vector<bool>& are_here) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (are_here[i])
      numbers.insert(numbers.end(),
                     {static_cast<double>(i), parts[i].sums.loss, static_cast<double>(parts[i].sums.correct),
                      static_cast<double>(parts[i].sums.samples)});
  return numbers;
}

void add_numbers(std::span<EvaluatedPart> parts, std::span<const double> numbers) {
  for (; !numbers.empty(); numbers = numbers.subspan(4))
    parts[static_cast<std::size_t>(numbers[0])].sums = {.loss = numbers[1],
                                                        .correct = static_cast<std::int64_t>(numbers[2]),
                                                        .samples = static_cast<std::int64_t>(numbers[3])};
}

double mean_loss(const EvaluationSums& sums) { return sums.loss / static_cast<double>(sums.samples); }

Evaluation evaluation_of(std::span<const EvaluatedPart> parts, bool has_accuracy) {
  const auto accuracy = [&](const EvaluationSums& sums) {
    return has_accuracy ? static_cast<double>(sums.correct) / static_cast<double>(sums.samples)
                        : std::numeric_limits<double>::quiet_NaN();
  };
  const EvaluationSums test = sums_of(parts, Split::test), validation = sums_of(parts, Split::validation);
  Evaluation evaluation;
  evaluation.test_loss = mean_loss(test);
  evaluation.test_accuracy = accuracy(test);
  evaluation.train_loss = mean_loss(sums_of(parts, Split::train));
  evaluation.finite = std::isfinite(evaluation.test_loss) && std::isfinite(evaluation.train_loss);
  if (validation.samples == 0) return evaluation;
  evaluation.validation_loss = mean_loss(validation);
  evaluation.validation_accuracy = accuracy(validation);
  return evaluation;
}

double length_of(std::span<const double> vector) { return std::sqrt(dot(vector, vector)); }

// Runs as a single executor task, so that a model is measured while others train.
ModelMeasures measures_of(const Objective& objective, const ModelState& state, const MeasureOptions& options) {
  const auto samples = std::min(options.samples, objective.evaluation_samples(Split::train));
  const float *const parameters = values_of(state.parameters), *const buffers = values_of(state.buffers);
  const auto derivative = [&](std::span<const double> direction) {
    return objective.derivative(parameters, buffers, Split::train, 0, samples, direction);
  };
  const std::size_t size = objective.parameters();
  ModelMeasures measures;
  if (options.gradient_norm) measures.gradient_norm = length_of(derivative({}));
  if (options.noise_scale && samples > 1) {
    const GradientNoise noise = gradient_noise(size, samples, [&](std::int64_t sample) {
      return objective.derivative(parameters, buffers, Split::train, sample, sample + 1, {});
    });
    measures.gradient_variance = noise.variance;
    measures.noise_scale = noise.scale;
  }
  if (options.largest_eigenvalue) measures.largest_eigenvalue = largest_eigenvalue(size, derivative, options.curvature);
  if (options.hessian_trace) measures.hessian_trace = hessian_trace(size, derivative, options.curvature);
  if (options.largest_eigenvalue || options.hessian_trace) {
    const std::vector<double> values(parameters, parameters + size);
    measures.parameter_norm = length_of(values);
  }
  return measures;
}

// Pointers to all measures. Each measure is exchanged as two numbers: 1 and its value, or 0 and 0 if it is not set.
std::vector<std::optional<double>*> all_of(ModelMeasures& measures) {
  return {&measures.gradient_norm,      &measures.gradient_variance, &measures.noise_scale,
          &measures.largest_eigenvalue, &measures.hessian_trace,     &measures.parameter_norm};
}

std::vector<double> numbers_of(ModelMeasures measures) {
  std::vector<double> numbers;
  for (const std::optional<double>* const measure : all_of(measures))
    numbers.insert(numbers.end(), {measure->has_value() ? 1.0 : 0.0, measure->value_or(0)});
  return numbers;
}

ModelMeasures measures_of(std::span<const double> numbers) {
  ModelMeasures measures;
  for (std::optional<double>* const measure : all_of(measures)) {
    if (numbers[0] != 0) *measure = numbers[1];
    numbers = numbers.subspan(2);
  }
  return measures;
}

}  // namespace

double largest_eigenvalue(std::size_t size, const HessianProduct& product, const CurvatureOptions& options) {
  const double value = dominant_eigenvalue(size, product, 0, options);
  return value >= 0 || !std::isfinite(value) ? value : value + dominant_eigenvalue(size, product, value, options);
}

double hessian_trace(std::size_t size, const HessianProduct& product, const CurvatureOptions& options) {
  std::vector<double> signs(size);
  double mean = 0;
  for (int draw = 0; draw < options.most_products; ++draw) {
    const RandomStream stream{
        .seed = options.seed, .purpose = Purpose::measurement, .stream = sign_stream, .step = Step{draw}};
    stream.fill_uniform(0, signs);
    for (double& sign : signs) sign = sign < 0.5 ? -1 : 1;
    const double before = mean;
    mean += (dot(signs, product(signs)) - mean) / (draw + 1);
    if (draw > 0 && is_settled(before, mean, options.tolerance)) break;
  }
  return mean;
}

GradientNoise gradient_noise(std::size_t size, std::int64_t samples,
                             const std::function<std::vector<double>(std::int64_t sample)>& gradient_of) {
  assert(samples >= 2);
  const auto n = static_cast<double>(samples);
  std::vector<double> mean(size);
  double mean_square = 0;  // mean of the samples' squared norms
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::vector<double> gradient = gradient_of(sample);
    for (std::size_t i = 0; i < size; ++i) {
      mean[i] += gradient[i] / n;
      mean_square += gradient[i] * gradient[i] / n;
    }
  }
  const double square_of_mean = dot(mean, mean);
  GradientNoise noise{.variance = (mean_square - square_of_mean) * n / (n - 1)};
  const double square = square_of_mean - noise.variance / n;
  if (square > 0) noise.scale = noise.variance / square;
  return noise;
}

std::optional<GradientBias> gradient_bias(const Objective& objective, const float* parameters,
                                          std::span<const MicroBatch> kept, std::span<const MicroBatch> dropped) {
  const std::int64_t chunk = objective.chunk_samples() / std::max<std::int64_t>(1, objective.samples_per_micro_batch());
  const auto add_gradients = [&](std::span<const MicroBatch> micro_batches, std::vector<double>& sum) {
    while (!micro_batches.empty()) {
      const auto next =
          micro_batches.first(std::min<std::size_t>(micro_batches.size(), std::max<std::int64_t>(1, chunk)));
      for (const GradientSegment& segment : objective.gradient(parameters, nullptr, next).segments)
        for (std::size_t i = 0; i < segment.size; ++i) sum[segment.offset + i] += segment.data[i];
      micro_batches = micro_batches.subspan(next.size());
    }
  };
  struct Half {
    std::vector<double> of_kept, of_all;  // mean gradients
    double steps = 0;
  };
  std::array<Half, 2> halves;
  for (int parity : {0, 1}) {
    const auto in_half = [parity](std::span<const MicroBatch> micro_batches) {
      std::vector<MicroBatch> found(micro_batches.begin(), micro_batches.end());
      std::erase_if(found, [parity](const MicroBatch& each) { return each.step.value() % 2 != parity; });
      return found;
    };
    const std::vector<MicroBatch> kept_here = in_half(kept), dropped_here = in_half(dropped);
    if (kept_here.empty()) return {};
    Half& half = halves[static_cast<std::size_t>(parity)];
    half.of_kept.resize(objective.parameters());
    add_gradients(kept_here, half.of_kept);
    half.of_all = half.of_kept;
    add_gradients(dropped_here, half.of_all);
    const auto count = static_cast<double>(kept_here.size());
    for (double& element : half.of_kept) element /= count;
    for (double& element : half.of_all) element /= count + static_cast<double>(dropped_here.size());
    std::set<Step> steps;
    for (const MicroBatch& each : kept_here) steps.insert(each.step);
    half.steps = static_cast<double>(steps.size());
  }
  const auto& [even, odd] = halves;
  GradientBias bias;
  for (std::size_t i = 0; i < objective.parameters(); ++i) {
    bias.squared_bias += (even.of_kept[i] - even.of_all[i]) * (odd.of_kept[i] - odd.of_all[i]);
    bias.squared_gradient += even.of_all[i] * odd.of_all[i];
    bias.squared_noise += (even.of_kept[i] - odd.of_kept[i]) * (even.of_kept[i] - odd.of_kept[i]);
  }
  bias.squared_noise /= 1 / even.steps + 1 / odd.steps;
  return bias;
}

Evaluation mean_of(std::span<const Evaluation> evaluations) {
  const auto count = static_cast<double>(evaluations.size());
  Evaluation mean;
  for (const Evaluation& each : evaluations) {
    mean.test_loss += each.test_loss / count;
    mean.test_accuracy += each.test_accuracy / count;
    mean.train_loss += each.train_loss / count;
    mean.finite &= each.finite;
  }
  return mean;
}

// The processes that have all states divide the samples among them. If no process has all states, the processes of
// place() divide the samples.
std::shared_ptr<Task> Training::evaluate(std::vector<ModelStatePtr> states,
                                         std::function<void(const Evaluation&)> done) {
  assert(objective_ && !states.empty());
  constexpr std::int64_t part_samples = 2000;
  const auto parts = std::make_shared<std::vector<EvaluatedPart>>();
  const auto add_parts = [&](Split split, std::int64_t samples) {
    for (std::int64_t begin = 0; begin < samples; begin += part_samples)
      parts->push_back({.split = split, .begin = begin, .end = std::min(samples, begin + part_samples)});
  };
  add_parts(Split::test, objective_->evaluation_samples(Split::test));
  add_parts(Split::train, std::min(objective_->evaluation_samples(Split::train), options_.train_samples));
  add_parts(Split::validation, objective_->validation_samples());
  std::vector<CellPtr> read;
  ProcessSet places;
  for (const auto& state : states) {
    for (const CellPtr& cell : {state->parameters, state->buffers}) {
      read.push_back(cell);
      if (cell) places = places & cell->at;
    }
  }
  if (places.empty()) places = place();
  const auto inputs = brought(read, places);
  std::transform(states.begin(), states.end(), states.begin(), held_by_task);
  const auto members = std::make_shared<const std::vector<ModelStatePtr>>(std::move(states));
  std::vector<std::shared_ptr<Task>> tasks;
  std::vector<bool> are_here(parts->size(), true);
  if (divided_) are_here = divided_->dealt(parts->size(), places);
  for (std::size_t i = 0; i < parts->size(); ++i)
    if (are_here[i])
      tasks.push_back(
          executor_.submit([this, members, parts, i] { evaluate_part(*objective_, *members, (*parts)[i]); }, inputs));
  const auto end = [this, parts, done = std::move(done)] { done(evaluation_of(*parts, objective_->has_accuracy())); };
  if (!divided_) return executor_.submit(end, tasks);
  const auto give = [parts, are_here] { return numbers_of(*parts, are_here); };
  const auto take = [parts, end](const std::vector<DividedWork::Numbers>& all) {
    for (const auto& numbers : all) add_numbers(*parts, numbers);
    end();
  };
  return divided_->exchange_numbers(places, tasks, give, take);
}

void Training::measure_spread(std::vector<WeightedState> states, std::function<void(double)> done) {
  assert(objective_ && !states.empty());
  if (divided_ && divided_->processes() > 1) return measure_spread_of_processes(std::move(states), std::move(done));
  std::vector<std::shared_ptr<Task>> inputs;
  for (WeightedState& each : states) {
    inputs.push_back(producer(each.state->parameters));
    each.state = held_by_task(each.state);
  }
  executor_.submit(
      [size = objective_->parameters(), states = std::move(states), done = std::move(done)] {
        double weights = 0, squares = 0;
        for (const WeightedState& each : states) weights += each.weight;
        std::vector<std::pair<double, const float*>> models;
        for (const WeightedState& each : states)
          models.emplace_back(each.weight / weights, each.state->parameters->value.data());
        for (std::size_t i = 0; i < size; ++i) {
          double mean = 0;
          for (const auto& [weight, values] : models) mean += weight * static_cast<double>(values[i]);
          for (const auto& [weight, values] : models) squares += (values[i] - mean) * (values[i] - mean);
        }
        done(std::sqrt(squares / static_cast<double>(states.size())));
      },
      inputs);
}

ModelStatePtr Training::recalibrated(const ModelStatePtr& state, std::span<const MicroBatch> micro_batches) {
  if (!objective_ || objective_->buffers() == 0 || micro_batches.empty()) return state;
  auto cell = new_cell();
  const auto measure = [objective = objective_, parameters = state->parameters, cell,
                        samples = std::vector<MicroBatch>(micro_batches.begin(), micro_batches.end())] {
    const auto statistics = objective->batch_statistics(parameters->value.data(), samples);
    assert(statistics.size() == objective->buffers());
    cell->value = FlatVector(statistics.size());
    std::copy(statistics.begin(), statistics.end(), cell->value.data());
  };
  const CellPtr read[] = {state->parameters};
  compute({.reads = {state->parameters}, .writes = {cell}, .work = measure}, place_of_reader(read));
  auto result = new_state(*state);
  result->buffers = cell;
  return result;
}

// If several processes divide the work, the lowest-numbered one that has the model measures it.
void Training::measure(const ModelStatePtr& state, const MeasureOptions& options,
                       std::function<void(const ModelMeasures&)> done) {
  assert(objective_);
  const CellPtr read[] = {state->parameters, state->buffers};
  ProcessSet places = state->parameters->at;
  if (divided_) places = ProcessSet::only(places.lowest());
  const auto inputs = brought(read, places);
  const auto numbers = [objective = objective_, state = held_by_task(state), options] {
    return measures_of(*objective, *state, options);
  };
  if (!divided_) {
    executor_.submit([numbers, done = std::move(done)] { done(numbers()); }, inputs);
    return;
  }
  divided_->exchange_numbers(
      places, inputs, [numbers] { return numbers_of(numbers()); },
      [done = std::move(done)](const std::vector<DividedWork::Numbers>& all) { done(measures_of(all.front())); });
}

void Training::measure_norm(const Gradient& gradient, std::function<void(double)> done) {
  assert(objective_);
  const ScaledSum scaled = fixed(gradient);
  const auto sum = readable(scaled.sum, ProcessSet::everywhere());
  const auto measure = [sum, scale = scaled.scale, size = objective_->parameters(), done = std::move(done)] {
    done(norm_of(*sum, scale, 0, size));
  };
  executor_.submit(measure, sum->tasks);
}

}  // namespace syncopate
