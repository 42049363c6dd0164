#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::ofstream(path_) << text_; }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ = ::testing::TempDir() + "mapped-" + std::to_string(getpid());
  const std::string text_ = std::string(100'000, 'x') + "end";
};

TEST_F(MappedFileTest, ASmallFileStaysWhenItIsCutShort) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(path_, 0);
  EXPECT_EQ(AsText(file->bytes()), text_);
  const MappedFile moved = *std::move(file);
  EXPECT_EQ(AsText(moved.bytes()), text_);
  EXPECT_TRUE(MappedFile::Open(path_)->bytes().empty());
}

TEST_F(MappedFileTest, ALargeFileIsMapped) {
  absl::StatusOr<MappedFile> file = MappedFile::Open(path_, {}, text_.size() - 1);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(AsText(file->bytes()), text_);
  MappedFile other = *MappedFile::Open(path_, {}, text_.size());
  std::swap(other, *file);
  EXPECT_EQ(AsText(other.bytes()), text_);
  std::ofstream(path_ + "-new") << "another";
  std::filesystem::rename(path_ + "-new", path_);
  EXPECT_EQ(AsText(other.bytes()), text_);
  EXPECT_EQ(AsText(file->bytes()), text_);
}

TEST_F(MappedFileTest, SaysWhatIsNotThere) {
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open(path_ + "-none").status()));
  // A pipe would wait for a writer.
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open(path_).status()));
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open(path_, {"/"}).status()));
  EXPECT_TRUE(absl::IsNotFound(MappedFile::Open(::testing::TempDir()).status()));
}

using MappedFileDeathTest = MappedFileTest;

char LastByteAfterCut(const std::string& path, uint64_t size) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path, {}, 0);
  std::filesystem::resize_file(path, 1);
  std::filesystem::remove(path);  // nothing after this may run
  return static_cast<char>(file->bytes()[size - 1]);
}

TEST_F(MappedFileDeathTest, AMappedFileThatIsCutShortIsNamed) {
  EXPECT_DEATH(std::exit(LastByteAfterCut(path_, text_.size())), path_ + ": was cut short");
}

// The handler that was installed before decides how the process ends.
TEST_F(MappedFileDeathTest, ItHandsOnToTheHandlerBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process that has mapped nothing yet
  const auto run = [&] {
    signal(SIGBUS, [](int) { _exit(77); });
    LastByteAfterCut(path_, text_.size());
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(77), "was cut short");
}

TEST_F(MappedFileDeathTest, OneThatIsSentHasNoMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a process that has mapped nothing yet
  const auto run = [&] {
    signal(SIGBUS, [](int) { _exit(77); });
    const absl::StatusOr<MappedFile> file = MappedFile::Open(path_, {}, 0);
    std::filesystem::remove(path_);
    raise(SIGBUS);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(77), "^$");
}

// There are more mappings than the handler can name.
TEST_F(MappedFileDeathTest, TheNamesOfMappingsThatHaveEndedAreForgotten) {
  const auto run = [&] {
    {
      std::vector<MappedFile> files;
      for (int i = 0; i < 100; ++i) files.push_back(*MappedFile::Open(path_, {}, 0));
    }
    LastByteAfterCut(path_, text_.size());
  };
  EXPECT_DEATH(run(), path_ + ": was cut short");
}

}  // namespace
}  // namespace millrace
