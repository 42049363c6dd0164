#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "base/crypto.h"
#include "base/status.h"
#include "devstore/auth.h"
#include "devstore/aws_chunked.h"
#include "devstore/checksum.h"
#include "devstore/etag_stream.h"
#include "net/http_server.h"

namespace millrace {

/// Takes the body of one request as it comes: removes its encoding and checks it against everything that the request
/// says about it (length, SHA-256, Content-MD5, x-amz-checksum-*, signatures of chunks). Streaming. Not thread-safe.
class RequestBody {
 public:
  using Sink = absl::FunctionRef<absl::Status(ByteSpan)>;

  /// `etags` says what etag() will be. Returns EntityTooLarge for more than `max_bytes`. Returns MissingContentLength
  /// if the size is not known in advance.
  static absl::StatusOr<std::unique_ptr<RequestBody>> Create(const S3Request& request, const HttpRequestFacts& facts,
                                                             const AuthResult& auth, const std::string& secret_key,
                                                             ETagKind etags, uint64_t max_bytes);

  absl::Status Update(ByteSpan bytes, Sink sink);
  /// IncompleteBody, XAmzContentSHA256Mismatch, BadDigest ...: the bytes are not those that the request describes.
  absl::Status Finish();

  uint64_t announced_size() const { return announced_size_; }
  // These are valid after Finish:
  uint64_t size() const { return size_; }
  const std::string& etag() const { return etag_; }
  const std::optional<Checksum>& checksum() const { return checksum_; }

 private:
  explicit RequestBody(ETagKind etags) : etag_stream_(etags) {}
  absl::Status ReadDigestHeaders(const S3Request& request);
  absl::Status CheckMd5();
  absl::Status CheckChecksum();

  uint64_t announced_size_ = 0;
  uint64_t size_ = 0;
  std::optional<AwsChunkedDecoder> decoder_;
  std::optional<Sha256Stream> sha256_;
  std::string expected_sha256_;
  ETagStream etag_stream_;
  std::string etag_;
  std::optional<Md5Stream> md5_;  // for Content-MD5
  std::string expected_md5_;      // raw
  std::optional<ChecksumStream> checksum_stream_;
  std::string expected_checksum_;  // base64; empty: in the trailer
  bool checksum_in_trailer_ = false;
  std::optional<Checksum> checksum_;
};

/// Returns the checksum algorithm that a request announces, by a value or a trailer. Returns InvalidRequest for
/// several.
absl::StatusOr<std::optional<ChecksumAlgorithm>> AnnouncedChecksum(const S3Request& request);

}  // namespace millrace
