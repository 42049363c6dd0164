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
                               {"A=b", "./train.py"},
                               {"srun", "-n", "2", "train.py", "bash"},
                               {"nohup", "train.py"},
                               {"timeout", "5h", "env", "-u", "X", "code/train.py"},
                               {"./entrypoint.sh", "python", "train.py"},
                               {"./entrypoint.sh", "torchrun", "train.py"},
                               {"env", "A=b", "bash", "-c", "python train.py"},
                               {"srun", "-n", "2", "/bin/bash", "-c", "python train.py"},
                               {"nohup", "sh", "-c", "A=b ./train.py"},
                               {"bash", "-l", "-c", "python train.py"},
                               {"bash", "-euo", "pipefail", "--login", "-c", "python train.py"},
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
                               {"./tools/dist_train.sh", "configs/a.py", "8"},
                               {"train", "configs/a.py"},
                               {"sh", "-c", "A=b C=d train configs/a.py"},
                               {"env", "A=b", "./tools/dist_train.sh", "configs/a.py", "8"},
                               {"sh", "-c", "./tools/dist_train.sh configs/a.py 8"},
                               {"env", "A=b", "bash", "-c", "python train.py; echo done"},
                               {"srun", "bash", "train.sh", "config.py"},
                               {"bash", "-o", "pipefail", "train.sh", "config.py"},
                               {"nohup", "sh", "-c", "python train.py \"$@\"", "sh", "--epochs", "2"},
                               {"sh", "-c", "exec bash -c 'python train.py'"},
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
  EXPECT_TRUE(Gets({"env", "A=b", "sh", "-c", "bash code/train.sh"}, "train.sh"));
  EXPECT_FALSE(Gets({"./other.sh"}, "train.sh"));
}

}  // namespace
}  // namespace millrace
