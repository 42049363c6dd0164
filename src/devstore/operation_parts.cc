#include "devstore/operation_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "aws/sigv4.h"
#include "devstore/conditions.h"
#include "devstore/listing.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

constexpr size_t kMaxMetadataBytes = 2048;
constexpr uint64_t kMaxCopyBytes = uint64_t{5} << 30;
constexpr size_t kCopyStep = size_t{1} << 20;
constexpr std::string_view kMetadataPrefix = "x-amz-meta-";
constexpr std::array<std::string_view, 5> kStoredHeaders = {"cache-control", "content-disposition", "content-encoding",
                                                            "content-language", "expires"};

/// "aws-chunked" encodes the transfer, not the object.
std::string WithoutAwsChunked(std::string_view encodings) {
  std::vector<std::string> kept;
  for (const absl::string_view item : absl::StrSplit(ToAbsl(encodings), ',')) {
    const absl::string_view name = absl::StripAsciiWhitespace(item);
    if (!name.empty() && name != "aws-chunked") kept.emplace_back(name);
  }
  return absl::StrJoin(kept, ",");
}

/// Calls `each` with the pieces of a range of `content`.
absl::Status ForEachPiece(const Content& content, ByteRange range, absl::FunctionRef<absl::Status(ByteSpan)> each) {
  std::vector<std::byte> buffer(static_cast<size_t>(std::min<uint64_t>(kCopyStep, range.length)));
  while (range.length > 0) {
    const MutableByteSpan piece(buffer.data(), static_cast<size_t>(std::min<uint64_t>(buffer.size(), range.length)));
    RETURN_IF_ERROR(content.Read(range.offset, piece));
    RETURN_IF_ERROR(each(piece));
    range.offset += piece.size();
    range.length -= piece.size();
  }
  return absl::OkStatus();
}

}  // namespace

std::string QuoteETag(std::string_view etag) {
  return fmt::format("\"{}\"", etag);
}

HttpReply XmlReply(XmlWriter writer) {
  HttpReply reply;
  reply.headers.Add("Content-Type", "application/xml");
  reply.body.push_back(SendText{std::move(writer).Finish()});
  return reply;
}

absl::StatusOr<ObjectAttributes> AttributesOf(const S3Request& request) {
  ObjectAttributes attributes;
  size_t metadata_bytes = 0;
  for (const auto& [field, value] : request.head.headers) {
    std::string name = absl::AsciiStrToLower(ToAbsl(field));
    if (name == "content-type") attributes.content_type = value;
    const bool is_metadata = name.starts_with(kMetadataPrefix);
    if (is_metadata) metadata_bytes += name.size() - kMetadataPrefix.size() + value.size();
    if (!is_metadata && std::find(kStoredHeaders.begin(), kStoredHeaders.end(), name) == kStoredHeaders.end()) continue;
    std::string stored = name == "content-encoding" ? WithoutAwsChunked(value) : std::string(value);
    if (!stored.empty() || is_metadata) attributes.headers.emplace_back(std::move(name), std::move(stored));
  }
  if (metadata_bytes > kMaxMetadataBytes) {
    return S3Error(s3code::kMetadataTooLarge, "Your metadata headers exceed the maximum allowed metadata size",
                   {{"Size", std::to_string(metadata_bytes)}, {"MaxSizeAllowed", std::to_string(kMaxMetadataBytes)}});
  }
  return attributes;
}

