#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/unique_fd.h"
#include "cache/disk_cache.h"
#include "store/testing/temp_folder.h"

/// This file has the fixture of tests of slabs.

namespace millrace {

class SlabTest : public ::testing::Test {
 protected:
  // Returns the bytes of object `number`; its length is drawn, too, unless it is given.
  static std::string ObjectOf(uint64_t number, uint64_t length = 0) {
    Rng rng(number);
    std::string text(length > 0 ? length : 1 + rng.Below(60'000), '\0');
    for (char& c : text) c = static_cast<char>(rng.Next());
    return text;
  }
  static CacheIdentity Of(uint64_t number, const std::string& tenant = "") {
    return {"https://store s3://bucket/", fmt::format("photos/{:07}.jpg", number), fmt::format("etag{}", number),
            tenant};
  }
  std::unique_ptr<DiskCache> Open(uint64_t size_bytes = 0) {
    auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = size_bytes, .free_share = 0});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  static void Keep(RangeCache& cache, uint64_t number, const std::string& object, const PlannedRead* plan = nullptr) {
    cache.Keep(Of(number), object.size(), 0, AsBytes(object), plan);
  }
  // "" if it is not there.
  static std::string Read(RangeCache& cache, const CacheIdentity& identity, ByteRange range) {
    std::string into(range.length, '?');
    return cache.Read(identity, range, {}, AsWritableBytes(into)) ? into : "";
  }
  // Counts what the file system notes of the holes, too: it does so when it writes the blocks.
  uint64_t DiskBytes() const {
    uint64_t bytes = 0;
    for (const std::string& path : Files()) {
      const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      fsync(file.get());
      struct stat info {};
      if (stat(path.c_str(), &info) == 0) bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    }
    return bytes;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const std::filesystem::directory_entry& entry :
         std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file() && entry.path().filename().string().size() == 30) files.push_back(entry.path());
    }
    return files;
  }

  TempFolder folder_;
};

}  // namespace millrace
