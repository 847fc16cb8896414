// Samples held out of the training set: how many, which, and that everything else goes on without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/data/datasets.hpp"

namespace syncopate {
namespace {

// The only feature is the sample's number, and 1000 more in the test set.
class Numbered : public Dataset {
 public:
  explicit Numbered(std::int64_t train) : size_{.train = train, .test = 5, .shape = {}, .classes = 10} {}
  const DatasetSize& size() const override { return size_; }
  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    EXPECT_NE(split, Split::validation) << "there is none in here";
    for (std::size_t i = 0; i < samples.size(); ++i) {
      inputs[i] = static_cast<float>(samples[i]) + (split == Split::test ? 1000.0f : 0.0f);
      labels[i] = samples[i] % 10;
    }
  }

 private:
  DatasetSize size_;
};

std::vector<float> all_of(const Dataset& dataset, Split split) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(dataset.size().samples(split)));
  std::iota(numbers.begin(), numbers.end(), 0u);
  std::vector<float> inputs(numbers.size());
  std::vector<std::int64_t> labels(numbers.size());
  dataset.gather(split, numbers, inputs.data(), labels.data());
  for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_EQ(labels[i], static_cast<std::int64_t>(inputs[i]) % 10);
  return inputs;
}

TEST(Validation, EverySampleIsTrainedOnOrHeldOut) {
  for (const std::int64_t held : {1, 30, 99}) {
    const auto dataset = with_validation(std::make_shared<Numbered>(100), {.samples = held});
    EXPECT_EQ(dataset->size().train, 100 - held);
    EXPECT_EQ(dataset->size().validation, held);
    EXPECT_EQ(dataset->size().test, 5);
    auto all = all_of(*dataset, Split::train);
    const auto validation = all_of(*dataset, Split::validation);
    all.insert(all.end(), validation.begin(), validation.end());
    std::ranges::sort(all);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(all_of(*dataset, Split::test), (std::vector<float>{1000, 1001, 1002, 1003, 1004}));
  }
}

TEST(Validation, ASubsetIsOfWhatIsNotHeldOutAndASmallerOneIsInIt) {
  const ValidationOptions options{.samples = 20, .subset = 30, .seed = 2};
  const auto dataset = with_validation(std::make_shared<Numbered>(100), options);
  EXPECT_EQ(dataset->size().train, 30);
  EXPECT_EQ(dataset->size().validation, 20);
  const auto train = all_of(*dataset, Split::train);
  EXPECT_TRUE(std::ranges::is_sorted(train));
  EXPECT_EQ(std::set(train.begin(), train.end()).size(), 30u);
  for (const float one : all_of(*dataset, Split::validation)) EXPECT_EQ(std::ranges::count(train, one), 0);
  const auto smaller =
      all_of(*with_validation(std::make_shared<Numbered>(100), {.samples = 20, .subset = 10, .seed = 2}), Split::train);
  EXPECT_TRUE(std::ranges::includes(train, smaller));
}

TEST(Validation, TheSeedSaysWhichSamplesAndAnyIsAsLikely) {
  const auto of = [](std::uint64_t seed) {
    return all_of(*with_validation(std::make_shared<Numbered>(40), {.samples = 10, .seed = seed}), Split::validation);
  };
  EXPECT_EQ(of(3), of(3));
  EXPECT_NE(of(3), of(4));
  std::vector<int> held(40);
  for (std::uint64_t seed = 0; seed < 2000; ++seed)
    for (const float number : of(seed)) ++held[static_cast<std::size_t>(number)];
  for (const int count : held) EXPECT_NEAR(count, 500, 5 * 19.4);  // deviation sqrt(2000 x 1/4 x 3/4)
}

TEST(Validation, TrainingNeverMeetsWhatIsHeldOut) {
  const auto dataset = with_validation(std::make_shared<Numbered>(50), {.samples = 20, .seed = 1});
  const auto validation = all_of(*dataset, Split::validation);
  std::vector<std::uint32_t> samples(30);
  std::iota(samples.begin(), samples.end(), 0u);
  const std::vector<std::int64_t> epochs(30, 2);
  std::vector<float> inputs(30);
  std::vector<std::int64_t> labels(30);
  dataset->gather_training({.seed = 1, .samples = samples, .epochs = epochs}, inputs.data(), labels.data());
  EXPECT_EQ(inputs, all_of(*dataset, Split::train));
  for (const float one : validation) EXPECT_EQ(std::ranges::count(inputs, one), 0);
}

}  // namespace
}  // namespace syncopate
