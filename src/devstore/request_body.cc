#include "devstore/request_body.h"

#include <fmt/format.h>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

constexpr std::string_view kChecksumPrefix = "x-amz-checksum-";

absl::Status UnknownChecksum(std::string_view header) {
  return S3Error(
      s3code::kNotImplemented,
      fmt::format("devstore does not know the checksum {}; it knows crc32, crc32c, crc64nvme and sha256", header),
      {{"Header", std::string(header)}});
}

bool DescribesChecksum(std::string_view name) {
  return name == "x-amz-checksum-algorithm" || name == "x-amz-checksum-mode" || name == "x-amz-checksum-type";
}

}  // namespace

absl::StatusOr<std::optional<ChecksumAlgorithm>> AnnouncedChecksum(const S3Request& request) {
  std::optional<ChecksumAlgorithm> found;
  const auto take = [&found](std::string_view name) -> absl::Status {
    const std::optional<ChecksumAlgorithm> algorithm = FindChecksumAlgorithm(name);
    if (!algorithm) return UnknownChecksum(name);
    if (found) {
      return S3Error(s3code::kInvalidRequest,
                     "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.");
    }
    found = algorithm;
    return absl::OkStatus();
  };
  for (const auto& [field, value] : request.head.headers) {
    const std::string name = absl::AsciiStrToLower(ToAbsl(field));
    if (name.starts_with(kChecksumPrefix) && !DescribesChecksum(name)) RETURN_IF_ERROR(take(name));
    if (name == "x-amz-trailer") {
      const std::string trailer = absl::AsciiStrToLower(ToAbsl(value));
      if (!trailer.starts_with(kChecksumPrefix)) {
        return S3Error(s3code::kInvalidRequest, "The value specified in the x-amz-trailer header is not supported");
      }
      RETURN_IF_ERROR(take(trailer));
    }
  }
  return found;
}

absl::StatusOr<std::unique_ptr<RequestBody>> RequestBody::Create(const S3Request& request,
                                                                 const HttpRequestFacts& facts, const AuthResult& auth,
                                                                 const std::string& secret_key, ETagKind etags,
                                                                 uint64_t max_bytes) {
  std::unique_ptr<RequestBody> body(new RequestBody(etags));
  const std::string& mode = auth.payload_hash;
  std::optional<uint64_t> size = facts.content_length;
  if (mode.starts_with("STREAMING-")) {
    const auto decoded = request.Header("x-amz-decoded-content-length");
    size = decoded ? ParseDecimal(*decoded, 0, UINT64_MAX) : std::nullopt;
    std::optional<AwsChunkedDecoder::Signing> signing;
    if (auth.is_signed && mode.starts_with("STREAMING-AWS4-HMAC-SHA256")) {
      signing = AwsChunkedDecoder::Signing{secret_key, auth.time, auth.scope, auth.signature};
    }
    body->decoder_.emplace(std::move(signing), mode.ends_with("-TRAILER"));
  } else if (mode != kUnsignedPayload) {
    body->sha256_.emplace();
    body->expected_sha256_ = mode;
  }
  if (!size) {
    return S3Error(s3code::kMissingContentLength,
                   "You must provide the Content-Length (or x-amz-decoded-content-length) HTTP header.");
  }
  if (*size > max_bytes) {
    return S3Error(s3code::kEntityTooLarge, "Your proposed upload exceeds the maximum allowed size",
                   {{"ProposedSize", std::to_string(*size)}, {"MaxSizeAllowed", std::to_string(max_bytes)}});
  }
  body->announced_size_ = *size;
  RETURN_IF_ERROR(body->ReadDigestHeaders(request));
  return body;
}

