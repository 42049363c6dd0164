#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace millrace {

/// Holds a URI taken apart. Nothing in it is percent-decoded: keys and paths are taken as they stand.
struct ParsedUri {
  enum class Scheme { kS3, kFile, kMemory };
  Scheme scheme = Scheme::kFile;
  std::string store;  // bucket, ARN of an access point (s3/bucket_name.h) or memory name; "" for files
  std::string path;   // key or key prefix without a leading '/'; for files the path as given

  friend bool operator==(const ParsedUri&, const ParsedUri&) = default;
};

/// Takes "s3://bucket/key", "s3://arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME/key", "file:///path", "mem://name/key" or
/// a plain path. InvalidArgument, with what to write instead, for other schemes and broken forms. No I/O.
absl::StatusOr<ParsedUri> ParseUri(std::string_view uri);

/// Does the same for the URI of one object. InvalidArgument, too, for that of a bucket or, as far as its form shows, of
/// a folder.
absl::StatusOr<ParsedUri> ParseObjectUri(std::string_view uri);

}  // namespace millrace
