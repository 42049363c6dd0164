#include <fmt/format.h>

#include <algorithm>

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

absl::StatusOr<ListingQuery> QueryOf(const S3Request& request) {
  ListingQuery query;
  query.prefix = request.ParameterOr("prefix");
  query.delimiter = request.ParameterOr("delimiter");
  ASSIGN_OR_RETURN(const uint64_t max_keys, NumberParameter(request, "max-keys", kMaxKeys));
  query.max_keys = static_cast<size_t>(std::min(max_keys, kMaxKeys));
  return query;
}

absl::StatusOr<ListingPage> List(OperationContext& context, const std::string& bucket, const ListingQuery& query) {
  ASSIGN_OR_RETURN(const std::unique_ptr<KeyWalk> walk, context.storage.Walk(bucket));
  return ListKeys(*walk, query);
}

/// Contents and CommonPrefixes; the number of them.
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
  ASSIGN_OR_RETURN(ListingQuery query, QueryOf(request));
  ASSIGN_OR_RETURN(const NameEncoder encode, NameEncoder::Create(request));
  const auto token = request.Parameter("continuation-token");
  const std::string start_after = request.ParameterOr("start-after");
  if (token) {
    const std::optional<std::string> from = DecodeContinuation(*token);
    if (!from) {
      return S3Error(s3code::kInvalidArgument, "The continuation token provided is incorrect",
                     {{"ArgumentName", "continuation-token"}});
    }
    query.from = *from;
  } else if (!start_after.empty()) {
    query.from = start_after + '\0';
  }
  ASSIGN_OR_RETURN(const ListingPage listing, List(context, request.bucket, query));
  XmlWriter writer("ListBucketResult");
  writer.Element("Name", request.bucket);
  writer.Element("Prefix", encode(query.prefix));
  if (!query.delimiter.empty()) writer.Element("Delimiter", encode(query.delimiter));
  writer.Element("MaxKeys", query.max_keys);
  encode.WriteType(&writer);
  if (token) writer.Element("ContinuationToken", *token);
  if (!start_after.empty()) writer.Element("StartAfter", encode(start_after));
  writer.Element("IsTruncated", listing.truncated ? "true" : "false");
  if (listing.truncated) writer.Element("NextContinuationToken", EncodeContinuation(listing.next));
  const bool with_owner = request.ParameterOr("fetch-owner") == "true";
  ASSIGN_OR_RETURN(const size_t count, WriteEntries(context, request.bucket, listing, encode, with_owner, &writer));
  writer.Element("KeyCount", count);
  return XmlReply(std::move(writer));
}

Reply ListObjects(OperationContext& context, const S3Request& request) {
  ASSIGN_OR_RETURN(ListingQuery query, QueryOf(request));
  ASSIGN_OR_RETURN(const NameEncoder encode, NameEncoder::Create(request));
  const std::string marker = request.ParameterOr("marker");
  if (!marker.empty()) query.from = AfterMarker(marker, query.prefix, query.delimiter);
  ASSIGN_OR_RETURN(const ListingPage listing, List(context, request.bucket, query));
  XmlWriter writer("ListBucketResult");
  writer.Element("Name", request.bucket);
  writer.Element("Prefix", encode(query.prefix));
  writer.Element("Marker", encode(marker));
  if (!query.delimiter.empty()) writer.Element("Delimiter", encode(query.delimiter));
  writer.Element("MaxKeys", query.max_keys);
  encode.WriteType(&writer);
  writer.Element("IsTruncated", listing.truncated ? "true" : "false");
  // Without a delimiter, the last key serves as the next marker.
  if (listing.truncated && !query.delimiter.empty()) writer.Element("NextMarker", encode(listing.last));
  RETURN_IF_ERROR(WriteEntries(context, request.bucket, listing, encode, /*with_owner=*/true, &writer).status());
  return XmlReply(std::move(writer));
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
