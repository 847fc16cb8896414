// The layers of a network, as data: which of its parameters they use, and with what numbers. How they are put together
// is in network.hpp, what they compute in forward_pass.hpp.
//
// Between layers stand images (n, channels, height, width), tokens (n, places, width) or vectors (n, features). Texts
// are numbers of words first, and then all their tokens one after another, (t, width) (sequence_batch.hpp).
// Parameters, buffers and tables are numbered in the network's lists; -1: none.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>

namespace syncopate {
class ScriptModule;
}

namespace syncopate::layer {

struct Flatten {};
struct Linear {  // of vectors, or of each token
  int weight = -1;
  int bias = -1;
};
struct Convolution {
  int weight = -1;
  int bias = -1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // pixels of zero on each side
};
struct BatchNorm {
  int weight = -1;
  int bias = -1;
  int buffers = -1;  // running mean; the running variance follows
};
struct GroupNorm {
  int weight = -1;
  int bias = -1;
  std::int64_t groups = 1;
};
struct LayerNorm {  // over the last dimension
  int weight = -1;
  int bias = -1;
};
struct Tanh {};
struct Relu {};
struct Silu {};
struct Gelu {};  // exact, by the error function
// In training each feature is 0 with this chance, by numbers of the sample's own stream from `first_number` on.
struct Dropout {
  double share = 0;  // in [0, 1)
  std::int64_t first_number = 0;
};
struct MaxPool {};   // 2 x 2
struct MeanPool {};  // over all pixels of an image

// What stands between the two is added to what came in. Where the branch has fewer pixels and more channels, the way
// around it takes every `stride`-th pixel, with channels of zero on both sides: shortcut A of He et al. 2016.
struct ResidualBegin {};
struct ResidualEnd {
  std::int64_t stride = 1;
  std::int64_t zeros_before = 0;
  std::int64_t zeros_after = 0;
};

struct Patches {  // images to tokens: squares row by row, each pixel by pixel, each of those channel by channel
  std::int64_t size = 1;
};
struct Positions {  // adds what tells places apart
  int table = -1;
};
// Tokens that hold queries, keys and values of all heads one after another to what the heads give.
struct Attention {
  std::int64_t heads = 1;
};
struct MeanTokens {};  // tokens to vectors

struct BagOfWords {  // texts to vectors: the mean over a text's tokens of a row each, and a bias
  int weight = -1;   // (vocabulary, features)
  int bias = -1;
};
struct WordEmbedding {  // texts to tokens: a row of each word, and one of its place
  int words = -1;       // (vocabulary, width)
  int places = -1;      // (longest, width)
};
// As Attention, of each text by itself; causal: no token sees a later one.
struct TextAttention {
  std::int64_t heads = 1;
  bool causal = false;
};
struct FirstTokens {};  // tokens to vectors: that of each text that begins it
struct MeanOfTexts {};  // tokens to vectors
struct AskedTokens {};  // tokens to vectors: those whose outputs the task asks for

// A whole module of the user's own (script_module.hpp): the only layer of its network, with all parameters and buffers.
struct Script {
  std::shared_ptr<const ScriptModule> module;
};

}  // namespace syncopate::layer

namespace syncopate {

using Layer =
    std::variant<layer::Flatten, layer::Linear, layer::Convolution, layer::BatchNorm, layer::GroupNorm,
                 layer::LayerNorm, layer::Relu, layer::Silu, layer::Gelu, layer::MaxPool, layer::MeanPool,
                 layer::ResidualBegin, layer::ResidualEnd, layer::Patches, layer::Positions, layer::Attention,
                 layer::MeanTokens, layer::BagOfWords, layer::WordEmbedding, layer::TextAttention, layer::FirstTokens,
                 layer::MeanOfTexts, layer::AskedTokens, layer::Tanh, layer::Dropout, layer::Script>;

}  // namespace syncopate
