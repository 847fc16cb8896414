#define XXH_INLINE_ALL

#include "workers/data/datasets.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>
#include <system_error>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"
#include "workers/data/images.hpp"
#include "workers/data/text_dataset.hpp"
#include "workers/data/token_stream.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;

std::int64_t nanoseconds(const timespec& time) { return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

FileState state_of(const fs::path& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0) reject(file, fmt::format("cannot be opened: {}", std::strerror(errno)));
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .bytes = static_cast<std::uint64_t>(status.st_size),
          .changed_ns = nanoseconds(status.st_mtim),
          .recorded_ns = nanoseconds(status.st_ctim)};
}

std::string digest_of(const fs::path& path) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_64bits_reset(state.get());
  OwnFile file(path);
  std::vector<char> piece(1 << 20);
  while (const std::size_t got = file.read(piece.data(), piece.size()))
    XXH3_64bits_update(state.get(), piece.data(), got);
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

using fs::path;

// Returns the data set; keeps the last one in memory, because the runs of an experiment use the same files. Throws
// DataFault if the files no longer have this hash.
std::shared_ptr<const Dataset> load_cached(const DirectoryFormat& format, const path& directory,
                                           const std::string& hash) {
  static std::mutex mutex;
  static std::string loaded_name;
  static std::shared_ptr<const Dataset> loaded;
  std::lock_guard lock(mutex);
  const std::string name = format.variant + hash;
  if (!loaded || loaded_name != name) {
    auto read = format.load(directory);
    if (format.hash(directory) != hash)
      reject(directory, "its files have changed since the experiment file was read; start the command again");
    loaded = std::move(read);
    loaded_name = name;
  }
  return loaded;
}

std::optional<DatasetPlan> plan_directory(Settings& table, const std::string& named, const DirectoryFormat& format) {
  const std::string& place = format.place;
  const std::string hash_key = place + "_hash";
  try {
    if (named.empty() && !format.usual) {
      table.fault(place, fmt::format("is required: this data set has no default {}", place));
      return {};
    }
    const path directory = named.empty()     ? format.usual()
                           : place == "file" ? table.file(place)
                                             : table.directory(place);
    if (directory.empty()) return {};
    const DatasetSize size = format.size(directory);
    const std::string hash = format.hash(directory);
    if (table.text(hash_key, hash) != hash)
      table.fault(hash_key,
                  fmt::format("must be the digest of {}, which is now {}; leave the key out to accept any contents",
                              directory.string(), hash));
    return DatasetPlan{.size = size, .load = [format, directory, hash, key = table.written(place)] {
                         try {
                           return load_cached(format, directory, hash);
                         } catch (const DataFault& problem) {
                           throw DataFault(fmt::format("{}; {}", key, problem.what()));
                         }
                       }};
  } catch (const KeyFault& problem) {
    table.fault(problem.key, problem.what());
  } catch (const std::runtime_error& problem) {  // a DataFault or an error of the file system
    table.fault(place, problem.what());
  }
  return {};
}

// Reads the keys `directory` and `directory_hash`, or `file` and `file_hash`. `sentence` describes the first of them.
DatasetPlanner read_directory(Settings& table, std::string_view sentence, DirectoryFormat format) {
  const auto directory = table.text({format.place, sentence}, "");
  const std::string hash_key = format.place + "_hash";
  const Key hash{hash_key, "Written by the program: digest of the files, which must not change.", "", "any contents"};
  static_cast<void>(table.has(hash));  // makes the key known, even if the files are not needed
  return [table, directory, format = std::move(format)](std::uint64_t) mutable {
    return plan_directory(table, directory, format);
  };
}

// Random streams of Purpose::synthetic_data; a stream's `step` is the class or the sample.
constexpr std::uint8_t centre_stream = 0;
constexpr std::uint8_t train_stream = 1;
constexpr std::uint8_t test_stream = 2;

// Draws the centres (classes, dimension); each row is a vector of length `separation`.
std::vector<double> draw_centres(const GaussianMixtureOptions& options, std::uint64_t seed) {
  const auto dimension = static_cast<std::size_t>(options.dimension);
  std::vector<double> centres(static_cast<std::size_t>(options.classes) * dimension);
  for (std::int64_t c = 0; c < options.classes; ++c) {
    throw_if_interrupted();
    const std::span<double> centre(centres.data() + static_cast<std::size_t>(c) * dimension, dimension);
    fill_standard_normal({.seed = seed, .purpose = Purpose::synthetic_data, .stream = centre_stream, .step = c}, 0,
                         centre);
    double square = 0;
    for (const double x : centre) square += x * x;
    for (double& x : centre) x *= options.separation / std::sqrt(square);
  }
  return centres;
}

