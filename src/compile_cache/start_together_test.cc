#include "compile_cache/start_together.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

bool Together(const std::vector<std::string>& command, const std::map<std::string, std::string>& variables) {
  return HostsStartTogether(command, [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

TEST(StartTogether, HostsOfOneJob) {
  EXPECT_TRUE(Together({"torchrun", "--nnodes", "2", "train.py"}, {}));
  EXPECT_TRUE(Together({"torchrun", "--nnodes=1:4", "train.py"}, {}));
  EXPECT_TRUE(Together({"accelerate", "launch", "--num_machines=2"}, {}));
  EXPECT_TRUE(Together({"python", "train.py"}, {{"SLURM_NNODES", "2"}}));
  EXPECT_TRUE(Together({"python", "train.py"}, {{"SM_HOSTS", R"(["algo-1","algo-2"])"}}));
  EXPECT_TRUE(Together({"python", "train.py"}, {{"WORLD_SIZE", "16"}}));
  EXPECT_FALSE(Together({"torchrun", "--nnodes=1", "--nproc-per-node", "8", "train.py"}, {}));
  EXPECT_FALSE(Together({"torchrun", "--nnodes"}, {}));
  EXPECT_FALSE(Together({"python", "train.py"}, {{"SLURM_NNODES", "1"}, {"WORLD_SIZE", "1"}, {"SM_HOSTS", "[1]"}}));
  EXPECT_FALSE(Together({"python", "train.py"}, {{"SLURM_NNODES", "many"}, {"SM_HOSTS", "no JSON"}}));
}

TEST(StartTogether, ProcessesOfOneNodeWaitForEachOtherToo) {
  EXPECT_TRUE(Together({"python", "train.py"}, {{"SLURM_NNODES", "1"}, {"SLURM_NTASKS", "8"}}));
  EXPECT_TRUE(Together({"python", "train.py"}, {{"SLURM_NPROCS", "8"}}));
  EXPECT_FALSE(Together({"python", "train.py"}, {{"SLURM_NTASKS", "1"}, {"SLURM_NPROCS", "1"}}));
}

TEST(StartTogether, HostsOfAGroupAndOfAnIndexedJob) {
  EXPECT_TRUE(Together({"python", "train.py"}, {{"MILLRACE_MAIN_HOSTS", "2"}}));
  EXPECT_FALSE(Together({"python", "train.py"}, {{"MILLRACE_MAIN_HOSTS", "1"}}));
  EXPECT_TRUE(Together({"python", "train.py"}, {{"NNODES", "4"}}));
  EXPECT_TRUE(Together({"python", "train.py"}, {{"JOB_COMPLETION_INDEX", "0"}}));
}

TEST(StartTogether, Launchers) {
  EXPECT_TRUE(Together({"deepspeed", "--num_nodes", "2", "train.py"}, {}));
  EXPECT_TRUE(Together({"deepspeed", "--num_nodes=2", "train.py"}, {}));
  EXPECT_TRUE(Together({"deepspeed", "--hostfile=hosts", "train.py"}, {}));
  EXPECT_TRUE(Together({"/usr/bin/mpirun", "-np", "16", "python", "train.py"}, {}));
  EXPECT_TRUE(Together({"mpiexec", "-n", "2", "python", "train.py"}, {}));
  EXPECT_TRUE(Together({"srun", "--ntasks=8", "python", "train.py"}, {}));
  EXPECT_FALSE(Together({"mpirun", "-np", "1", "python", "train.py"}, {}));
  EXPECT_FALSE(Together({"deepspeed", "--num_nodes", "1", "--num_gpus", "8", "train.py"}, {}));
  EXPECT_FALSE(Together({"python", "train.py", "-n", "5"}, {}));  // an option of the program
}

TEST(StartTogether, LinesForAShell) {
  EXPECT_TRUE(Together({"sh", "-c", "cd /code && torchrun --nnodes 2 train.py"}, {}));
  EXPECT_TRUE(Together({"bash", "-c", "exec \"torchrun\" '--nnodes=2' train.py"}, {}));
  EXPECT_TRUE(Together({"sh", "-c", "torchrun --nnodes $HOSTS train.py"}, {{"HOSTS", "2"}}));
  EXPECT_TRUE(Together({"sh", "-c", "torchrun --nnodes=${HOSTS} train.py"}, {{"HOSTS", "2"}}));
  EXPECT_FALSE(Together({"sh", "-c", "torchrun --nnodes $HOSTS train.py"}, {{"HOSTS", "1"}}));
  EXPECT_FALSE(Together({"sh", "-c", "torchrun --nnodes $HOSTS train.py"}, {}));
  EXPECT_FALSE(Together({"sh", "-c", "  torchrun --nnodes   "}, {}));
  EXPECT_FALSE(Together({"sh", "-c", " ; "}, {}));
}

TEST(StartTogether, ConfigurationOfAccelerate) {
  const TempFolder folder;
  const auto write = [](const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  };
  const std::filesystem::path home = folder / "home";
  const std::string several = write(folder / "two.yaml", "mixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n");
  const std::string one = write(folder / "one.yaml", "num_machines: '1'  # here\n");
  EXPECT_TRUE(Together({"accelerate", "launch", "--config_file", several, "train.py"}, {}));
  EXPECT_TRUE(Together({"python", "-m", "accelerate.commands.launch", "--config_file=" + several, "train.py"}, {}));
  EXPECT_FALSE(Together({"accelerate", "launch", "--config_file", one, "train.py"}, {}));
  EXPECT_FALSE(Together({"accelerate", "launch", "--config_file", folder / "none.yaml", "train.py"}, {}));
  EXPECT_FALSE(Together({"python", "train.py", "--config_file", several}, {}));  // not for accelerate
  const std::map<std::string, std::string> at_home = {{"HOME", home.string()}};
  EXPECT_FALSE(Together({"accelerate", "launch", "train.py"}, at_home));
  write(home / ".cache/huggingface/accelerate/default_config.yaml", "num_machines: 4");
  EXPECT_TRUE(Together({"accelerate", "launch", "train.py"}, at_home));
}

}  // namespace
}  // namespace millrace
