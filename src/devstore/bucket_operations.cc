#include <fmt/format.h>

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "devstore/directory_session.h"
#include "devstore/listing.h"
#include "devstore/operation_parts.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxKeys = 1000;

/// AWS writes whole seconds.
std::string XmlSeconds(int64_t unix_s) {
  return FormatXmlTime(unix_s * 1000);
}

/// Writes Contents and CommonPrefixes; returns the number of them.
absl::StatusOr<size_t> WriteEntries(OperationContext& context, const std::string& bucket, const ListingPage& listing,
                                    const NameEncoder& encode, bool with_owner, XmlWriter* writer) {
  size_t count = listing.common_prefixes.size();
  for (const std::string& key : listing.keys) {
    const auto record = context.storage.Describe(bucket, key);
    if (IsS3Error(record.status(), s3code::kNoSuchKey)) continue;  // deleted meanwhile
    if (!record.ok()) return record.status();
    ++count;
    writer->Open("Contents");
    writer->Element("Key", encode(key));
    writer->Element("LastModified", XmlSeconds((*record)->modified_s()));
    writer->Element("ETag", QuoteETag(context.etags.Effective(bucket, key, (*record)->etag)));
    if (const auto& checksum = (*record)->attributes.checksum) {
      writer->Element("ChecksumAlgorithm", ChecksumName(checksum->algorithm));
      writer->Element("ChecksumType", checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
    }
    writer->Element("Size", (*record)->size);
    if (with_owner) {
      writer->Open("Owner");
      writer->Element("ID", "devstore");
      writer->Close();
    }
    writer->Element("StorageClass", "STANDARD");
    writer->Close();
  }
  for (const std::string& prefix : listing.common_prefixes) {
    writer->Open("CommonPrefixes");
    writer->Element("Prefix", encode(prefix));
    writer->Close();
  }
  return count;
}

/// Applies the fault skip-key: a page that began after `start-after` continues after the next key, unless that was one
/// itself.
absl::StatusOr<std::string> SkipKey(KeyWalk& walk, const S3Request& request, std::string next) {
  const std::string after = request.ParameterOr("start-after");
  if (after.empty() || request.Has("continuation-token")) return next;
  ASSIGN_OR_RETURN(const std::optional<std::string> first, walk.FirstFrom(after));
  if (first == after) return next;
  ASSIGN_OR_RETURN(const std::optional<std::string> skipped, walk.FirstFrom(next));
  return skipped ? *skipped + '\0' : next;
}

/// Returns a page of a listing of either version; `write` adds the elements of its own.
Reply ListObjectsPage(OperationContext& context, const S3Request& request, std::string from, bool with_owner,
                      absl::FunctionRef<void(const ListingPage&, const NameEncoder&, size_t, XmlWriter*)> write) {
  ASSIGN_OR_RETURN(const uint64_t max_keys, NumberParameter(request, "max-keys", kMaxKeys));
  const ListingQuery query = {request.ParameterOr("prefix"), request.ParameterOr("delimiter"), std::move(from),
                              static_cast<size_t>(std::min(max_keys, kMaxKeys))};
  ASSIGN_OR_RETURN(const NameEncoder encode, NameEncoder::Create(request));
  ASSIGN_OR_RETURN(const std::unique_ptr<KeyWalk> walk, context.storage.Walk(request.bucket));
  ASSIGN_OR_RETURN(ListingPage page, ListKeys(*walk, query));
  if (request.skips_key && page.truncated) {
    ASSIGN_OR_RETURN(page.next, SkipKey(*walk, request, std::move(page.next)));
  }
  XmlWriter writer("ListBucketResult");
  writer.Element("Name", request.bucket);
  writer.Element("Prefix", encode(query.prefix));
  if (!query.delimiter.empty()) writer.Element("Delimiter", encode(query.delimiter));
  writer.Element("MaxKeys", query.max_keys);
  encode.WriteType(&writer);
  writer.Element("IsTruncated", page.truncated ? "true" : "false");
  ASSIGN_OR_RETURN(const size_t count, WriteEntries(context, request.bucket, page, encode, with_owner, &writer));
  write(page, encode, count, &writer);
  return XmlReply(std::move(writer));
}

}  // namespace

Reply ListBuckets(OperationContext& context, const S3Request&) {
  ASSIGN_OR_RETURN(const std::vector<BucketInfo> buckets, context.storage.Buckets());
  XmlWriter writer("ListAllMyBucketsResult");
  writer.Open("Owner");
  writer.Element("ID", "devstore");
  writer.Close();
  writer.Open("Buckets");
  for (const BucketInfo& bucket : buckets) {
    writer.Open("Bucket");
    writer.Element("Name", bucket.name);
    writer.Element("CreationDate", XmlSeconds(bucket.created_s));
    writer.Close();
  }
  writer.Close();
  return XmlReply(std::move(writer));
}

