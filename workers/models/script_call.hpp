// Loading a module that was saved as TorchScript, and calling it: what LibTorch throws becomes a ScriptFault. For
// sources with LibTorch alone.
//
// Operators run one by one as in C++. LibTorch's executors would rewrite a module for the shapes and the gradients that
// they have seen: that costs more than it gains here, and changes the arithmetic in the middle of a run, thread by
// thread.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <exception>
#include <filesystem>
#include <string>

namespace syncopate {

// Of what LibTorch says: the reason, without the way that the program took.
std::string reason_of(const std::exception& problem);

// Throws ScriptFault where it is no module with a forward.
torch::jit::Module load_module(const std::filesystem::path& file);

// Whether forward has a second argument that takes the lengths of sequences: a tensor, or one that may be None.
bool takes_lengths(const torch::jit::Module& module);

// What forward gives, one tensor. `lengths`: its second argument; undefined: it has none. Throws ScriptFault.
at::Tensor call(torch::jit::Module& module, const at::Tensor& inputs, const at::Tensor& lengths = {});

// The same on copies of inputs and lengths, which forward may change in place.
at::Tensor call_on_copies(torch::jit::Module& module, const at::Tensor& inputs, const at::Tensor& lengths = {});

}  // namespace syncopate
