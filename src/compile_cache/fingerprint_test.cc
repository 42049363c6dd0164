#include "compile_cache/fingerprint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

void WriteText(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(Fingerprint, FindsThePythonOfACommand) {
  const TempFolder folder;
  WriteText(folder / "torchrun", "#!/venv/bin/python3.11\nimport torch\n");
  WriteText(folder / "env", "#!/usr/bin/env python3.12\n");
  WriteText(folder / "shell", "#!/bin/sh\n");
  EXPECT_EQ(PythonOfCommand({"/x/python3", "train.py"}), "/x/python3");
  EXPECT_EQ(PythonOfCommand({"srun", "-n", "2", "python", "train.py"}), "python");
  EXPECT_EQ(PythonOfCommand({folder / "torchrun", "train.py"}), "/venv/bin/python3.11");
  EXPECT_EQ(PythonOfCommand({folder / "env"}), "python3.12");
  EXPECT_EQ(PythonOfCommand({folder / "shell", "python_job.sh"}), "python3");
  EXPECT_EQ(PythonOfCommand({}), "python3");
}

TEST(Fingerprint, DependsOnWhatCompiledCodeDependsOn) {
  const TempFolder a;
  WriteText(a / "proc/cpuinfo", "flags\t\t: fpu avx2 fma avx512f ibrs_enhanced\n");
  WriteText(a / "proc/driver/nvidia/gpus/0000:01/information", "Model: \t\t NVIDIA H100\nIRQ: 1\n");
  WriteText(a / "proc/driver/nvidia/gpus/0000:02/information", "Model: \t\t NVIDIA H100\nIRQ: 2\n");
  const std::vector<std::string> command{"python3", "train.py"};
  const CompilerFingerprint found = TakeFingerprint(command, a.path());
  EXPECT_TRUE(found.about.starts_with("Python 3.")) << found.about;
  EXPECT_TRUE(found.about.ends_with(" avx2 avx512f fma, NVIDIA H100")) << found.about;
  EXPECT_EQ(found.Key().size(), 20u);
  // Kernel flags and the number of devices do not count.
  const TempFolder b;
  WriteText(b / "proc/cpuinfo", "flags\t\t: fpu fma avx2 avx512f ibpb\n");
  WriteText(b / "proc/driver/nvidia/gpus/0000:01/information", "Model: \t\t NVIDIA H100\n");
  EXPECT_EQ(TakeFingerprint(command, b.path()).Key(), found.Key());
  // Another device, CPU or Python does.
  WriteText(b / "proc/cpuinfo", "flags\t\t: fpu fma avx2\n");
  EXPECT_NE(TakeFingerprint(command, b.path()).Key(), found.Key());
  const TempFolder c;
  WriteText(c / "proc/cpuinfo", "flags\t\t: fpu fma avx2 avx512f\n");
  EXPECT_NE(TakeFingerprint(command, c.path()).Key(), found.Key());
  WriteText(c / "sys/devices/virtual/dmi/id/product_name", "trn1.32xlarge\n");
  EXPECT_TRUE(TakeFingerprint(command, c.path()).about.ends_with(", trn1"));
  EXPECT_TRUE(TakeFingerprint({"/nowhere/python3"}, c.path()).about.starts_with("no Python, "));
}

TEST(Fingerprint, KeysAreNames) {
  for (const char* good : {"a", "torch-2.9_h100+x", "0123"}) EXPECT_TRUE(CheckCacheKey(good).ok()) << good;
  for (const std::string& bad :
       {std::string(), std::string("a/b"), std::string(".."), std::string("a b"), std::string(101, 'a')})
    EXPECT_TRUE(absl::IsInvalidArgument(CheckCacheKey(bad))) << bad;
}

}  // namespace
}  // namespace millrace
