#include "workers/models/registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "workers/datasets/gaussian_mixture.hpp"
#include "workers/datasets/image_directory.hpp"
#include "workers/datasets/sampler.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/quadratic.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {
namespace {

constexpr ModelRow model_rows[] = {
    {"linear", "softmax regression: one dense layer"},
    {"mlp", "fully connected layers with ReLU; [models.mlp] hidden gives the widths"},
    {"cnn", "convolutions with ReLU and max-pooling, then two dense layers; batch normalisation as an option"},
    {"quadratic", "a noisy quadratic with a known optimum; needs no data"},
    {"none", "no model: the same methods on virtual time alone"},
};

constexpr DatasetRow dataset_rows[] = {
    {"fashion-mnist", "60,000 + 10,000 images of 28 x 28 in 10 classes, or any directory with MNIST's four IDX files"},
    {"gaussian-mixture", "classes as Gaussians around random centres, generated from the seed"},
};

// Samples evaluated together, measured on one core with the kernels that blas_kernel.hpp chooses:
// dense layers gain up to here, convolutions lose once their activations leave the cache.
constexpr std::int64_t dense_chunk = 512;
constexpr std::int64_t convolution_chunk = 128;

constexpr std::int64_t largest_width = 1 << 16;

struct ModelOptions {
  std::vector<std::int64_t> hidden;
  CnnOptions cnn;
  QuadraticOptions quadratic;
};

// Reads the tables of all models, whichever is chosen.
// What no convolution has would pass unseen, however wrong it is.
void check_convolutions(Settings& cnn, const CnnOptions& options) {
  if (!options.channels.empty()) return;
  for (const char* key : {"kernel", "batch_norm"}) {
    if (cnn.has(key))
      cnn.fault(key, "must be left out: channels = [] leaves no convolution");
    else
      cnn.leave_out(key);
  }
}

ModelOptions read_models(Settings& root) {
  Settings tables = root.section("models");
  tables.section("linear");
  Settings mlp = tables.section({"mlp", "The multilayer perceptron, training.model = \"mlp\"."});
  Settings cnn = tables.section({"cnn", "The convolutional network, training.model = \"cnn\"."});
  Settings quadratic = tables.section({"quadratic", "The noisy quadratic, training.model = \"quadratic\"."});
  const CnnOptions cnn_default;
  const QuadraticOptions quadratic_default;
  ModelOptions options = {
      .hidden =
          mlp.integers({"hidden", "Widths of the hidden layers."}, 1, largest_width, std::vector<std::int64_t>{256}),
      .cnn = {.channels = cnn.integers({"channels", "Channels of the convolutions, one number per convolution."}, 1,
                                       largest_width, cnn_default.channels),
              .kernel =
                  cnn.integer({"kernel", "Width and height of their filters.", "pixels"}, 1, 1024, cnn_default.kernel),
              .dense =
                  cnn.integer({"dense", "Width of the dense layer behind them."}, 1, largest_width, cnn_default.dense),
              .batch_norm = cnn.flag({"batch_norm", "Whether the convolutions are followed by batch normalisation."},
                                     cnn_default.batch_norm)},
      // The noise of a step's micro-batches shares a stream of 2^32 numbers.
      .quadratic = {.dimension = quadratic.integer({"dimension", "Number of parameters."}, 1, 1 << 16,
                                                   quadratic_default.dimension),
                    .condition = quadratic.number({"condition", "Ratio of the largest curvature to the smallest."},
                                                  Range::at_least(1), quadratic_default.condition),
                    .noise =
                        quadratic.number({"noise", "Standard deviation of a micro-batch's gradient, per parameter."},
                                         Range::at_least(0), quadratic_default.noise)},
  };
  check_convolutions(cnn, options.cnn);
  return options;
}

// A data set whose size is known; `load` reads or generates it.
struct DatasetPlan {
  DatasetSize size;
  std::function<std::shared_ptr<const Dataset>()> load;
};

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

GaussianMixtureOptions read_mixture(Settings& table) {
  constexpr std::int64_t most = 1 << 24;
  const GaussianMixtureOptions fallback;
  return {.classes = table.integer({"classes", "Number of classes."}, 2, largest_width, fallback.classes),
          .dimension = table.integer({"dimension", "Number of features."}, 1, largest_width, fallback.dimension),
          .train = table.integer({"train", "Training samples.", "samples"}, 1, most, fallback.train),
          .test = table.integer({"test", "Test samples.", "samples"}, 1, most, fallback.test),
          .separation = table.number(
              {"separation", "Distance of the classes' centres from the origin, in deviations within a class."},
              Range::at_least(0), fallback.separation)};
}

// Reads the tables of all data sets; looks for the chosen one's files only if it is `needed`.
std::optional<DatasetPlan> read_datasets(Settings& root, const std::string& chosen, bool needed, std::uint64_t seed) {
  Settings tables = root.section("datasets");
  Settings images = tables.section({"fashion-mnist", "Images, training.dataset = \"fashion-mnist\"."});
  Settings mixture =
      tables.section({"gaussian-mixture", "Generated classes, training.dataset = \"gaussian-mixture\"."});
  const auto directory = images.text(
      {"directory", "A folder with MNIST's four IDX files; empty: where Fashion-MNIST's package puts them."}, "");
  const Key hash{"directory_hash", "Written by the program: the digest of the files, which must still be that.", "",
                 "any content"};
  static_cast<void>(images.has(hash));  // known, also where the files are not needed
  const auto options = read_mixture(mixture);
  if (!needed) return {};
  if (chosen == "fashion-mnist") return plan_images(images, directory);
  return DatasetPlan{.size = gaussian_mixture_size(options),
                     .load = [options, seed] { return make_gaussian_mixture(options, seed); }};
}

Network build_network(const std::string& model, const ModelOptions& options, const DatasetSize& data) {
  if (model == "linear") return linear_network(data.shape, data.classes);
  if (model == "mlp") return mlp_network(data.shape, data.classes, options.hidden);
  return cnn_network(data.shape, data.classes, options.cnn);
}

}  // namespace

