#include "compile_cache/cache_folders.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

CacheFolders Choose(const std::map<std::string, std::string>& variables) {
  return ChooseCacheFolders("/root", [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  });
}

std::string FolderOf(const CacheFolders& chosen, const std::string& name) {
  for (const CacheFolder& folder : chosen.folders) {
    if (folder.name == name) return folder.path;
  }
  return "none";
}

void Write(const std::string& path, const std::string& text = "x") {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

TEST(CacheFolders, EachCompilerIsToldOfItsFolder) {
  const CacheFolders chosen = Choose({});
  const std::map<std::string, std::string> expected{{"TORCHINDUCTOR_CACHE_DIR", "/root/inductor"},
                                                    {"TRITON_CACHE_DIR", "/root/triton"},
                                                    {"JAX_COMPILATION_CACHE_DIR", "/root/jax"},
                                                    {"JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none"},
                                                    {"NEURON_COMPILE_CACHE_URL", "/root/neuron"}};
  EXPECT_EQ(chosen.variables, expected);
  EXPECT_EQ(PlaceOfCachedFile(chosen.folders, "jax/a-cache"), "/root/jax/a-cache");
  EXPECT_EQ(PlaceOfCachedFile(chosen.folders, "jaxx/a"), "");
}

TEST(CacheFolders, WhatTheUserHasSetStays) {
  const CacheFolders chosen = Choose({{"TRITON_CACHE_DIR", "/data/triton/"},
                                      {"JAX_COMPILATION_CACHE_DIR", "gs://bucket/jax"},
                                      {"NEURON_COMPILE_CACHE_URL", "s3://bucket/neuron"},
                                      {"NEURON_CC_FLAGS", "--model-type transformer --cache_dir=/data/neuron -O1"}});
  EXPECT_EQ(FolderOf(chosen, "triton"), "/data/triton");
  EXPECT_EQ(FolderOf(chosen, "jax"), "none");
  EXPECT_EQ(FolderOf(chosen, "neuron"), "/data/neuron");  // the flag comes before the variable
  EXPECT_EQ(chosen.variables.size(), 1u);
  EXPECT_TRUE(chosen.variables.contains("TORCHINDUCTOR_CACHE_DIR"));
  ASSERT_EQ(chosen.left_alone.size(), 1u);
  EXPECT_NE(chosen.left_alone[0].find("gs://bucket/jax"), std::string::npos);
  EXPECT_EQ(FolderOf(Choose({{"NEURON_CC_FLAGS", "--cache_dir '/data/n'"}}), "neuron"), "/data/n");
  EXPECT_EQ(FolderOf(Choose({{"NEURON_CC_FLAGS", "--cache_dirs=/data/n"}}), "neuron"), "/root/neuron");
}

// Keys of such a cache have the path of its folder.
TEST(CacheFolders, EntriesOfJaxThatOneFolderFindsAreNotThoseOfOthers) {
  const std::string variable = "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES";
  const auto choose = [&](const std::string& value, const std::string& folder) {
    return Choose({{variable, value}, {"JAX_COMPILATION_CACHE_DIR", folder}});
  };
  const CacheFolders one = choose("all", "/one");
  EXPECT_FALSE(one.variables.contains(variable));
  ASSERT_EQ(one.left_alone.size(), 1u);
  EXPECT_NE(one.left_alone[0].find("only what hosts with the same folder have compiled"), std::string::npos);
  const auto name_in = [](const CacheFolders& chosen, const std::string& path) {
    for (const CacheFolder& folder : chosen.folders) {
      if (folder.path == path) return folder.name;
    }
    return std::string("none");
  };
  const std::string name = name_in(one, "/one");
  EXPECT_TRUE(name.starts_with("jax-") && name.size() == 20u) << name;
  EXPECT_EQ(name_in(choose("xla_gpu_per_fusion_autotune_cache_dir", "/one/"), "/one"), name);
  EXPECT_EQ(PlaceOfCachedFile(choose("all", "/two").folders, name + "/a-cache"), "");
  EXPECT_EQ(PlaceOfCachedFile(one.folders, "jax/a-cache"), "");
  const CacheFolders none = choose("none", "/one");
  EXPECT_EQ(name_in(none, "/one"), "jax");
  EXPECT_TRUE(none.left_alone.empty());
  EXPECT_FALSE(none.variables.contains(variable));
}

TEST(CacheFolders, OnlyResultsAreShared) {
  const TempFolder root;
  const std::vector<CacheFolder> folders{{"inductor", root / "inductor"},
                                         {"jax", root / "jax"},
                                         {"neuron", root / "neuron"},
                                         {"triton", root / "missing"}};
  Write(root / "inductor/qn/kernel.so", "12345");
  Write(root / "inductor/empty");
  std::ofstream(root / "inductor/empty").close();
  Write(root / "inductor/locks/x.lock");
  Write(root / "inductor/qn/.12.34.tmp");
  Write(root / "inductor/K/tmp.pid_1_2/k.cubin");
  Write(root / "jax/jit_f-1-cache");
  Write(root / "jax/jit_f-1-atime");
  std::filesystem::create_symlink("/etc/passwd", root / "jax/link");
  const std::string module = root / "neuron/neuronxcc-2/MODULE_";
  for (const char* file : {"1+a/model.neff", "1+a/model.done", "1+a/model.hlo.pb"}) Write(module + file);
  Write(module + "2+a/model.log");  // failed
  Write(module + "2+a/model.done");
  std::vector<std::string> paths;
  for (const FoundFile& file : FindCacheFiles(folders).files) paths.push_back(file.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"inductor/empty", "inductor/qn/kernel.so", "jax/jit_f-1-cache",
                                             "neuron/neuronxcc-2/MODULE_1+a/model.done",
                                             "neuron/neuronxcc-2/MODULE_1+a/model.hlo.pb",
                                             "neuron/neuronxcc-2/MODULE_1+a/model.neff"}));
  EXPECT_FALSE(FindCacheFiles(folders).compiling);
  EXPECT_EQ(FindCacheFiles(folders).files[1].bytes, 5u);
  Write(module + "3+a/model.hlo.pb");
  EXPECT_TRUE(FindCacheFiles(folders).compiling);
  EXPECT_EQ(FindCacheFiles(folders).files.size(), 6u);
}

}  // namespace
}  // namespace millrace
