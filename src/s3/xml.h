#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "s3/listings.h"
#include "s3/object.h"

/// These functions read and write the XML of S3, for the client and for a server (devstore). Pure; the parsers are
/// fuzzed. Element names are AWS's, from the "Amazon S3 API Reference". Broken XML gives InvalidArgument.

namespace millrace {

/// Returns the text with & < > " and control characters replaced, for use between tags. Characters that XML 1.0 cannot
/// express at all become "?": a client that must carry any key uses encoding-type=url.
std::string XmlEscape(std::string_view text);

/// Writes a document of elements: Open/Close nest, Element is a leaf. Starts with the XML declaration.
class XmlWriter {
 public:
  /// `root` gets the namespace of S3.
  explicit XmlWriter(std::string_view root);

  void Open(std::string_view name);
  void Close();  // the element opened last
  void Element(std::string_view name, std::string_view text);
  void Element(std::string_view name, uint64_t value);

  /// Closes what is open and returns the document.
  std::string Finish() &&;

 private:
  std::string out_;
  std::vector<std::string> open_;
};

/// <Error>. Fields that are absent are empty.
struct S3ErrorBody {
  std::string code;
  std::string message;
  std::string region;
  std::string request_id;
};

/// Returns nullopt when the text is not an <Error> document.
std::optional<S3ErrorBody> ParseErrorXml(std::string_view xml);

/// Parses <ListBucketResult> of ListObjectsV2. Names are decoded when the answer says EncodingType url; '+' is a space
/// then, as AWS writes it (Ceph writes %20). ETags lose their quotes. Objects and prefixes are in bytewise order
/// afterwards. Returns InvalidArgument also for a truncated page without a continuation token.
absl::StatusOr<ListPage> ParseListXml(std::string_view xml);

/// <ListAllMyBucketsResult>.
absl::StatusOr<BucketPage> ParseBucketsXml(std::string_view xml);

/// <ListMultipartUploadsResult>; names are decoded as ParseListXml does. InvalidArgument also for an upload without key
/// or id, and for a truncated page that does not say where the next one begins.
absl::StatusOr<UploadPage> ParseUploadsXml(std::string_view xml);

/// Returns the upload id of <InitiateMultipartUploadResult>.
absl::StatusOr<std::string> ParseInitiateMultipartXml(std::string_view xml);

/// Returns the ETag of <CompleteMultipartUploadResult>, without quotes.
absl::StatusOr<std::string> ParseCompleteMultipartResultXml(std::string_view xml);

/// Returns whether <ListPartsResult> has any <Part>.
absl::StatusOr<bool> ParseHasPartsXml(std::string_view xml);

/// Returns the ETag of <CopyObjectResult> or <CopyPartResult>, without quotes.
absl::StatusOr<std::string> ParseCopyResultXml(std::string_view xml);

/// <Tagging>.
absl::StatusOr<ObjectTags> ParseTaggingXml(std::string_view xml);

struct CompletedPart {
  int number = 0;
  std::string etag;           // without quotes
  std::string checksum_name;  // "CRC32C" or "CRC64NVME"; empty: not given
  std::string checksum;       // base64
  friend bool operator==(const CompletedPart&, const CompletedPart&) = default;
};

/// Writes <CompleteMultipartUpload>, the request.
std::string WriteCompleteMultipartXml(const std::vector<CompletedPart>& parts);
absl::StatusOr<std::vector<CompletedPart>> ParseCompleteMultipartXml(std::string_view xml);

/// Holds <Delete>, the request of DeleteObjects.
struct DeleteObjectsRequest {
  std::vector<std::string> keys;
  bool quiet = false;
};
std::string WriteDeleteObjectsXml(const DeleteObjectsRequest& request);
absl::StatusOr<DeleteObjectsRequest> ParseDeleteObjectsXml(std::string_view xml);

/// This is an <Error> of <DeleteResult>: a key that was not deleted.
struct DeleteObjectsError {
  std::string key;
  std::string code;
  std::string message;
};
absl::StatusOr<std::vector<DeleteObjectsError>> ParseDeleteResultXml(std::string_view xml);

/// Returns false for text that changes on its way through XML 1.0, escaped or not: control characters, and bytes that
/// are not UTF-8. Such a key in a request would stand for another object.
bool XmlCanCarry(std::string_view text);

/// Returns the region in <CreateBucketConfiguration>, the body of CreateBucket; it is empty when it names none.
absl::StatusOr<std::string> ParseLocationConstraint(std::string_view xml);

/// Turns "2009-10-12T17:50:30.000Z" into milliseconds since 1970; 0 when it is not a time.
int64_t ParseXmlTime(std::string_view text);
std::string FormatXmlTime(int64_t unix_ms);

}  // namespace millrace
