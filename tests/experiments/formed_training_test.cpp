// Training on texts in micro-batches of different numbers of texts. The test compares whole runs of three methods with
// its own loop. This loop forms the micro-batches again and computes the gradient of one text at a time, in double
// precision, with a module of torch::nn.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/workers/reference_text_transformer.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "workers/base/random.hpp"
#include "workers/data/text_dataset.hpp"

namespace syncopate {
namespace {

constexpr int workers = 3, micro_batches = 2, steps = 6;
constexpr std::int64_t seed = 3, size = 4, budget = 40;
constexpr double peak = 0.5, threshold_s = 0.0955;

using Texts = std::vector<std::uint32_t>;
using Vector = torch::Tensor;  // (P,) float64

struct FormedTraining : ExperimentFile {
  void SetUp() override {
    ExperimentFile::SetUp();
    text = file.parent_path() / (file.stem().string() + ".txt");
    std::ofstream lines(text);
    for (int i = 0; i < 200; ++i) {
      lines << "abc"[i % 3] << '\t';
      for (int j = 0; j <= i * i % 17; ++j) lines << " word" << (i * j + i) % 11;
      lines << '\n';
    }
    lines.close();
    write(fmt::format(R"(
seeds = [{}]
cluster = {{ workers = {}, micro_batches = {}, micro_batch_s = {{ base_s = 0.01, per_token_s = 0.001 }} }}
network = {{ kind = "free" }}
budget = {{ steps = {} }}
recording = {{ samples = true, parameters = true }}
[training]
model = "text-transformer"
dataset = "text-lines"
micro_batch_size = {}
learning_rate = {{ schedule = "constant", peak = {} }}
optimizer = {{ name = "sgd" }}
[models.text-transformer]
width = 8
depth = 1
heads = 2
mlp_width = 12
positions = 20
pooling = "mean"
[datasets.text-lines]
file = "{}"
labelled = true
[[methods]]
algorithm = "sync-sgd"
)",
                      seed, workers, micro_batches, steps, size, peak, text.string()));
    data = text_dataset(text_lines(true), {}).load(text);
    const std::int64_t vocabulary = data->size().shape.vocabulary;
    module = std::make_shared<reference::TextTransformerModule>(
        vocabulary, 3,
        TextTransformerOptions{.width = 8,
                               .depth = 1,
                               .heads = 2,
                               .mlp_width = 12,
                               .positions = 20,
                               .pooling = TextTransformerOptions::Pooling::mean});
    module->to(torch::kDouble);
    order = module->parameters_by_layer();
    std::stable_partition(order.begin(), order.end(), [](const torch::Tensor& one) { return one.dim() >= 2; });
  }
  void TearDown() override {
    std::filesystem::remove(text);
    ExperimentFile::TearDown();
  }

  std::int64_t length(std::uint32_t sample) const { return std::ssize(sample_tokens(*data, Split::train, sample)); }
  std::int64_t label(std::uint32_t sample) const {
    std::int64_t label = 0;
    data->gather(Split::train, {&sample, 1}, nullptr, &label);
    return label;
  }

  // Returns the micro-batches of the first epoch, which contains all steps.
  std::vector<Texts> formed(bool packed) const {
    RandomStream stream{.seed = seed, .purpose = Purpose::data_order};
    Texts drawn = permutation(stream, static_cast<std::size_t>(data->size().train));
    std::vector<Texts> all;
    if (packed) {
      std::int64_t left = 0;
      for (const std::uint32_t sample : drawn) {
        if (length(sample) > left) all.emplace_back(), left = budget;
        all.back().push_back(sample);
        left -= length(sample);
      }
      return all;
    }
    drawn.resize(drawn.size() / (workers * micro_batches * size) * (workers * micro_batches * size));
    std::ranges::stable_sort(drawn, {}, [&](std::uint32_t sample) { return length(sample); });
    stream.stream = 1;
    for (const std::uint32_t bucket : permutation(stream, drawn.size() / size))
      all.emplace_back(drawn.begin() + bucket * size, drawn.begin() + (bucket + 1) * size);
    return all;
  }

  void set(const Vector& flat) const {
    torch::NoGradGuard guard;
    std::int64_t offset = 0;
    for (torch::Tensor parameter : order) {
      parameter.copy_(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      parameter.mutable_grad() = torch::zeros_like(parameter);
      offset += parameter.numel();
    }
    EXPECT_EQ(offset, flat.numel());
  }
  // Returns the mean of the texts' gradients. Adds the mean loss to *loss.
  Vector gradient_of(const Vector& at, const Texts& texts, double* loss = nullptr) const {
    set(at);
    for (const std::uint32_t sample : texts) {
      const auto tokens = sample_tokens(*data, Split::train, sample);
      const auto logits =
          module->forward(torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())).view({1, -1}));
      const auto of_text = at::cross_entropy_loss(logits, torch::tensor({label(sample)}));
      of_text.backward();
      if (loss) *loss += of_text.item<double>() / static_cast<double>(texts.size());
    }
    std::vector<torch::Tensor> flat;
    for (const torch::Tensor& parameter : order) flat.push_back(parameter.grad().reshape({-1}).clone());
    return torch::cat(flat) / static_cast<double>(texts.size());
  }

  std::filesystem::path text;
  std::shared_ptr<const Dataset> data;
  std::shared_ptr<reference::TextTransformerModule> module;
  std::vector<torch::Tensor> order;  // in the order of the flat vector
};

Vector vector_of(const std::vector<float>& flat) {
  return torch::tensor(std::vector<double>(flat.begin(), flat.end()), torch::kDouble);
}

