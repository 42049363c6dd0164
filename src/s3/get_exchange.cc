#include "s3/get_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "s3/checksum.h"
#include "s3/etag.h"

namespace millrace {

namespace {

constexpr const char* kMayBeAPage =
    "the answer may be a page of a proxy: check AWS_ENDPOINT_URL, HTTPS_PROXY, HTTP_PROXY and NO_PROXY";

// An attempt that brought this much was no failure of the store.
constexpr uint64_t kProgressBytes = 64 << 10;
// Fetches of a span whose checksum does not match, before the stored object itself is held to be damaged.
constexpr int kMaxRefetches = 3;
// Fetches from the beginning because the object was replaced meanwhile, before it is held to be rewritten all the time.
constexpr int kMaxRestarts = 3;

struct ContentRange {
  ByteRange range;
  uint64_t total = 0;
};

/// Parses "bytes 0-9/1234".
std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  const char* at = text.data() + 6;
  const char* const end = text.data() + text.size();
  const auto number = [&](uint64_t* value, char after) {
    const auto [stop, error] = std::from_chars(at, end, *value);
    if (error != std::errc() || (after != '\0' ? stop == end || *stop != after : stop != end)) return false;
    at = stop + (after != '\0' ? 1 : 0);
    return true;
  };
  uint64_t first = 0;
  uint64_t last = 0;
  ContentRange result;
  if (!number(&first, '-') || !number(&last, '/') || !number(&result.total, '\0')) return std::nullopt;
  if (last < first || last >= result.total) return std::nullopt;
  result.range = {first, last - first + 1};
  return result;
}

}  // namespace

GetExchange::GetExchange(S3Context& context, std::string bucket, std::string key, MutableByteSpan into,
                         GetOptions options, GetCallback done)
    : S3Exchange(context, "GET", std::move(bucket), std::move(key)),
      into_(into),
      options_(std::move(options)),
      done_(std::move(done)),
      spans_(options_.checksums, options_.range, into_) {}

absl::Status GetExchange::CheckArguments() {
  const ByteRange range = options_.range;
  if (range.length != into_.size()) {
    return absl::InvalidArgumentError(
        fmt::format("a range of {} bytes does not fit a buffer of {}", range.length, into_.size()));
  }
  if (range.length > UINT64_MAX - range.offset) return absl::InvalidArgumentError("the range exceeds 64 bits");
  for (const SpanChecksum& checksum : options_.checksums) {
    const ByteRange span = checksum.range;
    if (span.offset < range.offset || span.offset > range.end() || span.length > range.end() - span.offset) {
      return absl::InvalidArgumentError("a checksum's span is outside the range");
    }
  }
  etag_ = options_.if_match;
  if (!asks_nothing()) missing_.push_back(range);
  return absl::OkStatus();
}

S3Exchange::Draft GetExchange::MakeDraft() {
  Draft draft;
  draft.method = "GET";
  draft.counter = &context().counters.get;
  draft.headers.Reserve(kUsualFields, kUsualFieldBytes);
  if (!etag_.empty()) draft.headers.Add("If-Match", IfMatchValue(etag_));
  if (wants_checksum()) draft.headers.Add("x-amz-checksum-mode", "ENABLED");
  if (asks_nothing()) {
    // An empty range cannot be asked for; that the object exists can.
    draft.method = "HEAD";
    draft.counter = &context().counters.head;
  } else if (!options_.whole || missing_.front() != options_.range) {
    draft.headers.Add("Range", fmt::format("bytes={}-{}", missing_.front().offset, missing_.front().end() - 1));
  }
  return draft;
}

MutableByteSpan GetExchange::BufferOf(ByteRange range) const {
  return into_.subspan(range.offset - options_.range.offset, range.length);
}

HttpBodySink GetExchange::OnSuccessHead(const HttpResponseHead& head) {
  uint64_t skip = 0;
  objection_ = CheckHead(head, &skip);
  if (objection_.final) return RefuseForGood(objection_.code, objection_.what, objection_.remedy);
  if (!objection_.what.empty()) return Refuse(objection_.what, objection_.remedy);
  if (wants_checksum() && !stored_checksum_) LearnChecksum(head);
  if (asks_nothing()) return HttpBodySink::Text(0);
  if (options_.checksums.empty()) return HttpBodySink::Into(BufferOf(missing_.front()), skip);
  const uint64_t begin = missing_.front().offset;
  spans_.Begin(begin);
  return HttpBodySink::Into(BufferOf(missing_.front()), skip,
                            [this, begin](uint64_t bytes) { spans_.Came(begin + bytes); });
}

void GetExchange::LearnChecksum(const HttpResponseHead& head) {
  // Answers to ranges that a cut left missing do not carry it.
  if (options_.whole && head.status == 200) stored_checksum_ = WholeObjectChecksum(head.headers);
  if (options_.part && head.status == 206 && missing_.front() == options_.range)
    stored_checksum_ = PartChecksum(head.headers);
  const bool by_etag = stored_checksum_ && stored_checksum_->kind == ObjectChecksum::Kind::kMd5;
  if (by_etag && (context().etags_opaque() || is_directory())) stored_checksum_.reset();
}

