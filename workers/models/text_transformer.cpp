#include "workers/models/text_transformer.hpp"

#include <fmt/format.h>

#include <string>

#include "workers/models/masking_section.hpp"

namespace syncopate {
namespace {

using Kind = TextTask::Kind;
using Norm = TextTransformerOptions::Norm;
using Pooling = TextTransformerOptions::Pooling;

constexpr double deviation = 0.02;
constexpr LinearOptions dense{.deviation = deviation};

void attention(Network& network, const TextTransformerOptions& options) {
  network.linear(3 * options.width, dense).text_attention(options.heads, options.task.kind == Kind::causal_lm);
  network.linear(options.width, dense).dropout(options.dropout);
}

void perceptron(Network& network, const TextTransformerOptions& options) {
  network.linear(options.mlp_width, dense).gelu().linear(options.width, dense).dropout(options.dropout);
}

template <typename Branch>
void add_branch(Network& network, const TextTransformerOptions& options, Branch branch) {
  network.begin_residual();
  if (options.norm == Norm::before) network.layer_norm();
  branch(network, options);
  network.end_residual();
  if (options.norm == Norm::after) network.layer_norm();
}

void head(Network& network, std::int64_t classes, const TextTransformerOptions& options) {
  network.begin_head();
  switch (options.task.kind) {
    case Kind::classification:
      if (options.pooling == Pooling::first)
        network.first_tokens().linear(options.width, dense).tanh();
      else
        network.mean_of_texts();
      network.dropout(options.dropout).linear(classes, dense);
      break;
    case Kind::masked_lm:
      network.asked_tokens().linear(options.width, dense).gelu().layer_norm().decode_words(true);
      break;
    case Kind::causal_lm:
      network.asked_tokens().decode_words(false);
  }
}

std::optional<Misfit> misfit(const DatasetSize& data, const TextTransformerOptions& options) {
  const TextTask& task = options.task;
  if (task.kind == Kind::classification && data.classes < 2)
    return Misfit{.key = "task", .needed = "needs samples with labels, of at least two classes"};
  if (task.kind == Kind::masked_lm && data.marks.mask < 0)
    return Misfit{.key = "task",
                  .needed = "needs a data set with a token that hides others, such as datasets.npy.mask"};
  if (task.longest == 0 && data.shape.width > options.positions)
    return Misfit{
        .key = "positions",
        .needed = fmt::format("must be {} at least, as the longest text is, or `cut` be true", data.shape.width)};
  return {};
}

TextTransformerOptions read_options(Settings& table) {
  constexpr std::int64_t deepest = 1024;
  const TextTransformerOptions usual;
  TextTransformerOptions options;
  options.task.kind = table.choice(
      {"task", "Classes of texts, hidden words, or each next word."},
      {{"classification", Kind::classification}, {"masked-lm", Kind::masked_lm}, {"causal-lm", Kind::causal_lm}},
      usual.task.kind);
  options.width = table.integer({"width", "Width of a token; a multiple of the heads."}, 1, largest_width, usual.width);
  options.depth = table.integer({"depth", "Blocks of attention and perceptron."}, 1, deepest, usual.depth);
  options.heads = table.integer({"heads", "Heads of an attention."}, 1, 1024, usual.heads);
  options.mlp_width =
      table.integer({"mlp_width", "Width of the perceptrons' hidden layer."}, 1, largest_width, usual.mlp_width);
  options.positions =
      table.integer({"positions", "Longest sequence, in tokens.", "tokens"}, 1, 1 << 20, usual.positions);
  options.norm = table.choice({"norm", "Whether sums are normalised, as in BERT, or what enters the branches."},
                              {{"post", Norm::after}, {"pre", Norm::before}}, usual.norm);
  options.pooling = table.choice(
      {"pooling", "What a text's class follows from: its first token, or their mean. No effect on other tasks."},
      {{"first", Pooling::first}, {"mean", Pooling::mean}}, usual.pooling);
  options.dropout =
      table.number({"dropout", "Share of what is embedded, and of what branches give, that is zero in training."},
                   dropout_range, usual.dropout);
  if (table.flag({"cut", "Whether longer sequences are cut to as many tokens as there are positions."}, false))
    options.task.longest = options.positions;
  options.task.masking = read_masking(table, options.task.kind == Kind::masked_lm, "the task \"masked-lm\"");
  if (options.task.kind != Kind::classification) table.leave_out("pooling");
  return options;
}

}  // namespace

Network text_transformer_network(const SampleShape& input, std::int64_t classes,
                                 const TextTransformerOptions& options) {
  Network network(input);
  network.embed_words(options.width, options.positions, deviation);
  if (options.norm == Norm::after) network.layer_norm();
  network.dropout(options.dropout);
  for (std::int64_t i = 0; i < options.depth; ++i) {
    add_branch(network, options, attention);
    add_branch(network, options, perceptron);
  }
  if (options.norm == Norm::before) network.layer_norm();
  head(network, classes, options);
  return network.asks(options.task).lay_out();
}

Model read_text_transformer(Settings& table) {
  const std::size_t faults = table.faults_so_far();
  const TextTransformerOptions options = read_options(table);
  if (table.faults_so_far() == faults && options.width % options.heads != 0)
    table.fault("width", fmt::format("must be a multiple of the heads, {}", options.heads));
  if (table.faults_so_far() > faults) return {};
  return {
      .inputs = Model::Inputs::tokens,
      .misfit = [options](const DatasetSize& data) { return misfit(data, options); },
      .network =
          [options](const DatasetSize& data) { return text_transformer_network(data.shape, data.classes, options); },
      .computed = computed_by(options.task),
      .longest_key = "positions",
      .chunk_samples = 64};
}

}  // namespace syncopate
