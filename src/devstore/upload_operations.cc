#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "devstore/conditions.h"
#include "devstore/operation_parts.h"
#include "devstore/s3_error.h"
#include "s3/etag.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxParts = 10'000;
constexpr uint64_t kMinPartBytes = uint64_t{5} << 20;  // but for the last
constexpr uint64_t kMaxPage = 1000;

std::string UploadId(const S3Request& request) {
  return request.ParameterOr("uploadId");
}

absl::StatusOr<int> PartNumber(const S3Request& request) {
  const std::string text = request.ParameterOr("partNumber");
  const std::optional<uint64_t> number = ParseDecimal(text, 1, kMaxParts);
  if (number) return static_cast<int>(*number);
  return S3Error(s3code::kInvalidArgument, "Part number must be an integer between 1 and 10000, inclusive",
                 {{"ArgumentName", "partNumber"}, {"ArgumentValue", text}});
}

absl::StatusOr<Upload> FindUpload(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(context.storage.CheckBucket(request.bucket));
  return context.storage.FindUpload(request.bucket, request.key, UploadId(request));
}

/// Returns the algorithm that an upload was made for; parts must have their checksum by it.
std::optional<ChecksumAlgorithm> AlgorithmOf(const Upload& upload) {
  if (!upload.attributes.checksum) return std::nullopt;
  return upload.attributes.checksum->algorithm;
}

/// Returns the checksum that a new upload announces.
absl::StatusOr<std::optional<Checksum>> AnnouncedUploadChecksum(const S3Request& request) {
  const auto name = request.Header("x-amz-checksum-algorithm");
  if (!name) return std::nullopt;
  const auto algorithm = FindChecksumAlgorithm(*name);
  if (!algorithm) {
    return S3Error(
        s3code::kInvalidRequest,
        fmt::format("devstore does not know the checksum algorithm {}; it knows CRC32, CRC32C, CRC64NVME and SHA256",
                    *name));
  }
  const bool only_full = *algorithm == ChecksumAlgorithm::kCrc64Nvme;
  const std::string_view type = request.Header("x-amz-checksum-type").value_or(only_full ? "FULL_OBJECT" : "COMPOSITE");
  const bool composite = type == "COMPOSITE";
  if ((composite && only_full) || (!composite && (type != "FULL_OBJECT" || *algorithm == ChecksumAlgorithm::kSha256))) {
    return S3Error(s3code::kInvalidRequest,
                   fmt::format("The {} checksum type cannot be used with the {} checksum algorithm.", type,
                               absl::AsciiStrToLower(ToAbsl(ChecksumName(*algorithm)))));
  }
  return Checksum{.algorithm = *algorithm, .value = "", .composite = composite};
}

absl::Status InvalidPart(int number) {
  return S3Error(
      s3code::kInvalidPart,
      "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified "
      "entity tag may not match the part's entity tag.",
      {{"PartNumber", std::to_string(number)}});
}

/// Returns the parts that a Complete names, checked.
absl::StatusOr<std::vector<const UploadPart*>> ChosenParts(const Upload& upload,
                                                           const std::vector<CompletedPart>& named) {
  std::vector<const UploadPart*> chosen;
  int last_number = 0;
  for (const CompletedPart& part : named) {
    if (part.number <= last_number) {
      return S3Error(s3code::kInvalidPartOrder,
                     "The list of parts was not in ascending order. Parts must be ordered by part number.");
    }
    last_number = part.number;
    const auto found = upload.parts.find(part.number);
    if (found == upload.parts.end() || found->second.etag != part.etag) return InvalidPart(part.number);
    const std::optional<Checksum>& checksum = found->second.checksum;
    const bool same =
        checksum && ChecksumName(checksum->algorithm) == part.checksum_name && checksum->value == part.checksum;
    if (!part.checksum.empty() && !same) return InvalidPart(part.number);
    chosen.push_back(&found->second);
  }
  for (size_t i = 0; i + 1 < chosen.size(); ++i) {
    if (chosen[i]->content->size() >= kMinPartBytes) continue;
    return S3Error(s3code::kEntityTooSmall, "Your proposed upload is smaller than the minimum allowed size",
                   {{"ProposedSize", std::to_string(chosen[i]->content->size())},
                    {"MinSizeAllowed", std::to_string(kMinPartBytes)},
                    {"PartNumber", std::to_string(named[i].number)},
                    {"ETag", chosen[i]->etag}});
  }
  return chosen;
}

