// Training that times padded micro-batches. The longest text replaces each text of a micro-batch, but the model
// predicts only tokens within the replaced text's length. It predicts no tokens of the padding.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/workers/random_texts.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "workers/data/partition.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/batch.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

using Kind = TextTask::Kind;

constexpr std::int64_t vocabulary = 23, classes = 4, longest = 12;
const std::shared_ptr<const Dataset> texts = random_texts(vocabulary, classes, 3, longest, 200, 50);

std::vector<std::int64_t> elements(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.data_ptr<std::int64_t>(), whole.data_ptr<std::int64_t>() + whole.numel()};
}

TEST(PaddedTiming, AsksForTheNextTokensOfEachTextsOwnLength) {
  const Network network =
      text_transformer_network(texts->size().shape, classes,
                               {.task = {.kind = Kind::causal_lm}, .width = 4, .depth = 1, .heads = 2, .mlp_width = 3});
  SamplerOptions sampling{.samples = 200, .workers = 2, .micro_batches = 3, .micro_batch_size = 5, .seed = 9};
  sampling.lengths = std::make_shared<const std::vector<std::int32_t>>(training_lengths(*texts));
  const Sampler own(sampling);
  sampling.repeats_longest = true;
  const TorchObjective timed(network, texts, sampling, 32);
  const auto theta = timed.initial_parameters(1);
  for (const MicroBatch& one : {MicroBatch{Rank{0}, 0, 0}, {Rank{1}, 3, 2}}) {
    std::vector<std::uint32_t> samples;
    own.append_samples(one, samples);
    const auto length = [&](std::uint32_t sample) { return sample_tokens(*texts, Split::train, sample).size(); };
    const auto whole = sample_tokens(*texts, Split::train, std::ranges::max(samples, {}, length));
    // Texts cut to their own lengths have the same tokens to predict. Later tokens do not change an earlier place's
    // output.
    TokenSequences cut;
    double targets = 0;
    for (const std::uint32_t sample : samples) {
      cut.add(whole.first(length(sample)), 0);
      targets += static_cast<double>(length(sample)) - 1;
    }
    ASSERT_LT(targets, 5 * (static_cast<double>(whole.size()) - 1));
    DatasetSize size = texts->size();
    size.train = size.test = cut.count();
    const TorchObjective beside(network, make_token_dataset(size, cut, cut),
                                {.samples = 5, .workers = 1, .micro_batches = 1, .micro_batch_size = 5}, 32);
    const auto expected = beside.evaluate(theta.data(), nullptr, Split::test, 0, 5);
    EXPECT_EQ(static_cast<double>(expected.samples), targets);
    EXPECT_NEAR(timed.gradient(theta.data(), nullptr, {&one, 1}).loss_sum, expected.loss / targets, 1e-5);
  }
}

TEST(PaddedTiming, HidesNoPadding) {
  const TextTask task{.kind = Kind::masked_lm, .masking = {.share = 0.4}};
  for (std::uint32_t sample = 0; sample < 200; ++sample) {
    const auto tokens = sample_tokens(*texts, Split::train, sample);
    for (std::int32_t own = 2; own <= std::ssize(tokens); ++own) {
      const SampleBatch batch = ask(*texts, Split::train, {{.sample = sample, .asked = own}}, task, 3);
      const auto& sequences = std::get<SequenceBatch>(batch.inputs);
      const auto shown = elements(sequences.tokens), asked = elements(sequences.asked);
      ASSERT_EQ(shown.size(), tokens.size());
      EXPECT_TRUE(std::equal(shown.begin() + own, shown.end(), tokens.begin() + own));
      EXPECT_THAT(asked, testing::Each(testing::Lt(own)));
      // The first token is never hidden. The last token of a text is not hidden either if the text has its full length.
      const auto hideable = own == std::ssize(tokens) ? own - 2 : own - 1;
      const auto wanted = std::max<std::int64_t>(1, std::llround(0.4 * own));
      EXPECT_EQ(std::ssize(asked), std::min<std::int64_t>(wanted, hideable));
    }
  }
}

}  // namespace
}  // namespace syncopate
