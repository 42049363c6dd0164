#pragma once

#include <string>
#include <vector>

#include "s3/exchange.h"

/// These are the exchanges of one object except GET: HEAD, DELETE and the writing ones.

namespace millrace {

class HeadExchange final : public S3Exchange {
 public:
  /// Says what the request asks for: with `kParts` the size of the parts (ObjectInfo::part_bytes) instead of the
  /// checksum.
  enum class Ask { kChecksum, kParts };
  HeadExchange(S3Context& context, std::string bucket, std::string key, DescribeCallback done,
               Ask ask = Ask::kChecksum);

 private:
  std::optional<uint64_t> SizeFrom(const HttpResponseHead& head);
  Draft MakeDraft() override;
  HttpBodySink OnSuccessHead(const HttpResponseHead& head) override;
  S3Step OnSuccess(HttpResult result, absl::Time now) override;
  std::optional<S3Step> OnFailure(const Failure& failure, absl::Time now) override;
  void Deliver(absl::Status status) override;

  DescribeCallback done_;
  bool asks_parts_;
  bool asks_checksum_;
  bool by_get_ = false;  // an answer to HEAD has no body that says why it failed: asked again by GET of a byte
  ObjectDescription object_;
};

/// Deletes an object. One that is gone already counts as success. With `if_match`, FailedPrecondition if it has another
/// ETag; if the store does not know the condition, it is deleted without it.
class DeleteExchange final : public S3Exchange {
 public:
  DeleteExchange(S3Context& context, std::string bucket, std::string key, std::string if_match, DoneCallback done);

 private:
  Draft MakeDraft() override;
  S3Step OnSuccess(HttpResult, absl::Time) override { return Succeed(); }
  std::optional<S3Step> OnFailure(const Failure& failure, absl::Time now) override;
  void Deliver(absl::Status status) override { done_(std::move(status)); }

  std::string if_match_;  // empty: none
  DoneCallback done_;
};

/// This is an exchange that writes. The loss of an answer leaves open whether the write was carried out. If the store
/// then says that someone was faster, that is checked against the ETag that our own write would have.
class WriteExchange : public S3Exchange {
 protected:
  using S3Exchange::S3Exchange;

  virtual Draft WriteDraft() = 0;
  virtual S3Step OnWritten(HttpResult result, absl::Time now) = 0;
  /// Distinguishes our own object from another one. The ETag of objects that are encrypted with a key of KMS is no MD5,
  /// so a checksum that the store keeps does as well.
  struct OwnMarks {
    std::string etag;                        // "" if it is not known
    std::optional<ObjectChecksum> checksum;  // of the whole object
    bool known() const { return !etag.empty() || checksum; }
  };
  /// Asks for the object by HEAD. If it has one of the marks, the exchange succeeds, else it ends as `otherwise`.
  S3Step Confirm(OwnMarks own, Failure otherwise);
  /// Handles an answer of 412 to If-None-Match, or with `replaces` to If-Match: AlreadyExists or FailedPrecondition,
  /// unless the object is our own.
  S3Step Exists(OwnMarks own, bool replaces, Failure failure);
  S3Step Written(std::string etag);
  const std::string& etag() const { return etag_; }

  std::optional<S3Step> OnFailure(const Failure& failure, absl::Time now) final;
  virtual std::optional<S3Step> OnWriteFailure(const Failure&) { return std::nullopt; }

 private:
  Draft MakeDraft() final;
  S3Step OnSuccess(HttpResult result, absl::Time now) final;

  bool IsOwn() const;

  std::optional<Failure> unconfirmed_;
  OwnMarks own_;
  std::string etag_;
};

/// PUT of an object or of a part of an upload.
class PutExchange final : public WriteExchange {
 public:
  struct Part {
    std::string upload_id;
    int number = 0;
    std::optional<uint32_t> crc32c = {};  // of the body, if it is known; else it is made
    bool checksum = true;                 // the upload has been begun with checksums, if the configuration says so
  };
  /// Without a part, the body is the whole object.
  PutExchange(S3Context& context, std::string bucket, std::string key, std::optional<Part> part, ByteSpan body,
              PutOptions options, PutCallback done);

 private:
  absl::Status CheckArguments() override;
  Draft WriteDraft() override;
  S3Step OnWritten(HttpResult result, absl::Time now) override;
  std::optional<S3Step> OnWriteFailure(const Failure& failure) override;
  void Deliver(absl::Status status) override;

  const std::optional<Part> part_;
  const ByteSpan body_;
  const PutOptions options_;
  const std::string payload_hash_;
  const std::optional<ObjectChecksum> checksum_;
  PutCallback done_;
};

class CompleteMultipartExchange final : public WriteExchange {
 public:
  CompleteMultipartExchange(S3Context& context, std::string bucket, std::string key, std::string upload_id,
                            std::vector<std::string> part_etags, CompleteOptions options, PutCallback done);

 private:
  absl::Status CheckArguments() override;
  Draft WriteDraft() override;
  S3Step OnWritten(HttpResult result, absl::Time now) override;
  std::optional<S3Step> OnWriteFailure(const Failure& failure) override;
  void Deliver(absl::Status status) override;
  OwnMarks Own() const;

  const std::string upload_id_;
  const std::vector<std::string> part_etags_;
  const CompleteOptions options_;
  const std::string body_;
  const std::string payload_hash_;
  PutCallback done_;
};

}  // namespace millrace