absl::StatusOr<std::optional<Checksum>> MultipartChecksum(const Upload& upload,
                                                          const std::vector<const UploadPart*>& parts,
                                                          const Content& whole) {
  std::optional<Checksum> checksum = upload.attributes.checksum;
  if (!checksum) return checksum;
  if (!checksum->composite) {
    std::vector<PartChecksum> joined;
    for (const UploadPart* part : parts) {
      const bool same = part->checksum && part->checksum->algorithm == checksum->algorithm;
      joined.push_back({same ? part->checksum->value : "", part->content->size()});
    }
    if (std::optional<std::string> value = JoinedChecksum(checksum->algorithm, joined)) {
      checksum->value = *std::move(value);
    } else {
      ASSIGN_OR_RETURN(checksum->value, ChecksumOf(whole, checksum->algorithm));
    }
    return checksum;
  }
  std::vector<std::string> values;
  for (const UploadPart* part : parts) values.push_back(part->checksum ? part->checksum->value : "");
  ASSIGN_OR_RETURN(checksum->value, CompositeChecksum(checksum->algorithm, values));
  return checksum;
}

// Checks the checksum of the object that the client gives when it completes an upload.
absl::Status CheckObjectChecksum(const S3Request& request, const std::optional<Checksum>& checksum) {
  ASSIGN_OR_RETURN(const auto algorithm, AnnouncedChecksum(request));
  if (!algorithm) return absl::OkStatus();
  if (!checksum || checksum->algorithm != *algorithm || request.Header("x-amz-checksum-type") != "FULL_OBJECT" ||
      checksum->composite) {
    return S3Error(s3code::kInvalidRequest,
                   fmt::format("The upload was created without the full object checksum {}", ChecksumName(*algorithm)));
  }
  if (request.Header(ChecksumHeader(*algorithm)) == checksum->value) return absl::OkStatus();
  return S3Error(s3code::kBadDigest,
                 fmt::format("The {} you specified did not match the calculated checksum.", ChecksumName(*algorithm)));
}

}  // namespace

absl::Status CheckUploadPart(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(PartNumber(request).status());
  ASSIGN_OR_RETURN(const Upload upload, FindUpload(context, request));
  ASSIGN_OR_RETURN(const auto given, AnnouncedChecksum(request));
  const auto expected = AlgorithmOf(upload);
  if (expected && given != expected) {
    return S3Error(s3code::kInvalidRequest,
                   fmt::format("Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {}",
                               absl::AsciiStrToLower(ToAbsl(ChecksumName(*expected))),
                               given ? absl::AsciiStrToLower(ToAbsl(ChecksumName(*given))) : "null"));
  }
  return absl::OkStatus();
}

