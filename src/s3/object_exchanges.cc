#include "s3/object_exchanges.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "base/crypto.h"
#include "base/number.h"
#include "net/http_date.h"
#include "s3/checksum.h"
#include "s3/etag.h"

namespace millrace {

namespace {

int64_t LastModified(const HttpResponseHead& head) {
  const std::optional<absl::Time> time = ParseHttpDate(head.headers.Find("last-modified").value_or(""));
  return time ? absl::ToUnixMillis(*time) : 0;
}

/// Returns the size of the object from "bytes 0-0/1234" or "bytes */0".
std::optional<uint64_t> TotalOfContentRange(std::string_view text) {
  const size_t slash = text.rfind('/');
  return slash == std::string_view::npos ? std::nullopt : ParseNumber<uint64_t>(text.substr(slash + 1));
}

/// Returns whether an object of that size can have `count` parts of which all but the last have `bytes`.
bool AreEvenParts(uint64_t size, uint64_t count, uint64_t bytes) {
  return count > 1 && bytes > 0 && bytes < size && (size - 1) / bytes + 1 == count;
}

// Returns whether a copy keeps the header, as the AWS CLI does.
bool IsKept(std::string_view name) {
  constexpr std::array<absl::string_view, 5> kKept = {"cache-control", "content-disposition", "content-encoding",
                                                      "content-language", "expires"};
  return absl::StartsWithIgnoreCase(ToAbsl(name), "x-amz-meta-") ||
         std::any_of(kKept.begin(), kKept.end(),
                     [&](absl::string_view kept) { return absl::EqualsIgnoreCase(ToAbsl(name), kept); });
}

std::string ETagOf(const std::optional<HttpResponseHead>& head) {
  return std::string(ETagOfBytes(head->headers.Find("etag").value_or("")));
}

std::string HexSha256(ByteSpan data) {
  return HexEncode(Sha256(data));
}

std::optional<ObjectChecksum> ChecksumOf(const S3Config& config, ByteSpan body, std::optional<uint32_t> crc32c) {
  if (!config.checksum_uploads) return std::nullopt;
  if (crc32c && config.upload_checksum == ObjectChecksum::Kind::kCrc32c)
    return ObjectChecksum{config.upload_checksum, CrcDigest(config.upload_checksum, *crc32c)};
  return ObjectChecksum{config.upload_checksum, DigestOf(config.upload_checksum, body)};
}

// Returns the hash of the body for the signature. Its checksum is a header and so signed. If the body cannot be changed
// in flight, a SHA-256 would add nothing, and it costs more than all other work of an upload. The AWS tools do the same
// over TLS.
std::string PayloadHash(const S3Context& context, ByteSpan body, bool has_checksum) {
  const S3Config& config = context.config;
  if (config.anonymous) return "";  // unsigned requests carry an MD5 instead
  const bool sign_bytes = config.sign_payloads.value_or(!context.secure());
  if (has_checksum && config.checksum_uploads && !sign_bytes) return std::string(kUnsignedPayload);
  return HexSha256(body);
}

void AddChecksum(HttpHeaders& headers, const ObjectChecksum& checksum) {
  headers.Add(ChecksumHeaderName(checksum.kind), ChecksumHeaderValue(checksum));
}

void AddCondition(HttpHeaders& headers, bool only_if_absent, const std::string& if_match) {
  if (only_if_absent) headers.Add("If-None-Match", "*");
  // It has no quotes, as the AWS CLI sends it: Ceph compares it as it is.
  if (!if_match.empty()) headers.Add("If-Match", if_match);
}

absl::Status CheckCondition(bool only_if_absent, const std::string& if_match) {
  if (!only_if_absent || if_match.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError("only_if_absent and if_match contradict each other; set one of them");
}

// Some stores (MinIO) want the checksums of parts that have some.
std::vector<CompletedPart> Numbered(const std::vector<std::string>& etags, const CompleteOptions& options, bool told) {
  std::vector<CompletedPart> parts;
  for (const std::string& etag : etags) {
    const size_t index = parts.size();
    CompletedPart part{static_cast<int>(index) + 1, etag, "", ""};
    if (told && index < options.part_checksums.size()) {
      part.checksum_name = ChecksumKindName(options.part_checksums[index].kind);
      part.checksum = ChecksumHeaderValue(options.part_checksums[index]);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace

// ---- HEAD

HeadExchange::HeadExchange(S3Context& context, std::string bucket, std::string key, DescribeCallback done, Ask ask)
    : S3Exchange(context, "HEAD", std::move(bucket), key),
      done_(std::move(done)),
      asks_parts_(ask == Ask::kParts),
      // The checksum of a part would be returned as if it were the object's.
      asks_checksum_(ask == Ask::kChecksum && context.config.validate_downloads) {
  object_.info.key = std::move(key);
}

S3Exchange::Draft HeadExchange::MakeDraft() {
  Draft draft;
  draft.method = by_get_ ? "GET" : "HEAD";
  draft.counter = by_get_ ? &context().counters.get : &context().counters.head;
  if (by_get_) draft.headers.Add("Range", "bytes=0-0");
  if (asks_parts_) draft.query = {{"partNumber", "1"}};
  if (asks_checksum_) draft.headers.Add("x-amz-checksum-mode", "ENABLED");
  return draft;
}

/// Returns the object's size; and, of an answer about its first part, that of the parts.
std::optional<uint64_t> HeadExchange::SizeFrom(const HttpResponseHead& head) {
  if (head.status != 206) return head.content_length;
  const std::optional<uint64_t> size = TotalOfContentRange(head.headers.Find("content-range").value_or(""));
  if (!size || !asks_parts_) return size;
  const uint64_t count = ParseNumber<uint64_t>(head.headers.Find("x-amz-mp-parts-count").value_or("")).value_or(0);
  const uint64_t bytes = head.content_length.value_or(0);
  if (count <= kMaxPartNumber && AreEvenParts(*size, count, bytes)) object_.info.part_bytes = bytes;
  return size;
}

HttpBodySink HeadExchange::OnSuccessHead(const HttpResponseHead& head) {
  const std::optional<uint64_t> size = SizeFrom(head);
  if (!size) return Refuse("the answer does not say how long the object is");
  if (const absl::Status sane = CheckObjectBytes(*size); !sane.ok())
    return RefuseForGood(sane.code(), std::string(ToStd(sane.message())));
  ObjectInfo& info = object_.info;
  info.size = *size;
  info.etag = ETagOfBytes(head.headers.Find("etag").value_or(""));
  info.modified_ms = LastModified(head);
  if (asks_checksum_) info.checksum = WholeObjectChecksum(head.headers);
  const bool by_etag = info.checksum && info.checksum->kind == ObjectChecksum::Kind::kMd5;
  if (by_etag && is_directory()) info.checksum.reset();  // its ETags are no MD5s
  if (asks_checksum_ && !info.checksum) info.checksum = CompositeChecksum(head.headers);
  object_.content_type = head.headers.Find("content-type").value_or("");
  object_.headers.clear();
  for (const auto& [name, value] : head.headers) {
    if (IsKept(name)) object_.headers.emplace_back(name, value);
  }
  return HttpBodySink::Into({});  // the body does not matter
}

S3Step HeadExchange::OnSuccess(HttpResult, absl::Time) {
  return Succeed();
}

std::optional<S3Step> HeadExchange::OnFailure(const Failure& failure, absl::Time) {
  // A store that knows no parts may refuse the question; it is about the object then.
  const int status = failure.http_status;
  const bool final = status == 501 || (status >= 400 && status < 500 && status != 404 && status != 429);
  if (final && !head()->headers.Has("x-amz-bucket-region") && std::exchange(asks_parts_, false)) return Again();
  // S3 sends the checksum of an encrypted object only if the credentials may decrypt it.
  if (failure.http_status == 403 && std::exchange(asks_checksum_, false)) return Again();
  if (by_get_ || !failure.body.code.empty()) return std::nullopt;
  const bool unclear = failure.http_status == 400 || failure.http_status == 403;
  if (!unclear || head()->headers.Has("x-amz-bucket-region")) return std::nullopt;
  by_get_ = true;
  return Again();
}

void HeadExchange::Deliver(absl::Status status) {
  if (!status.ok()) return done_(std::move(status));
  done_(std::move(object_));
}

// ---- DELETE

DeleteExchange::DeleteExchange(S3Context& context, std::string bucket, std::string key, std::string if_match,
                               DoneCallback done)
    : S3Exchange(context, "DELETE", std::move(bucket), std::move(key)),
      if_match_(std::move(if_match)),
      done_(std::move(done)) {}

S3Exchange::Draft DeleteExchange::MakeDraft() {
  Draft draft;
  draft.method = "DELETE";
  draft.counter = &context().counters.del;
  AddCondition(draft.headers, /*only_if_absent=*/false, if_match_);
  return draft;
}

std::optional<S3Step> DeleteExchange::OnFailure(const Failure& failure, absl::Time) {
  if (failure.http_status == 404 && failure.body.code != "NoSuchBucket") return Succeed();
  if (if_match_.empty()) return std::nullopt;
  if (failure.http_status == 412) {
    Failure explained = failure;
    explained.verdict = {absl::StatusCode::kFailedPrecondition, S3Action::kFail,
                         "the object has changed and was not deleted; look at it again"};
    return FailWith(explained);
  }
  // Stores that do not know the condition of a DELETE say so in several ways.
  const std::string& code = failure.body.code;
  const bool is_refused = failure.http_status == 400 && (code == "InvalidArgument" || code == "InvalidRequest");
  if (!is_refused && !IsNotImplemented(failure)) return std::nullopt;
  if_match_.clear();
  return Again();
}

// ---- Writing

S3Exchange::Draft WriteExchange::MakeDraft() {
  if (!unconfirmed_) return WriteDraft();
  Draft draft;
  draft.method = "HEAD";
  draft.counter = &context().counters.head;
  if (own_.checksum) draft.headers.Add("x-amz-checksum-mode", "ENABLED");
  return draft;
}

S3Step WriteExchange::Confirm(OwnMarks own, Failure otherwise) {
  unconfirmed_ = std::move(otherwise);
  own_ = std::move(own);
  return Again();
}

bool WriteExchange::IsOwn() const {
  if (!own_.etag.empty() && ETagOf(head()) == own_.etag) return true;
  if (!own_.checksum) return false;
  const std::optional<ObjectChecksum> stored = WholeObjectChecksum(head()->headers);
  return stored && stored->kind == own_.checksum->kind && stored->digest == own_.checksum->digest;
}

S3Step WriteExchange::Exists(OwnMarks own, bool replaces, Failure failure) {
  failure.verdict = {absl::StatusCode::kAlreadyExists, S3Action::kFail, "there is an object of that key already"};
  if (replaces) {
    failure.verdict = {absl::StatusCode::kFailedPrecondition, S3Action::kFail,
                       "the object has changed; read it again before replacing it"};
  }
  // It may be our own, written by an attempt whose answer was lost.
  if (ambiguous() && own.known()) return Confirm(std::move(own), std::move(failure));
  return FailWith(failure);
}

S3Step WriteExchange::Written(std::string etag) {
  etag_ = std::move(etag);
  return Succeed();
}

S3Step WriteExchange::OnSuccess(HttpResult result, absl::Time now) {
  if (!unconfirmed_) return OnWritten(std::move(result), now);
  return IsOwn() ? Written(ETagOf(head())) : FailWith(*unconfirmed_);
}

std::optional<S3Step> WriteExchange::OnFailure(const Failure& failure, absl::Time) {
  if (!unconfirmed_) return OnWriteFailure(failure);
  if (failure.http_status == 404) return FailWith(*unconfirmed_);
  return std::nullopt;
}

PutExchange::PutExchange(S3Context& context, std::string bucket, std::string key, std::optional<Part> part,
                         ByteSpan body, PutOptions options, PutCallback done)
    : WriteExchange(context, part ? "UploadPart" : "PUT", std::move(bucket), std::move(key)),
      part_(std::move(part)),
      body_(body),
      options_(std::move(options)),
      // The hash is computed here and not later, because this is still the caller's thread.
      payload_hash_(PayloadHash(context, body, /*has_checksum=*/!part_ || part_->checksum)),
      checksum_(part_ && !part_->checksum ? std::nullopt
                                          : ChecksumOf(context.config, body, part_ ? part_->crc32c : std::nullopt)),
      done_(std::move(done)) {}

absl::Status PutExchange::CheckArguments() {
  if (part_) return CheckPart(part_->upload_id, part_->number);
  return CheckCondition(options_.only_if_absent, options_.if_match);
}

S3Exchange::Draft PutExchange::WriteDraft() {
  Draft draft;
  draft.method = "PUT";
  draft.counter = &context().counters.put;
  draft.body = body_;
  draft.payload_hash = payload_hash_;
  if (checksum_) AddChecksum(draft.headers, *checksum_);
  if (part_) {
    draft.query = {{"partNumber", std::to_string(part_->number)}, {"uploadId", part_->upload_id}};
  } else {
    if (!options_.content_type.empty()) draft.headers.Add("Content-Type", options_.content_type);
    AddEncryption(draft.headers, context().config, bucket());
    AddCondition(draft.headers, options_.only_if_absent, options_.if_match);
  }
  return draft;
}

S3Step PutExchange::OnWritten(HttpResult, absl::Time now) {
  std::string etag = ETagOf(head());
  if (etag.empty()) return RetryGarbled(absl::InvalidArgumentError("no ETag"), now);
  return Written(std::move(etag));
}

std::optional<S3Step> PutExchange::OnWriteFailure(const Failure& failure) {
  const bool replaces = !options_.if_match.empty();
  if (failure.http_status != 412 || (!options_.only_if_absent && !replaces)) return std::nullopt;
  if (!ambiguous()) return Exists({}, replaces, failure);  // without the work of an MD5
  return Exists({.etag = HexEncode(Md5(body_)), .checksum = checksum_}, replaces, failure);
}

void PutExchange::Deliver(absl::Status status) {
  if (!status.ok()) return done_(std::move(status));
  done_(ObjectInfo{.key = key(), .size = body_.size(), .etag = etag(), .checksum = checksum_});
}

CompleteMultipartExchange::CompleteMultipartExchange(S3Context& context, std::string bucket, std::string key,
                                                     std::string upload_id, std::vector<std::string> part_etags,
                                                     CompleteOptions options, PutCallback done)
    : WriteExchange(context, "CompleteMultipartUpload", std::move(bucket), std::move(key)),
      upload_id_(std::move(upload_id)),
      part_etags_(std::move(part_etags)),
      options_(std::move(options)),
      body_(WriteCompleteMultipartXml(Numbered(part_etags_, options_, context.config.checksum_uploads))),
      payload_hash_(HexSha256(AsBytes(body_))),
      done_(std::move(done)) {}

absl::Status CompleteMultipartExchange::CheckArguments() {
  if (upload_id_.empty() || part_etags_.empty() || part_etags_.size() > kMaxPartNumber) {
    return absl::InvalidArgumentError(
        fmt::format("upload '{}' has {} parts; 1 to {} are possible", upload_id_, part_etags_.size(), kMaxPartNumber));
  }
  return CheckCondition(options_.only_if_absent, options_.if_match);
}

S3Exchange::Draft CompleteMultipartExchange::WriteDraft() {
  Draft draft;
  draft.method = "POST";
  draft.counter = &context().counters.put;
  draft.query = {{"uploadId", upload_id_}};
  draft.headers.Add("Content-Type", "application/xml");
  AddCondition(draft.headers, options_.only_if_absent, options_.if_match);
  if (options_.checksum && context().config.checksum_uploads) {
    AddChecksum(draft.headers, *options_.checksum);
    draft.headers.Add("x-amz-checksum-type", "FULL_OBJECT");
  }
  draft.body = AsBytes(body_);
  draft.payload_hash = payload_hash_;
  return draft;
}

S3Step CompleteMultipartExchange::OnWritten(HttpResult result, absl::Time now) {
  absl::StatusOr<std::string> etag = ParseCompleteMultipartResultXml(result.text);
  if (!etag.ok()) return RetryGarbled(etag.status(), now);
  return Written(*std::move(etag));
}

std::optional<S3Step> CompleteMultipartExchange::OnWriteFailure(const Failure& failure) {
  const bool replaces = !options_.if_match.empty();
  if (failure.http_status == 412 && (options_.only_if_absent || replaces)) return Exists(Own(), replaces, failure);
  const bool by_checksum = failure.body.code == "InvalidPart" || failure.body.code == "InvalidRequest";
  if (by_checksum && options_.checksum && context().config.checksum_uploads) {
    Failure explained = failure;
    explained.verdict = {absl::StatusCode::kInvalidArgument, S3Action::kFail,
                         "for a store that knows no checksums of whole objects set "
                         "AWS_REQUEST_CHECKSUM_CALCULATION=when_required"};
    return FailWith(explained);
  }
  if (failure.body.code != "NoSuchUpload" || !ambiguous()) return std::nullopt;
  OwnMarks own = Own();
  if (!own.known()) return std::nullopt;
  return Confirm(std::move(own), failure);
}

WriteExchange::OwnMarks CompleteMultipartExchange::Own() const {
  OwnMarks own{.etag = MultipartETag(part_etags_), .checksum = std::nullopt};
  if (context().config.checksum_uploads) own.checksum = options_.checksum;
  return own;
}

void CompleteMultipartExchange::Deliver(absl::Status status) {
  if (!status.ok()) return done_(std::move(status));
  done_(ObjectInfo{.key = key(), .etag = etag()});
}

}  // namespace millrace
