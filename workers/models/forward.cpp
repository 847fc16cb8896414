#include "workers/models/forward.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <boost/math/special_functions/beta.hpp>
#include <cassert>
#include <cmath>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "workers/base/random.hpp"
#include "workers/data/dataset.hpp"

namespace syncopate {

namespace {

// Defaults of torch::nn::BatchNorm2d and GroupNorm.
constexpr double batch_norm_momentum = 0.1;
constexpr double epsilon = 1e-5;

// Elements [offset, offset + size) of the flat tensor. Unlike LibTorch's views, these tensors have separate version
// counters. With a common counter, autograd would reject a backward pass after another layer has updated its
// statistics.
at::Tensor part_of(const at::Tensor& flat, std::size_t offset, at::IntArrayRef shape) {
  if (flat.is_cpu())
    return at::from_blob(
        flat.data_ptr<float>() + offset, shape, [flat](void*) {}, flat.options());
  // Not every device has addresses. variable_data() gives a view its own version counter; in inference mode no tensor
  // has one.
  const at::Tensor part = flat.narrow(0, static_cast<std::int64_t>(offset), c10::multiply_integers(shape)).view(shape);
  return part.is_inference() ? part : part.variable_data();
}

// The mask to add to a group's scores (texts, heads, longest, longest); undefined if none is needed.
at::Tensor forbidden(const TextGroup& group, bool causal, const at::Tensor& like) {
  constexpr double never = -std::numeric_limits<double>::infinity();
  // A causal mask also hides the padding, which comes after each token of a text.
  if (causal) return at::triu(at::full({group.longest, group.longest}, never, like.options()), 1);
  if (!group.lengths.defined()) return {};
  const auto places = at::arange(group.longest, group.lengths.options());
  const auto behind = places.unsqueeze(0).ge(group.lengths.unsqueeze(1));  // (texts, longest)
  return at::zeros(behind.sizes(), like.options()).masked_fill_(behind, never).unsqueeze(1).unsqueeze(2);
}

// Rotates the pairs (i, i + d / 2) of queries or keys (..., longest, d) by the angles of their positions. `angles`:
// rows of rotary_positions, (at least longest, d). `direction`: -1 rotates back.
at::Tensor rotated(const at::Tensor& vectors, const at::Tensor& angles, double direction = 1) {
  const auto of_places = angles.narrow(0, 0, vectors.size(-2)).chunk(2, 1);
  const at::Tensor &cosines = of_places[0], &sines = of_places[1];
  const auto halves = vectors.chunk(2, -1);
  return at::cat({at::addcmul(halves[0] * cosines, halves[1], sines, -direction),
                  at::addcmul(halves[1] * cosines, halves[0], sines, direction)},
                 -1);
}

// Whether LibTorch's own attention operator computes causal attention. It stores no scores on a GPU.
bool uses_torch_attention(const at::Tensor& tokens) { return TORCH_VERSION_MAJOR >= 2 && !tokens.is_cpu(); }

// softmax(Q K^T / sqrt(d)) V for each text, head by head: (tokens, 3 width) to (tokens, width). `angles`: of rotary
// positions; undefined: no rotation.
at::Tensor attend(const TextGroup& group, const layer::Attention& layer, const at::Tensor& angles,
                  const at::Tensor& tokens) {
  const auto width = tokens.size(1) / (3 * layer.heads);
  const bool is_padded = group.tokens_of_slots.defined();
  // Rows are selected by an embedding, because that has a faster backward pass than other selections.
  const auto slots = is_padded ? at::embedding(tokens, group.tokens_of_slots) : tokens;
  auto parts = slots.reshape({group.texts, group.longest, 3, layer.heads, width}).permute({2, 0, 3, 1, 4}).unbind();
  if (angles.defined())
    for (const std::size_t part : {0, 1}) parts[part] = rotated(parts[part], angles);
  at::Tensor heads;
  if (layer.causal && uses_torch_attention(tokens)) {
    heads = causal_attention_by_torch(parts[0].to(tokens.scalar_type()), parts[1].to(tokens.scalar_type()), parts[2]);
  } else {
    const auto scale = 1 / std::sqrt(static_cast<double>(width));
    auto scores = at::matmul(parts[0] * scale, parts[1].transpose(2, 3));
    if (const auto added = forbidden(group, layer.causal, tokens); added.defined()) scores = scores + added;
    heads = at::matmul(at::softmax(scores, 3), parts[2]);
  }
  const auto rows = heads.transpose(1, 2).reshape({group.texts * group.longest, layer.heads * width});
  return is_padded ? at::embedding(rows, group.slots_of_tokens) : rows;
}

// Queries, keys and values of one text, (heads, length, d). Queries are divided by sqrt(d).
struct Heads {
  at::Tensor queries, keys, values;
};

// How attention in blocks computes a group of texts.
struct BlockedTexts {
  std::int64_t heads = 1;
  at::Tensor angles;  // rotary positions; undefined: no rotation
  std::vector<std::int64_t> sizes;
};

// The heads of `features` (length, parts x heads x d), part by part: views (heads, length, d).
std::vector<at::Tensor> views_of_heads(const at::Tensor& features, std::int64_t parts, std::int64_t heads) {
  const std::int64_t d = features.size(1) / (parts * heads);
  return features.view({features.size(0), parts, heads, d}).permute({1, 2, 0, 3}).unbind();
}

Heads heads_of(const at::Tensor& tokens, const BlockedTexts& texts) {
  const auto parts = views_of_heads(tokens, 3, texts.heads);
  const auto turned = [&](const at::Tensor& part) {
    return texts.angles.defined() ? rotated(part, texts.angles) : part.contiguous();
  };
  const auto type = tokens.scalar_type();
  return {.queries = (turned(parts[0]) / std::sqrt(static_cast<double>(parts[0].size(2)))).to(type),
          .keys = turned(parts[1]).to(type),
          .values = parts[2].contiguous()};
}

// Calls `compute` with the first query of each block, the number of its queries, and their attention weights (heads,
// queries, keys) for all tokens up to the block's end.
template <typename Compute>
void for_each_block(const Heads& of, Compute compute) {
  constexpr double never = -std::numeric_limits<double>::infinity();
  const std::int64_t length = of.queries.size(1);
  const auto later =
      at::triu(at::full({layer::attention_block, layer::attention_block}, never, of.queries.options()), 1);
  for (std::int64_t begin = 0; begin < length; begin += layer::attention_block) {
    const std::int64_t count = std::min(layer::attention_block, length - begin), end = begin + count;
    auto scores = at::bmm(of.queries.narrow(1, begin, count), of.keys.narrow(1, 0, end).transpose(1, 2));
    scores.narrow(2, begin, count).add_(later.narrow(0, 0, count).narrow(1, 0, count));
    compute(begin, count, at::softmax(scores, 2, at::kFloat));
  }
}

// Adds the products of matrices to `sums`, whose precision may be higher than that of the factors.
void add_products(const at::Tensor& sums, const at::Tensor& a, const at::Tensor& b) {
  if (sums.scalar_type() == a.scalar_type())
    sums.baddbmm_(a, b);
  else
    sums.add_(at::bmm(a, b));
}

// Operators keep the types of their arguments while this exists, also under autocast.
using WithoutAutocast = c10::impl::ExcludeDispatchKeyGuard;

// Causal attention, text by text, in blocks of queries: (tokens, 3 width) to (tokens, width). The scores of a block fit
// into the cache, and scores of later tokens are not computed. The backward pass computes the attention weights again,
// so that nothing is stored except the input. Factors of products have the input's type; the softmax and all sums are
// in single precision. README.md compares the time with that of computing all scores at once.
// Source:  Rabe and Staats 2021, "Self-attention does not need O(n^2) memory".
class AttentionInBlocks : public torch::autograd::Function<AttentionInBlocks> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tokens,
                            const BlockedTexts& texts) {
    const WithoutAutocast as_given(c10::autocast_dispatch_keyset);
    context->save_for_backward({tokens});
    context->saved_data["heads"] = texts.heads;
    context->saved_data["angles"] = texts.angles;
    context->saved_data["sizes"] = texts.sizes;
    auto output = at::empty({tokens.size(0), tokens.size(1) / 3}, tokens.options());
    std::int64_t first = 0;
    for (const std::int64_t size : texts.sizes) {
      const Heads of = heads_of(tokens.narrow(0, first, size), texts);
      const at::Tensor results = views_of_heads(output.narrow(0, first, size), 1, texts.heads).front();
      for_each_block(of, [&](std::int64_t begin, std::int64_t count, const at::Tensor& shares) {
        results.narrow(1, begin, count)
            .copy_(at::bmm(shares.to(tokens.scalar_type()), of.values.narrow(1, 0, begin + count)));
      });
      first += size;
    }
    return output;
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const WithoutAutocast as_given(c10::autocast_dispatch_keyset);
    const at::Tensor tokens = context->get_saved_variables().front();
    const at::Tensor by_output = gradients.front().contiguous();
    const BlockedTexts texts{.heads = context->saved_data["heads"].toInt(),
                             .angles = context->saved_data["angles"].toTensor(),
                             .sizes = context->saved_data["sizes"].toIntVector()};
    auto by_tokens = at::empty_like(tokens);
    std::int64_t first = 0;
    for (const std::int64_t size : texts.sizes) {
      differentiate(tokens.narrow(0, first, size), by_output.narrow(0, first, size), texts,
                    by_tokens.narrow(0, first, size));
      first += size;
    }
    return {by_tokens, {}};
  }

