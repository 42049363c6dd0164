#include "devstore/aws_chunked.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "base/number.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

constexpr size_t kMaxLine = 4096;
constexpr size_t kMaxTrailers = 16;
constexpr uint64_t kMaxChunk = uint64_t{5} << 30;  // no upload is larger

absl::Status BadFraming(std::string_view what) {
  return S3Error(s3code::kIncompleteBody, fmt::format("The body is not valid aws-chunked: {}", what));
}

}  // namespace

absl::Status AwsChunkedDecoder::Update(ByteSpan bytes, absl::FunctionRef<absl::Status(ByteSpan)> out) {
  while (!bytes.empty()) {
    if (state_ == State::kData) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(left_, bytes.size()));
      const ByteSpan data = bytes.first(n);
      if (signing_) chunk_hash_.Update(data);
      RETURN_IF_ERROR(out(data));
      left_ -= n;
      if (left_ == 0) state_ = State::kDataEnd;
      bytes = bytes.subspan(n);
      continue;
    }
    if (state_ == State::kDone) return BadFraming("bytes after its end");
    const std::string_view text = AsText(bytes);
    const size_t end = text.find('\n');
    const size_t taken = end == std::string_view::npos ? text.size() : end + 1;
    if (line_.size() + taken > kMaxLine) return BadFraming("a line is too long");
    line_.append(text.substr(0, taken));
    bytes = bytes.subspan(taken);
    if (end == std::string_view::npos) break;
    std::string_view line = line_;
    line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    RETURN_IF_ERROR(OnLine(line));
    line_.clear();
  }
  return absl::OkStatus();
}

absl::Status AwsChunkedDecoder::OnLine(std::string_view line) {
  switch (state_) {
    case State::kChunkHead:
      return OnChunkHead(line);
    case State::kDataEnd:
      if (!line.empty()) return BadFraming("a chunk is longer than it says");
      state_ = State::kChunkHead;
      return CheckChunk();
    case State::kTrailer:
      return OnTrailerLine(line);
    case State::kData:
    case State::kDone:
      break;
  }
  return absl::OkStatus();
}

absl::Status AwsChunkedDecoder::OnChunkHead(std::string_view line) {
  constexpr std::string_view kSignature = "chunk-signature=";
  const size_t semicolon = line.find(';');
  const std::string_view size_text = line.substr(0, semicolon);
  if (!ParseNumber(size_text, &left_, 16) || left_ > kMaxChunk)
    return BadFraming("a chunk's size is not a hexadecimal number");
  const std::string_view extension =
      semicolon == std::string_view::npos ? std::string_view() : line.substr(semicolon + 1);
  chunk_signature_ = extension.starts_with(kSignature) ? extension.substr(kSignature.size()) : std::string_view();
  if (left_ > 0) {
    state_ = State::kData;
    return absl::OkStatus();
  }
  is_last_ = true;
  state_ = State::kTrailer;
  return CheckChunk();
}

absl::Status AwsChunkedDecoder::OnTrailerLine(std::string_view line) {
  if (line.empty()) {
    // AWS's own examples put an empty line between a trailer and its signature.
    if (expects_trailer_ && signing_ && !trailer_signed_) {
      if (trailers_.empty()) return BadFraming("the announced trailer is missing");
      return absl::OkStatus();
    }
    state_ = State::kDone;
    return absl::OkStatus();
  }
  const size_t colon = line.find(':');
  if (!expects_trailer_ || colon == std::string_view::npos || trailers_.size() >= kMaxTrailers) {
    return BadFraming("an unexpected line after the last chunk");
  }
  const std::string name = absl::AsciiStrToLower(ToAbsl(line.substr(0, colon)));
  const std::string value(ToStd(absl::StripAsciiWhitespace(ToAbsl(line.substr(colon + 1)))));
  if (name == "x-amz-trailer-signature") return CheckTrailer(value);
  signed_trailer_.append(name).append(":").append(value).append("\n");
  trailers_.emplace_back(name, value);
  return absl::OkStatus();
}

absl::Status AwsChunkedDecoder::CheckChunk() {
  if (!signing_) return absl::OkStatus();
  const std::string hashes = fmt::format("{}\n{}", kEmptyPayloadHash, HexEncode(chunk_hash_.Finish()));
  return CheckSignature("AWS4-HMAC-SHA256-PAYLOAD", hashes, chunk_signature_);
}

absl::Status AwsChunkedDecoder::CheckTrailer(std::string_view given) {
  trailer_signed_ = true;
  if (!signing_) return absl::OkStatus();
  return CheckSignature("AWS4-HMAC-SHA256-TRAILER", HexEncode(Sha256(AsBytes(signed_trailer_))), given);
}

absl::Status AwsChunkedDecoder::CheckSignature(std::string_view kind, std::string_view hashes, std::string_view given) {
  const std::string day = AmzDate(signing_->time).substr(0, 8);
  const std::string to_sign =
      fmt::format("{}\n{}\n{}/{}/{}/aws4_request\n{}\n{}", kind, AmzDate(signing_->time), day, signing_->scope.region,
                  signing_->scope.service, signing_->previous_signature, hashes);
  std::string expected = Signature(to_sign, signing_->secret_key, signing_->time, signing_->scope);
  if (!EqualConstantTime(expected, given)) {
    return S3Error(
        s3code::kSignatureDoesNotMatch,
        "The chunk signature we calculated does not match the signature you provided. Check your key and signing "
        "method.");
  }
  signing_->previous_signature = std::move(expected);
  return absl::OkStatus();
}

absl::Status AwsChunkedDecoder::Finish() const {
  if (state_ == State::kDone) return absl::OkStatus();
  return BadFraming(is_last_ ? "it ends within the trailer" : "it ends before its last chunk");
}

}  // namespace millrace