GetExchange::Objection GetExchange::CheckVersion(const HttpResponseHead& head) {
  const std::string_view etag = ETagOfBytes(head.headers.Find("etag").value_or(""));
  if (!etag.empty() && !etag_.empty() && etag != ETagOfBytes(etag_))
    return {.what = "the object changed while it was read", .other_version = true};
  if (etag_.empty()) etag_ = etag;
  return {};
}

GetExchange::Objection GetExchange::CheckHead(const HttpResponseHead& head, uint64_t* skip) {
  Objection objection = CheckPlace(head, skip);
  if (const absl::Status sane = CheckObjectBytes(object_size_); objection.what.empty() && !sane.ok())
    objection = {std::string(ToStd(sane.message())), sane.code(), /*final=*/true};
  return objection;
}

GetExchange::Objection GetExchange::CheckPlace(const HttpResponseHead& head, uint64_t* skip) {
  const auto too_short = [this](uint64_t size) {
    return Objection{fmt::format("the object has {} bytes and ends before the range {}+{}", size, options_.range.offset,
                                 options_.range.length),
                     absl::StatusCode::kOutOfRange, /*final=*/true};
  };
  if (asks_nothing()) {
    if (!head.content_length) return {.what = "the answer has no Content-Length"};
    object_size_ = *head.content_length;
    return options_.range.offset > object_size_ ? too_short(object_size_) : CheckVersion(head);
  }
  const ByteRange wanted = missing_.front();
  if (head.status == 206) {
    const std::string_view text = head.headers.Find("content-range").value_or("");
    const std::optional<ContentRange> got = ParseContentRange(text);
    if (!got) return {.what = fmt::format("the answer's Content-Range cannot be read: \"{}\"", text.substr(0, 64))};
    // A shorter answer is legal at the object's end only.
    if (got->range.offset == wanted.offset && got->range.end() == got->total && got->total < wanted.end())
      return too_short(got->total);
    if (got->range != wanted) {
      return {.what = fmt::format("the store sent the range {}-{} instead of {}-{}", got->range.offset,
                                  got->range.end() - 1, wanted.offset, wanted.end() - 1)};
    }
    if (head.content_length && *head.content_length != wanted.length) {
      return {.what = fmt::format("Content-Length {} contradicts Content-Range {}", *head.content_length,
                                  text.substr(0, 64))};
    }
    object_size_ = got->total;
    return CheckVersion(head);
  }
  // Some stores and proxies ignore Range. Without a length and a version such an answer might be anything.
  const bool asked_for_all = options_.whole && wanted == options_.range;
  if (head.status == 200 && !head.content_length) {
    return {.what =
                "the store sends the object whole and of unknown size instead of the range: it may decompress objects "
                "with Content-Encoding: gzip",
            .code = absl::StatusCode::kFailedPrecondition,
            .final = true,
            .remedy = "store the object without Content-Encoding: gzip, or with Cache-Control: no-transform"};
  }
  if (head.status != 200 || (!asked_for_all && !head.headers.Has("etag"))) {
    return {.what = fmt::format("the answer to a range is neither the range nor the object (HTTP {})", head.status),
            .remedy = head.status == 200 ? kMayBeAPage : ""};
  }
  if (*head.content_length < wanted.end()) return too_short(*head.content_length);
  // Without a version, only the length distinguishes the object from a page that a proxy sends in its place.
  if (asked_for_all && *head.content_length != wanted.end() && !head.headers.Has("etag")) {
    return {
        .what = fmt::format("the store sends {} bytes instead of the object's {}", *head.content_length, wanted.end()),
        .code = absl::StatusCode::kFailedPrecondition,
        .final = true,
        .remedy = kMayBeAPage};
  }
  object_size_ = *head.content_length;
  *skip = wanted.offset;
  return CheckVersion(head);
}

S3Step GetExchange::OnSuccess(HttpResult result, absl::Time now) {
  if (asks_nothing()) return Succeed();
  context().counters.bytes_read.fetch_add(result.wire_bytes, std::memory_order_relaxed);
  const bool too_long = result.more && head()->status == 206;
  const bool too_short = result.body_bytes < missing_.front().length;
  if (!too_long) Keep(result.body_bytes);
  // Only a body without a length can differ from its Content-Range and yet be whole to HTTP.
  if (too_long || too_short) {
    return Retry(absl::StatusCode::kUnavailable, "the body is not as long as its Content-Range says", now);
  }
  return NextPart(now);
}

/// The first `bytes` of the part asked for are in the buffer.
void GetExchange::Keep(uint64_t bytes) {
  if (bytes >= kProgressBytes) ForgiveFailures();
  ByteRange& part = missing_.front();
  part.offset += bytes;
  part.length -= bytes;
  if (part.length == 0) missing_.pop_front();
}