double relative_distance(const Vector& a, const Vector& b) { return ((a - b).norm() / b.norm()).item<double>(); }

// The result of a method on these micro-batches, with the numbers of kept micro-batches and of kept texts by class.
struct Trained {
  Vector parameters;
  std::vector<std::int64_t> kept = std::vector<std::int64_t>(workers);
  std::vector<std::int64_t> by_class = std::vector<std::int64_t>(3);
};

enum class Method { sync_sgd, dropcompute, local_sgd };

Trained train(const FormedTraining& test, const std::vector<Texts>& formed, Method method, Vector at) {
  Trained result;
  const auto texts_of = [&](int worker, int step, int m) -> const Texts& {
    return formed.at(static_cast<std::size_t>((step * micro_batches + m) * workers + worker));
  };
  std::vector<Vector> own(workers, at);
  for (int step = 0; step < steps; ++step) {
    Vector sum = torch::zeros_like(at);
    for (int worker = 0; worker < workers; ++worker) {
      const auto place = static_cast<std::size_t>(worker);
      Vector of_worker = torch::zeros_like(at);
      double end_s = 0;
      for (int m = 0; m < micro_batches; ++m) {
        const Texts& texts = texts_of(worker, step, m);
        end_s += 0.01;
        for (const std::uint32_t sample : texts) end_s += 0.001 * static_cast<double>(test.length(sample));
        if (method == Method::dropcompute && end_s > threshold_s) break;
        of_worker += test.gradient_of(own[place], texts);
        ++result.kept[place];
        for (const std::uint32_t sample : texts) ++result.by_class[static_cast<std::size_t>(test.label(sample))];
      }
      sum += of_worker;
      if (method == Method::local_sgd) own[place] = own[place] - peak / micro_batches * of_worker;
    }
    if (method != Method::local_sgd)
      own.assign(workers, own[0] - peak / (workers * micro_batches) * sum);
    else if (step % 3 == 2)
      own.assign(workers, torch::stack(own).mean(0));
  }
  result.parameters = own[0];
  return result;
}

TEST_F(FormedTraining, OfPackedAndBucketedMicroBatchesIsThatOfTheirTexts) {
  for (const bool packed : {true, false}) {
    const std::vector<Texts> all = formed(packed);
    std::set<std::size_t> counts;
    for (int i = 0; i < workers * micro_batches * steps; ++i) counts.insert(all.at(static_cast<std::size_t>(i)).size());
    ASSERT_TRUE(packed ? counts.size() > 3 : counts == std::set<std::size_t>{size});
    for (const auto& [method, table] :
         {std::pair{Method::sync_sgd, std::string("{algorithm='sync-sgd'}")},
          std::pair{Method::dropcompute, fmt::format("{{algorithm='dropcompute',threshold_s={}}}", threshold_s)},
          std::pair{Method::local_sgd, std::string("{algorithm='local-sgd',period={rule='constant',steps=3}}")}}) {
      SCOPED_TRACE((packed ? "packed " : "bucketed ") + table);
      Overrides overrides{"methods=[" + table + "]", "training.batching='bucketed'"};
      if (packed)
        overrides = {overrides[0], "training.batching='packed'", fmt::format("training.token_budget={}", budget)};
      const auto run = load(overrides).runs.at(0);
      const auto start = vector_of(run.training.make_objective()->initial_parameters(seed));
      const Trained expected = train(*this, all, method, start);

      Progress progress(Progress::Style::silent, 1, 1);
      progress.begin_run(1, run);
      const Outcome outcome = execute(run, {.threads = 2}, progress, [](const Outcome&) {});
      ASSERT_EQ(outcome.failure, "");
      const Vector found = vector_of(outcome.recording.parameters.at(0));
      EXPECT_GT(relative_distance(found, start), 1e-2);
      EXPECT_LT(relative_distance(found, expected.parameters), 1e-6);
      EXPECT_EQ(outcome.totals->kept, expected.kept);
      EXPECT_EQ(outcome.samples.value().by_class.kept, expected.by_class);
      const bool drops = expected.kept != std::vector<std::int64_t>(workers, steps * micro_batches);
      EXPECT_EQ(drops, method == Method::dropcompute);
    }
  }
}

// Micro-batches are evaluated together and separately. Each loss is the mean over the micro-batch's own texts.
TEST_F(FormedTraining, GradientsAndLossesOfSeveralMicroBatchesAreSumsOfMeans) {
  const std::vector<Texts> all = formed(true);
  const auto run = load({"training.batching='packed'", fmt::format("training.token_budget={}", budget)}).runs.at(0);
  const auto objective = run.training.make_objective();
  const auto start = objective->initial_parameters(seed);
  for (const int count : {1, 2, 5}) {
    std::vector<MicroBatch> chosen;
    Vector expected = torch::zeros({static_cast<std::int64_t>(start.size())}, torch::kDouble);
    double loss = 0;
    for (int i = 0; i < count; ++i) {
      const int worker = i % workers, step = 2 + i / workers, m = i % micro_batches;
      chosen.push_back({Rank{worker}, step, m});
      expected += gradient_of(vector_of(start),
                              all[static_cast<std::size_t>((step * micro_batches + m) * workers + worker)], &loss);
    }
    const PartialGradient found = objective->gradient(start.data(), nullptr, chosen);
    std::vector<float> flat;
    for (const GradientSegment& segment : found.segments)
      flat.insert(flat.end(), segment.data, segment.data + segment.size);
    EXPECT_LT(relative_distance(vector_of(flat), expected), 1e-6) << count;
    EXPECT_NEAR(found.loss_sum, loss, 1e-5 * loss) << count;
  }
}

}  // namespace
}  // namespace syncopate