Reply CreateUpload(OperationContext& context, const S3Request& request) {
  Upload upload{
      .id = "", .bucket = request.bucket, .key = request.key, .attributes = {}, .initiated_ns = 0, .parts = {}};
  ASSIGN_OR_RETURN(upload.attributes, AttributesOf(request));
  ASSIGN_OR_RETURN(upload.attributes.checksum, AnnouncedUploadChecksum(request));
  const std::optional<Checksum> checksum = upload.attributes.checksum;
  ASSIGN_OR_RETURN(const std::string id, context.storage.CreateUpload(std::move(upload)));
  XmlWriter writer("InitiateMultipartUploadResult");
  writer.Element("Bucket", request.bucket);
  writer.Element("Key", request.key);
  writer.Element("UploadId", id);
  HttpReply reply = XmlReply(std::move(writer));
  if (checksum) {
    reply.headers.Add("x-amz-checksum-algorithm", std::string(ChecksumName(checksum->algorithm)));
    reply.headers.Add("x-amz-checksum-type", checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
  }
  return reply;
}

Reply UploadPartFromBody(OperationContext& context, const S3Request& request, const RequestBody& body,
                         std::shared_ptr<Content> content) {
  ASSIGN_OR_RETURN(const int number, PartNumber(request));
  UploadPart part{.etag = body.etag(), .checksum = body.checksum(), .modified_ns = 0, .content = nullptr};
  HttpReply reply;
  reply.headers.Add("ETag", QuoteETag(part.etag));
  if (part.checksum) reply.headers.Add(std::string(ChecksumHeader(part.checksum->algorithm)), part.checksum->value);
  RETURN_IF_ERROR(context.storage.PutPart(UploadId(request), number, std::move(content), std::move(part)));
  return reply;
}

Reply UploadPartCopy(OperationContext& context, const S3Request& request) {
  ASSIGN_OR_RETURN(const int number, PartNumber(request));
  ASSIGN_OR_RETURN(const Upload upload, FindUpload(context, request));
  ASSIGN_OR_RETURN(const CopySource source, OpenCopySource(context, request));
  const Content& bytes = *source.object.content;
  ByteRange range{0, bytes.size()};
  if (const auto header = request.Header("x-amz-copy-source-range")) {
    ASSIGN_OR_RETURN(range, ParseCopyRange(*header, bytes.size()));
  }
  RETURN_IF_ERROR(CheckCopySize(range.length));
  ASSIGN_OR_RETURN(const std::unique_ptr<BlobWriter> blob, context.storage.NewBlob(range.length));
  ASSIGN_OR_RETURN(CopiedContent copied, CopyContent(context, bytes, range, AlgorithmOf(upload), *blob));
  UploadPart part{.etag = copied.etag, .checksum = copied.checksum, .modified_ns = 0, .content = nullptr};
  XmlWriter writer("CopyPartResult");
  writer.Element("LastModified", FormatXmlTime(NowNs() / 1'000'000'000 * 1000));
  writer.Element("ETag", QuoteETag(part.etag));
  WriteChecksum(part.checksum, &writer);
  RETURN_IF_ERROR(context.storage.PutPart(upload.id, number, std::move(copied.content), std::move(part)));
  return XmlReply(std::move(writer));
}

Reply CompleteUpload(OperationContext& context, const S3Request& request) {
  ASSIGN_OR_RETURN(const WriteConditions conditions, ParseWriteConditions(request));
  ASSIGN_OR_RETURN(const Upload upload, FindUpload(context, request));
  const auto named = ParseCompleteMultipartXml(request.document);
  if (!named.ok() || named->empty() || named->size() > kMaxParts) {
    return S3Error(s3code::kMalformedXml,
                   "The XML you provided was not well-formed or did not validate against our published schema");
  }
  ASSIGN_OR_RETURN(const std::vector<const UploadPart*> parts, ChosenParts(upload, *named));
  std::vector<std::shared_ptr<const Content>> contents;
  for (const UploadPart* part : parts) contents.push_back(part->content);
  auto joined = context.storage.Concatenate(contents);
  if (!joined.ok()) {
    // Its parts may have gone under it, with the upload that another request has completed or aborted.
    RETURN_IF_ERROR(FindUpload(context, request).status());
    return joined.status();
  }
  std::shared_ptr<Content> whole = *std::move(joined);
  ObjectAttributes attributes = upload.attributes;
  ASSIGN_OR_RETURN(attributes.checksum, MultipartChecksum(upload, parts, *whole));
  RETURN_IF_ERROR(CheckObjectChecksum(request, attributes.checksum));
  // S3 keeps the checksums of parts only of objects whose own is made of them.
  const bool composite = attributes.checksum && attributes.checksum->composite;
  for (const UploadPart* part : parts) {
    attributes.parts.push_back(
        {part->content->size(), composite && part->checksum ? part->checksum->value : std::string()});
  }
  std::vector<std::string> etags;
  for (const UploadPart* part : parts) etags.push_back(part->etag);
  ASSIGN_OR_RETURN(const auto record,
                   context.storage.Put(request.bucket, request.key, std::move(whole), std::move(attributes),
                                       MultipartETag(etags), ConditionsCheck(context, request, conditions)));
  // The object stands; an upload that another request has removed meanwhile changes nothing.
  context.storage.RemoveUpload(upload.id).IgnoreError();
  XmlWriter writer("CompleteMultipartUploadResult");
  writer.Element("Location", "/" + request.bucket + "/" + request.key);
  writer.Element("Bucket", request.bucket);
  writer.Element("Key", request.key);
  writer.Element("ETag", QuoteETag(record->etag));
  WriteChecksum(record->attributes.checksum, &writer);
  if (record->attributes.checksum) {
    writer.Element("ChecksumType", record->attributes.checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
  }
  return XmlReply(std::move(writer));
}

Reply AbortUpload(OperationContext& context, const S3Request& request) {
  ASSIGN_OR_RETURN(const Upload upload, FindUpload(context, request));
  RETURN_IF_ERROR(context.storage.RemoveUpload(upload.id));
  return HttpReply{.status = 204};
}

Reply ListParts(OperationContext& context, const S3Request& request) {
  ASSIGN_OR_RETURN(const Upload upload, FindUpload(context, request));
  ASSIGN_OR_RETURN(const uint64_t marker, NumberParameter(request, "part-number-marker", 0));
  ASSIGN_OR_RETURN(const uint64_t asked, NumberParameter(request, "max-parts", kMaxPage));
  const uint64_t max_parts = std::min(asked, kMaxPage);
  XmlWriter writer("ListPartsResult");
  writer.Element("Bucket", request.bucket);
  writer.Element("Key", request.key);
  writer.Element("UploadId", upload.id);
  writer.Element("PartNumberMarker", marker);
  writer.Element("MaxParts", max_parts);
  writer.Element("StorageClass", "STANDARD");
  if (upload.attributes.checksum) {
    writer.Element("ChecksumAlgorithm", ChecksumName(upload.attributes.checksum->algorithm));
    writer.Element("ChecksumType", upload.attributes.checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
  }
  uint64_t count = 0;
  uint64_t last = marker;
  auto part = upload.parts.upper_bound(static_cast<int>(marker));
  for (; part != upload.parts.end() && count < max_parts; ++part, ++count) {
    last = static_cast<uint64_t>(part->first);
    writer.Open("Part");
    writer.Element("PartNumber", last);
    writer.Element("LastModified", FormatXmlTime(part->second.modified_ns / 1'000'000'000 * 1000));
    writer.Element("ETag", QuoteETag(part->second.etag));
    writer.Element("Size", part->second.content->size());
    WriteChecksum(part->second.checksum, &writer);
    writer.Close();
  }
  const bool truncated = part != upload.parts.end() && max_parts > 0;
  writer.Element("IsTruncated", truncated ? "true" : "false");
  if (truncated) writer.Element("NextPartNumberMarker", last);
  return XmlReply(std::move(writer));
}

Reply ListUploads(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(context.storage.CheckBucket(request.bucket));
  ASSIGN_OR_RETURN(const NameEncoder encode, NameEncoder::Create(request));
  ASSIGN_OR_RETURN(const uint64_t asked, NumberParameter(request, "max-uploads", kMaxPage));
  const uint64_t max_uploads = std::min(asked, kMaxPage);
  const std::string prefix = request.ParameterOr("prefix");
  const std::string key_marker = request.ParameterOr("key-marker");
  const std::string id_marker = request.ParameterOr("upload-id-marker");
  if (request.Has("delimiter"))
    return S3Error(s3code::kNotImplemented, "devstore lists uploads without a delimiter only");

  const std::vector<Upload> uploads = context.storage.Uploads(request.bucket);
  // Uploads of one key follow each other by time: the marker's own one is where the next page starts after.
  auto next = uploads.begin();
  if (!key_marker.empty()) {
    next = std::find_if(uploads.begin(), uploads.end(), [&](const Upload& upload) {
      return upload.key > key_marker || (upload.key == key_marker && upload.id == id_marker);
    });
    if (next != uploads.end() && next->key == key_marker) ++next;
  }
  XmlWriter writer("ListMultipartUploadsResult");
  writer.Element("Bucket", request.bucket);
  writer.Element("KeyMarker", encode(key_marker));
  writer.Element("UploadIdMarker", id_marker);
  writer.Element("Prefix", encode(prefix));
  encode.WriteType(&writer);
  writer.Element("MaxUploads", max_uploads);
  const auto matches = [&](const Upload& upload) { return upload.key.starts_with(prefix); };
  const Upload* last = nullptr;
  uint64_t count = 0;
  for (next = std::find_if(next, uploads.end(), matches); next != uploads.end() && count < max_uploads;
       next = std::find_if(next + 1, uploads.end(), matches), ++count) {
    last = &*next;
    writer.Open("Upload");
    writer.Element("Key", encode(next->key));
    writer.Element("UploadId", next->id);
    writer.Element("StorageClass", "STANDARD");
    writer.Element("Initiated", FormatXmlTime(next->initiated_ns / 1'000'000'000 * 1000));
    writer.Close();
  }
  const bool truncated = next != uploads.end() && last != nullptr;
  writer.Element("IsTruncated", truncated ? "true" : "false");
  if (truncated) {
    writer.Element("NextKeyMarker", encode(last->key));
    writer.Element("NextUploadIdMarker", last->id);
  }
  return XmlReply(std::move(writer));
}

}  // namespace millrace
