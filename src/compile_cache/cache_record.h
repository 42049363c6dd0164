#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

/// The record is the document that says what is cached under a key, and who compiles right now (docs/compile-cache.md).
/// Plain data without I/O.

namespace millrace {

/// Describes a file that a compiler has made.
struct CachedFile {
  std::string path;  // "inductor/fxgraph/qn/...": the name of the cache, and the path below its folder
  uint64_t bytes = 0;
  std::string sha256;  // in hex; the object that holds the bytes has this name
  uint32_t crc32c = 0;
  uint64_t stored_ms = 0;  // since 1970, by the clock of the host that stored it; the oldest go first

  friend bool operator==(const CachedFile&, const CachedFile&) = default;
};

/// Names the host that compiles, while others wait.
struct CompileLease {
  std::string holder;     // random: tells processes apart
  std::string host;       // for people only
  uint64_t renewals = 0;  // grows while the holder lives
  uint64_t term_ms = 0;   // a lease that was not renewed for so long, by the clock of those who watch it, has expired

  friend bool operator==(const CompileLease&, const CompileLease&) = default;
};

struct CacheRecord {
  std::string about;          // what the key stands for; for people only
  uint64_t publications = 0;  // 0: nobody has told yet what he compiled, even if that was nothing
  std::optional<CompileLease> lease;
  std::vector<CachedFile> files;  // in ascending order of their paths

  const CachedFile* Find(std::string_view path) const;
  uint64_t Bytes() const;

  std::string ToJson() const;
  /// Returns DataLoss if the text is not what ToJson made. The message completes the sentence "OBJECT ...".
  static absl::StatusOr<CacheRecord> FromJson(std::string_view text);
};

inline constexpr size_t kMaxCachedFiles = 100'000;
inline constexpr uint64_t kMaxCacheRecordBytes = 64 << 20;

/// Returns true if it may be a path of CachedFile: no empty, "." or ".." component, valid UTF-8 without control
/// characters, and at least two components.
bool IsCachePath(std::string_view path);

/// Returns the group of a path. Files of one group are of no use without each other: they are fetched, refused and
/// evicted together. It is the folder of a kernel for Triton, the folder MODULE_... for Neuron, else the file itself.
std::string CacheGroup(std::string_view path);

}  // namespace millrace
