// LibTorch is loaded by runs that train a network, and by nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/program.hpp"
#include "tests/workers/script_files.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::Not;

// A run of one step.
std::string experiment(const std::string& model) {
  return "name = \"one\"\n[cluster]\nworkers = 2\nmicro_batch_s = 0.001\n[network]\nkind = \"free\"\n[training]\nmodel "
         "= \"" +
         model +
         "\"\nmicro_batch_size = 4\ndataset = \"gaussian-mixture\"\n[datasets.gaussian-mixture]\ntrain = 64\ntest = 8\n"
         "[training.learning_rate]\nschedule = \"constant\"\npeak = 0.1\n[training.optimizer]\nname = \"sgd\"\n"
         "[budget]\nsteps = 1\n[[methods]]\nalgorithm = \"sync-sgd\"\n";
}

class TorchLibrary : public ProgramTest {
 protected:
  // The program's copy without the library that lies beside it.
  std::string lone_program() const {
    std::filesystem::copy_file(SYNCOPATE_PROGRAM, directory / "lone");
    return "./lone ";
  }
  nlohmann::json metadata() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results"))
      if (entry.path().filename() == "metadata.json") return nlohmann::json::parse(read(entry.path()));
    return {};
  }
};

TEST_F(TorchLibrary, IsNotNeededByWhatTrainsNoNetwork) {
  const std::string program = lone_program();
  EXPECT_EQ(shell(program + "list algorithms").status, 0);
  write("network.toml", experiment("linear"));
  EXPECT_EQ(shell(program + "check network.toml").status, 0);
  EXPECT_EQ(shell(program + "predict network.toml").status, 0);
  write("quadratic.toml", experiment("quadratic"));
  const auto run = shell(program + "run quadratic.toml");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(metadata()["blas_kernel"], "none loaded");
  EXPECT_EQ(metadata()["torch_kernels"], "none loaded");
}

TEST_F(TorchLibrary, WithoutItThereIsStillAVersion) {
  const auto version = shell(lone_program() + "--version");
  EXPECT_EQ(version.status, 0) << version.err;
  EXPECT_THAT(version.out, HasSubstr("unknown: cannot load syncopate_torch.so"));
  EXPECT_THAT(version.out, HasSubstr("Boost"));
}

TEST_F(TorchLibrary, IsMissedBeforeAnythingIsRun) {
  write("network.toml", experiment("linear"));
  const auto run = shell(lone_program() + "run network.toml");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("cannot load syncopate_torch.so, which is built beside the program"));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
}

TEST_F(TorchLibrary, IsLoadedForANetwork) {
  write("network.toml", experiment("linear"));
  const auto run = syncopate("run network.toml");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(metadata()["blas_kernel"].get<std::string>(), Not(HasSubstr("none")));
}

// A transpose of three dimensions is one that LibTorch warns of.
TEST_F(TorchLibrary, ItsWarningsDoNotStandAmongTheProgramsLines) {
  save_script((directory / "model.pt").string(), {{.name = "weight", .shape = {10, 32}}},
              "return torch.linear(x.unsqueeze(2).numpy_T().squeeze(0).t(), self.weight)");
  write("network.toml", experiment("torchscript") + "[models.torchscript]\nfile = \"model.pt\"\n");
  const auto run = syncopate("run network.toml");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, Not(HasSubstr("Warning")));
  EXPECT_THAT(run.err, Not(HasSubstr("WARNING")));
  EXPECT_THAT(shell("GLOG_minloglevel=0 TORCH_CPP_LOG_LEVEL=0 " SYNCOPATE_PROGRAM " check network.toml").err,
              HasSubstr("deprecated"))
      << "there is one";
}

}  // namespace
}  // namespace syncopate