void AddChecksumHeaders(const std::optional<Checksum>& checksum, HttpHeaders* headers) {
  if (!checksum || checksum->value.empty()) return;
  headers->Add(std::string(ChecksumHeader(checksum->algorithm)), checksum->value);
  headers->Add("x-amz-checksum-type", checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
}

void WriteChecksum(const std::optional<Checksum>& checksum, XmlWriter* writer) {
  if (!checksum || checksum->value.empty()) return;
  writer->Element(fmt::format("Checksum{}", ChecksumName(checksum->algorithm)), checksum->value);
}

absl::StatusOr<CopySource> OpenCopySource(OperationContext& context, const S3Request& request) {
  const auto invalid = [] {
    return S3Error(s3code::kInvalidArgument,
                   "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
                   {{"ArgumentName", "x-amz-copy-source"}});
  };
  std::string_view header = request.Header("x-amz-copy-source").value_or("");
  constexpr std::string_view kVersion = "?versionId=";
  if (const size_t version = header.rfind(kVersion); version != std::string_view::npos) {
    if (header.substr(version + kVersion.size()) != "null") {
      return S3Error(s3code::kInvalidArgument, "Invalid version id specified", {{"ArgumentName", "x-amz-copy-source"}});
    }
    header = header.substr(0, version);
  }
  if (header.starts_with('/')) header.remove_prefix(1);
  const std::optional<std::string> path = UriDecode(header);
  if (!path) return invalid();
  const size_t slash = path->find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == path->size()) return invalid();
  CopySource source{path->substr(0, slash), path->substr(slash + 1), {}};
  ASSIGN_OR_RETURN(source.object, context.storage.Open(source.bucket, source.key));
  const std::string etag = context.etags.Effective(source.bucket, source.key, source.object.record->etag);
  RETURN_IF_ERROR(CheckReadConditions(request, etag, source.object.record->modified_s(), "x-amz-copy-source-"));
  return source;
}

absl::Status CheckCopySize(uint64_t bytes) {
  if (bytes <= kMaxCopyBytes) return absl::OkStatus();
  return S3Error(
      s3code::kInvalidRequest,
      fmt::format("The specified copy source is larger than the maximum allowable size for a copy source: {}",
                  kMaxCopyBytes));
}

absl::StatusOr<CopiedContent> CopyContent(OperationContext& context, const Content& source, ByteRange range,
                                          std::optional<ChecksumAlgorithm> algorithm, BlobWriter& writer) {
  ETagStream etag(context.etag_kind);
  std::optional<ChecksumStream> checksum;
  if (algorithm) checksum.emplace(*algorithm);
  RETURN_IF_ERROR(ForEachPiece(source, range, [&](ByteSpan piece) {
    etag.Update(piece);
    if (checksum) checksum->Update(piece);
    return writer.Append(piece);
  }));
  CopiedContent copied;
  ASSIGN_OR_RETURN(copied.content, writer.Finish());
  copied.etag = etag.Finish();
  if (checksum) copied.checksum = Checksum{.algorithm = *algorithm, .value = checksum->Finish()};
  return copied;
}

absl::StatusOr<std::string> ChecksumOf(const Content& content, ChecksumAlgorithm algorithm) {
  ChecksumStream stream(algorithm);
  RETURN_IF_ERROR(ForEachPiece(content, {0, content.size()}, [&](ByteSpan piece) {
    stream.Update(piece);
    return absl::OkStatus();
  }));
  return stream.Finish();
}

absl::StatusOr<uint64_t> NumberParameter(const S3Request& request, std::string_view name, uint64_t fallback) {
  constexpr uint64_t kMax = std::numeric_limits<int32_t>::max();
  const auto text = request.Parameter(name);
  if (!text || text->empty()) return fallback;
  const std::optional<uint64_t> value = ParseDecimal(*text, 0, kMax);
  if (value) return *value;
  return S3Error(s3code::kInvalidArgument, fmt::format("Argument {} must be an integer between 0 and {}", name, kMax),
                 {{"ArgumentName", std::string(name)}, {"ArgumentValue", std::string(*text)}});
}

absl::StatusOr<NameEncoder> NameEncoder::Create(const S3Request& request) {
  NameEncoder encoder;
  const std::string type = request.ParameterOr("encoding-type");
  encoder.url_ = type == "url";
  if (!type.empty() && !encoder.url_) {
    return S3Error(s3code::kInvalidArgument, "Invalid Encoding Method specified in Request",
                   {{"ArgumentName", "encoding-type"}, {"ArgumentValue", type}});
  }
  return encoder;
}

std::string NameEncoder::operator()(std::string_view name) const {
  return url_ ? UrlEncodeName(name) : std::string(name);
}

void NameEncoder::WriteType(XmlWriter* writer) const {
  if (url_) writer->Element("EncodingType", "url");
}

}  // namespace millrace
