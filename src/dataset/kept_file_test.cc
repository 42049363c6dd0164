#include "dataset/kept_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "store/blocking.h"

namespace millrace {
namespace {

class KeptFileTest : public ::testing::Test {
 protected:
  KeptFileTest() : runtime_({.io_threads = 1, .cpu_threads = 2}), stores_(runtime_) {
    root_ = std::filesystem::path(::testing::TempDir()) / fmt::format("kept-{}", getpid());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ / "data");
    std::ofstream(root_ / "data" / "a.txt") << "hello";
  }
  ~KeptFileTest() override { std::filesystem::remove_all(root_); }

  std::unique_ptr<Dataset> Open(const std::string& uri) {
    OpenOptions options;
    options.cache_folder = (root_ / "cache").string();
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = Dataset::Open(runtime_, stores_, uri, options);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return *std::move(dataset);
  }

  absl::StatusOr<std::shared_ptr<const KeptFile>> Find(const Dataset& dataset, const std::string& contents) {
    const auto check = [&](ByteSpan bytes) {
      return AsText(bytes) == contents ? absl::OkStatus() : absl::DataLossError("other contents");
    };
    const auto make = [&](ObjectWriter& out) {
      ++made_;
      return out.Append(AsBytes(contents));
    };
    return FindOrMake(stores_, dataset, {.name = "packs-1-2", .check = check, .verify = check, .make = make});
  }

  Runtime runtime_;
  Stores stores_;
  std::filesystem::path root_;
  int made_ = 0;
};

TEST_F(KeptFileTest, IsMadeOnceBesideTheData) {
  const auto dataset = Open((root_ / "data").string());
  for (int i = 0; i < 2; ++i) {
    const auto file = Find(*dataset, "contents");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(AsText((*file)->bytes()), "contents");
    EXPECT_TRUE((*file)->uri().ends_with("data/.millrace/packs-1-2")) << (*file)->uri();
  }
  EXPECT_EQ(made_, 1);
}

TEST_F(KeptFileTest, IsMadeAnewWhereItIsDamaged) {
  const auto dataset = Open((root_ / "data").string());
  ASSERT_TRUE(Find(*dataset, "contents").ok());
  std::filesystem::resize_file(root_ / "data/.millrace/packs-1-2", 3);
  ASSERT_TRUE(Find(*dataset, "contents").ok());
  EXPECT_EQ(made_, 2);
}

TEST_F(KeptFileTest, GoesToTheCacheFolderWhereTheDataCannotBeWrittenTo) {
  const auto dataset = Open((root_ / "data").string());
  // What lies in the way of `.millrace/` stops root, too.
  std::filesystem::remove_all(root_ / "data/.millrace");
  std::ofstream(root_ / "data/.millrace") << "no folder";
  for (int i = 0; i < 2; ++i) {
    const auto file = Find(*dataset, "contents");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE((*file)->uri().ends_with("cache/index/packs-1-2")) << (*file)->uri();
  }
  EXPECT_EQ(made_, 1);
}

TEST_F(KeptFileTest, OfDataInMemory) {
  const Location data = *stores_.Open("mem://kept");
  ASSERT_TRUE(PutBlocking(*data.store, "a.txt", AsBytes("hello")).ok());
  const auto dataset = Open("mem://kept");
  for (int i = 0; i < 2; ++i) {
    const auto file = Find(*dataset, "contents");
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(AsText((*file)->bytes()), "contents");
  }
  EXPECT_EQ(made_, 1);
}

TEST_F(KeptFileTest, WhatCannotBeMadeLeavesNothing) {
  const auto dataset = Open((root_ / "data").string());
  const auto check = [](ByteSpan) { return absl::OkStatus(); };
  const auto make = [](ObjectWriter& out) {
    EXPECT_TRUE(out.Append(AsBytes("half")).ok());
    return absl::CancelledError("stopped");
  };
  const auto file = FindOrMake(stores_, *dataset, {.name = "packs-1-2", .check = check, .verify = check, .make = make});
  EXPECT_TRUE(absl::IsCancelled(file.status())) << file.status();
  EXPECT_FALSE(std::filesystem::exists(root_ / "data/.millrace/packs-1-2"));
}

}  // namespace
}  // namespace millrace
