#include "base/file_text.h"

#include <gtest/gtest.h>

#include <fstream>

namespace millrace {
namespace {

TEST(FileText, ReadsAllOrTheFirstBytes) {
  const std::string path = testing::TempDir() + "file_text_test";
  const std::string text = std::string(100'000, 'a') + std::string("\0\r\nz", 4);
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(*ReadFileText(path), text);
  EXPECT_EQ(*ReadFileText(path, 70'000), text.substr(0, 70'000));
  EXPECT_EQ(*ReadFileText(path, text.size() + 1), text);
  EXPECT_EQ(*ReadFileText(path, 0), "");
  EXPECT_FALSE(ReadFileText("/proc/self/status")->empty()) << "a file whose size the system does not know";
}

TEST(FileText, SaysWhatFails) {
  const absl::Status missing = ReadFileText("/nowhere/file").status();
  EXPECT_EQ(missing, absl::NotFoundError("/nowhere/file cannot be opened"));
  EXPECT_EQ(ReadFileText("/proc").status(), absl::UnknownError("/proc cannot be read")) << "a folder";
}

}  // namespace
}  // namespace millrace
