// A feed-forward network as data: layers, and each parameter's shape, position and initial values. forward.hpp
// evaluates it.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/data/partition.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

class ScriptModule;
}  // namespace syncopate

// The layers of a network, as data: each layer's parameters and sizes.
//
// Between layers there are images (n, channels, height, width), tokens (n, places, width) or vectors (n, features).
// Texts are first word numbers, and then the tokens of all texts one after another, (t, width) (batch.hpp).
// Parameters, buffers and tables are indices into the network's lists; -1: none.
namespace syncopate::layer {

struct Flatten {};
struct Linear {  // on vectors, or on each token
  int weight = -1, bias = -1;
};
struct Convolution {
  int weight = -1, bias = -1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // pixels of zeros on each side
};
struct BatchNorm {
  int weight = -1, bias = -1;
  int buffers = -1;  // index of the running mean; the running variance follows
};
struct GroupNorm {
  int weight = -1, bias = -1;
  std::int64_t groups = 1;
};
struct LayerNorm {  // over the last dimension
  int weight = -1, bias = -1;
};
struct RmsNorm {  // over the last dimension: divides by the root mean square, without subtracting the mean
  int weight = -1;
};
struct Tanh {};
struct Relu {};
struct Silu {};
struct Gelu {};  // exact, with the error function
// In training each feature is set to 0 with probability `share`. The random numbers are those of the sample's stream
// from `first_number` on.
struct Dropout {
  double share = 0;  // in [0, 1)
  std::int64_t first_number = 0;
};
struct MaxPool {
  std::int64_t kernel = 2, stride = 2;
  std::int64_t padding = 0;  // pixels on each side, which are never the maximum
};
struct MeanPool {};  // over all pixels of an image, or all tokens of an image or text, to vectors

// ResidualBegin and ResidualEnd enclose a branch; its output is added to its input. If the branch has fewer pixels and
// more channels, the shortcut takes every `stride`-th pixel and adds channels of zeros on both sides: shortcut A of He
// et al. 2016. Layers between ShortcutBegin and ResidualEnd transform the input before it is added (shortcut B).
struct ResidualBegin {};
struct ShortcutBegin {};
struct ResidualEnd {
  std::int64_t stride = 1;
  std::int64_t zeros_before = 0, zeros_after = 0;
};

// Images to tokens, one per square. Squares, and the pixels in a square, are in row order; a pixel's channels adjoin.
struct Patches {
  std::int64_t size = 1;
};
struct Positions {  // adds a vector that identifies the position
  int table = -1;
};
// Tokens to tokens, for each image or text separately. An input token contains the queries, keys and values of all
// heads one after another; an output token contains the heads' outputs. The options except `heads` are for texts.
// causal: no token sees a later token. rotary: the table of rotary_positions with the angles that rotate queries and
// keys.
struct Attention {
  std::int64_t heads = 1;
  bool causal = false;
  int rotary = -1;
  bool in_blocks = false;  // text by text in blocks of queries, if texts are longer than a block; must be causal
};
inline constexpr std::int64_t attention_block = 64;  // queries; the fastest size at 256 tokens

struct BagOfWords {  // texts to vectors: the mean of the tokens' rows of the weight, plus a bias
  int weight = -1;   // (vocabulary, features)
  int bias = -1;
};
struct WordEmbedding {  // texts to tokens: a row of `words` for each token, plus a row of `places` for its position
  int words = -1;       // (vocabulary, width)
  int places = -1;      // (longest, width); -1: words only
};
struct FirstTokens {};  // tokens to vectors: the first token of each text
struct AskedTokens {};  // tokens to vectors: only the tokens whose outputs predict a label

// A complete module of the user's own (torch_script.cpp): the only layer of its network, with all parameters and
// buffers.
struct Script {
  std::shared_ptr<const ScriptModule> module;
};

}  // namespace syncopate::layer

namespace syncopate {

using Layer = std::variant<layer::Flatten, layer::Linear, layer::Convolution, layer::BatchNorm, layer::GroupNorm,
                           layer::LayerNorm, layer::RmsNorm, layer::Relu, layer::Silu, layer::Gelu, layer::MaxPool,
                           layer::MeanPool, layer::ResidualBegin, layer::ShortcutBegin, layer::ResidualEnd,
                           layer::Patches, layer::Positions, layer::Attention, layer::BagOfWords, layer::WordEmbedding,
                           layer::FirstTokens, layer::AskedTokens, layer::Tanh, layer::Dropout, layer::Script>;

template <typename Kind, typename... Kinds>
concept OneOf = (std::is_same_v<Kind, Kinds> || ...);

// The task on texts, which defines the meaning of a network's outputs.
struct TextTask {
  enum class Kind {
    classification,  // predicts a text's class
    masked_lm,       // predicts the hidden tokens of a text
    causal_lm,       // predicts each token except the first from the preceding ones
  };
  Kind kind = Kind::classification;
  MaskingOptions masking{};  // for masked_lm
  bool own_labels = false;   // for masked_lm: no token is hidden; the model predicts the data set's labels of tokens
  std::int64_t longest = 0;  // texts are cut to this number of tokens; 0: not cut
  // For a user's own module, which may get texts of different lengths together:
  bool pads = true;          // with padding; false: only texts of equal length are together
  std::int32_t padding = 0;  // token that fills up shorter texts
};

inline ComputedTokens computed_by(const TextTask& task) {
  return {.longest = task.longest, .last_is_answer = task.kind == TextTask::Kind::causal_lm};
}

// How the initial values of a parameter are drawn, independently of each other.
struct Initial {
  enum class Law { uniform, normal };