SampleRows draw_samples(const GaussianMixtureOptions& options, std::uint64_t seed, std::span<const double> centres,
                        std::uint8_t stream, std::int64_t samples) {
  const auto dimension = static_cast<std::size_t>(options.dimension);
  const auto inputs = std::make_shared<std::vector<float>>(static_cast<std::size_t>(samples) * dimension);
  std::vector<std::int64_t> labels;
  std::vector<double> noise(dimension);
  for (std::int64_t i = 0; i < samples; ++i) {
    throw_if_interrupted();
    fill_standard_normal({.seed = seed, .purpose = Purpose::synthetic_data, .stream = stream, .step = i}, 0, noise);
    labels.push_back(i % options.classes);
    const double* centre = centres.data() + static_cast<std::size_t>(labels.back()) * dimension;
    float* row = inputs->data() + static_cast<std::size_t>(i) * dimension;
    for (std::size_t d = 0; d < dimension; ++d) row[d] = static_cast<float>(centre[d] + noise[d]);
  }
  return {.labels = std::move(labels), .floats = inputs->data(), .owner = inputs};
}

DatasetSize size_of(const GaussianMixtureOptions& options) {
  return {.train = options.train,
          .test = options.test,
          .shape = {.channels = 1, .height = 1, .width = options.dimension},
          .classes = options.classes};
}

DatasetPlanner read_images(Settings& table) {
  return read_directory(
      table, "A folder with four IDX files named like MNIST's; empty: the folder of Fashion-MNIST's package.",
      idx_images());
}

DatasetPlanner read_cifar(Settings& table, CifarLabels labels, const std::string& unpacked, CifarScale usual_scale) {
  const CifarScale scale = table.choice(
      {"scale", "Channel means and deviations: published constants for CIFAR-10, or measured on the training set."},
      {{"published", CifarScale::published}, {"measured", CifarScale::measured}}, usual_scale);
  const CifarRecords records =
      table.optional_flag({"complete", "Whether the files must have all published records; left out: they must."})
              .value_or(true)
          ? CifarRecords::all
          : CifarRecords::any;
  const std::string sentence =
      fmt::format("A folder with the files of the binary version; empty: the folder {} in $SYNCOPATE_DATA.", unpacked);
  DirectoryFormat format = cifar(labels, scale, records);
  format.usual = [unpacked] {
    return found_directory(unpacked, "datasets/" + unpacked, "set `directory` to the folder with the binary version");
  };
  return read_directory(table, sentence, std::move(format));
}

DatasetPlanner read_cifar_10(Settings& table) {
  return read_cifar(table, CifarLabels::ten, "cifar-10-batches-bin", CifarScale::published);
}

DatasetPlanner read_cifar_100(Settings& table) {
  const CifarLabels labels =
      table.choice({"labels", "Whether the classes are the 100 fine labels or the 20 coarse ones."},
                   {{"fine", CifarLabels::hundred}, {"coarse", CifarLabels::twenty}}, CifarLabels::hundred);
  return read_cifar(table, labels, "cifar-100-binary", CifarScale::measured);
}

DatasetPlanner read_npy(Settings& table) {
  constexpr std::int64_t none = -1, last = largest_token;
  TokenMarks marks;
  marks.padding = static_cast<std::int32_t>(table.integer(
      {"padding", "Token that pads a row after the end of its sequence; -1: no row is padded."}, none, last, none));
  marks.mask = static_cast<std::int32_t>(table.integer(
      {"mask", "Token that replaces those which a masked language model must predict; -1: none."}, none, last, none));
  const auto never_masked =
      table.integers({"never_masked", "Tokens that a masked language model never has to predict."}, 0, last,
                     std::vector<std::int64_t>{});
  marks.never_masked.assign(never_masked.begin(), never_masked.end());
  return read_directory(table, "A folder with x_train.npy, y_train.npy, x_test.npy and y_test.npy; required.",
                        npy_arrays(marks));
}

