#include "workers/datasets/registry.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "workers/datasets/cifar.hpp"
#include "workers/datasets/directory_plan.hpp"
#include "workers/datasets/gaussian_mixture.hpp"
#include "workers/datasets/image_directory.hpp"
#include "workers/datasets/npy_dataset.hpp"
#include "workers/datasets/text_dataset.hpp"
#include "workers/datasets/text_sources.hpp"
#include "workers/files/found_directory.hpp"
#include "workers/text/wordnet_glosses.hpp"

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
  const CifarRecords records =
      table.optional_flag(
               {"complete", "Whether the files must have all their records, as published; left out: they must."})
              .value_or(true)
          ? CifarRecords::all
          : CifarRecords::any;
  const std::string sentence =
      fmt::format("A folder with the files of the binary version; empty: {} in $SYNCOPATE_DATA.", unpacked);
  return read_directory(
      table, sentence,
      {.variant = fmt::format("cifar {} {}", static_cast<int>(labels), static_cast<int>(scale)),
       .usual =
           [unpacked] {
             return found_directory(unpacked, "datasets/" + unpacked, "name the directory with the binary version");
           },
       .size = [labels, records](const auto& directory) { return cifar_size(directory, labels, records); },
       .hash = [labels](const auto& directory) { return cifar_hash(directory, labels); },
       .load = [labels, scale,
                records](const auto& directory) { return load_cifar(directory, labels, scale, records); }});
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
  constexpr std::int64_t none = -1, last = largest_token;
  const NpyTokens tokens = {
      .padding = static_cast<std::int32_t>(table.integer(
          {"padding", "Token that fills a row behind its sequence's end; -1: all rows are whole."}, none, last, none)),
      .mask = static_cast<std::int32_t>(table.integer(
          {"mask", "Token that hides what a masked language model has to find; -1: there is none."}, none, last, none)),
      .never_masked = table.integers({"never_masked", "Tokens that no masked language model has to find."}, 0, last,
                                     std::vector<std::int64_t>{})};
  return read_directory(
      table, "A folder with x_train.npy, y_train.npy, x_test.npy and y_test.npy; required.",
      {.variant = fmt::format("npy {} {} {}", tokens.padding, tokens.mask, fmt::join(tokens.never_masked, ",")),
       .usual = nullptr,
       .size = [tokens](const auto& directory) { return npy_dataset_size(directory, tokens); },
       .hash = npy_dataset_hash,
       .load = [tokens](const auto& directory) { return load_npy_dataset(directory, tokens); }});
}

DatasetPlanner read_texts(Settings& table, std::string_view sentence, const TextSource& source,
                          std::function<std::filesystem::path()> usual, DirectoryFormat::Named named) {
  const TextOptions fallback;
  const TextOptions options = {
      .test_share = table.number({"test_share", "Share of the texts that are held out, by a hash of each."},
                                 {.low = 0, .high = 1, .low_open = true, .high_open = true}, fallback.test_share),
      .words = table.integer({"words", "Most words of the vocabulary, which the most frequent ones are in."}, 1,
                             1 << 24, fallback.words),
      .least = table.integer({"least", "How often a word must stand in the training texts to be in it."}, 1, 1 << 24,
                             fallback.least)};
  return read_directory(
      table, sentence,
      {.variant = text_variant(source, options),
       .usual = std::move(usual),
       .size = [source, options](const auto& path) { return text_dataset_size(source, options, path); },
       .hash = source.hash,
       .load = [source, options](const auto& path) { return load_text_dataset(source, options, path); },
       .named = named});
}

DatasetPlanner read_lines(Settings& table) {
  const bool labelled = table.flag({"labelled", "Whether each line begins with a label and a tab."}, false);
  return read_texts(table, "A UTF-8 text with one sequence a line; required.", text_lines(labelled), nullptr,
                    DirectoryFormat::Named::file);
}

DatasetPlanner read_glosses(Settings& table) {
  return read_texts(table,
                    "A folder with WordNet's data.noun, .verb, .adj and .adv; empty: where its package has them.",
                    wordnet_glosses(), find_wordnet, DirectoryFormat::Named::directory);
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
    {"npy", "a data set of one's own, of NumPy's arrays: vectors, images or tokens, and classes or numbers", "Arrays",
     read_npy},
    {"text-lines", "a text of one's own, a sequence of words a line, alone or with a label", "Lines", read_lines},
    {"wordnet-glosses", "WordNet's 117,659 definitions in 45 categories: real texts of natural lengths", "Definitions",
     read_glosses},
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
