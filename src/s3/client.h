#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "aws/sigv4.h"
#include "net/proxy.h"
#include "net/runtime.h"
#include "s3/address.h"
#include "s3/listings.h"
#include "s3/object.h"

namespace millrace {

struct AwsEnvironment;  // aws/settings.h

/// Says where and how to reach S3. LoadS3Config (s3/config.h) fills it from the environment and profile files.
struct S3Config {
  std::string endpoint_url;  // "http://127.0.0.1:9000"; empty: AWS of `region`
  std::string region = "us-east-1";
  Credentials credentials;  // used as they are, unless `credential_environment` gives newer ones
  // Credentials are looked for here when `credentials` is empty or the store does not take them any more; if it is
  // null, nowhere. With neither, and not `anonymous`, every request fails with Unauthenticated and the remedy.
  std::shared_ptr<const AwsEnvironment> credential_environment;
  bool anonymous = false;  // send unsigned requests
  std::string ca_file;     // PEM of extra trusted authorities (AWS_CA_BUNDLE)
  HttpProxies proxies;     // (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)
  S3Addressing addressing = S3Addressing::kAuto;
  AwsEndpointKind aws_endpoint;
  bool use_arn_region = true;   // an access point may be in another region than `region`
  std::string encryption;       // of new objects by the store: "AES256", "aws:kms", "aws:kms:dsse"; "": the bucket's
  std::string encryption_key;   // of KMS: its id or ARN; "": the bucket's or the account's
  bool requester_pays = false;  // these credentials pay for requests to buckets that ask for it

  // This is for all loops together. It is a little less than what it takes to make the requests that S3 promises for a
  // prefix (5,500 a second) when each takes a tenth of a second.
  int max_connections = 512;
  int max_attempts = 10;  // of one request
  // Allows up to five times as many while other requests succeed. It is off once a user has set the number.
  bool more_attempts_in_storms = true;

  bool checksum_uploads = true;  // send a checksum with what is written, which the store checks and keeps
  ObjectChecksum::Kind upload_checksum = ObjectChecksum::Kind::kCrc32c;  // it, or kCrc64Nvme
  // Says whether the signature covers the bytes of uploads, or just their checksum. If it is unset, the bytes are
  // signed if neither TLS nor the loopback device protects them. Without a checksum they always are.
  std::optional<bool> sign_payloads;
  bool validate_downloads = true;  // check whole objects against the checksum that the store keeps
};

/// Names the object that a copy reads, and its version.
struct S3CopySource {
  std::string bucket;
  std::string key;
  uint64_t size = 0;  // says how long to wait for the answer
  std::string etag;   // empty: any version
};

/// Speaks the S3 protocol over HTTP/1.1. This is the only place in Millrace that retries.
///
///   S3Client client(runtime, config);
///   client.Get("bucket", "key", buffer, {.range = {0, buffer.size()}}, [](absl::StatusOr<GetResult> result) { ... });
///
/// Asynchronous and thread-safe; callbacks run on event loops, exactly once, and must not block. The thread that calls
/// Put or UploadPart computes the checksum of a body, and its SHA-256 if it is signed, before they return. The
/// destructor cancels requests and waits for their callbacks.
///
/// Bodies of GETs are received straight into the caller's buffer. Each GET checks status, Content-Range, ETag
/// (If-Match) and the caller's checksums. A GET of a whole object or a stored part checks the store's checksum instead.
/// Bytes that fail in transit are resumed or fetched again within one retry budget.
class S3Client {
 public:
  S3Client(Runtime& runtime, S3Config config);
  ~S3Client();
  S3Client(const S3Client&) = delete;
  S3Client& operator=(const S3Client&) = delete;

  void Get(std::string bucket, std::string key, MutableByteSpan into, GetOptions options, GetCallback done);
  void Head(std::string bucket, std::string key, HeadCallback done);
  /// Head with ObjectInfo::part_bytes, where the object was uploaded in parts of one size and the store says it, and
  /// without the checksum.
  void HeadParts(std::string bucket, std::string key, HeadCallback done);
  /// Sends Head, and returns also what a copy keeps.
  void Describe(std::string bucket, std::string key, DescribeCallback done);
  /// Returns no tags if the store knows none.
  void Tags(std::string bucket, std::string key, TagsCallback done);
  void Put(std::string bucket, std::string key, ByteSpan body, PutOptions options, PutCallback done);
  /// Deletes, with `if_match`, only the object with that ETag, if the store knows the condition; else
  /// FailedPrecondition.
  void Delete(std::string bucket, std::string key, DoneCallback done, std::string if_match = {});
  /// Deletes 1 to 1,000 keys by one DeleteObjects. Each must be one that XmlCanCarry (s3/xml.h).
  void DeleteMany(std::string bucket, std::vector<std::string> keys, DeleteCallback done);
  void List(std::string bucket, ListOptions options, ListCallback done);
  /// Lists the buckets of the account, from the continuation of the page before, or "".
  void ListBuckets(std::string continuation, BucketsCallback done);
  /// Lists unfinished uploads of keys that begin with `prefix`, up to 1,000.
  void ListUploads(std::string bucket, std::string prefix, UploadMarker after, UploadsCallback done);

  /// The store copies an object of up to 5 GiB with its metadata, in place of an older one, or with `only_if_absent` of
  /// none (s3/copy_exchange.h). The result carries the new ETag, and the size given.
  void Copy(std::string bucket, std::string key, S3CopySource from, PutCallback done, std::stop_token stop = {},
            bool only_if_absent = false);

  void CreateMultipart(std::string bucket, std::string key, UploadOptions options,
                       absl::AnyInvocable<void(absl::StatusOr<std::string>)> done);  // the upload id
  void UploadPart(std::string bucket, std::string key, std::string upload_id, int number, ByteSpan body,
                  PutCallback done,  // part numbers start at 1; the result's etag names the part
                  std::stop_token stop = {}, std::optional<uint32_t> crc32c = {},  // of the body, if it is known
                  bool checksum = true);  // as in the UploadOptions that the upload has been begun with
  /// Uploads a part whose bytes the store copies from an object that is there already.
  void UploadPartCopy(std::string bucket, std::string key, std::string upload_id, int number, S3CopySource from,
                      ByteRange range, PutCallback done, std::stop_token stop = {});
  void CompleteMultipart(std::string bucket, std::string key, std::string upload_id,
                         std::vector<std::string> part_etags, PutCallback done, CompleteOptions options = {});
  /// Aborts until none of the upload's parts is left, as far as these credentials can see (s3/abort_exchange.h).
  void AbortMultipart(std::string bucket, std::string key, std::string upload_id, DoneCallback done);

  /// Returns the checksum that an upload of parts is to have, or nullopt for none.
  std::optional<ObjectChecksum::Kind> upload_checksum() const;
  const RequestCounters& counters() const;

  /// Sets how long requests wait for a store that has served some and is away (s3/outage.h). If it is zero, as it is at
  /// first, they fail when their attempts are used up. The limit is for requests that fail from now on.
  void SetOutageLimit(absl::Duration limit);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