Reply CreateBucket(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(CheckNewBucketName(request.bucket));
  if (!request.document.empty()) {
    ASSIGN_OR_RETURN(const std::string region, ParseLocationConstraint(request.document));
    if (!region.empty() && region != context.region) {
      return S3Error(
          s3code::kIllegalLocationConstraint,
          fmt::format("The {} location constraint is incompatible for the region specific endpoint this request was "
                      "sent to.",
                      region));
    }
  }
  RETURN_IF_ERROR(context.storage.CreateBucket(request.bucket));
  HttpReply reply;
  reply.headers.Add("Location", "/" + request.bucket);
  return reply;
}

Reply DeleteBucket(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(context.storage.DeleteBucket(request.bucket));
  return HttpReply{.status = 204};
}

Reply HeadBucket(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(context.storage.CheckBucket(request.bucket));
  HttpReply reply;
  reply.headers.Add("x-amz-bucket-region", context.region);
  reply.headers.Add("Content-Type", "application/xml");
  return reply;
}

Reply CreateSession(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(context.storage.CheckBucket(request.bucket));
  const ExpiringCredentials session = MakeDirectorySession(request.bucket, context.secret_key, absl::Now());
  XmlWriter writer("CreateSessionResult");
  writer.Open("Credentials");
  writer.Element("SessionToken", session.keys.session_token);
  writer.Element("SecretAccessKey", session.keys.secret_key);
  writer.Element("AccessKeyId", session.keys.access_key);
  writer.Element("Expiration", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", session.expires, absl::UTCTimeZone()));
  writer.Close();
  return XmlReply(std::move(writer));
}

Reply GetBucketLocation(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(context.storage.CheckBucket(request.bucket));
  const std::string region =
      context.region == "us-east-1" ? "" : context.region;  // AWS's oldest region has no name here
  HttpReply reply;
  reply.headers.Add("Content-Type", "application/xml");
  reply.body.push_back(
      SendText{fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<LocationConstraint "
                           "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{}</LocationConstraint>",
                           XmlEscape(region))});
  return reply;
}

Reply ListObjectsV2(OperationContext& context, const S3Request& request) {
  const auto token = request.Parameter("continuation-token");
  const std::string start_after = request.ParameterOr("start-after");
  std::string from = start_after.empty() ? "" : start_after + '\0';
  if (token) {
    const std::optional<std::string> decoded = DecodeContinuation(*token);
    if (!decoded) {
      return S3Error(s3code::kInvalidArgument, "The continuation token provided is incorrect",
                     {{"ArgumentName", "continuation-token"}});
    }
    from = *decoded;
  }
  return ListObjectsPage(context, request, std::move(from), request.ParameterOr("fetch-owner") == "true",
                         [&](const ListingPage& page, const NameEncoder& encode, size_t count, XmlWriter* writer) {
                           if (token) writer->Element("ContinuationToken", *token);
                           if (!start_after.empty()) writer->Element("StartAfter", encode(start_after));
                           if (page.truncated) writer->Element("NextContinuationToken", EncodeContinuation(page.next));
                           writer->Element("KeyCount", count);
                         });
}

Reply ListObjects(OperationContext& context, const S3Request& request) {
  const std::string marker = request.ParameterOr("marker");
  const std::string delimiter = request.ParameterOr("delimiter");
  std::string from = marker.empty() ? "" : AfterMarker(marker, request.ParameterOr("prefix"), delimiter);
  return ListObjectsPage(context, request, std::move(from), /*with_owner=*/true,
                         [&](const ListingPage& page, const NameEncoder& encode, size_t, XmlWriter* writer) {
                           writer->Element("Marker", encode(marker));
                           // Without a delimiter, the last key serves as the next marker.
                           if (page.truncated && !delimiter.empty()) writer->Element("NextMarker", encode(page.last));
                         });
}

Reply DeleteObjects(OperationContext& context, const S3Request& request) {
  RETURN_IF_ERROR(context.storage.CheckBucket(request.bucket));
  ASSIGN_OR_RETURN(const auto algorithm, AnnouncedChecksum(request));
  if (!request.Header("content-md5") && !algorithm) {
    return S3Error(s3code::kInvalidRequest,
                   "Missing required header for this request: Content-MD5 OR x-amz-checksum-*");
  }
  const auto parsed = ParseDeleteObjectsXml(request.document);
  if (!parsed.ok() || parsed->keys.empty() || parsed->keys.size() > kMaxKeys) {
    return S3Error(s3code::kMalformedXml,
                   "The XML you provided was not well-formed or did not validate against our published schema");
  }
  XmlWriter writer("DeleteResult");
  for (const std::string& key : parsed->keys) {
    const absl::Status status =
        context.storage.Delete(request.bucket, key, [](const ObjectRecord*) { return absl::OkStatus(); });
    if (status.ok() && parsed->quiet) continue;
    writer.Open(status.ok() ? "Deleted" : "Error");
    writer.Element("Key", key);
    if (!status.ok()) {
      const S3ErrorFacts facts = DescribeS3Error(status);
      writer.Element("Code", facts.name);
      writer.Element("Message", facts.message);
    }
    writer.Close();
  }
  return XmlReply(std::move(writer));
}

}  // namespace millrace