DatasetPlanner read_texts(Settings& table, std::string_view sentence, const TextSource& source) {
  const TextOptions fallback;
  const TextOptions options = {
      .test_share =
          table.number({"test_share", "Share of the texts that form the test set; a hash of each text decides."},
                       {.low = 0, .high = 1, .low_open = true, .high_open = true}, fallback.test_share),
      .words = table.integer({"words", "Maximum number of words in the vocabulary, which has the most frequent words."},
                             1, 1 << 24, fallback.words),
      .least = table.integer({"least", "How often a word must occur in the training texts to be in the vocabulary."}, 1,
                             1 << 24, fallback.least)};
  return read_directory(table, sentence, text_dataset(source, options));
}

DatasetPlanner read_lines(Settings& table) {
  const bool labelled = table.flag({"labelled", "Whether each line begins with a label and a tab."}, false);
  return read_texts(table, "A UTF-8 text file with one sequence per line; required.", text_lines(labelled));
}

DatasetPlanner read_glosses(Settings& table) {
  return read_texts(table, "A folder with WordNet's data.noun, .verb, .adj and .adv; empty: the folder of its package.",
                    wordnet_glosses());
}

DatasetPlanner read_tokens(Settings& table) {
  using Type = std::optional<TokenType>;
  TokenStreamOptions options;
  options.train = table.text({"train", "Pattern of the training files' names in the folder, with *, ?, [a-z], {a,b}."},
                             options.train);
  options.test = table.text({"test", "Pattern of the test files' names."}, options.test);
  options.type = table.choice<Type>(
      {"format",
       "Type of a file's tokens (uint8: each byte is one). auto: by llm.c's header; uint16 without a header."},
      {{"auto", std::nullopt},
       {"uint8", TokenType::uint8},
       {"uint16", TokenType::uint16},
       {"uint32", TokenType::uint32}},
      options.type);
  options.context = table.integer(
      {"context", "Tokens of a window that a model sees; the token after them is only a target.", "tokens"}, 1, 1 << 20,
      options.context);
  const std::size_t faults = table.faults_so_far();
  options.vocabulary = table.optional_integer(
      {"vocabulary", "Number of tokens that models know; each token in the files must be smaller.", "",
       "the largest token in the files + 1"},
      2, std::int64_t{largest_token} + 1);
  if (table.faults_so_far() > faults) options.vocabulary.reset();  // the files are not compared with a wrong number
  options.random =
      table.choice({"windows", "Whether an epoch visits each window once, or windows at random positions (nanoGPT)."},
                   {{"disjoint", false}, {"random", true}}, options.random);
  options.test_windows = table.optional_integer(
      {"test_windows", "Evaluate only the first windows of the test files.", "samples", "all windows"}, 1,
      std::numeric_limits<std::uint32_t>::max());
  return read_directory(table, "A folder with token files of nanoGPT, llm.c or `syncopate data tokens`; required.",
                        token_stream(options));
}

DatasetPlanner read_mixture(Settings& table) {
  constexpr std::int64_t most = 1 << 24;
  constexpr std::int64_t largest_width = 1 << 16;
  const GaussianMixtureOptions fallback;
  const GaussianMixtureOptions options = {
      .classes = table.integer({"classes", "Number of classes."}, 2, largest_width, fallback.classes),
      .dimension = table.integer({"dimension", "Number of features."}, 1, largest_width, fallback.dimension),
      .train = table.integer({"train", "Training samples.", "samples"}, 1, most, fallback.train),
      .test = table.integer({"test", "Test samples.", "samples"}, 1, most, fallback.test),
      .separation = table.number(
          {"separation", "Distance of the classes' centres from the origin, in standard deviations of a class."},
          Range::at_least(0), fallback.separation)};
  return [options](std::uint64_t seed) {
    return DatasetPlan{.size = size_of(options),
                       .load = [options, seed] { return make_gaussian_mixture(options, seed); }};
  };
}