 private:
  // Writes the gradient of one text.
  static void differentiate(const at::Tensor& tokens, const at::Tensor& by_output, const BlockedTexts& texts,
                            const at::Tensor& by_tokens) {
    const Heads of = heads_of(tokens, texts);
    const at::Tensor by_results = views_of_heads(by_output, 1, texts.heads).front().contiguous();
    const auto type = tokens.scalar_type();
    const Heads by{.queries = at::empty_like(of.queries, at::kFloat),
                   .keys = at::zeros_like(of.keys, at::kFloat),
                   .values = at::zeros_like(of.values, at::kFloat)};
    for_each_block(of, [&](std::int64_t begin, std::int64_t count, const at::Tensor& shares) {
      const std::int64_t end = begin + count;
      const at::Tensor by_block = by_results.narrow(1, begin, count);
      add_products(by.values.narrow(1, 0, end), shares.to(type).transpose(1, 2), by_block);
      const auto by_shares = at::bmm(by_block, of.values.narrow(1, 0, end).transpose(1, 2)).to(at::kFloat);
      const auto by_scores = at::_softmax_backward_data(by_shares, shares, 2, at::kFloat).to(type);
      by.queries.narrow(1, begin, count).copy_(at::bmm(by_scores, of.keys.narrow(1, 0, end)));
      add_products(by.keys.narrow(1, 0, end), by_scores.transpose(1, 2), of.queries.narrow(1, begin, count));
    });
    by.queries.div_(std::sqrt(static_cast<double>(of.queries.size(2))));
    // The gradient of a rotation is the rotation by the opposite angle.
    const auto turned_back = [&](const at::Tensor& part) {
      return texts.angles.defined() ? rotated(part, texts.angles, -1) : part;
    };
    const auto parts = views_of_heads(by_tokens, 3, texts.heads);
    parts[0].copy_(turned_back(by.queries));
    parts[1].copy_(turned_back(by.keys));
    parts[2].copy_(by.values);
  }
};

