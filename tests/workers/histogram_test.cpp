#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/workers/delay_files.hpp"
#include "workers/time/distributions.hpp"
#include "workers/time/trace.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using HistogramFiles = DelayFiles;

const std::string header = "bin_left_s,bin_right_s,density\n";

// Mass 1/4 uniform on [1, 2), none up to 3, 3/4 uniform on [3, 6).
const std::string gap = header + "1,2,0.5\n2,2.5,0\n3,6,0.5\n";

TEST(Histogram, QuantilesAreThoseOfUniformBins) {
  const Histogram histogram("gap", gap);
  for (const auto& [u, x] : {std::pair{0.0625, 1.25}, {0.125, 1.5}, {0.25, 3.0}, {0.5, 4.0}, {0.75, 5.0}})
    EXPECT_DOUBLE_EQ(histogram.quantile(u), x) << u;
  EXPECT_NEAR(histogram.quantile(0x1p-53), 1, 1e-12);
  EXPECT_NEAR(histogram.quantile(1 - 0x1p-53), 6, 1e-12);
  // Mean 1/4 x 1.5 + 3/4 x 4.5; E[X^2] = 1/4 (1 + 2 + 4) / 3 + 3/4 (9 + 18 + 36) / 3.
  EXPECT_DOUBLE_EQ(histogram.mean_s(), 3.75);
  EXPECT_NEAR(histogram.variance_s2(), 7.0 / 12 + 63.0 / 4 - 3.75 * 3.75, 1e-12);
  EXPECT_EQ(histogram.minimum_s(), 1);
}

TEST(Histogram, FilesOfTheProjectHaveTheMomentsOfTheirSource) {
  // As many digits as the source gives; its standard deviations are those of the bins' centres.
  for (const auto& [name, mean, digit, deviation, bin_s] : {std::tuple{"dropcompute-160", 34.37, 0.01, 1.679, 0.16197},
                                                            {"dropcompute-192", 8.142, 0.001, 0.424, 0.01877}}) {
    const auto& files = embedded_histograms();
    const auto file = std::ranges::find(files, name, &EmbeddedFile::name);
    ASSERT_NE(file, files.end());
    std::ifstream source(std::string(SYNCOPATE_SOURCE_DIR "/workers/time/data/") + name + ".csv");
    std::ostringstream text;
    text << source.rdbuf();
    EXPECT_EQ(file->content, text.str()) << "the program holds what stands in the source";
    const Histogram histogram(name, file->content);
    EXPECT_NEAR(histogram.mean_s(), mean, 0.51 * digit) << name;
    EXPECT_NEAR(std::sqrt(histogram.variance_s2() - bin_s * bin_s / 12), deviation, 0.00051) << name;
  }
}

// Mean and variance within four standard errors, and Kolmogorov-Smirnov at 0.001, against the distribution function
// that follows from the rows of the file: piecewise linear.
TEST(Histogram, DrawsFollowTheFile) {
  constexpr std::size_t n = 50'000;
  for (const EmbeddedFile& file : embedded_histograms()) {
    const auto histogram = std::make_shared<const Histogram>(std::string(file.name), file.content);
    std::vector<std::array<double, 3>> bins;
    double mass = 0;
    CsvRows rows("file", file.content, {"bin_left_s", "bin_right_s", "density"});
    while (rows.next()) {
      bins.push_back({rows.number(0), rows.number(1), rows.number(2)});
      mass += (bins.back()[1] - bins.back()[0]) * bins.back()[2];
    }
    std::vector<double> sample = added(*histogram_delay(histogram, 0.5, -3), 1, 2, n);
    double mean = 0, second = 0, fourth = 0, distance = 0, cumulative = 0;
    const double expected_mean = 0.5 * histogram->mean_s() - 3, expected_variance = histogram->variance_s2() / 4;
    for (const double x : sample) {
      const double square = (x - expected_mean) * (x - expected_mean);
      mean += x / n, second += square / n, fourth += square * square / n;
    }
    EXPECT_NEAR(mean, expected_mean, 4 * std::sqrt(expected_variance / n)) << file.name;
    EXPECT_NEAR(second, expected_variance, 4 * std::sqrt((fourth - second * second) / n)) << file.name;
    std::ranges::sort(sample);
    std::size_t bin = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double x = 2 * (sample[i] + 3);
      for (; bin + 1 < bins.size() && bins[bin][1] <= x; ++bin)
        cumulative += (bins[bin][1] - bins[bin][0]) * bins[bin][2] / mass;
      const double below = cumulative + (x - bins[bin][0]) * bins[bin][2] / mass;
      distance = std::max(distance, std::abs((static_cast<double>(i) + 0.5) / n - below));
    }
    EXPECT_LT(distance * std::sqrt(n), 1.9495) << file.name;
  }
}

