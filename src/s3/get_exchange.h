#pragma once

#include <deque>
#include <vector>

#include "s3/exchange.h"
#include "s3/span_verifier.h"

namespace millrace {

/// Sends GET of a range into the caller's buffer. Bytes that arrived before a cut are kept, and the rest is requested.
/// Spans whose checksums fail are requested again. Everything comes from one version of the object.
class GetExchange final : public S3Exchange {
 public:
  GetExchange(S3Context& context, std::string bucket, std::string key, MutableByteSpan into, GetOptions options,
              GetCallback done);

  bool hedged() const override { return !asks_nothing(); }

 private:
  absl::Status CheckArguments() override;
  Draft MakeDraft() override;
  HttpBodySink OnSuccessHead(const HttpResponseHead& head) override;
  S3Step OnSuccess(HttpResult result, absl::Time now) override;
  std::optional<S3Step> OnFailure(const Failure& failure, absl::Time now) override;
  std::optional<S3Step> OnCut(const HttpResult& result, absl::Time now) override;
  void Deliver(absl::Status status) override;

  /// Says why a head is not the one asked for. An empty `what` says that it is.
  struct Objection {
    std::string what;
    absl::StatusCode code = absl::StatusCode::kUnavailable;
    bool final = false;          // trying again does not help
    bool other_version = false;  // the object changed while it was read
    std::string_view remedy;
  };
  Objection CheckHead(const HttpResponseHead& head, uint64_t* skip);
  Objection CheckPlace(const HttpResponseHead& head, uint64_t* skip);
  Objection CheckVersion(const HttpResponseHead& head);

  bool asks_nothing() const { return options_.range.length == 0; }
  bool wants_checksum() const { return (options_.whole || options_.part) && context().config.validate_downloads; }
  void LearnChecksum(const HttpResponseHead& head);
  void Keep(uint64_t bytes);
  S3Step NextPart(absl::Time now);
  S3Step Verify(absl::Time now);
  S3Step VerifyStored(absl::Time now);
  S3Step Restart(absl::Time now);
  S3Step ReplacedMeanwhile();
  MutableByteSpan BufferOf(ByteRange range) const;

  const MutableByteSpan into_;
  const GetOptions options_;
  GetCallback done_;
  SpanVerifier spans_;

  std::deque<ByteRange> missing_;   // of the object; the first is asked for
  std::vector<ByteRange> damaged_;  // when they were last verified
  int refetches_ = 0;
  int restarts_ = 0;
  std::string etag_;  // of the version that is read; empty until known
  uint64_t object_size_ = 0;
  Objection objection_;
  std::optional<ObjectChecksum> stored_checksum_;  // of the whole object, or of the part
  std::string last_digest_;                        // of what came, when it was not that
  bool matches_stored_ = false;
};

}  // namespace millrace