// (n, width): row i is the mean of rows[names[k]] for k from begins[i] up to begins[i + 1].
at::Tensor mean_of_each(const at::Tensor& rows, const at::Tensor& names, const at::Tensor& begins) {
  if (rows.scalar_type() == at::kDouble) {  // LibTorch has no second derivatives of an embedding bag
    const auto sizes = at::diff(at::cat({begins, at::full({1}, names.numel(), begins.options())}));
    const auto owners = at::repeat_interleave(sizes);
    const auto sums =
        at::zeros({begins.numel(), rows.size(1)}, rows.options()).index_add(0, owners, rows.index_select(0, names));
    return sums / sizes.unsqueeze(1);
  }
  constexpr std::int64_t mean = 1;
  return std::get<0>(at::embedding_bag(rows, names, begins, /*scale_grad_by_freq=*/false, mean));
}

// A table of a network (n,) on a device, to which it is copied once. A view on the processor.
at::Tensor table_on(const NetworkTable& table, const at::Device& device) {
  const at::Tensor host = flat_view(table->data(), table->size());
  if (device.is_cpu()) return host;
  struct Copy {
    std::weak_ptr<const std::vector<float>> of;
    at::Tensor values;
  };
  static std::mutex mutex;
  static auto* const copies = new std::list<Copy>;  // never freed, because a GPU's library may end before it
  const std::lock_guard lock(mutex);
  copies->remove_if([](const Copy& copy) { return copy.of.expired(); });
  for (const Copy& copy : *copies)
    if (copy.of.lock() == table && copy.values.device() == device) return copy.values;
  const c10::InferenceMode usable_in_training(false);
  copies->push_back({table, host.to(device)});
  return copies->back().values;
}