TEST_F(HistogramFiles, AreFoundBesideTheExperimentScaledAndShifted) {
  write("gap.csv", gap);
  write_compressed("gap.csv.gz", gap);
  const auto plain = read("kind = \"histogram\"\nfile = \"gap.csv\"");
  EXPECT_EQ(plain.faults, "");
  EXPECT_DOUBLE_EQ(plain.delay->mean_s(), 3.75);
  EXPECT_EQ(added(*plain.delay, 1, 2, 50), added(*read("kind = \"histogram\"\nfile = \"gap.csv.gz\"").delay, 1, 2, 50));
  const auto absolute =
      read("kind = \"histogram\"\nscale = 2\nshift = -100\nunit = \"micro_batch\"\nfile = \"" + path("gap.csv") + "\"");
  EXPECT_EQ(absolute.faults, "");
  EXPECT_DOUBLE_EQ(absolute.delay->mean_s(), 2 * 3.75 - 100 * 0.010);
  EXPECT_DOUBLE_EQ(absolute.delay->variance_s2(), 4 * plain.delay->variance_s2());
  EXPECT_DOUBLE_EQ(absolute.delay->minimum_s(), 1);
  EXPECT_NEAR(read("kind = \"histogram\"\ndata = \"dropcompute-192\"").delay->mean_s(), 8.142, 0.006);
}

// As spreadsheets write them.
TEST_F(HistogramFiles, MayHaveAByteOrderMarkOtherLineEndsAndFurtherColumns) {
  write("marked.csv", "\xef\xbb\xbf bin_right_s , note, bin_left_s,density\r\n2,first,1,0.5\r\n\r\n4,,3,0.25\r\n");
  write("plain.csv", "bin_left_s,bin_right_s,density\n1,2,0.5\n3,4,0.25");
  const auto marked = read("kind = \"histogram\"\nfile = \"marked.csv\"");
  EXPECT_EQ(marked.faults, "");
  EXPECT_EQ(added(*marked.delay, 1, 2, 50), added(*read("kind = \"histogram\"\nfile = \"plain.csv\"").delay, 1, 2, 50));
}

// The content is part of the configuration, so that a changed file makes another run.
TEST_F(HistogramFiles, ContentIsPartOfTheConfiguration) {
  write("gap.csv", gap);
  const std::string entry = "kind = \"histogram\"\nfile = \"gap.csv\"\n";
  const auto before = read(entry);
  EXPECT_THAT(before.resolved, HasSubstr("file_hash = \""));
  EXPECT_EQ(read(before.resolved).resolved, before.resolved);
  write("gap.csv", gap + "7,8,0.1\n");
  EXPECT_NE(read(entry).resolved, before.resolved);
  EXPECT_THAT(read(before.resolved).faults, HasSubstr("file_hash"));
}

