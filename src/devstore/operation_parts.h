#pragma once

#include <optional>
#include <string>
#include <vector>

#include "devstore/conditions.h"
#include "devstore/operations.h"
#include "s3/xml.h"

/// Several operations use these helpers.

namespace millrace {

std::string QuoteETag(std::string_view etag);
HttpReply XmlReply(XmlWriter writer);

/// Returns the attributes that a write gives the object: type, stored headers, user metadata. Returns MetadataTooLarge.
absl::StatusOr<ObjectAttributes> AttributesOf(const S3Request& request);

/// Adds x-amz-checksum-... and its type.
void AddChecksumHeaders(const std::optional<Checksum>& checksum, HttpHeaders* headers);
void WriteChecksum(const std::optional<Checksum>& checksum, XmlWriter* writer);

/// Holds x-amz-copy-source, opened, with its conditions checked.
struct CopySource {
  std::string bucket;
  std::string key;
  StoredObject object;
};
absl::StatusOr<CopySource> OpenCopySource(OperationContext& context, const S3Request& request);

/// Vetoes a write by its conditional headers.
inline auto ConditionsCheck(OperationContext& context, const S3Request& request, const WriteConditions& conditions) {
  return [&context, &request, &conditions](const ObjectRecord* existing) {
    if (existing == nullptr) return CheckWriteConditions(conditions, nullptr, request.key);
    const std::string etag = context.etags.Effective(request.bucket, request.key, existing->etag);
    return CheckWriteConditions(conditions, &etag, request.key);
  };
}

/// Returns InvalidRequest for more bytes than S3 copies with one request.
absl::Status CheckCopySize(uint64_t bytes);

/// Holds a range of an object, written as new content, with its ETag and, if an algorithm is given, its checksum.
struct CopiedContent {
  std::shared_ptr<Content> content;
  std::string etag;
  std::optional<Checksum> checksum;
};
absl::StatusOr<CopiedContent> CopyContent(OperationContext& context, const Content& source, ByteRange range,
                                          std::optional<ChecksumAlgorithm> algorithm, BlobWriter& writer);

/// Returns the checksum of a whole content in base64.
absl::StatusOr<std::string> ChecksumOf(const Content& content, ChecksumAlgorithm algorithm);

/// Returns a number in the query, e.g. max-keys. Returns InvalidArgument.
absl::StatusOr<uint64_t> NumberParameter(const S3Request& request, std::string_view name, uint64_t fallback);

/// Encodes names of a listing as encoding-type asks. InvalidArgument for a type other than "url".
class NameEncoder {
 public:
  static absl::StatusOr<NameEncoder> Create(const S3Request& request);
  std::string operator()(std::string_view name) const;
  void WriteType(XmlWriter* writer) const;

 private:
  bool url_ = false;
};

}  // namespace millrace
