#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "devstore/s3_request.h"

namespace millrace {

/// Says what a Range header asks for.
enum class RangeKind {
  kWhole,          // no header, or one that S3 ignores (several ranges, other units, first > last)
  kPart,           // answered by 206
  kUnsatisfiable,  // answered by 416
};
struct RangeRequest {
  RangeKind kind = RangeKind::kWhole;
  ByteRange range;  // within the object
};
RangeRequest ParseRange(std::optional<std::string_view> header, uint64_t object_size);

/// Parses "bytes=a-b" with both ends, as UploadPartCopy wants it. Returns InvalidArgument or InvalidRange.
absl::StatusOr<ByteRange> ParseCopyRange(std::string_view header, uint64_t object_size);

/// Checks If-Match and the like of GET and HEAD, by RFC 9110 (13.2.2), or of a copy's source with the prefix
/// "x-amz-copy-source-". PreconditionFailed or NotModified. `etag` without quotes.
absl::Status CheckReadConditions(const S3Request& request, std::string_view etag, int64_t modified_s,
                                 std::string_view prefix = "");

/// If-None-Match: * and If-Match of writes. NotImplemented for other forms.
struct WriteConditions {
  bool only_if_absent = false;
  std::string if_match;  // without quotes; empty: none; "*": any object
};
absl::StatusOr<WriteConditions> ParseWriteConditions(const S3Request& request);

/// `etag` is that of the existing object, nullptr if the object does not exist. Returns PreconditionFailed or
/// NoSuchKey.
absl::Status CheckWriteConditions(const WriteConditions& conditions, const std::string* etag, std::string_view key);

}  // namespace millrace