// One forward pass: what each kind of layer computes.
class ForwardPass {
 public:
  // All arguments must live as long as the pass. If it records the linear layers, the loss must be differentiated with
  // respect to their outputs.
  ForwardPass(const Network& network, const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
              const NetworkInputs& inputs, Mode mode, const Visits* visits, std::vector<LinearPass>* passes)
      : network_(network),
        parameters_(parameters),
        buffers_(buffers),
        texts_(std::get_if<SequenceBatch>(&inputs)),
        mode_(mode),
        visits_(visits),
        passes_(passes) {
    if (!texts_) x_ = std::get<at::Tensor>(inputs);
  }

  const at::Tensor& output() {
    for (const Layer& layer : network_.layers()) std::visit(*this, layer);
    return x_;
  }

  void operator()(const layer::Flatten&) { x_ = x_.flatten(1); }

  void operator()(const layer::Linear& layer) {
    at::Tensor inputs = std::move(x_);
    x_ = at::linear(inputs, parameter(layer.weight), parameter(layer.bias));
    if (!passes_) return;
    if (!x_.requires_grad()) x_.requires_grad_();  // in the first layer, because parameters do not require gradients
    passes_->push_back({.layer = layer, .inputs = inputs.detach(), .outputs = x_});
  }

  // In place, unless passes_, or a branch that has just begun, needs the input later. The backward passes of the
  // preceding layers (linear, convolution, normalisation, sum) do not need their outputs.
  void operator()(const layer::Relu&) {
    const bool is_kept = passes_ || (!residuals_.empty() && residuals_.back().is_same(x_));
    x_ = is_kept ? at::relu(x_) : at::relu_(x_);
  }

  void operator()(const layer::Tanh&) { x_ = at::tanh(x_); }

  // Not in place, because SiLU and GELU need their inputs in the backward pass.
  void operator()(const layer::Silu&) { x_ = at::silu(x_); }

  void operator()(const layer::Gelu&) { x_ = at::gelu(x_); }

