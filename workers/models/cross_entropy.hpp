// Cross-entropy with label smoothing: (1 - e) (-log p_label) + e (mean over all classes of -log p), which is the
// cross-entropy with the target (1 - e) onehot + e / classes.
// Source:  Szegedy et al. 2016, "Rethinking the Inception Architecture"; as torch.nn.CrossEntropyLoss has it.
// Shapes:  logits (n, classes), labels (n,); sums over the samples.
#pragma once

#include <ATen/ATen.h>

namespace syncopate {

struct LossSums {
  at::Tensor minimised;  // with the smoothing
  at::Tensor reported;   // without it; the same tensor where there is none
};

// Where samples are mixed with others (mixup.hpp): the others' labels (n,), and their shares (n,) of the losses.
struct MixedLabels {
  at::Tensor labels;
  at::Tensor shares;
};

LossSums cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing,
                       const MixedLabels* mixed = nullptr);

// What is reported, of each sample: (n,).
at::Tensor losses_of_samples(const at::Tensor& logits, const at::Tensor& labels, const MixedLabels* mixed = nullptr);

// Each sample's loss times its weight; weights (n,).
LossSums cross_entropy(const at::Tensor& logits, const at::Tensor& labels, double smoothing, const at::Tensor& weights);

}  // namespace syncopate
