// Labels of tokens that a data set of one's own has: the loss and the accuracy are over those that are asked for. The
// reference sees whole rows, padding and all, and PyTorch's cross-entropy, which ignores -100.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/workers/idx_files.hpp"
#include "tests/workers/npy_files.hpp"
#include "tests/workers/script_files.hpp"
#include "workers/base/random.hpp"
#include "workers/data/npy_dataset.hpp"
#include "workers/models/text_objective.hpp"
#include "workers/models/torch_script.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t vocabulary = 12, labels = 5, outputs = 6, width = 3, length = 8, train = 60, test = 20;
const SamplerOptions sampling{.samples = train, .workers = 2, .micro_batches = 2, .micro_batch_size = 5, .seed = 9};
const std::vector<MicroBatch> micro_batches = {{.worker = Rank{0}, .step = 0, .index = 0},
                                               {.worker = Rank{0}, .step = 1, .index = 1},
                                               {.worker = Rank{1}, .step = 7, .index = 0}};

// (n, length) both.
struct Rows {
  std::vector<std::int64_t> x, y;
  torch::Tensor tokens(std::int64_t row) const { return torch::tensor(of(x, row)).unsqueeze(0); }
  torch::Tensor answers(std::int64_t row) const { return torch::tensor(of(y, row)); }

 private:
  static std::vector<std::int64_t> of(const std::vector<std::int64_t>& all, std::int64_t row) {
    return {all.begin() + row * length, all.begin() + (row + 1) * length};
  }
};

// Of 3 to 8 tokens with padding 0 behind them. The first of each is asked for nothing, the second always, of the others
// a third.
Rows drawn(std::uint64_t seed, std::int64_t count) {
  Rows rows;
  for (std::int64_t row = 0; row < count; ++row) {
    std::vector<double> uniform(3 * length);
    RandomStream{.seed = seed, .step = row}.fill_uniform(0, uniform);
    const auto own = 3 + static_cast<std::int64_t>(6 * uniform[0]);
    for (std::int64_t place = 0; place < length; ++place) {
      const auto below = [&](std::int64_t which, std::int64_t limit) {
        return static_cast<std::int64_t>(uniform[static_cast<std::size_t>(which * length + place)] * double(limit));
      };
      const bool asked = place == 1 || (place > 1 && below(0, 3) == 0);
      rows.x.push_back(place < own ? 1 + below(1, vocabulary - 1) : 0);
      rows.y.push_back(place < own && asked ? below(2, labels) : -100);
    }
  }
  return rows;
}

class TokenLabels : public IdxFiles {
 protected:
  void SetUp() override {
    IdxFiles::SetUp();
    const auto save = [&](const std::string& split, const Rows& rows, std::int64_t count) {
      const std::string shape = "(" + std::to_string(count) + ", " + std::to_string(length) + ")";
      write("x_" + split + ".npy", npy_file("<i8", shape, bytes_of(rows.x)));
      write("y_" + split + ".npy", npy_file("<i8", shape, bytes_of(rows.y)));
    };
    save("train", train_rows, train);
    save("test", test_rows, test);
    save_script(directory_ / "model.pt",
                {{.name = "words", .shape = {vocabulary, width}}, {.name = "output", .shape = {outputs, width}}},
                "e = torch.embedding(self.words, x) * (x != 0).unsqueeze(2)\n"
                "return torch.linear(torch.tanh(e + e.sum(1, True)), self.output)");
  }
  TextObjective objective(std::int64_t longest = 0) const {
    const auto data = load_npy_dataset(directory_, {.padding = 0});
    const ScriptOptions options{.task = {.kind = TextTask::Kind::masked_lm, .longest = longest}};
    return {script_network(directory_ / "model.pt", directory_.string(), data->size(), options), data, sampling, 7};
  }

  const Rows train_rows = drawn(1, train), test_rows = drawn(2, test);
};

