#include "workers/data/dataset.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/workers/idx_files.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/images.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

struct Gathered {
  std::vector<float> inputs;
  std::vector<std::int64_t> labels;
};

Gathered gather(const Dataset& dataset, Split split, const std::vector<std::uint32_t>& samples) {
  Gathered result{std::vector<float>(samples.size() * static_cast<std::size_t>(dataset.size().shape.features())),
                  std::vector<std::int64_t>(samples.size())};
  dataset.gather(split, samples, result.inputs.data(), result.labels.data());
  return result;
}

std::vector<std::uint32_t> all_samples(const Dataset& dataset, Split split) {
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(dataset.size().samples(split)));
  std::iota(numbers.begin(), numbers.end(), 0u);
  return numbers;
}

class ImageDirectory : public IdxFiles {
 protected:
  // Two training images and one test image of 1 x 2 pixels.
  void SetUp() override {
    IdxFiles::SetUp();
    write("train-images-idx3-ubyte", idx_file({2, 1, 2}, {0, 2, 4, 6}));
    write("train-labels-idx1-ubyte", idx_file({2}, {9, 0}));
    write("t10k-images-idx3-ubyte", idx_file({1, 1, 2}, {3, 255}));
    write("t10k-labels-idx1-ubyte", idx_file({1}, {5}));
  }

  std::string fault() const {
    return message_of<DataFault>([&] { idx_images().load(directory_); });
  }
};

TEST_F(ImageDirectory, NormalisesByTheTrainingSetsPixels) {
  const auto dataset = idx_images().load(directory_);
  // Pixels 0, 2, 4, 6: mean 3, variance 5.
  const float unit = 1 / std::sqrt(5.0f);
  const auto train = gather(*dataset, Split::train, {1, 0});
  EXPECT_THAT(train.inputs, testing::Pointwise(testing::FloatNear(1e-6f), {unit, 3 * unit, -3 * unit, -unit}));
  EXPECT_THAT(train.labels, ElementsAre(0, 9));
  const auto test = gather(*dataset, Split::test, {0});
  EXPECT_NEAR(test.inputs[0], 0, 1e-6);
  EXPECT_NEAR(test.inputs[1], 252 * unit, 1e-4);
  EXPECT_THAT(test.labels, ElementsAre(5));
}

TEST_F(ImageDirectory, TakesEachFileWithOrWithoutGz) {
  std::filesystem::remove(directory_ / "train-images-idx3-ubyte");
  write_gzip("train-images-idx3-ubyte.gz", idx_file({2, 1, 2}, {0, 2, 4, 6}));
  EXPECT_EQ(idx_images().load(directory_)->size().train, 2);
}

TEST_F(ImageDirectory, SizesAreKnownFromTheHeadersAlone) {
  write("train-images-idx3-ubyte", idx_header(0x08, {2, 1, 2}));  // no pixels
  const auto size = idx_images().size(directory_);
  EXPECT_EQ(size.train, 2);
  EXPECT_EQ(size.test, 1);
  EXPECT_EQ(size.shape, (SampleShape{.channels = 1, .height = 1, .width = 2}));
  EXPECT_EQ(size.classes, 10);
}

TEST_F(ImageDirectory, AMissingFileIsNamedWithBothOfItsNames) {
  std::filesystem::remove(directory_ / "t10k-labels-idx1-ubyte");
  EXPECT_THAT(fault(), AllOf(HasSubstr(directory_.string()), HasSubstr("t10k-labels-idx1-ubyte or"),
                             HasSubstr("t10k-labels-idx1-ubyte.gz")));
}

TEST_F(ImageDirectory, APipeIsRefusedAndNotWaitedFor) {
  std::filesystem::remove(directory_ / "t10k-labels-idx1-ubyte");
  ASSERT_EQ(mkfifo((directory_ / "t10k-labels-idx1-ubyte").c_str(), 0600), 0);
  EXPECT_THAT(fault(), AllOf(HasSubstr("t10k-labels-idx1-ubyte"), HasSubstr("is not a regular file")));
}

