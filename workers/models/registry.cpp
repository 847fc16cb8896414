#include "workers/models/registry.hpp"

#include <fmt/format.h>

#include "workers/models/architectures.hpp"
#include "workers/models/quadratic.hpp"
#include "workers/models/resnet.hpp"
#include "workers/models/script_model.hpp"
#include "workers/models/text_transformer.hpp"
#include "workers/models/vision_transformer.hpp"

namespace syncopate {
namespace {

Model read_none(Settings&) { return {.time_only = true}; }

constexpr ModelRow rows[] = {
    {"linear", "softmax regression: one dense layer; of texts a bag of words", "", read_linear},
    {"mlp", "fully connected layers with ReLU; [models.mlp] hidden gives the widths", "The multilayer perceptron",
     read_mlp},
    {"cnn", "convolutions with ReLU and max-pooling, then two dense layers; batch normalisation as an option",
     "The convolutional network", read_cnn},
    {"resnet", "residual network of 6 n + 2 layers for small images (ResNet-8, -14, -20); batch or group normalisation",
     "The residual network", read_resnet},
    {"vit", "simple vision transformer: fixed 2-d positions, pre-norm blocks, mean over the patches",
     "The vision transformer", read_vision_transformer},
    {"text-transformer",
     "transformer of texts: their classes, hidden words (BERT's), or each next word; post- or pre-norm",
     "The transformer of texts", read_text_transformer},
    {"torchscript", "a module of one's own, as torch.jit.script saves it; its forward gives logits",
     "A module of one's own", read_torchscript},
    {"quadratic", "a noisy quadratic with a known optimum; needs no data", "The noisy quadratic", read_quadratic},
    {"none", "no model: the same methods on virtual time alone", "", read_none},
};

}  // namespace

std::span<const ModelRow> models() { return rows; }

Model read_models(Settings& root, const ModelRow* chosen) {
  Settings tables = root.section("models");
  Model model;
  for (const ModelRow& row : rows) {
    const std::string sentence =
        row.title.empty() ? "" : fmt::format("{}, training.model = \"{}\".", row.title, row.name);
    Settings table = tables.section({row.name, sentence});
    Model read = row.read(table);
    if (&row == chosen) model = std::move(read);
  }
  return model;
}

}  // namespace syncopate