  // Dropout of Srivastava et al. 2014. Training scales kept features up, so that evaluations need not scale features.
  void operator()(const layer::Dropout& layer) {
    if (mode_ == Mode::evaluate || layer.share == 0) return;
    const at::Tensor mask = at::empty(x_.sizes(), at::kFloat);
    float* row = mask.data_ptr<float>();
    const std::vector<std::int64_t> rows = rows_of_samples();
    const std::int64_t features = x_.numel() / x_.size(0);
    const auto kept = static_cast<float>(1 / (1 - layer.share));
    thread_local std::vector<double> uniform;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      uniform.resize(static_cast<std::size_t>(rows[i] * features));
      visits_->stream(Purpose::dropout, i).fill_uniform(static_cast<std::uint32_t>(layer.first_number), uniform);
      row = std::ranges::transform(uniform, row, [&](double u) { return u < layer.share ? 0.0f : kept; }).out;
    }
    x_ = x_ * mask.to(device());
  }

  // oneDNN's gradients in bfloat16 are NaN for weights that are multiplied by padding only, as in a 3 x 3 kernel on
  // images of 1 x 1 pixel.
  void operator()(const layer::Convolution& layer) {
    const bool some_meet_none = std::min(x_.size(2), x_.size(3)) <= layer.padding;
    std::optional<c10::impl::ExcludeDispatchKeyGuard> in_float;
    if (some_meet_none) in_float.emplace(c10::autocast_dispatch_keyset);
    x_ = at::conv2d(some_meet_none ? in_single_precision() : x_, parameter(layer.weight), parameter(layer.bias),
                    layer.stride, layer.padding);
  }

  void operator()(const layer::BatchNorm& layer) {
    const auto first = static_cast<std::size_t>(layer.buffers);
    x_ = at::batch_norm(x_, parameter(layer.weight), parameter(layer.bias), buffers_[first], buffers_[first + 1],
                        mode_ != Mode::evaluate, mode_ == Mode::measure ? 1.0 : batch_norm_momentum, epsilon,
                        /*cudnn_enabled=*/x_.is_cuda());
  }

  void operator()(const layer::GroupNorm& layer) {
    x_ = at::group_norm(in_single_precision(), layer.groups, parameter(layer.weight), parameter(layer.bias), epsilon,
                        /*cudnn_enabled=*/false);
  }

  void operator()(const layer::MaxPool& layer) {
    const auto both = [](std::int64_t size) { return std::array{size, size}; };
    x_ = at::max_pool2d(x_, both(layer.kernel), both(layer.stride), both(layer.padding));
  }

  void operator()(const layer::MeanPool&) {
    if (texts_)
      x_ = mean_of_each(x_, at::arange(x_.size(0), texts_->begins.options()), texts_->begins);
    else
      x_ = x_.dim() == 4 ? x_.mean({2, 3}) : x_.mean(1);
  }

  void operator()(const layer::ResidualBegin&) { residuals_.push_back(x_); }
  void operator()(const layer::ShortcutBegin&) { std::swap(x_, residuals_.back()); }

  void operator()(const layer::ResidualEnd& layer) {
    at::Tensor around = std::move(residuals_.back());
    residuals_.pop_back();
    if (layer.stride > 1) {
      constexpr auto all = std::numeric_limits<std::int64_t>::max();
      around = around.slice(2, 0, all, layer.stride).slice(3, 0, all, layer.stride);
    }
    if (layer.zeros_before > 0 || layer.zeros_after > 0)
      around = at::constant_pad_nd(around, {0, 0, 0, 0, layer.zeros_before, layer.zeros_after});
    x_ = x_ + around;
  }

  void operator()(const layer::BagOfWords& layer) {
    x_ = mean_of_each(parameter(layer.weight), texts_->tokens, texts_->begins) + parameter(layer.bias);
  }

  void operator()(const layer::WordEmbedding& layer) {
    x_ = at::embedding(parameter(layer.words), texts_->tokens);
    if (layer.places >= 0) x_ = x_ + at::embedding(parameter(layer.places), texts_->places);
  }

  void operator()(const layer::Attention& layer) {
    if (!texts_) {
      const TextGroup images{.texts = x_.size(0), .longest = x_.size(1)};
      x_ = attend(images, layer, {}, x_.flatten(0, 1)).view({images.texts, images.longest, -1});
      return;
    }
    const std::int64_t width = x_.size(1) / (3 * layer.heads);
    const at::Tensor angles = layer.rotary < 0 ? at::Tensor() : table(layer.rotary, {-1, width});
    std::vector<at::Tensor> parts;
    for (const TextGroup& group : texts_->groups) {
      const auto tokens = x_.narrow(0, group.begin, group.tokens);
      // Second derivatives, which are in double precision, need operators that have them.
      if (layer.in_blocks && group.longest > layer::attention_block && x_.scalar_type() != at::kDouble &&
          !uses_torch_attention(x_))
        parts.push_back(AttentionInBlocks::apply(
            tokens, BlockedTexts{.heads = layer.heads, .angles = angles, .sizes = group.sizes}));
      else
        parts.push_back(attend(group, layer, angles, tokens));
    }
    x_ = parts.size() == 1 ? parts.front() : at::cat(parts);
  }

  void operator()(const layer::FirstTokens&) { x_ = at::embedding(x_, texts_->begins); }

  // The needed tokens are different and in ascending order. If all tokens are needed, all rows remain.
  void operator()(const layer::AskedTokens&) {
    if (texts_->asked.numel() < x_.size(0)) x_ = at::embedding(x_, texts_->asked);
  }

  void operator()(const layer::Patches& layer) {
    const auto n = x_.size(0), channels = x_.size(1), size = layer.size;
    const auto rows = x_.size(2) / size, columns = x_.size(3) / size;
    x_ = x_.reshape({n, channels, rows, size, columns, size})
             .permute({0, 2, 4, 3, 5, 1})
             .reshape({n, rows * columns, size * size * channels});
  }

  void operator()(const layer::Positions& layer) { x_ = x_ + table(layer.table, {x_.size(1), x_.size(2)}); }

  void operator()(const layer::LayerNorm& layer) {
    x_ = at::layer_norm(in_single_precision(), {x_.size(-1)}, parameter(layer.weight), parameter(layer.bias), epsilon);
  }

  void operator()(const layer::RmsNorm& layer) {
    x_ = x_ * at::rsqrt(x_.square().mean(-1, /*keepdim=*/true) + epsilon) * parameter(layer.weight);
  }

  void operator()(const layer::Script& layer) {
    x_ = forward_script(*layer.module, network_, parameters_, buffers_, x_, texts_, mode_);
  }

 private:
  // The device of the pass.
  at::Device device() const { return texts_ ? texts_->tokens.device() : x_.device(); }

  // One of the network's tables, on the processor without a copy. A size of -1 follows from the other sizes.
  at::Tensor table(int index, at::IntArrayRef sizes) const {
    return table_on(network_.tables()[static_cast<std::size_t>(index)], device()).view(sizes);
  }

  // For each sample its number of rows: one, or one per token while the tokens of texts are separate rows.
  std::vector<std::int64_t> rows_of_samples() const {
    assert(visits_ && (texts_ || visits_->size() == static_cast<std::size_t>(x_.size(0))));
    std::vector<std::int64_t> rows(visits_->size(), 1);
    if (!texts_ || x_.size(0) != texts_->tokens.numel()) return rows;
    const at::Tensor in_memory = texts_->begins.to(at::kCPU);
    const std::int64_t* const begins = in_memory.data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < rows.size(); ++i)
      rows[i] = (i + 1 < rows.size() ? begins[i + 1] : texts_->tokens.numel()) - begins[i];
    return rows;
  }

  // Normalisations of rows have single-precision parameters, so they need single-precision inputs, also under autocast.
  at::Tensor in_single_precision() const { return x_.scalar_type() == at::kBFloat16 ? x_.to(at::kFloat) : x_; }

  at::Tensor parameter(int index) const {
    return index < 0 ? at::Tensor() : parameters_[static_cast<std::size_t>(index)];
  }

  const Network& network_;
  const std::vector<at::Tensor>& parameters_;
  const std::vector<at::Tensor>& buffers_;
  const SequenceBatch* texts_;  // null: numbers
  Mode mode_;
  const Visits* visits_;  // null: no random draws
  std::vector<LinearPass>* passes_;
  at::Tensor x_;                       // output of the layers so far
  std::vector<at::Tensor> residuals_;  // inputs of the open branches
};