  double centre = 0;
  double spread = 0;  // half the width if uniform, deviation if normal; 0: all values equal the centre
  Law law = Law::uniform;
};

struct Parameter {
  std::string name;  // for example "linear2.bias"; layers of one kind are numbered from 1
  std::vector<std::int64_t> shape;
  std::size_t size = 0;
  std::size_t offset = 0;  // in the flat vector
  Initial initial{};
  std::shared_ptr<const std::vector<float>> given{};  // initial values that are given instead of drawn
};

struct Buffer {
  std::size_t size = 0;
  std::size_t offset = 0;
  std::vector<std::int64_t> shape;
  bool counts = false;  // integers stored as floats, exact up to 2^24
  std::shared_ptr<const std::vector<float>> initial;
};

// The deviation of normal weights, with biases of 0. Empty: both are uniform within 1 / sqrt(fan-in), as in PyTorch's
// Linear and Conv2d.
using NormalWeights = std::optional<double>;

struct LinearOptions {
  bool bias = true;
  NormalWeights deviation{};
};

struct ConvolutionOptions {
  std::int64_t channels = 1;
  std::int64_t kernel = 1;
  bool bias = true;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // pixels of zeros on each side
  NormalWeights deviation{};
};

// The contents of a network, in the order of its layers. For a module from a file, they are in the module's order.
// lay_out() determines their positions in flat vectors.
struct NetworkContents {
  std::vector<Parameter> parameters{};
  std::vector<Buffer> buffers{};    // only those that a training step changes
  bool mixes_samples = false;       // micro-batches evaluated together would affect each other
  bool draws = false;               // a forward pass in training uses LibTorch's random numbers
  std::string why_no_derivative{};  // why an evaluation has no derivatives; empty: it has derivatives
  std::string note{};               // information for the user about a module's file that is not a fault
};

// Numbers that a network needs and does not train. Copies of a network share the table.
using NetworkTable = std::shared_ptr<const std::vector<float>>;

class Network {
 public:
  explicit Network(const SampleShape& input)
      : input_(input), shape_(input), form_(input.has_tokens() ? Form::words : Form::image) {}

  // Each function appends a layer.
  Network& linear(std::int64_t outputs, const LinearOptions& options = {});  // flattens images first
  Network& relu() { return append(layer::Relu{}); }
  Network& silu() { return append(layer::Silu{}); }
  Network& gelu() { return append(layer::Gelu{}); }
  Network& tanh() { return append(layer::Tanh{}); }
  // Not for logits. A share of 0 appends nothing. Draws one number per feature.
  Network& dropout(double share);

  // Layers for images.
  Network& convolution(const ConvolutionOptions& options);
  Network& batch_norm(double scale = 1);  // `scale`: initial value of its weights
  Network& group_norm(std::int64_t groups, double scale = 1);
  Network& max_pool(const layer::MaxPool& options = {});
  Network& mean_pool();  // also for tokens of images and texts; outputs vectors

  // See layer::ResidualBegin. `stride`: the branch's total stride. The first layer after begin_shortcut must not be an
  // activation, which could overwrite the input.
  Network& begin_residual();
  Network& begin_shortcut();
  Network& end_residual(std::int64_t stride = 1);

  // Layers for tokens of images.
  Network& patches(std::int64_t size);                  // must divide height and width
  Network& sine_positions();                            // the width must suit sine_positions_2d
  Network& layer_norm(bool bias = true);                // also for vectors
  Network& rms_norm();                                  // also for vectors
  Network& attention(const layer::Attention& options);  // also for texts; `rotary`: a result of rotary_table

  // Layers for texts.
  Network& bag_of_words(std::int64_t outputs);  // outputs vectors
  // Outputs tokens of this width. `places`: number of embedded positions, at least the number of tokens of the longest
  // text; 0: positions are not embedded. Weights are drawn from the normal distribution.
  Network& embed_words(std::int64_t width, std::int64_t places, double deviation);
  // Adds the table of rotary_positions, which all attentions of a network share. Appends no layer.
  int rotary_table(std::int64_t places, std::int64_t head_width, double base);
  // The next two layers output vectors.
  Network& first_tokens() { return texts_to_vectors(layer::FirstTokens{}); }
  Network& asked_tokens() { return texts_to_vectors(layer::AskedTokens{}); }
  Network& decode_words(bool bias);  // for vectors; uses the weights of embed_words
  Network& asks(const TextTask& task) {
    task_ = task;
    return *this;
  }

