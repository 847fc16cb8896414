#include "workers/datasets/registry.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <utility>

#include "workers/datasets/gaussian_mixture.hpp"
#include "workers/datasets/image_directory.hpp"

namespace syncopate {
namespace {

// Runs of one experiment follow each other with the same files: the last data set read stays in memory. What is loaded
// is what `hash` was taken of.
std::shared_ptr<const Dataset> load_cached(const std::filesystem::path& directory, const std::string& hash) {
  static std::mutex mutex;
  static std::string loaded_hash;
  static std::shared_ptr<const Dataset> loaded;
  std::lock_guard lock(mutex);
  if (!loaded || loaded_hash != hash) {
    auto read = load_image_directory(directory);
    if (image_directory_hash(directory) != hash)
      throw DataFault(
          fmt::format("{}: its files have changed since the experiment was read; start it again", directory.string()));
    loaded = std::move(read);
    loaded_hash = hash;
  }
  return loaded;
}

std::optional<DatasetPlan> plan_images(Settings& table, const std::string& named) {
  try {
    const std::filesystem::path directory = named.empty() ? find_fashion_mnist() : table.directory("directory");
    if (directory.empty()) return {};
    const DatasetSize size = image_directory_size(directory);
    const std::string hash = image_directory_hash(directory);
    if (table.text("directory_hash", hash) != hash)
      table.fault("directory_hash",
                  fmt::format("the content of {} is another, {}; left out, any is right", directory.string(), hash));
    return DatasetPlan{.size = size, .load = [directory, hash, key = table.written("directory")] {
                         try {
                           return load_cached(directory, hash);
                         } catch (const DataFault& problem) {
                           throw DataFault(fmt::format("{}; {}", key, problem.what()));
                         }
                       }};
  } catch (const std::runtime_error& problem) {  // DataFault, or the file system's own
    table.fault("directory", problem.what());
    return {};
  }
}

DatasetPlanner read_images(Settings& table) {
  const auto directory = table.text(
      {"directory", "A folder with MNIST's four IDX files; empty: where Fashion-MNIST's package puts them."}, "");
  const Key hash{"directory_hash", "Written by the program: the digest of the files, which must still be that.", "",
                 "any content"};
  static_cast<void>(table.has(hash));  // known, also where the files are not needed
  return [table, directory](std::uint64_t) mutable { return plan_images(table, directory); };
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
          {"separation", "Distance of the classes' centres from the origin, in deviations within a class."},
          Range::at_least(0), fallback.separation)};
  return [options](std::uint64_t seed) {
    return DatasetPlan{.size = gaussian_mixture_size(options),
                       .load = [options, seed] { return make_gaussian_mixture(options, seed); }};
  };
}

constexpr DatasetRow rows[] = {
    {"fashion-mnist", "60,000 + 10,000 images of 28 x 28 in 10 classes, or any directory with MNIST's four IDX files",
     "Images", read_images},
    {"gaussian-mixture", "classes as Gaussians around random centres, generated from the seed", "Generated classes",
     read_mixture},
};

}  // namespace

std::span<const DatasetRow> datasets() { return rows; }

DatasetPlanner read_datasets(Settings& root, const DatasetRow& chosen) {
  Settings tables = root.section("datasets");
  DatasetPlanner planner;
  for (const DatasetRow& row : rows) {
    Settings table = tables.section({row.name, fmt::format("{}, training.dataset = \"{}\".", row.title, row.name)});
    DatasetPlanner read = row.read(table);
    if (&row == &chosen) planner = std::move(read);
  }
  return planner;
}

}  // namespace syncopate