bool treats_samples_separately(const Layer& layer) {
  return std::visit(
      [](const auto& of_kind) {
        return OneOf<std::decay_t<decltype(of_kind)>, layer::Flatten, layer::Linear, layer::Relu, layer::Silu,
                     layer::Gelu, layer::Tanh, layer::Dropout>;
      },
      layer);
}

// LibTorch's dispatcher calls the kernels of the keys that a thread has enabled before all other kernels. LibTorch does
// not use TESTING_ONLY_GenericMode.
constexpr auto key = c10::DispatchKey::TESTING_ONLY_GenericMode;

struct Draws {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  std::uint64_t seed = 0;
  std::uint64_t drawn = 0;
  bool are_seeded = false;
};

Draws& draws() {
  thread_local Draws of_this_thread;
  return of_this_thread;
}

// Passes this thread's generator to an operator that would use LibTorch's generator.
void draw(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "generator") continue;
    c10::IValue& value = (*stack)[stack->size() - arguments.size() + i];
    if (value.isNone()) value = draws().generator;
  }
  ++draws().drawn;
  const c10::impl::ExcludeDispatchKeyGuard as_usual(key);
  op.callBoxed(stack);
}

// All of ATen's operators that draw in place. The other operators that draw (dropout, rand, randn_like) call these.
constexpr const char* drawing_operators[] = {"bernoulli_.float", "bernoulli_.Tensor", "uniform_",     "normal_",
                                             "random_",          "random_.from",      "random_.to",   "exponential_",
                                             "geometric_",       "log_normal_",       "cauchy_",      "multinomial",
                                             "poisson",          "binomial",          "bernoulli.out"};

