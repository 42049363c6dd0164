#include "compile_cache/placed_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

TEST(PlacedFile, PathsOfATritonGroupAreThoseOfThisMachine) {
  const std::string text = R"({"child_paths": {"k.cubin": "/old/triton/K/k.cubin", "k.json": "/old/triton/K/k.json"}})";
  const std::string local = R"({"child_paths":{"k.cubin":"/new/K/k.cubin","k.json":"/new/K/k.json"}})";
  const std::string place = "/new/K/__grp__k.json";
  EXPECT_EQ(LocalTritonGroup("triton/K/__grp__k.json", place, text), local);
  EXPECT_EQ(LocalTritonGroup("inductor/triton/0/K/__grp__k.json", place, text), local);
  EXPECT_EQ(LocalTritonGroup("triton/K/__grp__k.json", place, local), local);
  EXPECT_EQ(LocalTritonGroup("triton/K/k.json", place, text), std::nullopt);
  EXPECT_EQ(LocalTritonGroup("jax/K/__grp__k.json", place, text), std::nullopt);
  for (const char* const other : {"", "no JSON", "[]", "{}", R"({"child_paths": ["k.cubin"]})",
                                  R"({"child_paths": {"k.cubin": 1}})", R"({"child_paths": null})"})
    EXPECT_EQ(LocalTritonGroup("triton/K/__grp__k.json", place, other), std::nullopt) << other;
}

TEST(PlacedFile, AnEntryOfJaxGetsATimeOfUse) {
  const TempFolder folder;
  const auto has = [&](const std::string& name) { return std::filesystem::exists(folder / name); };
  AddJaxTimeOfUse("jax/a-cache", folder / "a-cache");
  ASSERT_TRUE(has("a-atime"));
  std::ifstream file(folder / "a-atime", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  ASSERT_EQ(bytes.size(), 8u);
  uint64_t ns = 0;
  for (size_t i = 8; i-- > 0;) ns = ns << 8 | static_cast<unsigned char>(bytes[i]);
  EXPECT_GT(ns, uint64_t{1'500'000'000'000'000'000});  // 2017
  EXPECT_LT(ns, uint64_t{7'000'000'000'000'000'000});  // 2191
  std::ofstream(folder / "b-atime") << "12345678";
  AddJaxTimeOfUse("jax/b-cache", folder / "b-cache");
  EXPECT_EQ(std::filesystem::file_size(folder / "b-atime"), 8u);
  std::ifstream kept(folder / "b-atime");
  EXPECT_EQ((std::string{std::istreambuf_iterator<char>(kept), {}}), "12345678");
  AddJaxTimeOfUse("jax-0123456789abcdef/f-cache", folder / "f-cache");
  EXPECT_TRUE(has("f-atime"));
  AddJaxTimeOfUse("triton/c-cache", folder / "c-cache");
  AddJaxTimeOfUse("jax/d", folder / "d");
  EXPECT_FALSE(has("c-atime") || has("d-atime"));
  AddJaxTimeOfUse("jax/e-cache", folder / "no/folder/e-cache");  // an error is no harm
}

}  // namespace
}  // namespace millrace
