#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/http_message.h"

namespace millrace {

/// What an injected fault sends in place of the range that was asked for.
enum class RangeFault { kNone, kAnother, kFirstHalf, kWholeObject };

/// A parsed request. Plain data.
struct S3Request {
  HttpRequestHead head;
  std::string bucket;                                      // decoded; empty when the request names none
  std::string key;                                         // decoded, without the '/' before it
  std::vector<std::pair<std::string, std::string>> query;  // decoded
  std::string document;                                    // the body of an operation that takes a document
  RangeFault range_fault = RangeFault::kNone;
  bool skips_key = false;  // an injected fault of a listing

  std::optional<std::string_view> Header(std::string_view name) const { return head.headers.Find(name); }
  std::optional<std::string_view> Parameter(std::string_view name) const;
  bool Has(std::string_view parameter) const { return Parameter(parameter).has_value(); }
  /// "" when absent.
  std::string ParameterOr(std::string_view name) const { return std::string(Parameter(name).value_or("")); }
  /// The encoded path, without the query.
  std::string_view path() const;
  /// "bucket/key", for a listing "bucket/prefix": what fault rules match.
  std::string Subject() const;
  /// The path-style resource "/bucket/key" of error documents.
  std::string Resource() const { return "/" + bucket + (key.empty() ? "" : "/" + key); }
};

/// InvalidURI, InvalidBucketName or KeyTooLongError. Path style, and virtual-host style below `.localhost`.
absl::StatusOr<S3Request> ParseS3Request(HttpRequestHead head);

/// Whether this may name an existing bucket: a folder of a root, not hidden and not above it.
bool MayNameBucket(std::string_view name);

/// The rules of AWS for names of new buckets, but that one or two letters will do (`b` is handy): InvalidBucketName.
absl::Status CheckNewBucketName(std::string_view name);

/// A decimal number without sign, within [min, max]; nullopt otherwise.
std::optional<uint64_t> ParseDecimal(std::string_view text, uint64_t min, uint64_t max);

}  // namespace millrace
