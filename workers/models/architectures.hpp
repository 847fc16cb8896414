// Built-in networks, for any input shape and number of classes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "workers/models/models.hpp"
#include "workers/models/network.hpp"

namespace syncopate {

// Softmax regression; for texts, on the relative frequencies of their words.
Network linear_network(const SampleShape& input, std::int64_t classes);

// Fully connected layers with ReLU between them. `hidden`: widths of the hidden layers; `dropout` applies to their
// outputs.
Network mlp_network(const SampleShape& input, std::int64_t classes, const std::vector<std::int64_t>& hidden,
                    double dropout = 0);

struct CnnOptions {
  std::vector<std::int64_t> channels = {16, 32};  // per convolution
  std::int64_t kernel = 5;
  std::int64_t dense = 64;  // width of the dense layer before the last
  bool batch_norm = false;  // a batch normalisation after each convolution, which then has no bias
  double dropout = 0;       // after the dense layer before the last
};

// Per entry of `channels`: convolution (no padding), ReLU, 2 x 2 max-pooling; then two dense layers.
Network cnn_network(const SampleShape& input, std::int64_t classes, const CnnOptions& options);

// The smallest height and width that leave at least one pixel after all convolutions and poolings.
std::int64_t smallest_image(const CnnOptions& options);

// Residual networks of 6 n + 2 layers for small images: a convolution; three stages of n blocks of two convolutions;
// the mean over the pixels; a dense layer. The stages have 1, 2 and 4 times the width. The second and the third stage
// have a stride of 2.
// Source:  He et al. 2016, "Deep residual learning", section 4.2, with shortcut A, which has no parameters; for dropout
//          Zagoruyko and Komodakis 2016, "Wide residual networks".
// Differs: group normalisation, for training with small micro-batches, and SiLU instead of ReLU are options.
struct ResnetOptions {
  enum class Norm { batch, group };
  enum class Activation { relu, silu };

  std::int64_t depth = 8;   // 6 n + 2
  std::int64_t width = 16;  // channels of the first stage
  Norm norm = Norm::batch;
  std::int64_t groups = 8;  // must divide the width; for Norm::group
  Activation activation = Activation::relu;
  double dropout = 0;               // between a block's convolutions, as in wide residual networks
  bool zero_init_residual = false;  // each block starts as the identity: its last normalisation's weights are zero
};

// Initial weights: normal, of deviation sqrt(2 / fan-in) in convolutions (He et al. 2015) and 0.01 in the dense layer.
Network resnet_network(const SampleShape& input, std::int64_t classes, const ResnetOptions& options);

// Residual networks for large images: a stem; four stages of blocks; the mean over the pixels; a dense layer. The
// stages have 1, 2, 4 and 8 times the width. Each stage except the first has a stride of 2. Depths 18 and 34 have
// blocks of two 3 x 3 convolutions. Depths 50, 101 and 152 have bottlenecks: convolutions of 1 x 1, 3 x 3 and 1 x 1
// pixels. The last convolution has four times the channels. A shortcut that changes the shape is a 1 x 1 convolution
// with a normalisation. The stem is a 7 x 7 convolution with a stride of 2, then 3 x 3 max-pooling with a stride of 2.
// The stem for small images, such as CIFAR's, is a 3 x 3 convolution.
// Source:  He et al. 2016, "Deep residual learning", Table 1, with shortcut B; for groups Wu and He 2018, "Group
//          normalization".
// Differs: in a bottleneck the 3 x 3 convolution has the stride, as in torchvision and NVIDIA's "v1.5"; in the paper
//          the first 1 x 1 convolution has it. Initial weights are torchvision's: in convolutions normal with deviation
//          sqrt(2 / fan-out), in the dense layer uniform within 1 / sqrt(fan-in).
struct ImagenetResnetOptions {
  enum class Stem { imagenet, cifar };

  std::int64_t depth = 18;  // 18, 34, 50, 101 or 152
  std::int64_t width = 64;  // channels of the stem and of the first stage's 3 x 3 convolutions
  Stem stem = Stem::imagenet;
  ResnetOptions::Norm norm = ResnetOptions::Norm::batch;
  std::int64_t groups = 32;         // must divide the width; for Norm::group
  bool zero_init_residual = false;  // each block starts as the identity, or as its shortcut (Goyal et al. 2017)
};

Network imagenet_resnet_network(const SampleShape& input, std::int64_t classes, const ImagenetResnetOptions& options);

// A transformer for texts. Embeddings of tokens and positions are added. Then follow blocks of attention and of a
// perceptron with exact GELU, and the task's head:
// - classification: a dense layer and tanh of the first token, or the mean over the tokens; then a dense layer.
// - masked-lm: a dense layer, GELU and a normalisation of each hidden token; then the transposed token embedding, plus
//   a bias.
// - causal-lm: the transposed token embedding. Attention does not see later tokens.
// Post-norm normalises the embedding and each sum of a branch and its input. Pre-norm normalises the inputs of
// branches, and the output of the last block. Weights are drawn from the normal distribution with deviation 0.02;
// biases are zero. Dropout applies to the embedding, to each branch's output, and to the features from which a text's
// class is computed.
// Source:  Devlin et al. 2019, "BERT" (post-norm; the first two tasks); Radford et al. 2019, "GPT-2" (pre-norm; the
//          last task).
// Differs: there are no segments, because a sequence is one text. Normalisations add 1e-5 to variances; BERT's code
//          adds 1e-12. Attention weights have no dropout, unlike BERT's and GPT-2's.
struct TextTransformerOptions {
  enum class Norm { before, after };  // before or after the branches
  enum class Pooling { first, mean };