S3Step GetExchange::NextPart(absl::Time now) {
  return missing_.empty() ? Verify(now) : Again();
}

S3Step GetExchange::Verify(absl::Time now) {
  damaged_ = spans_.Damaged();
  for (const ByteRange bad : damaged_) {
    if (bad.length == 0) continue;
    if (!missing_.empty() && missing_.back().end() == bad.offset) {
      missing_.back().length += bad.length;
    } else {
      missing_.push_back(bad);
    }
  }
  if (damaged_.empty()) return VerifyStored(now);
  const std::string what = fmt::format(
      "bytes {}+{} do not match their checksum in {} fetches: they are not those that were indexed; restore the object "
      "from a copy, or run millrace index if it was replaced deliberately",
      damaged_.front().offset, damaged_.front().length, refetches_ + 1);
  if (refetches_++ == kMaxRefetches || missing_.empty()) return Fail(absl::StatusCode::kDataLoss, what);
  return Retry(absl::StatusCode::kDataLoss, what, now);
}

S3Step GetExchange::VerifyStored(absl::Time now) {
  const bool all_of_it = !options_.whole || options_.range.length == object_size_;
  if (!stored_checksum_ || !all_of_it) return Succeed();
  std::string digest = DigestOf(stored_checksum_->kind, into_);
  matches_stored_ = digest == stored_checksum_->digest;
  if (matches_stored_) return Succeed();
  // Damage on the way is not the same twice. So the store has these bytes, and its ETag is no MD5.
  const bool same_again = digest == last_digest_;
  if (same_again && stored_checksum_->kind == ObjectChecksum::Kind::kMd5) {
    context().SetEtagsOpaque();
    return Succeed();
  }
  // This is not counted as a failure of the store: most likely its ETags are not MD5s.
  const bool first_doubt = stored_checksum_->kind == ObjectChecksum::Kind::kMd5 && last_digest_.empty();
  last_digest_ = std::move(digest);
  if (first_doubt) {
    missing_.assign(1, options_.range);
    return Again();
  }
  const std::string what = fmt::format(
      "{} does not match the {} that the store keeps for it, {} fetches in a row",
      options_.part ? fmt::format("the part {}+{}", options_.range.offset, options_.range.length) : "the object",
      ChecksumKindName(stored_checksum_->kind), refetches_ + 1);
  if (same_again || refetches_++ == kMaxRefetches) return Fail(absl::StatusCode::kDataLoss, what);
  missing_.assign(1, options_.range);
  return Retry(absl::StatusCode::kDataLoss, what, now);
}

S3Step GetExchange::ReplacedMeanwhile() {
  return Fail(absl::StatusCode::kFailedPrecondition,
              "the object has been replaced: it is not the version that was asked for, by its ETag");
}

/// Nobody asked for a certain version: the new one will do, but from its beginning. Counted apart from failures, which
/// are forgiven when bytes arrive: an object that is rewritten all the time would be fetched for ever.
S3Step GetExchange::Restart(absl::Time now) {
  if (restarts_++ == kMaxRestarts) {
    return Fail(
        absl::StatusCode::kFailedPrecondition,
        fmt::format("the object changed {} times while it was read; stop the program that writes it, or read a copy",
                    restarts_));
  }
  etag_.clear();
  stored_checksum_.reset();
  missing_.assign(1, options_.range);
  spans_.Reset();
  return Retry(absl::StatusCode::kUnavailable, "the object changed while it was read", now);
}

std::optional<S3Step> GetExchange::OnFailure(const Failure& failure, absl::Time now) {
  if (failure.http_status == 412) {
    if (!options_.if_match.empty()) return ReplacedMeanwhile();
    if (!asks_nothing()) return Restart(now);
  }
  if (failure.http_status == 416) {
    return Fail(absl::StatusCode::kOutOfRange,
                fmt::format("the object ends before the range {}+{}", options_.range.offset, options_.range.length));
  }
  return std::nullopt;
}

std::optional<S3Step> GetExchange::OnCut(const HttpResult& result, absl::Time now) {
  if (result.error == HttpErrorKind::kRefused) {
    if (!objection_.other_version) return std::nullopt;
    return options_.if_match.empty() ? Restart(now) : ReplacedMeanwhile();
  }
  if (asks_nothing()) return std::nullopt;
  context().counters.bytes_read.fetch_add(result.wire_bytes, std::memory_order_relaxed);
  Keep(result.body_bytes);
  if (missing_.empty()) return NextPart(now);
  return std::nullopt;
}

void GetExchange::Deliver(absl::Status status) {
  if (!status.ok()) {
    if (options_.damaged != nullptr && absl::IsDataLoss(status)) *options_.damaged = std::move(damaged_);
    return done_(std::move(status));
  }
  done_(GetResult{std::move(etag_), object_size_, matches_stored_});
}

}  // namespace millrace
