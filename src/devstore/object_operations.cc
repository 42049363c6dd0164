#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "devstore/conditions.h"
#include "devstore/operation_parts.h"
#include "devstore/reply_faults.h"
#include "devstore/s3_error.h"
#include "net/reply_head.h"

namespace millrace {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kOverrides = {{
    {"response-cache-control", "cache-control"},
    {"response-content-disposition", "content-disposition"},
    {"response-content-encoding", "content-encoding"},
    {"response-content-language", "content-language"},
    {"response-content-type", "content-type"},
    {"response-expires", "expires"},
}};

void AddAttributes(const S3Request& request, const ObjectAttributes& attributes, HttpHeaders* headers) {
  headers->Add("Content-Type", attributes.content_type.empty() ? "binary/octet-stream" : attributes.content_type);
  for (const auto& [name, value] : attributes.headers) headers->Add(name, value);
  for (const auto& [parameter, name] : kOverrides) {
    if (const auto value = request.Parameter(parameter)) headers->Set(name, std::string(*value));
  }
}

/// Returns the part of that number (from 1), or the whole object if it does not have parts, as S3 does.
absl::StatusOr<RangeRequest> RangeOfPart(const S3Request& request, const ObjectRecord& record) {
  const std::string text = request.ParameterOr("partNumber");
  const std::optional<uint64_t> number = ParseDecimal(text, 1, 10'000);
  if (!number) {
    return S3Error(s3code::kInvalidArgument, "Part number must be an integer between 1 and 10000, inclusive",
                   {{"ArgumentName", "partNumber"}, {"ArgumentValue", text}});
  }
  if (request.Header("range")) {
    return S3Error(s3code::kInvalidRequest, "Cannot specify both Range header and partNumber query parameter.");
  }
  const std::vector<ObjectPart>& parts = record.attributes.parts;
  const size_t count = std::max<size_t>(parts.size(), 1);
  if (*number > count) {
    return S3Error(s3code::kInvalidPartNumber, "The requested partnumber is not satisfiable",
                   {{"PartNumberRequested", text}, {"ActualPartCount", std::to_string(count)}});
  }
  ByteRange range{0, parts.empty() ? record.size : parts[*number - 1].bytes};
  for (size_t i = 0; i + 1 < *number; ++i) range.offset += parts[i].bytes;
  return RangeRequest{range.length > 0 ? RangeKind::kPart : RangeKind::kWhole, range};  // "bytes 0--1" says nothing
}

/// Returns the requested bytes of the object, by part or by range.
absl::StatusOr<RangeRequest> AskedRange(const S3Request& request, const ObjectRecord& record) {
  if (request.Has("partNumber")) return RangeOfPart(request, record);
  RangeRequest asked = ParseRange(request.Header("range"), record.size);
  if (asked.kind == RangeKind::kUnsatisfiable) {
    return S3Error(s3code::kInvalidRange, "The requested range is not satisfiable",
                   {{"RangeRequested", std::string(request.Header("range").value_or(""))},
                    {"ActualObjectSize", std::to_string(record.size)}});
  }
  if (asked.kind == RangeKind::kWhole) asked.range = {0, record.size};
  return asked;
}

/// Returns the checksum of the whole object if all of it is sent. If the range is just one part, returns that part's,
/// if it is kept.
std::optional<Checksum> ChecksumOfAnswer(const S3Request& request, const ObjectRecord& record,
                                         const RangeRequest& asked) {
  const std::optional<Checksum>& whole = record.attributes.checksum;
  if (!whole || asked.kind != RangeKind::kPart) return whole;
  const std::vector<ObjectPart>& parts = record.attributes.parts;
  if (request.Has("partNumber") && parts.empty()) return whole;
  uint64_t offset = 0;
  for (const ObjectPart& part : parts) {
    if (asked.range == ByteRange{offset, part.bytes}) {
      return Checksum{.algorithm = whole->algorithm, .value = part.checksum, .composite = whole->composite};
    }
    offset += part.bytes;
  }
  return std::nullopt;
}

}  // namespace

Reply GetObject(OperationContext& context, const S3Request& request) {
  ASSIGN_OR_RETURN(const StoredObject object, context.storage.Open(request.bucket, request.key));
  const ObjectRecord& record = *object.record;
  const std::string etag = context.etags.Effective(request.bucket, request.key, record.etag);
  HttpReply reply;
  reply.headers.Add("ETag", QuoteETag(etag));
  reply.headers.Add("Last-Modified", HttpDate(record.modified_s()));
  const absl::Status condition = CheckReadConditions(request, etag, record.modified_s());
  if (IsS3Error(condition, s3code::kNotModified)) {
    reply.status = 304;
    return reply;
  }
  RETURN_IF_ERROR(condition);

  ASSIGN_OR_RETURN(RangeRequest asked, AskedRange(request, record));
  const RangeFault fault = request.range_fault;
  if (fault == RangeFault::kWholeObject) asked = {RangeKind::kWhole, {0, record.size}};
  if (fault == RangeFault::kAnother && record.size > 1) {
    asked = {RangeKind::kPart, WrongRange(asked.range, record.size)};
  } else if (fault == RangeFault::kFirstHalf && asked.range.length > 1) {
    asked = {RangeKind::kPart, {asked.range.offset, asked.range.length / 2}};
  }
  reply.headers.Add("Accept-Ranges", "bytes");
  AddAttributes(request, record.attributes, &reply.headers);
  if (asked.kind == RangeKind::kPart) {
    reply.status = 206;
    reply.headers.Add("Content-Range",
                      fmt::format("bytes {}-{}/{}", asked.range.offset, asked.range.end() - 1, record.size));
  }
  const std::vector<ObjectPart>& parts = record.attributes.parts;
  if (request.Has("partNumber") && !parts.empty()) {
    reply.headers.Add("x-amz-mp-parts-count", std::to_string(parts.size()));
  }
  if (request.Header("x-amz-checksum-mode") == "ENABLED") {
    AddChecksumHeaders(ChecksumOfAnswer(request, record, asked), &reply.headers);
  }
  object.content->AppendSteps(asked.range, &reply.body);
  return reply;
}

absl::Status CheckPutObject(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(AttributesOf(request).status());
  RETURN_IF_ERROR(ParseWriteConditions(request).status());
  return context.storage.CheckBucket(request.bucket);
}

Reply PutObject(OperationContext& context, const S3Request& request, const RequestBody& body,
                std::shared_ptr<Content> content) {
  ASSIGN_OR_RETURN(ObjectAttributes attributes, AttributesOf(request));
  ASSIGN_OR_RETURN(const WriteConditions conditions, ParseWriteConditions(request));
  attributes.checksum = body.checksum();
  ASSIGN_OR_RETURN(const auto record,
                   context.storage.Put(request.bucket, request.key, std::move(content), std::move(attributes),
                                       body.etag(), ConditionsCheck(context, request, conditions)));
  HttpReply reply;
  reply.headers.Add("ETag", QuoteETag(record->etag));
  AddChecksumHeaders(record->attributes.checksum, &reply.headers);
  return reply;
}

Reply CopyObject(OperationContext& context, const S3Request& request) {
  ASSIGN_OR_RETURN(const WriteConditions conditions, ParseWriteConditions(request));
  const std::string_view directive = request.Header("x-amz-metadata-directive").value_or("COPY");
  if (directive != "COPY" && directive != "REPLACE") {
    return S3Error(s3code::kInvalidArgument, "Unknown metadata directive.",
                   {{"ArgumentName", "x-amz-metadata-directive"}, {"ArgumentValue", std::string(directive)}});
  }
  ASSIGN_OR_RETURN(const CopySource source, OpenCopySource(context, request));
  if (directive == "COPY" && source.bucket == request.bucket && source.key == request.key) {
    return S3Error(
        s3code::kInvalidRequest,
        "This copy request is illegal because it is trying to copy an object to itself without changing the object's "
        "metadata, storage class, website redirect location or encryption attributes.");
  }
  RETURN_IF_ERROR(CheckCopySize(source.object.content->size()));
  ObjectAttributes attributes = source.object.record->attributes;
  std::optional<ChecksumAlgorithm> algorithm;
  if (attributes.checksum) algorithm = attributes.checksum->algorithm;
  if (directive == "REPLACE") {
    ASSIGN_OR_RETURN(attributes, AttributesOf(request));
  }
  if (const auto wanted = request.Header("x-amz-checksum-algorithm")) {
    algorithm = FindChecksumAlgorithm(*wanted);
    if (!algorithm) {
      return S3Error(s3code::kInvalidRequest,
                     "Checksum algorithm provided is unsupported by devstore: CRC32, CRC32C, CRC64NVME "
                     "and SHA256 are known");
    }
  }
  const Content& bytes = *source.object.content;
  ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> blob, context.storage.NewBlob(bytes.size()));
  ASSIGN_OR_RETURN(CopiedContent copied, CopyContent(context, bytes, {0, bytes.size()}, algorithm, *blob));
  attributes.checksum = copied.checksum;
  attributes.parts.clear();
  ASSIGN_OR_RETURN(const auto record,
                   context.storage.Put(request.bucket, request.key, std::move(copied.content), std::move(attributes),
                                       std::move(copied.etag), ConditionsCheck(context, request, conditions)));
  XmlWriter writer("CopyObjectResult");
  writer.Element("LastModified", FormatXmlTime(record->modified_s() * 1000));
  writer.Element("ETag", QuoteETag(record->etag));
  WriteChecksum(record->attributes.checksum, &writer);
  return XmlReply(std::move(writer));
}

Reply DeleteObject(OperationContext& context, const S3Request& request) {
  ASSIGN_OR_RETURN(const WriteConditions conditions, ParseWriteConditions(request));
  RETURN_IF_ERROR(context.storage.Delete(request.bucket, request.key, ConditionsCheck(context, request, conditions)));
  return HttpReply{.status = 204};
}

}  // namespace millrace