TEST_F(HistogramFiles, FaultsNameFileAndLine) {
  const auto faults = [&](const std::string& rows) {
    write("bad.csv", rows);
    const Read bad = read("kind = \"histogram\"\nfile = \"bad.csv\"");
    EXPECT_NE(bad.delay, nullptr);
    EXPECT_THAT(bad.faults, HasSubstr("experiment.toml:2:"));
    return bad.faults;
  };
  EXPECT_THAT(faults(header + "1,2,0.5\n2,3,-0.1\n"), HasSubstr("bad.csv:3: density = -0.1"));
  EXPECT_THAT(faults(header + "2,3,0.5\n1,2,0.1\n"), HasSubstr("bad.csv:3: bin_left_s = 1"));
  EXPECT_THAT(faults(header + "1,2,0.5\n1.5,3,0.1\n"), HasSubstr("bad.csv:3: bin_left_s = 1.5"));
  EXPECT_THAT(faults(header + "1,2,0.5\n\n3,3,0.1\n"), HasSubstr("bad.csv:4: bin_right_s = 3"));
  EXPECT_THAT(faults(header + "1,2,0\n2,3,0\n"), AllOf(HasSubstr("bad.csv:3"), HasSubstr("empty")));
  EXPECT_THAT(faults(header), AllOf(HasSubstr("bad.csv:1"), HasSubstr("empty")));
  EXPECT_THAT(faults(header + "1,1000000001,0.5\n"), HasSubstr("bad.csv:2: bin_right_s = 1000000001; must be at most"));
  EXPECT_THAT(faults(header + "1,two,0.5\n"), HasSubstr("bad.csv:2: bin_right_s = two"));
  EXPECT_THAT(faults(header + "1,nan,0.5\n"), HasSubstr("bad.csv:2: bin_right_s = nan"));
  EXPECT_THAT(faults(header + "1,2\n"), HasSubstr("bad.csv:2: density = nothing"));
  EXPECT_THAT(faults("bin_left_s,density\n1,2\n"), HasSubstr("bad.csv:1: the column bin_right_s is missing"));
  EXPECT_THAT(faults(""), HasSubstr("bad.csv:1: the file is empty"));
  // All that is wrong comes at once, but not thousands of lines.
  EXPECT_THAT(faults(header + "1,2,-1\n2,x,nan\n3,3,1\n"),
              AllOf(HasSubstr("bad.csv:2: density = -1"), HasSubstr("bad.csv:3: bin_right_s = x"),
                    HasSubstr("bad.csv:3: density = nan"), HasSubstr("bad.csv:4: bin_right_s = 3")));
  EXPECT_THAT(faults("a;b\n1;2\n"),
              AllOf(HasSubstr("bin_left_s is missing; its header has semicolons between the columns"),
                    HasSubstr("density is")));
  std::string many = header;
  for (int i = 0; i < 100; ++i) many += "1,2,-1\n";
  EXPECT_THAT(faults(many), AllOf(HasSubstr("bad.csv:2:"), HasSubstr("bad.csv: and 179 more faults")));
  // A decimal comma makes more values than columns.
  EXPECT_THAT(faults(header + "1,5,2,5,0,5\n"), HasSubstr("bad.csv:2: there are 6 values for 3 columns"));
  EXPECT_THAT(faults("bin_left_s,bin_left_s,bin_right_s,density\n1,1,2,1\n"), HasSubstr("bin_left_s stands twice"));
  write_compressed("whole.csv.gz", gap);
  std::filesystem::resize_file(folder_ / "whole.csv.gz", 30);
  EXPECT_THAT(read("kind = \"histogram\"\nfile = \"whole.csv.gz\"").faults, HasSubstr("the file is truncated"));
  EXPECT_THAT(read("kind = \"histogram\"\nfile = \"none.csv\"").faults, HasSubstr("there is no file"));
  EXPECT_THAT(read("kind = \"histogram\"\nfile = \"/dev/null\"").faults, HasSubstr("/dev/null is a device or a pipe"));
  EXPECT_THAT(read("kind = \"histogram\"\nfile = \"/\"").faults, HasSubstr("/ is a directory; must be a file"));
  EXPECT_THAT(read("kind = \"histogram\"").faults, HasSubstr("must be given, or data"));
  EXPECT_THAT(read("kind = \"histogram\"\ndata = \"dropcompute-161\"").faults, HasSubstr("dropcompute-160"));
  EXPECT_THAT(read("kind = \"histogram\"\ndata = \"dropcompute-160\"\nfile = \"bad.csv\"").faults,
              HasSubstr("together with file"));
}

}  // namespace
}  // namespace syncopate
