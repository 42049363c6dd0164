#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "net/http_message.h"

namespace millrace {

/// An injected fault sends this in place of the requested range.
enum class RangeFault { kNone, kAnother, kFirstHalf, kWholeObject };

/// This is a parsed request. Plain data.
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
  /// Returns "" when absent.
  std::string ParameterOr(std::string_view name) const { return std::string(Parameter(name).value_or("")); }
  /// Returns the encoded path, without the query.
  std::string_view path() const;
  /// Returns "bucket/key", for a listing "bucket/prefix", which fault rules match.
  std::string Subject() const;
  /// Returns the path-style resource "/bucket/key" of error documents.
  std::string Resource() const { return "/" + bucket + (key.empty() ? "" : "/" + key); }
};

/// Returns InvalidURI, InvalidBucketName or KeyTooLongError. Takes path style, and virtual-host style below
/// `.localhost`.
absl::StatusOr<S3Request> ParseS3Request(HttpRequestHead head);

/// Returns whether this may name an existing bucket: a folder of a root, not hidden and not above it.
bool MayNameBucket(std::string_view name);

/// Applies the rules of AWS for names of new buckets, except that one or two letters will do (`b` is handy). Returns
/// InvalidBucketName.
absl::Status CheckNewBucketName(std::string_view name);

/// Parses a decimal number without sign, within [min, max]; nullopt otherwise.
std::optional<uint64_t> ParseDecimal(std::string_view text, uint64_t min, uint64_t max);

}  // namespace millrace
