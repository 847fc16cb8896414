#include "workers/datasets/registry.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "workers/datasets/cifar.hpp"
#include "workers/datasets/directory_plan.hpp"
#include "workers/datasets/found_directory.hpp"
#include "workers/datasets/gaussian_mixture.hpp"
#include "workers/datasets/image_directory.hpp"
#include "workers/datasets/npy_dataset.hpp"

namespace syncopate {
namespace {

DatasetPlanner read_images(Settings& table) {
  return read_directory(table, "A folder with MNIST's four IDX files; empty: where Fashion-MNIST's package puts them.",
                        {.variant = "idx",
                         .usual = find_fashion_mnist,
                         .size = [](const auto& directory) { return image_directory_size(directory); },
                         .hash = image_directory_hash,
                         .load = [](const auto& directory) { return load_image_directory(directory); }});
}

DatasetPlanner read_cifar(Settings& table, CifarLabels labels, const std::string& unpacked, CifarScale usual_scale) {
  const CifarScale scale = table.choice(
      {"scale", "Means and deviations of the channels: those of published codes for CIFAR-10, or the training set's."},
      {{"published", CifarScale::published}, {"measured", CifarScale::measured}}, usual_scale);
  const std::string sentence =
      fmt::format("A folder with the files of the binary version; empty: {} in $SYNCOPATE_DATA.", unpacked);
  return read_directory(
      table, sentence,
      {.variant = fmt::format("cifar {} {}", static_cast<int>(labels), static_cast<int>(scale)),
       .usual =
           [unpacked] {
             return found_directory(unpacked, "datasets/" + unpacked, "name the directory with the binary version");
           },
       .size = [labels](const auto& directory) { return cifar_size(directory, labels); },
       .hash = [labels](const auto& directory) { return cifar_hash(directory, labels); },
       .load = [labels, scale](const auto& directory) { return load_cifar(directory, labels, scale); }});
}

DatasetPlanner read_cifar_10(Settings& table) {
  return read_cifar(table, CifarLabels::ten, "cifar-10-batches-bin", CifarScale::published);
}

DatasetPlanner read_cifar_100(Settings& table) {
  const CifarLabels labels =
      table.choice({"labels", "Whether the 100 fine labels are learnt, or the 20 coarse ones."},
                   {{"fine", CifarLabels::hundred}, {"coarse", CifarLabels::twenty}}, CifarLabels::hundred);
  return read_cifar(table, labels, "cifar-100-binary", CifarScale::measured);
}

DatasetPlanner read_npy(Settings& table) {
  return read_directory(table, "A folder with x_train.npy, y_train.npy, x_test.npy and y_test.npy; required.",
                        {.variant = "npy",
                         .usual = nullptr,
                         .size = npy_dataset_size,
                         .hash = npy_dataset_hash,
                         .load = load_npy_dataset});
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
    {"cifar-10", "60,000 images of 32 x 32 in colour and 10 classes, in their binary version", "Images", read_cifar_10},
    {"cifar-100", "60,000 images of 32 x 32 in colour and 100 classes, or 20 of these together", "Images",
     read_cifar_100},
    {"npy", "a data set of one's own, of NumPy's arrays: vectors or images, and their classes", "Arrays", read_npy},
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