// Registers once per process, because tests link these sources and also load the library that contains them.
void register_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never unregistered, because threads may still draw while the process ends.
    static auto* const others = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
    others->fallback(torch::CppFunction::makeFallthrough());
    static auto* const drawing = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    for (const char* const name : drawing_operators)
      drawing->impl(name, torch::CppFunction::makeFromBoxedFunction<&draw>());
  });
}

}  // namespace

at::Tensor causal_attention_by_torch(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values) {
#if TORCH_VERSION_MAJOR >= 2
  return at::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true);
#else
  (void)keys, (void)values;
  TORCH_CHECK(false, "LibTorch ", TORCH_VERSION, " has no attention operator");
  return queries;
#endif
}

at::Tensor flat_view(const float* flat, std::size_t size) {
  return at::from_blob(const_cast<float*>(flat), {static_cast<std::int64_t>(size)}, at::kFloat);
}

std::vector<at::Tensor> view_parameters(const Network& network, const at::Tensor& flat) {
  std::vector<at::Tensor> views;
  views.reserve(network.parameters().size());
  for (const Parameter& parameter : network.parameters())
    views.push_back(part_of(flat, parameter.offset, parameter.shape));
  return views;
}

std::vector<at::Tensor> view_buffers(const Network& network, const at::Tensor& flat) {
  std::vector<at::Tensor> views;
  views.reserve(network.buffers().size());
  for (const Buffer& buffer : network.buffers()) views.push_back(part_of(flat, buffer.offset, buffer.shape));
  return views;
}

at::Tensor forward(const Network& network, const std::vector<at::Tensor>& parameters,
                   const std::vector<at::Tensor>& buffers, const NetworkInputs& inputs, Mode mode, const Visits* visits,
                   std::vector<LinearPass>* passes) {
  return ForwardPass(network, parameters, buffers, inputs, mode, visits, passes).output();
}

bool is_made_of_linear_layers(const Network& network) {
  return !network.input().has_tokens() && !network.parameters().empty() &&
         std::ranges::all_of(network.layers(), treats_samples_separately);
}

Mixture drawn_mixture(std::uint64_t seed, const MicroBatch& micro_batch, std::size_t samples, double alpha) {
  const RandomStream stream{
      .seed = seed, .purpose = Purpose::mixup, .worker = micro_batch.worker, .step = micro_batch.step};
  // Micro-batches of one step use consecutive numbers of the step's stream: one for the share, then one per sample.
  const auto first = static_cast<std::uint32_t>(static_cast<std::size_t>(micro_batch.index) * (samples + 1));
  return {.share = static_cast<float>(boost::math::ibeta_inv(alpha, alpha, stream.uniform(first))),
          .partners = permutation(stream, samples, first + 1)};
}

void mix(const Mixture& mixture, std::span<float> inputs) {
  const std::size_t features = inputs.size() / mixture.partners.size();
  thread_local std::vector<float> before;
  before.assign(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < mixture.partners.size(); ++i) {
    const float* const partner = before.data() + mixture.partners[i] * features;
    float* const row = inputs.data() + i * features;
    for (std::size_t f = 0; f < features; ++f) row[f] += mixture.share * (partner[f] - row[f]);
  }
}

SeededDraws::SeededDraws(std::optional<std::uint64_t> seed) {
  if (!seed) return;
  register_once();
  assert(!draws().are_seeded);
  are_seeded_ = &draws().are_seeded;
  *are_seeded_ = true;
  draws().seed = *seed;
  repeat();
  c10::impl::tls_set_dispatch_key_included(key, true);
}

SeededDraws::~SeededDraws() {
  if (are_seeded_ == nullptr) return;
  c10::impl::tls_set_dispatch_key_included(key, false);
  *are_seeded_ = false;
}

void SeededDraws::repeat() {
  if (draws().are_seeded) draws().generator.set_current_seed(draws().seed);
}

std::uint64_t SeededDraws::drawn() { return draws().drawn; }

std::uint64_t seed_of_draws(std::uint64_t seed, const MicroBatch& micro_batch) {
  const RandomStream stream{
      .seed = seed, .purpose = Purpose::module_draws, .worker = micro_batch.worker, .step = micro_batch.step};
  const auto bits = stream.block(static_cast<std::uint32_t>(micro_batch.index));
  return (std::uint64_t{bits[0]} << 32) | bits[1];
}

}  // namespace syncopate
