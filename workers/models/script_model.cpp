#include "workers/models/script_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "workers/data/datasets.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {

namespace {

std::string digest_of(const std::filesystem::path& file) {
  try {
    return digest_cache().digest(file);
  } catch (const std::runtime_error& problem) {
    throw ModelFault("file", problem.what());
  }
}

// Loads LibTorch, because only LibTorch can read the file. A failure to load LibTorch is not a fault of the file.
Network load_network(Settings& table, const DatasetSize& data, const ScriptOptions& options) {
  const std::filesystem::path file = table.file("file");
  if (file.empty()) return Network(data.shape);
  const std::string hash = digest_of(file);
  if (table.text("file_hash", hash) != hash)
    table.fault("file_hash", fmt::format("the content of {} has the digest {}; leave the key out to accept any content",
                                         file.string(), hash));
  load_torch();
  try {
    return torch_functions().load_script(file, hash, data, options);
  } catch (const ScriptFault& problem) {
    throw ModelFault("file", fmt::format("{}: {}", file.string(), problem.what()));
  } catch (const std::runtime_error& problem) {
    throw ModelFault("file", problem.what());
  }
}

enum class Loss { cross_entropy, masked, causal, squared_error };

TextTask::Kind kind_of(Loss loss) {
  using enum TextTask::Kind;
  return loss == Loss::masked ? masked_lm : loss == Loss::causal ? causal_lm : classification;
}

// Sequences are cut to `longest` tokens; 0: they are not cut. `masking_key`: a masking key that is given; empty: none.
std::optional<Misfit> misfit(const DatasetSize& data, Loss loss, std::int64_t longest, const std::string& masking_key) {
  const bool labels_tokens = data.token_classes > 0;
  if (longest > 0 && !data.shape.has_tokens())
    return Misfit{.key = "longest", .needed = "must be 0 or left out: only sequences of tokens can be cut"};
  if (labels_tokens && !masking_key.empty())
    return Misfit{.key = masking_key, .needed = "must be left out: tokens have labels, so no tokens are hidden"};
  const auto lacks = [](const char* needed) { return Misfit{.key = "loss", .needed = needed}; };
  switch (loss) {
    case Loss::cross_entropy:
      if (data.targets > 0) return lacks("needs classes; use loss = \"mse\" for numbers");
      if (labels_tokens) return lacks("needs one label per sequence; use \"masked\" for labels of tokens");
      if (data.classes < 2) return lacks("needs samples with labels of at least two classes");
      return {};
    case Loss::squared_error:
      if (data.targets == 0) return lacks("needs targets that are real numbers, such as float32 in y of npy");
      return {};
    case Loss::masked:
    case Loss::causal:
      break;
  }
  if (!data.shape.has_tokens()) return lacks("needs texts, which are sequences of tokens");
  if (loss == Loss::masked && data.marks.mask < 0 && !labels_tokens)
    return lacks(
        "needs a data set with a token that hides others, such as datasets.npy.mask, or with labels of tokens");
  if (loss == Loss::causal && labels_tokens)
    return lacks("predicts only next tokens; use \"masked\" for labels of tokens");
  return {};
}

constexpr const char* masking_keys[] = {"masked_share", "most_masked", "masking", "mask_copies"};

// Returns a masking key that is given; empty: none.
std::string masking_key_of(const Settings& table) {
  for (const char* key : masking_keys)
    if (table.has(key)) return key;
  return "";
}

}  // namespace

Model read_torchscript(Settings& table) {
  const std::string file = table.text(
      {"file", "Module saved by torch.jit.script; relative to the experiment file or the working directory; required."},
      "");
  const Key hash{"file_hash",
                 "Digest of the file's content, written by the program; the content must still have this digest.", "",
                 "any content"};
  static_cast<void>(table.has(hash));  // makes the key known even if the file is not needed
  ScriptOptions options;
  options.drawn =
      table.choice({"initial", "Initial values: those of the file, or values drawn with the same mean and deviation."},
                   {{"file", false}, {"drawn", true}}, options.drawn);
  options.fused = table.choice({"fused", "Whether micro-batches are evaluated together if that changes nothing."},
                               {{"auto", true}, {"never", false}}, options.fused);
  const auto loss = table.choice({"loss", "The loss: for classes, for masked or next tokens, or for numbers."},
                                 {{"cross-entropy", Loss::cross_entropy},
                                  {"masked", Loss::masked},
                                  {"causal", Loss::causal},
                                  {"mse", Loss::squared_error}},
                                 Loss::cross_entropy);
  options.squared_error = loss == Loss::squared_error;
  options.task.kind = kind_of(loss);
  options.task.longest = table.integer(
      {"longest", "Number of tokens to which longer sequences are cut; 0: none is cut.", "tokens"}, 0, 1 << 20, 0);
  options.task.masking = read_masking(table, loss == Loss::masked, "the loss \"masked\"");
  const auto chunk_samples = table.integer(
      {"chunk_samples", "Number of samples that one core evaluates together, if possible.", "samples"}, 1, 1 << 20, 32);
  const auto try_micro_batch = [table, options, file, chunk_samples](const DatasetSize& data,
                                                                     std::int64_t samples) mutable {
    options.trial = {.trained = samples, .evaluated = std::min(chunk_samples, data.test)};
    if (!file.empty()) load_network(table, data, options);
  };
  return {.inputs = Model::Inputs::either,
          .misfit = [loss, longest = options.task.longest, masking_key = masking_key_of(table)](
                        const DatasetSize& data) { return misfit(data, loss, longest, masking_key); },
          .network =
              [table, options, file](const DatasetSize& data) mutable {
                if (file.empty()) throw ModelFault("file", "is required: the file that torch.jit.script has saved");
                if (data.token_classes > 0)
                  for (const char* key : masking_keys) table.leave_out(key);  // no tokens are hidden
                return load_network(table, data, options);
              },
          .try_micro_batch = try_micro_batch,
          .learns_targets = options.squared_error,
          .learns_token_labels = loss == Loss::masked,
          .computed = computed_by(options.task),
          .longest_key = "longest",
          .chunk_samples = chunk_samples};
}

}  // namespace syncopate