  // The only layer of its network.
  Network& script(std::shared_ptr<const ScriptModule> module, NetworkContents contents, std::int64_t outputs);

  // The layers that are appended from now on are the head, which computes a task's outputs from the body's features.
  Network& begin_head() {
    body_parameters_ = parameters().size();
    return *this;
  }

  // Determines the flat layout: first parameters with at least 2 dimensions, then the others, both in the order of
  // layers. Call it last.
  Network& lay_out();

  const SampleShape& input() const { return input_; }
  const TextTask& task() const { return task_; }  // for texts
  // If any size is not positive, the network is impossible. For tokens, `channels` is their width.
  const SampleShape& output() const { return shape_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<SampleShape>& shapes() const { return shapes_; }  // the output of each layer, as output()
  const std::vector<Parameter>& parameters() const { return contents_.parameters; }
  // Indices into parameters(), in ascending order of offset.
  const std::vector<std::size_t>& flat_order() const { return flat_order_; }
  std::vector<ParameterTensor> tensors() const;  // in the order of flat_order()
  // The number of parameters() before the head; 0: there is no head.
  std::size_t body_parameters() const { return body_parameters_; }
  const std::vector<Buffer>& buffers() const { return contents_.buffers; }
  const std::vector<NetworkTable>& tables() const { return tables_; }

  // Whether samples of different micro-batches may share a batch in training.
  bool fuses() const { return !contents_.mixes_samples && buffers().empty(); }
  bool draws() const { return contents_.draws; }
  const std::string& why_no_derivative() const { return contents_.why_no_derivative; }
  const std::string& note() const { return contents_.note; }

  std::size_t parameter_floats() const;
  std::size_t weight_floats() const;  // the size of the flat vector's first range, which has weight decay
  std::size_t buffer_floats() const { return buffers().empty() ? 0 : buffers().back().offset + buffers().back().size; }

 private:
  enum class Form { image, tokens, vector, words, texts };

  // Set shape_ to the layer's output before you call it.
  Network& append(const Layer& layer) {
    layers_.push_back(layer);
    shapes_.push_back(shape_);
    return *this;
  }
  Network& texts_to_vectors(const Layer& layer) {
    assert(form_ == Form::texts);
    form_ = Form::vector;
    return append(layer);
  }
  std::string next_name(std::string_view word) const;
  int add_parameter(std::string name, std::vector<std::int64_t> shape, const Initial& initial);
  // Adds a normalisation's weight, followed by its bias if it has one.
  int add_scale_and_shift(std::string_view word, double scale, bool shifts = true);

  SampleShape input_;
  SampleShape shape_;  // output of the layers so far
  Form form_;
  TextTask task_;
  int embedded_words_ = -1;                   // index of the embedding's parameter
  std::vector<SampleShape> residual_shapes_;  // inputs of the branches that are open
  std::vector<Layer> layers_;
  std::vector<SampleShape> shapes_;
  NetworkContents contents_;
  std::size_t body_parameters_ = 0;
  std::vector<std::size_t> flat_order_;
  std::vector<NetworkTable> tables_;
  std::int64_t dropout_numbers_ = 0;  // how many numbers per sample the layers so far draw
};

// The initial parameters (P,) in the flat layout. Parameter p is drawn from stream p, whatever the sizes of the others.
std::vector<float> initial_parameters(const Network& network, std::uint64_t seed);

// Fixed positions of tokens on a grid: sines and cosines of both coordinates at geometrically spaced frequencies.
// Source:  Vaswani et al. 2017 for one coordinate; for two, Beyer et al. 2022, "Better plain ViT baselines".
// Shapes:  (height x width, dimension), row by row: sin x w_i, cos x w_i, sin y w_i, cos y w_i, each for
//          i = 0 .. d / 4 - 1, with w_i = 10000^(-i / (d / 4 - 1)). The dimension d is a multiple of 4, and at least 8.
std::vector<float> sine_positions_2d(std::int64_t height, std::int64_t width, std::int64_t dimension);

// The angles by which attention rotates the pairs (i, i + d / 2) of a query or key of width d at each position p.
// Scores then depend on positions only through their differences.
// Source:  Su et al. 2021, "RoFormer", with pairs as in GPT-NeoX and Llama.
// Shapes:  (places, d): cos(p w_i), then sin(p w_i), each for i = 0 .. d / 2 - 1, with w_i = base^(-2 i / d).
// Differs: the paper pairs neighbours, (2 i, 2 i + 1), which is a permutation of the weights' rows.
std::vector<float> rotary_positions(std::int64_t places, std::int64_t dimension, double base);

}  // namespace syncopate