absl::Status RequestBody::ReadDigestHeaders(const S3Request& request) {
  if (const auto md5 = request.Header("content-md5")) {
    if (!absl::Base64Unescape(ToAbsl(*md5), &expected_md5_) || expected_md5_.size() != 16) {
      return S3Error(s3code::kInvalidDigest, "The Content-MD5 you specified was invalid.",
                     {{"Content-MD5", std::string(*md5)}});
    }
    md5_.emplace();
  }
  ASSIGN_OR_RETURN(const std::optional<ChecksumAlgorithm> algorithm, AnnouncedChecksum(request));
  // The one of CompleteMultipartUpload is that of the object.
  const bool completes = request.head.method == "POST" && request.Has("uploadId");
  if (!algorithm || completes) return absl::OkStatus();
  checksum_stream_.emplace(*algorithm);
  const auto value = request.Header(ChecksumHeader(*algorithm));
  expected_checksum_ = std::string(value.value_or(""));
  checksum_in_trailer_ = !value.has_value();
  if (checksum_in_trailer_ && !decoder_) {
    return S3Error(s3code::kInvalidRequest, "x-amz-trailer needs a STREAMING-...-TRAILER payload");
  }
  return absl::OkStatus();
}

absl::Status RequestBody::Update(ByteSpan bytes, Sink sink) {
  const auto take = [&](ByteSpan data) -> absl::Status {
    size_ += data.size();
    if (size_ > announced_size_) {
      return S3Error(s3code::kIncompleteBody, "The request body is longer than the Content-Length HTTP header says");
    }
    etag_stream_.Update(data);
    if (md5_) md5_->Update(data);
    if (checksum_stream_) checksum_stream_->Update(data);
    return sink(data);
  };
  if (sha256_) sha256_->Update(bytes);
  return decoder_ ? decoder_->Update(bytes, take) : take(bytes);
}

absl::Status RequestBody::Finish() {
  if (decoder_) RETURN_IF_ERROR(decoder_->Finish());
  if (size_ != announced_size_) {
    return S3Error(s3code::kIncompleteBody,
                   "You did not provide the number of bytes specified by the Content-Length HTTP header");
  }
  if (sha256_) {
    const std::string computed = HexEncode(sha256_->Finish());
    if (computed != expected_sha256_) {
      return S3Error(s3code::kXAmzContentSha256Mismatch,
                     "The provided 'x-amz-content-sha256' header does not match what was computed.",
                     {{"ClientComputedContentSHA256", expected_sha256_}, {"S3ComputedContentSHA256", computed}});
    }
  }
  etag_ = etag_stream_.Finish();
  RETURN_IF_ERROR(CheckMd5());
  return CheckChecksum();
}

absl::Status RequestBody::CheckMd5() {
  if (!md5_) return absl::OkStatus();
  const std::array<uint8_t, 16> digest = md5_->Finish();
  if (expected_md5_ == std::string(digest.begin(), digest.end())) return absl::OkStatus();
  return S3Error(s3code::kBadDigest, "The Content-MD5 you specified did not match what we received.",
                 {{"CalculatedDigest", Base64Encode(digest)}});
}

absl::Status RequestBody::CheckChecksum() {
  if (!checksum_stream_) return absl::OkStatus();
  const ChecksumAlgorithm algorithm = checksum_stream_->algorithm();
  if (checksum_in_trailer_) {
    for (const auto& [name, value] : decoder_->trailers()) {
      if (name == ChecksumHeader(algorithm)) expected_checksum_ = value;
    }
    if (expected_checksum_.empty()) {
      return S3Error(s3code::kInvalidRequest,
                     fmt::format("The trailer {} announced by x-amz-trailer did not come", ChecksumHeader(algorithm)));
    }
  }
  checksum_ = Checksum{.algorithm = algorithm, .value = checksum_stream_->Finish()};
  if (checksum_->value == expected_checksum_) return absl::OkStatus();
  std::string raw;
  if (!absl::Base64Unescape(expected_checksum_, &raw)) {
    return S3Error(s3code::kInvalidRequest, fmt::format("Value for {} header is invalid.", ChecksumHeader(algorithm)));
  }
  return S3Error(s3code::kBadDigest,
                 fmt::format("The {} you specified did not match the calculated checksum.", ChecksumName(algorithm)));
}

}  // namespace millrace