TEST_F(ImageDirectory, AMissingDirectoryIsNamed) {
  std::filesystem::remove_all(directory_);
  EXPECT_THAT(fault(), AllOf(HasSubstr(directory_.string()), HasSubstr("no such directory")));
}

TEST_F(ImageDirectory, AsManyLabelsAsImages) {
  write("train-labels-idx1-ubyte", idx_file({3}, {1, 2, 3}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("train-labels"), HasSubstr("3 labels for 2 images")));
  write("train-labels-idx1-ubyte", idx_file({2}, {1, 2}));
  write("t10k-labels-idx1-ubyte", idx_file({2}, {1, 2}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("t10k-labels"), HasSubstr("2 labels for 1 images")));
}

TEST_F(ImageDirectory, LabelsMustBeClasses) {
  write("train-labels-idx1-ubyte", idx_file({2}, {3, 10}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("train-labels"), HasSubstr("label 1 = 10"), HasSubstr("0 .. 9")));
  write("train-labels-idx1-ubyte", idx_file({2}, {3, 9}));
  write("t10k-labels-idx1-ubyte", idx_file({1}, {255}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("t10k-labels"), HasSubstr("label 0 = 255")));
}

TEST_F(ImageDirectory, TestImagesMustHaveTheTrainingImagesSize) {
  write("t10k-images-idx3-ubyte", idx_file({1, 2, 2}, {1, 2, 3, 4}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("t10k-images"), HasSubstr("2 x 2"), HasSubstr("1 x 2")));
  write("t10k-images-idx3-ubyte", idx_file({1, 1, 3}, {1, 2, 3}));
  EXPECT_THAT(fault(), AllOf(HasSubstr("t10k-images"), HasSubstr("1 x 3"), HasSubstr("1 x 2")));
}

TEST_F(ImageDirectory, ImagesOfOneColourHaveNoDeviationToDivideBy) {
  write("train-images-idx3-ubyte", idx_file({2, 1, 2}, {4, 4, 4, 4}));
  EXPECT_THAT(gather(*idx_images().load(directory_), Split::train, {0, 1}).inputs, Each(0.0f));
}

TEST_F(ImageDirectory, OfFashionMnistIsFirstSoughtWhereTheEnvironmentSays) {
  const auto usual = idx_images().usual();
  const char* const set_before = std::getenv("SYNCOPATE_DATA");
  const std::string before = set_before ? set_before : "";
  ::setenv("SYNCOPATE_DATA", directory_.c_str(), 1);
  if (!set_before) {
    EXPECT_EQ(idx_images().usual(), usual);  // a folder that does not exist is ignored
  }
  std::filesystem::create_directory(directory_ / "fashion-mnist");
  EXPECT_EQ(idx_images().usual(), directory_ / "fashion-mnist");
  set_before ? ::setenv("SYNCOPATE_DATA", before.c_str(), 1) : ::unsetenv("SYNCOPATE_DATA");
  EXPECT_EQ(idx_images().usual(), usual);
}

TEST(FashionMnist, LoadsWith60000And10000ImagesOf28x28) {
  const auto dataset = idx_images().load(idx_images().usual());
  EXPECT_EQ(dataset->size().train, 60000);
  EXPECT_EQ(dataset->size().test, 10000);
  EXPECT_EQ(dataset->size().shape, (SampleShape{.channels = 1, .height = 28, .width = 28}));

  const auto train = gather(*dataset, Split::train, all_samples(*dataset, Split::train));
  double sum = 0;
  double square = 0;
  for (const float x : train.inputs) {
    sum += x;
    square += static_cast<double>(x) * x;
  }
  const auto n = static_cast<double>(train.inputs.size());
  EXPECT_NEAR(sum / n, 0, 1e-5);
  EXPECT_NEAR(square / n, 1, 1e-5);
  // All classes have equally many images.
  std::vector<int> count(10);
  for (const auto label : train.labels) ++count[static_cast<std::size_t>(label)];
  EXPECT_THAT(count, Each(6000));
}

constexpr GaussianMixtureOptions two_classes{
    .classes = 2, .dimension = 8, .train = 20000, .test = 20000, .separation = 1.5};

