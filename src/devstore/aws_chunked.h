#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "aws/sigv4.h"
#include "base/bytes.h"
#include "base/crypto.h"
#include "base/status.h"

namespace millrace {

/// Decodes bodies in the content encoding "aws-chunked" and checks the chain of their signatures. A body has this form:
///
///   size-in-hex[;chunk-signature=...] CRLF data CRLF ... 0[;chunk-signature=...] CRLF
///   [name:value CRLF ... [x-amz-trailer-signature:... CRLF]] CRLF
///
/// Source: AWS, "Signature calculations: transferring payload in multiple chunks" and "... including trailing headers".
/// Streaming: holds one line at most. Not thread-safe.
class AwsChunkedDecoder {
 public:
  struct Signing {
    std::string secret_key;
    absl::Time time;
    SigV4Scope scope;
    std::string previous_signature;  // at first that of the request
  };

  /// Without `signing`, signatures are neither required nor checked.
  AwsChunkedDecoder(std::optional<Signing> signing, bool expects_trailer)
      : signing_(std::move(signing)), expects_trailer_(expects_trailer) {}

  /// Takes the next bytes and hands on their payload. IncompleteBody for bad framing, SignatureDoesNotMatch for a bad
  /// chain.
  absl::Status Update(ByteSpan bytes, absl::FunctionRef<absl::Status(ByteSpan)> out);

  /// Returns IncompleteBody if the last chunk has not come.
  absl::Status Finish() const;

  /// Returns trailing fields, names in lower case, without the signature.
  const std::vector<std::pair<std::string, std::string>>& trailers() const { return trailers_; }

 private:
  enum class State { kChunkHead, kData, kDataEnd, kTrailer, kDone };

  absl::Status OnLine(std::string_view line);
  absl::Status OnChunkHead(std::string_view line);
  absl::Status OnTrailerLine(std::string_view line);
  absl::Status CheckChunk();
  absl::Status CheckTrailer(std::string_view given);
  absl::Status CheckSignature(std::string_view kind, std::string_view hashes, std::string_view given);

  std::optional<Signing> signing_;
  const bool expects_trailer_;
  State state_ = State::kChunkHead;
  std::string line_;
  uint64_t left_ = 0;     // of the chunk's data
  bool is_last_ = false;  // the chunk of size 0
  std::string chunk_signature_;
  Sha256Stream chunk_hash_;
  std::string signed_trailer_;  // canonical form
  bool trailer_signed_ = false;
  std::vector<std::pair<std::string, std::string>> trailers_;
};

}  // namespace millrace
