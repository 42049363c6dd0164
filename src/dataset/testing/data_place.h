#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto.h"
#include "dataset/dataset.h"
#include "dataset/testing/sample_text.h"
#include "store/blocking.h"

namespace millrace::testing {

/// Provides a place for the data of one test, in memory or in a folder of its own, with a cache folder. Tests of data
/// sets derive from it.
class DataPlace {
 public:
  /// `kind` is "mem" or "file".
  explicit DataPlace(std::string_view kind)
      : root_(std::filesystem::path(::testing::TempDir()) / fmt::format("data-{}-{}", getpid(), RandomHex(6))),
        base_(kind == "mem" ? "mem://data" : (root_ / "data").string()) {
    std::filesystem::create_directories(root_ / "cache");
    options_.cache_folder = (root_ / "cache").string();
  }
  ~DataPlace() { std::filesystem::remove_all(root_); }
  DataPlace(const DataPlace&) = delete;
  DataPlace& operator=(const DataPlace&) = delete;

 protected:
  /// Returns the URI of that name within the place.
  std::string Uri(std::string_view name) const { return fmt::format("{}/{}", base_, name); }

  void PutAt(const std::string& key, std::string_view bytes) {
    const Location place = *stores_.Open(base_);
    const auto put = PutBlocking(*place.store, place.Key(key), AsBytes(bytes));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  void DeleteAt(const std::string& key) {
    const Location place = *stores_.Open(base_);
    ASSERT_TRUE(DeleteBlocking(*place.store, place.Key(key)).ok());
  }
  bool ExistsAt(const std::string& key) {
    const Location place = *stores_.Open(base_);
    return HeadBlocking(*place.store, place.Key(key)).ok();
  }

  absl::StatusOr<std::unique_ptr<Dataset>> OpenAt(std::string_view name) {
    return Dataset::Open(runtime_, stores_, Uri(name), options_);
  }

  /// Returns every sample with its bytes, read as the index tells.
  static std::vector<std::string> Read(const Dataset& dataset) {
    std::vector<std::string> out;
    IndexedSample sample;
    for (uint64_t i = 0; i < dataset.index().size(); ++i) {
      EXPECT_TRUE(dataset.index().Lookup(i, &sample).ok());
      out.push_back(SampleText(dataset, sample));
    }
    return out;
  }

  const std::filesystem::path root_;
  const std::string base_;
  OpenOptions options_;
  Runtime runtime_{{.io_threads = 1, .cpu_threads = 1, .memory_bytes = 64 << 20}};
  Stores stores_{runtime_};
};

}  // namespace millrace::testing
