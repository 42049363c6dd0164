#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cache/disk_cache.h"
#include "store/testing/temp_folder.h"

/// This file has the fixture of tests of a cache on a disk.

namespace millrace {

inline std::string RandomBytes(size_t size, uint64_t seed) {
  Rng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.Next());
  return text;
}

inline uint64_t DiskBytesBelow(const std::string& folder) {
  uint64_t bytes = 0;
  for (const std::filesystem::directory_entry& entry : std::filesystem::recursive_directory_iterator(folder)) {
    struct stat info {};
    if (entry.is_regular_file() && stat(entry.path().c_str(), &info) == 0)
      bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return bytes;
}

inline std::vector<std::string> FilesBelow(const std::string& folder) {
  std::vector<std::string> files;
  for (const std::filesystem::directory_entry& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename().string().size() == 30) files.push_back(entry.path());
  }
  return files;
}

class DiskCacheTest : public ::testing::Test {
 protected:
  std::shared_ptr<DiskCache> Open(uint64_t size_bytes = 0) {
    auto cache = DiskCache::Open({.folder = folder_.path(), .size_bytes = size_bytes, .free_share = 0});
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  static CacheIdentity Of(int number) { return {"store", "key" + std::to_string(number), "etag"}; }

  // "" if it is not there, or not sound.
  static std::string Read(DiskCache& cache, const CacheIdentity& identity, ByteRange range,
                          const std::vector<SpanChecksum>& checksums = {}) {
    std::string into(range.length, '?');
    const auto size = cache.Read(identity, range, checksums, AsWritableBytes(into));
    return size ? into : "";
  }

  TempFolder folder_;
  const std::string object_ = RandomBytes(100'000, 1);
};

}  // namespace millrace