std::vector<float> some_parameters() {
  std::vector<float> theta((vocabulary + outputs) * width);
  for (std::size_t i = 0; i < theta.size(); ++i) theta[i] = static_cast<float>(std::cos(1.7 * static_cast<double>(i)));
  return theta;
}

struct Module {
  torch::Tensor words, output;
  explicit Module(const std::vector<float>& theta) {
    const torch::Tensor all = torch::tensor(std::vector<double>(theta.begin(), theta.end()), torch::kDouble);
    words = all.narrow(0, 0, vocabulary * width).view({vocabulary, width}).clone().requires_grad_();
    output = all.narrow(0, vocabulary * width, outputs * width).view({outputs, width}).clone().requires_grad_();
  }
  // (length, outputs) of one row.
  torch::Tensor logits(const torch::Tensor& x) const {
    const torch::Tensor e = torch::embedding(words, x) * x.ne(0).unsqueeze(2);
    return torch::matmul(torch::tanh(e + e.sum(1, true)), output.t()).squeeze(0);
  }
};

TEST_F(TokenLabels, TheLossIsTheMeanOverThoseThatAreAskedFor) {
  const auto theta = some_parameters();
  const Module module(theta);
  const Sampler sampler(sampling);
  torch::Tensor loss = torch::zeros({}, torch::kDouble);
  for (const MicroBatch& one : micro_batches) {
    std::vector<std::uint32_t> samples;
    sampler.append_samples(one, samples);
    std::vector<torch::Tensor> logits, answers;
    for (const std::uint32_t sample : samples) {
      logits.push_back(module.logits(train_rows.tokens(sample)));
      answers.push_back(train_rows.answers(sample));
    }
    loss = loss + torch::nn::functional::cross_entropy(torch::cat(logits), torch::cat(answers));
  }
  loss.backward();
  const torch::Tensor expected = torch::cat({module.words.grad().flatten(), module.output.grad().flatten()});

  const auto found = objective().gradient(theta.data(), nullptr, micro_batches);
  EXPECT_NEAR(found.loss_sum, loss.item<double>(), 1e-5);
  std::vector<float> flat;
  for (const auto& segment : found.segments) flat.insert(flat.end(), segment.data, segment.data + segment.size);
  ASSERT_EQ(std::ssize(flat), expected.numel());
  for (std::int64_t i = 0; i < expected.numel(); ++i)
    EXPECT_NEAR(flat[static_cast<std::size_t>(i)], expected[i].item<double>(), 1e-5) << i;
}

TEST_F(TokenLabels, TheAccuracyIsOverThoseThatAreAskedFor) {
  const auto theta = some_parameters();
  const Module module(theta);
  double loss = 0;
  std::int64_t correct = 0, asked = 0;
  for (std::int64_t row = 0; row < test; ++row) {
    const torch::Tensor logits = module.logits(test_rows.tokens(row)), answers = test_rows.answers(row);
    for (std::int64_t place = 0; place < length; ++place) {
      const auto answer = answers[place].item<std::int64_t>();
      if (answer == -100) continue;
      ++asked;
      correct += logits[place].argmax().item<std::int64_t>() == answer;
      loss -= torch::log_softmax(logits[place], 0)[answer].item<double>();
    }
  }
  ASSERT_GT(correct, 0);
  const auto found = objective().evaluate(theta.data(), nullptr, Split::test, 0, test);
  EXPECT_EQ(found.samples, asked);
  EXPECT_EQ(found.correct, correct);
  EXPECT_NEAR(found.loss, loss, 1e-4);
}

// Sequences that are cut to their first token, which has no label.
TEST_F(TokenLabels, AMicroBatchThatIsAskedForNothingMovesNothing) {
  const auto theta = some_parameters();
  const auto found = objective(1).gradient(theta.data(), nullptr, micro_batches);
  EXPECT_EQ(found.loss_sum, 0);
  for (const auto& segment : found.segments)
    EXPECT_THAT(std::vector(segment.data, segment.data + segment.size), testing::Each(0.0f));
}

}  // namespace
}  // namespace syncopate