constexpr DatasetRow rows[] = {
    {"fashion-mnist",
     "60,000 + 10,000 images of 28 x 28 in 10 classes, or any directory with four IDX files named like MNIST's",
     "Images", read_images, true},
    {"cifar-10", "60,000 colour images of 32 x 32 in 10 classes, read from CIFAR's binary files", "Images",
     read_cifar_10, true},
    {"cifar-100", "60,000 colour images of 32 x 32 in 100 classes or in 20 coarse classes", "Images", read_cifar_100,
     true},
    {"npy", "your own data set in NumPy arrays: vectors, images or tokens, with classes or numbers as labels", "Arrays",
     read_npy, true},
    {"text-lines", "your own text file, with one sequence of words per line, with or without labels", "Lines",
     read_lines, true},
    {"wordnet-glosses", "WordNet's 117,659 definitions in 45 categories: real texts of natural lengths", "Definitions",
     read_glosses, true},
    {"tokens", "your own stream of tokens in binary files of nanoGPT or llm.c, in windows of equal length",
     "Token streams", read_tokens},
    {"gaussian-mixture", "classes as Gaussians around random centres, generated from the seed", "Generated classes",
     read_mixture, true},
};

using Numbers = std::vector<std::uint32_t>;

class DividedDataset : public Dataset {
 public:
  DividedDataset(std::shared_ptr<const Dataset> inner, const ValidationOptions& options)
      : inner_(std::move(inner)), size_(inner_->size()) {
    const std::int64_t all = size_.train, others = all - options.samples;
    assert(options.samples >= 0 && others > 0);
    assert(!options.subset || (*options.subset > 0 && *options.subset <= others));
    size_.train = options.subset.value_or(others);
    size_.validation = options.samples;
    const RandomStream stream{.seed = options.seed, .purpose = Purpose::validation};
    const Numbers order = permutation(stream, static_cast<std::size_t>(all));
    const auto end = order.begin() + options.samples;
    validation_.assign(order.begin(), end);
    train_.assign(end, end + size_.train);
    std::ranges::sort(validation_);
    std::ranges::sort(train_);
  }

  const DatasetSize& size() const override { return size_; }
  StoredImage stored_image(std::uint32_t sample) const override { return inner_->stored_image(train_[sample]); }
  std::span<const PixelScale> pixel_scales() const override { return inner_->pixel_scales(); }

  std::span<const std::int32_t> tokens(Split split, std::uint32_t sample, const Visit& visit,
                                       std::vector<std::int32_t>& space) const override {
    return inner_->tokens(inner(split), inner(split, sample), visit, space);
  }

  std::int64_t length(Split split, std::uint32_t sample) const override {
    return inner_->length(inner(split), inner(split, sample));
  }

  std::span<const std::int32_t> token_labels(Split split, std::uint32_t sample) const override {
    return inner_->token_labels(inner(split), inner(split, sample));
  }

  void gather(Split split, std::span<const std::uint32_t> samples, float* inputs, std::int64_t* labels) const override {
    inner_->gather(inner(split), inner(split, samples), inputs, labels);
  }

  void gather_targets(Split split, std::span<const std::uint32_t> samples, float* targets) const override {
    inner_->gather_targets(inner(split), inner(split, samples), targets);
  }

 private:
  // The split and the number of a sample in the inner data set, whose training set contains the validation samples.
  static Split inner(Split split) { return split == Split::test ? Split::test : Split::train; }
  std::uint32_t inner(Split split, std::uint32_t sample) const {
    return split == Split::test ? sample : (split == Split::train ? train_ : validation_)[sample];
  }
  // The result is valid until this thread's next call.
  std::span<const std::uint32_t> inner(Split split, std::span<const std::uint32_t> samples) const {
    thread_local Numbers numbers;
    numbers.resize(samples.size());
    std::ranges::transform(samples, numbers.begin(), [&](std::uint32_t sample) { return inner(split, sample); });
    return numbers;
  }

  std::shared_ptr<const Dataset> inner_;
  DatasetSize size_;
  Numbers train_, validation_;  // indices in the whole training set, ascending
};

}  // namespace

void reject(const fs::path& file, std::string_view what) {
  throw DataFault(fmt::format("{}: {}", file.string(), what));
}

void reject(const fs::path& file, std::string_view key, std::string_view what) {
  throw KeyFault(key, fmt::format("{}: {}", file.string(), what));
}

void require_directory(const fs::path& directory, std::string_view needed) {
  if (const std::string why = why_no_directory(directory); !why.empty())
    reject(directory, fmt::format("{}; {}", why, needed));
}

std::string content_of(const fs::path& file, std::uint64_t most_bytes) {
  return read_or_reject(file, [&] { return whole_file(file, most_bytes); });
}