std::span<const ModelRow> models() { return model_rows; }
std::span<const DatasetRow> datasets() { return dataset_rows; }

ObjectivePlan plan_objective(Settings& training, Settings& root, const ObjectiveContext& context) {
  const bool dataset_named = training.has("dataset");
  const auto* const model_row = training.row({"model", "What is trained."}, model_rows);
  const std::string model(model_row ? model_row->name : "");
  const std::string dataset(training.row({"dataset", "What it is trained on."}, dataset_rows, "fashion-mnist")->name);
  const auto batch_size =
      training.integer({"micro_batch_size", "Samples of a micro-batch.", "samples"}, 1, 1 << 20, 32);
  const auto label_smoothing =
      training.number({"label_smoothing",
                       "Share of each label that is spread over all classes in gradients; told losses are without it."},
                      {.low = 0, .high = 1, .high_open = true}, 0.0);
  const auto options = read_models(root);
  const bool network = model == "linear" || model == "mlp" || model == "cnn";
  const bool needs_data = context.looks_for_data && (network || (model == "none" && dataset_named));
  const auto data = read_datasets(root, dataset, needs_data, context.seed);

  if (model == "quadratic" && label_smoothing > 0)
    training.fault("label_smoothing", "must be 0: the quadratic has no labels");
  if (model == "quadratic")
    return {.load = [q = options.quadratic, seed = context.seed] { return std::make_shared<Quadratic>(q, seed); },
            .parameters = options.quadratic.dimension};

  ObjectivePlan plan{.load = {}, .time_only = model == "none", .samples_per_micro_batch = batch_size};
  if (!data) return plan;
  const SamplerOptions sampling{.samples = data->size.train,
                                .workers = context.workers,
                                .micro_batches = context.micro_batches,
                                .micro_batch_size = batch_size,
                                .seed = context.seed};
  plan.steps_per_epoch = sampling.steps_per_epoch();
  if (plan.steps_per_epoch < 1)
    training.fault("micro_batch_size",
                   fmt::format("the {} training samples are fewer than one step's {} workers x {} micro-batches x {}",
                               data->size.train, context.workers, context.micro_batches, batch_size));
  if (!network) return plan;
  plan.has_accuracy = true;

  const auto& shape = data->size.shape;
  if (model == "cnn" && std::min(shape.height, shape.width) < smallest_image(options.cnn)) {
    training.fault("model", fmt::format("the convolutions of [models.cnn] need images of at least {0} x {0}; those of "
                                        "{1} are {2} x {3}",
                                        smallest_image(options.cnn), dataset, shape.height, shape.width));
    return plan;
  }
  const auto chunk = model == "cnn" ? convolution_chunk : dense_chunk;
  const Network built = build_network(model, options, data->size);
  plan.parameters = static_cast<std::int64_t>(built.parameter_floats());
  for (const ParameterTensor& tensor : built.tensors()) plan.tensors.push_back(tensor.name);
  plan.load = [network = built, load = data->load, sampling, chunk, label_smoothing] {
    return make_torch_objective(network, load(), sampling, chunk, label_smoothing);
  };
  return plan;
}

}  // namespace syncopate
