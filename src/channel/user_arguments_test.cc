#include "channel/user_arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace millrace {
namespace {

using ::testing::ElementsAre;

// Values are compared with SageMaker's toolkit itself in tests/cli/test_hyperparameter_args.py.

TEST(UserArguments, AreInTheOrderOfNamesWithoutThoseOfTheToolkit) {
  TrainingJob job;
  job.hyperparameters = {
      {"lr", "0.1"}, {"b", "true"}, {"sagemaker_program", "x.py"}, {"_tuning_objective_metric", "m"}};
  EXPECT_THAT(UserArguments(job), ElementsAre("-b", "True", "--lr", "0.1"));
}

using Words = std::vector<std::string>;

bool Gets(const Words& command, const std::string& program = "") {
  const Words with = WithArguments(command, {"--lr", "0 1"}, program);
  if (with == command) return false;
  if (with.size() == command.size()) {
    EXPECT_EQ(with.back(), command.back() + " --lr '0 1'");
  } else {
    Words all = command;
    all.insert(all.end(), {"--lr", "0 1"});
    EXPECT_EQ(with, all);
  }
  return true;
}

TEST(WithArguments, PythonScriptsAndModulesGetThem) {
  for (const Words& command : {Words{"python", "train.py"},
                               {"/usr/bin/python3.11", "-u", "-W", "ignore", "train", "--x"},
                               {"python3", "-m", "pkg.train"},
                               {"python3", "-um", "pkg.train"},
                               {"./train.py"},
                               {"env", "A=b", "python", "train.py"},
                               {"torchrun", "--nproc-per-node", "8", "train.py"},
                               {"torchrun", "--nproc-per-node", "8", "-m", "pkg.train"},
                               {"accelerate", "launch", "train.py"},
                               {"mpirun", "-n", "2", "python3", "-u", "train.py"},
                               {"sh", "-c", "python train.py"},
                               {"sh", "-c", "exec torchrun --nproc-per-node $N train.py"},
                               {"bash", "-lc", "cd x && python train.py >log 2>&1"}})
    EXPECT_TRUE(Gets(command)) << ::testing::PrintToString(command);
}

TEST(WithArguments, OthersDoNot) {
  for (const Words& command : {Words{},
                               {"true"},
                               {"python"},
                               {"python", "-"},
                               {"python", "-c", "print(1)"},
                               {"python", "-uc", "print(1)", "x.py"},
                               {"bash", "train.sh", "config.py"},
                               {"./train", "--config=x.py"},
                               {"sh", "-c", "python train.py; echo done"},
                               {"sh", "-c", "python train.py | tee log"},
                               {"sh", "-c", "python prepare.py && python train.py"},
                               {"sh", "-c", "python train.py # lr"},
                               {"sh", "-c", "python -", "x.py"}})
    EXPECT_FALSE(Gets(command)) << ::testing::PrintToString(command);
}

TEST(WithArguments, SoDoesTheProgramOfTheJob) {
  EXPECT_TRUE(Gets({"bash", "train.sh"}, "train.sh"));
  EXPECT_TRUE(Gets({"./code/train.sh"}, "train.sh"));
  EXPECT_TRUE(Gets({"sh", "-c", "./train.sh"}, "train.sh"));
  EXPECT_FALSE(Gets({"./other.sh"}, "train.sh"));
}

}  // namespace
}  // namespace millrace