std::string text_or_nothing(const fs::path& file) {
  try {
    return read_file(file).value_or("");
  } catch (const std::runtime_error&) {
    return "";
  }
}

void write_to_cache(const fs::path& file, const std::string& text) {
  std::string aside = file.string() + ".XXXXXX";
  const int number = mkostemp(aside.data(), O_CLOEXEC);
  if (number < 0) return;
  close(number);
  std::ofstream out(aside, std::ios::binary);
  out << text;
  out.close();
  std::error_code ignored;
  if (out) fs::rename(aside, file, ignored);
  if (!out || ignored) fs::remove(aside, ignored);
}

std::string DigestCache::digest(const fs::path& file) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_read_, true)) read();
  const std::string path = fs::absolute(file).lexically_normal();
  const FileState state = state_of(file);
  if (const auto found = entries_.find(path); found != entries_.end() && found->second.state == state)
    return found->second.digest;

  const auto begin = std::chrono::system_clock::now().time_since_epoch();
  const Entry entry{read_or_reject(file, [&] { return digest_of(file); }), state};
  ++files_read_;
  const bool settled = std::chrono::nanoseconds(std::max(state.changed_ns, state.recorded_ns)) < begin - margin_;
  if (settled && state_of(file) == state) {
    entries_[path] = entry;
    append(path, entry);
  }
  return entry.digest;
}

// Each line begins with a digest of the rest, so that damaged lines can be recognised and ignored.
std::string DigestCache::line_of(const std::string& path, const Entry& entry) {
  const FileState& state = entry.state;
  const std::string rest = fmt::format("{} {} {} {} {} {} {}", entry.digest, state.device, state.inode, state.bytes,
                                       state.changed_ns, state.recorded_ns, path);
  return fmt::format("{} {}\n", content_hash(rest), rest);
}

// A file that was read again after a change has several lines in the cache; the last one counts.
void DigestCache::read() {
  std::vector<std::string> lines;
  std::istringstream file(text_or_nothing(file_));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string check, path;
    Entry entry;
    FileState& state = entry.state;
    words >> check >> entry.digest >> state.device >> state.inode >> state.bytes >> state.changed_ns >>
        state.recorded_ns;
    words.get();
    if (!std::getline(words, path) || line_of(path, entry) != line + "\n") continue;
    lines.push_back(line + "\n");
    entries_[path] = std::move(entry);
  }
  if (lines.size() <= 2 * most_kept_) return;
  const auto newest = std::span(lines).last(most_kept_);
  // A line that is appended meanwhile may be lost; its digest is then computed again.
  write_to_cache(file_, fmt::format("{}", fmt::join(newest, "")));
}

// Appends the line with a single write, so that processes that append at the same time do not mix their lines.
void DigestCache::append(const std::string& path, const Entry& entry) const {
  if (file_.empty() || path.find('\n') != path.npos) return;
  std::error_code ignored;
  fs::create_directories(file_.parent_path(), ignored);
  constexpr int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;  // opening a pipe must not wait
  const int number = open(file_.c_str(), flags, S_IRUSR | S_IWUSR);
  if (number < 0) return;
  const std::string line = line_of(path, entry);
  // A partly written line does not match its digest and is ignored.
  [[maybe_unused]] const auto written = ::write(number, line.data(), line.size());
  close(number);
}

DigestCache& digest_cache() {
  static DigestCache cache(users_cache().empty() ? fs::path() : users_cache() / "digests");
  return cache;
}

std::string digest_of_files(std::span<const fs::path> files) {
  std::string digests;
  for (const fs::path& file : files) digests += digest_cache().digest(file);
  return content_hash(digests);
}

std::shared_ptr<const Dataset> make_gaussian_mixture(const GaussianMixtureOptions& options, std::uint64_t seed) {
  const auto centres = draw_centres(options, seed);
  return make_dataset(size_of(options), draw_samples(options, seed, centres, train_stream, options.train),
                      draw_samples(options, seed, centres, test_stream, options.test));
}

std::span<const DatasetRow> datasets() { return rows; }

std::shared_ptr<const Dataset> with_validation(std::shared_ptr<const Dataset> inner, const ValidationOptions& options) {
  return std::make_shared<DividedDataset>(std::move(inner), options);
}

}  // namespace syncopate