std::vector<std::vector<double>> class_means(const Gathered& data, std::size_t classes, std::size_t dimension) {
  std::vector<std::vector<double>> means(classes, std::vector<double>(dimension));
  const double per_class = static_cast<double>(data.labels.size()) / static_cast<double>(classes);
  for (std::size_t i = 0; i < data.labels.size(); ++i)
    for (std::size_t d = 0; d < dimension; ++d)
      means[static_cast<std::size_t>(data.labels[i])][d] += data.inputs[i * dimension + d] / per_class;
  return means;
}

TEST(GaussianMixture, ClassesHaveUnitDeviationAroundCentresAtTheSeparation) {
  const auto dataset = make_gaussian_mixture(two_classes, 1);
  const auto data = gather(*dataset, Split::train, all_samples(*dataset, Split::train));
  for (const auto& mean : class_means(data, 2, 8)) {
    double square = 0;
    for (const double x : mean) square += x * x;
    EXPECT_NEAR(std::sqrt(square), 1.5, 0.05);  // standard error of each coordinate: 0.01
  }
  const auto means = class_means(data, 2, 8);
  double variance = 0;
  for (std::size_t i = 0; i < data.labels.size(); ++i)
    for (std::size_t d = 0; d < 8; ++d)
      variance += std::pow(data.inputs[i * 8 + d] - means[static_cast<std::size_t>(data.labels[i])][d], 2) / 160000;
  EXPECT_NEAR(variance, 1, 0.02);  // standard error 0.0035
}

// For two Gaussians at distance D, the nearer centre is the right one with probability Phi(D / 2).
TEST(GaussianMixture, NearestCentreReachesTheBayesAccuracy) {
  const auto dataset = make_gaussian_mixture(two_classes, 1);
  const auto means = class_means(gather(*dataset, Split::train, all_samples(*dataset, Split::train)), 2, 8);
  double distance = 0;
  for (std::size_t d = 0; d < 8; ++d) distance += std::pow(means[0][d] - means[1][d], 2);
  distance = std::sqrt(distance);

  const auto test = gather(*dataset, Split::test, all_samples(*dataset, Split::test));
  int correct = 0;
  for (std::size_t i = 0; i < test.labels.size(); ++i) {
    double nearer = 0;  // squared distance to centre 0 minus that to centre 1
    for (std::size_t d = 0; d < 8; ++d) {
      const double x = test.inputs[i * 8 + d];
      nearer += std::pow(x - means[0][d], 2) - std::pow(x - means[1][d], 2);
    }
    correct += (nearer > 0 ? 1 : 0) == test.labels[i];
  }
  const double bayes = cdf(boost::math::normal(), distance / 2);
  EXPECT_NEAR(correct / 20000.0, bayes, 0.012);  // standard error at most 0.0035
}

TEST(GaussianMixture, IsAPureFunctionOfTheSeed) {
  auto fewer = two_classes;
  fewer.train = 10;
  const std::vector<std::uint32_t> samples = {0, 3, 9};
  const auto first = gather(*make_gaussian_mixture(two_classes, 1), Split::train, samples);
  EXPECT_EQ(first.inputs, gather(*make_gaussian_mixture(fewer, 1), Split::train, samples).inputs);
  EXPECT_NE(first.inputs, gather(*make_gaussian_mixture(two_classes, 2), Split::train, samples).inputs);
  EXPECT_NE(first.inputs, gather(*make_gaussian_mixture(two_classes, 1), Split::test, samples).inputs);
  // Both splits have the requested sizes.
  fewer.test = 25;
  const auto small = make_gaussian_mixture(fewer, 1);
  EXPECT_EQ(small->size().train, 10);
  EXPECT_EQ(small->size().test, 25);
  EXPECT_EQ(gather(*small, Split::test, {24, 11}).inputs,
            gather(*make_gaussian_mixture(two_classes, 1), Split::test, {24, 11}).inputs);
}

// Samples held out of the training set: their number, their choice, and that everything else works without them.

// The only feature is the sample's number, plus 1000 in the test set.
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