  TextTask task{};
  std::int64_t width = 128;  // features per token; a multiple of `heads`
  std::int64_t depth = 2;    // number of blocks
  std::int64_t heads = 4;
  std::int64_t mlp_width = 512;
  std::int64_t positions = 128;  // number of tokens of the longest sequence
  Norm norm = Norm::after;
  Pooling pooling = Pooling::first;
  double dropout = 0;
};

Network text_transformer_network(const SampleShape& input, std::int64_t classes, const TextTransformerOptions& options);

// A decoder-only transformer that predicts each next token. It consists of: embeddings of tokens, with learned
// positions added or rotary positions in attention; blocks of causal attention and of a perceptron with exact GELU,
// whose inputs are normalised; a normalisation; a head without biases.
// Weights are drawn from the normal distribution. In the last layer of each branch the deviation is divided by
// sqrt(2 depth), so that the sum of all 2 depth branches does not grow with depth. Biases start at 0. Dropout applies
// to the embedding and to each branch's output.
// GPT-2 with 124 million parameters is width 768, depth 12, 12 heads, a context of 1,024 tokens and 50,257 words.
// Source:  Radford et al. 2019, "GPT-2"; for rotary positions Su et al. 2021, "RoFormer"; for RMS normalisation Zhang
//          and Sennrich 2019, "Root mean square layer normalization".
// Differs: as in nanoGPT, GELU is exact and learned positions have the deviation of all other weights; GPT-2's code
//          approximates GELU by tanh (the difference is below 0.0005) and draws positions with deviation 0.01.
//          Attention weights have no dropout, unlike GPT-2's.
struct GptOptions {
  enum class Positions { learned, rotary };
  enum class Norm { layer, rms };

  std::int64_t width = 128;  // features per token; a multiple of `heads`, and of 2 `heads` with rotary positions
  std::int64_t depth = 4;    // number of blocks
  std::int64_t heads = 4;
  std::int64_t context = 256;    // most tokens that the model sees; a sequence has one more, which is only predicted
  std::int64_t mlp_width = 512;  // GPT-2: 4 x width
  Positions positions = Positions::learned;
  double rotary_base = 10000;
  bool tied = true;  // the head uses the weights of the token embedding
  bool bias = true;  // in dense layers and normalisations
  Norm norm = Norm::layer;
  double dropout = 0;
  double deviation = 0.02;
  bool cut = false;  // whether longer sequences are cut
};

Network gpt_network(const SampleShape& input, const GptOptions& options);

// The simple vision transformer. Patches are normalised, projected and normalised again, and fixed positions are added.
// Then follow blocks of attention and of a perceptron with exact GELU, whose inputs are normalised and whose outputs
// are added to their inputs; the mean over the patches, normalised; and a dense layer. There is no class token. The
// projections to queries, keys and values, and the projection of the heads' outputs, have no biases. Dropout is an
// option that the source does not have.
// Source:  Beyer et al. 2022, "Better plain ViT baselines for ImageNet-1k"; layers as in vit-pytorch's SimpleViT.
// Differs: older versions of that code lack the two normalisations around the patches' projection.
struct VisionTransformerOptions {
  std::int64_t patch = 4;    // pixels; must divide height and width
  std::int64_t width = 192;  // features per token; a multiple of 4, at least 8
  std::int64_t depth = 6;    // number of blocks
  std::int64_t heads = 3;
  std::int64_t head_width = 64;
  std::int64_t mlp_width = 768;
  double dropout = 0;  // after the patch embedding, attentions and both layers of perceptrons
};

Network vision_transformer_network(const SampleShape& input, std::int64_t classes,
                                   const VisionTransformerOptions& options);

Model read_linear(Settings& table);
Model read_mlp(Settings& table);
Model read_cnn(Settings& table);
Model read_resnet(Settings& table);
Model read_imagenet_resnet(Settings& table);
Model read_text_transformer(Settings& table);
Model read_gpt(Settings& table);
Model read_vision_transformer(Settings& table);

}  // namespace syncopate
