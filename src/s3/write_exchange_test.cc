// The exchanges that write: PUT and multipart uploads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/crypto.h"
#include "s3/checksum.h"
#include "s3/testing/exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- PUT

TEST_F(ExchangeTest, PutSendsTheHashOfItsBody) {
  const auto info = Put(InTurn({kStored}), {.content_type = "image/jpeg"});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->etag, "stored");
  EXPECT_EQ(info->size, body_.size());
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-content-sha256"), HexEncode(Sha256(AsBytes(body_))));
  EXPECT_EQ(requests_[0].head.headers.Find("content-type"), "image/jpeg");
  EXPECT_FALSE(requests_[0].head.headers.Has("if-none-match"));
  EXPECT_EQ(AsText(requests_[0].body), body_);
}

TEST_F(ExchangeTest, OverTlsTheSignatureCoversTheChecksumInsteadOfTheBytes) {
  S3Config config = TestS3Config();
  config.endpoint_url = "https://store.test";
  const auto sent = [&](S3Config with) {
    Use(std::move(with));
    EXPECT_TRUE(Put(InTurn({kStored})).ok());
    return requests_[0].head.headers;
  };
  const HttpHeaders unsigned_body = sent(config);
  EXPECT_EQ(unsigned_body.Find("x-amz-content-sha256"), "UNSIGNED-PAYLOAD");
  EXPECT_EQ(unsigned_body.Find("x-amz-checksum-crc32c"), Crc32cHeader(Crc32c(AsBytes(body_))));
  EXPECT_THAT(std::string(unsigned_body.Find("authorization").value_or("")), HasSubstr("x-amz-checksum-crc32c"));

  const std::string hash = HexEncode(Sha256(AsBytes(body_)));
  config.sign_payloads = true;
  EXPECT_EQ(sent(config).Find("x-amz-content-sha256"), hash) << "as the user wishes";
  config.sign_payloads.reset();
  config.checksum_uploads = false;
  EXPECT_EQ(sent(config).Find("x-amz-content-sha256"), hash) << "nothing else tells what the bytes were";
  config.endpoint_url.clear();
  config.checksum_uploads = true;
  EXPECT_EQ(sent(config).Find("x-amz-content-sha256"), "UNSIGNED-PAYLOAD") << "AWS is reached over TLS";
}

TEST_F(ExchangeTest, WithoutTlsTheBytesAreSignedUnlessTheyStayOnThisMachineOrTheUserTrustsTheNetwork) {
  S3Config config = TestS3Config();
  const auto signed_of = [&](std::string_view endpoint) {
    config.endpoint_url = endpoint;
    Use(config);
    EXPECT_TRUE(Put(InTurn({kStored})).ok());
    return std::string(requests_[0].head.headers.Find("x-amz-content-sha256").value_or(""));
  };
  const std::string hash = HexEncode(Sha256(AsBytes(body_)));
  for (const char* here : {"http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000", "http://127.1.2.3"}) {
    EXPECT_EQ(signed_of(here), "UNSIGNED-PAYLOAD") << here;
  }
  for (const char* elsewhere : {"http://store.test:9000", "http://127.0.0.1.store.test", "http://127.example",
                                "http://10.0.0.1", "http://localhost.test", "http://[::2]:9000"}) {
    EXPECT_EQ(signed_of(elsewhere), hash) << elsewhere;
  }
  config.sign_payloads = false;
  EXPECT_EQ(signed_of("http://10.0.0.1"), "UNSIGNED-PAYLOAD");
  config.sign_payloads = true;
  EXPECT_EQ(signed_of("http://127.0.0.1:9000"), hash);
}

TEST_F(ExchangeTest, WhatIsWrittenHasAChecksumForTheStoreToKeep) {
  const std::string crc = Crc32cHeader(Crc32c(AsBytes(body_)));
  const ObjectChecksum crc32c{ObjectChecksum::Kind::kCrc32c, DigestOf(ObjectChecksum::Kind::kCrc32c, AsBytes(body_))};
  const auto put = Put(InTurn({kStored}));
  ASSERT_TRUE(put.ok());
  EXPECT_EQ(put->checksum->digest, crc32c.digest);
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-crc32c"), crc);
  std::string sent;  // the body goes with the exchange
  const auto completed = Complete(
      [&sent](const HttpRequest& request) {
        sent = AsText(request.body);
        return ScriptedAnswer{.status = 200,
                              .headers = {},
                              .body = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"};
      },
      {"a"}, {.checksum = crc32c, .part_checksums = {crc32c}});
  ASSERT_TRUE(completed.ok()) << completed.status();
  EXPECT_THAT(sent, HasSubstr("<ChecksumCRC32C>" + crc + "</ChecksumCRC32C>")) << "MinIO wants it";
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-crc32c"), crc);
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-type"), "FULL_OBJECT");

  S3Config config = TestS3Config();
  config.checksum_uploads = false;
  Use(config);
  ASSERT_TRUE(Put(InTurn({kStored})).ok());
  EXPECT_FALSE(requests_[0].head.headers.Has("x-amz-checksum-crc32c"));
}

TEST_F(ExchangeTest, TheChecksumMayBeAnother) {
  S3Config config = TestS3Config();
  config.upload_checksum = ObjectChecksum::Kind::kCrc64Nvme;
  Use(config);
  const auto put = Put(InTurn({kStored}));
  ASSERT_TRUE(put.ok());
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-crc64nvme"),
            ChecksumHeaderValue({config.upload_checksum, DigestOf(config.upload_checksum, AsBytes(body_))}));
  EXPECT_FALSE(requests_[0].head.headers.Has("x-amz-checksum-crc32c"));
  std::string sent;
  const auto completed = Complete(
      [&sent](const HttpRequest& request) {
        sent = AsText(request.body);
        return ScriptedAnswer{.status = 200,
                              .headers = {},
                              .body = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"};
      },
      {"a"}, {.checksum = put->checksum, .part_checksums = {*put->checksum}});
  ASSERT_TRUE(completed.ok()) << completed.status();
  EXPECT_THAT(sent, HasSubstr("<ChecksumCRC64NVME>" + ChecksumHeaderValue(*put->checksum) + "</ChecksumCRC64NVME>"));
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-crc64nvme"), ChecksumHeaderValue(*put->checksum));
  const ScriptedAnswer created = {
      .status = 200,
      .headers = {},
      .body = "<InitiateMultipartUploadResult><UploadId>ID</UploadId></InitiateMultipartUploadResult>"};
  ASSERT_TRUE(Run<absl::StatusOr<std::string>>(InTurn({created}), [](S3Context& context, auto done) {
                return NewCreateMultipartExchange(context, "bucket", "key", UploadOptions{}, std::move(done));
              }).ok());
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-algorithm"), "CRC64NVME");
}

TEST_F(ExchangeTest, PutErrors) {
  EXPECT_EQ(Put(InTurn({{.status = 200, .headers = {}, .body = ""}})).status().code(),
            absl::StatusCode::kUnavailable);  // no ETag
  EXPECT_EQ(Put(InTurn({kStored}), {.content_type = "a\r\nb"}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Put(InTurn({Error(400, "BadDigest"), kStored})).ok());
  EXPECT_EQ(Put(InTurn({Error(400, "BadDigest")})).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Put(InTurn({Error(403, "QuotaExceeded")})).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ExchangeTest, PutOnlyIfAbsent) {
  const PutOptions options{.content_type = "", .only_if_absent = true};
  ASSERT_TRUE(Put(InTurn({kStored}), options).ok());
  EXPECT_EQ(requests_[0].head.headers.Find("if-none-match"), "*");
  EXPECT_EQ(Put(InTurn({Error(412, "PreconditionFailed")}), options).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_TRUE(Put(InTurn({Error(409, "ConditionalRequestConflict"), kStored}), options).ok());
}

TEST_F(ExchangeTest, PutInPlaceOfAVersion) {
  const PutOptions options{.if_match = "seen"};
  ASSERT_TRUE(Put(InTurn({kStored}), options).ok());
  EXPECT_EQ(requests_[0].head.headers.Find("if-match"), "seen");
  EXPECT_FALSE(requests_[0].head.headers.Has("if-none-match"));
  const auto changed = Put(InTurn({Error(412, "PreconditionFailed")}), options);
  EXPECT_EQ(changed.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(changed.status().message()), HasSubstr("read it again"));
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_EQ(Put(InTurn({Error(404, "NoSuchKey")}), options).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Put(InTurn({Error(409, "ConditionalRequestConflict"), kStored}), options).ok());
  // Its own write, of which the answer was lost, is not somebody else's.
  ScriptedAnswer ours = kFound;
  ours.headers.Set("ETag", "\"" + HexEncode(Md5(AsBytes(body_))) + "\"");
  EXPECT_TRUE(Put(InTurn({Broken(HttpErrorKind::kReset), Error(412), ours}), options).ok());
  EXPECT_EQ(Put(InTurn({Broken(HttpErrorKind::kReset), Error(412), kFound}), options).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Put(InTurn({kStored}), {.only_if_absent = true, .if_match = "seen"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(ExchangeTest, PutOnlyIfAbsentKnowsItsOwnWrite) {
  const PutOptions options{.content_type = "", .only_if_absent = true};
  const std::string md5 = HexEncode(Md5(AsBytes(body_)));
  for (const ScriptedAnswer& lost : {Broken(HttpErrorKind::kReset), Broken(HttpErrorKind::kTimeout),
                                     Broken(HttpErrorKind::kStale), Error(500), Error(503)}) {
    // The first attempt was carried out, but its answer was lost; the second finds an object: ours.
    ScriptedAnswer ours = kFound;
    ours.headers.Set("ETag", "\"" + md5 + "\"");
    const auto mine = Put(InTurn({lost, Error(412), ours}), options);
    ASSERT_TRUE(mine.ok()) << mine.status();
    EXPECT_EQ(mine->etag, md5);
    EXPECT_EQ(requests_.back().head.method, "HEAD");
    // The object may also be that of someone who was faster.
    EXPECT_EQ(Put(InTurn({lost, Error(412), kFound}), options).status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(Put(InTurn({lost, Error(412), Error(404)}), options).status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_TRUE(Put(InTurn({lost, Error(412), Error(503), ours}), options).ok());
  }
  // With a key of KMS the ETag is no MD5, but the store keeps the checksum.
  ScriptedAnswer encrypted = kFound;
  encrypted.headers.Set("ETag", "\"0123456789abcdef0123456789abcdef\"");
  encrypted.headers.Set("x-amz-server-side-encryption", "aws:kms");
  encrypted.headers.Set("x-amz-checksum-crc32c", Crc32cHeader(Crc32c(AsBytes(body_))));
  const auto kept = Put(InTurn({Error(500), Error(412), encrypted}), options);
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->etag, "0123456789abcdef0123456789abcdef");
  EXPECT_EQ(requests_.back().head.headers.Find("x-amz-checksum-mode"), "ENABLED");
  encrypted.headers.Set("x-amz-checksum-crc32c", Crc32cHeader(1));
  EXPECT_EQ(Put(InTurn({Error(500), Error(412), encrypted}), options).status().code(),
            absl::StatusCode::kAlreadyExists);
  // If a connection was never made, nothing was carried out.
  EXPECT_EQ(Put(InTurn({Broken(HttpErrorKind::kConnect), Error(412)}), options).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(requests_.size(), 2u);
}

// ---- Multipart

TEST_F(ExchangeTest, CreateMultipart) {
  const auto create = [this](ExchangeDriver::Store store) {
    return Run<absl::StatusOr<std::string>>(std::move(store), [](S3Context& context, auto done) {
      return NewCreateMultipartExchange(context, "bucket", "key", UploadOptions{.content_type = "a/b"},
                                        std::move(done));
    });
  };
  const ScriptedAnswer created = {
      .status = 200,
      .headers = {},
      .body = "<InitiateMultipartUploadResult><UploadId>ID</UploadId></InitiateMultipartUploadResult>"};
  EXPECT_EQ(create(InTurn({Error(503), created})).value(), "ID");
  EXPECT_EQ(requests_[0].head.target, "/bucket/key?uploads=");
  EXPECT_EQ(requests_[0].head.headers.Find("content-type"), "a/b");
  EXPECT_EQ(create(InTurn({{.status = 200, .headers = {}, .body = "?"}})).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ExchangeTest, UploadPart) {
  const auto upload = [this](ExchangeDriver::Store store, std::string id, int number) {
    return Run<absl::StatusOr<ObjectInfo>>(std::move(store), [&](S3Context& context, auto done) {
      return std::make_unique<PutExchange>(context, "bucket", "key", PutExchange::Part{id, number}, AsBytes(body_),
                                           PutOptions{}, std::move(done));
    });
  };
  EXPECT_EQ(upload(InTurn({Broken(HttpErrorKind::kReset), kStored}), "I/D", 3)->etag, "stored");
  EXPECT_EQ(requests_[1].head.target, "/bucket/key?partNumber=3&uploadId=I%2FD");
  EXPECT_EQ(upload(InTurn({Error(404, "NoSuchUpload")}), "ID", 1).status().code(), absl::StatusCode::kNotFound);
  for (const auto& [id, number] :
       {std::pair("", 1), std::pair("ID", 0), std::pair("ID", -1), std::pair("ID", 10'001)}) {
    EXPECT_EQ(upload(InTurn({kStored}), id, number).status().code(), absl::StatusCode::kInvalidArgument) << number;
    EXPECT_TRUE(requests_.empty());
  }
}

TEST_F(ExchangeTest, AChecksumOfAPartThatIsKnownIsNotMadeAgain) {
  const uint32_t given = Crc32c(AsBytes(body_)) ^ 1;  // which shows whose it is
  const auto upload = [&] {
    return Run<absl::StatusOr<ObjectInfo>>(InTurn({kStored}), [&](S3Context& context, auto done) {
      return std::make_unique<PutExchange>(context, "bucket", "key", PutExchange::Part{"ID", 3, given}, AsBytes(body_),
                                           PutOptions{}, std::move(done));
    });
  };
  ASSERT_TRUE(upload().ok());
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-crc32c"), Crc32cHeader(given));
  S3Config config = TestS3Config();
  config.upload_checksum = ObjectChecksum::Kind::kCrc64Nvme;  // which it does not give
  Use(config);
  const auto other = upload();
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->checksum->digest, DigestOf(ObjectChecksum::Kind::kCrc64Nvme, AsBytes(body_)));
}

TEST_F(ExchangeTest, APartOfAnUploadWithoutChecksumsIsSigned) {
  S3Config config = TestS3Config();
  config.endpoint_url = "https://store.test";
  Use(config);
  const auto info = Run<absl::StatusOr<ObjectInfo>>(InTurn({kStored}), [&](S3Context& context, auto done) {
    const PutExchange::Part part{.upload_id = "ID", .number = 3, .checksum = false};
    return std::make_unique<PutExchange>(context, "bucket", "key", part, AsBytes(body_), PutOptions{}, std::move(done));
  });
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(requests_[0].head.headers.Has("x-amz-checksum-crc32c")) << "the store would refuse it";
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-content-sha256"), HexEncode(Sha256(AsBytes(body_))))
      << "nothing else tells what the bytes were";
}

const std::vector<std::string> kPartETags = {"900150983cd24fb0d6963f7d28e17f72", "d41d8cd98f00b204e9800998ecf8427e"};
// The value comes from:
// printf '900150983cd24fb0d6963f7d28e17f72d41d8cd98f00b204e9800998ecf8427e' | xxd -r -p | md5sum
constexpr char kCompletedETag[] = "fdf1fdf1567f6942ffe1743f1e72301e-2";

TEST_F(ExchangeTest, CompleteMultipart) {
  const ScriptedAnswer completed = {
      .status = 200,
      .headers = {},
      .body = "  \n<CompleteMultipartUploadResult><ETag>&quot;whole-2&quot;</ETag></CompleteMultipartUploadResult>"};
  const auto info = Complete(InTurn({Error(200, "InternalError"), completed}), kPartETags);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->etag, "whole-2");
  EXPECT_EQ(requests_[1].head.target, "/bucket/key?uploadId=upload");
  EXPECT_FALSE(requests_[1].head.headers.Has("if-none-match"));
  ASSERT_TRUE(Complete(InTurn({completed}), kPartETags, {.only_if_absent = true}).ok());
  EXPECT_EQ(requests_[0].head.headers.Find("if-none-match"), "*");
  EXPECT_EQ(Complete(InTurn({Error(412)}), kPartETags, {.only_if_absent = true}).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Complete(InTurn({Error(400, "InvalidPart")}), kPartETags).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Complete(InTurn({completed}), {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Complete(InTurn({Error(200, "InternalError")}), kPartETags).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(ExchangeTest, CompleteMultipartInPlaceOfAVersion) {
  const ScriptedAnswer completed = {
      .status = 200,
      .headers = {},
      .body = "<CompleteMultipartUploadResult><ETag>whole-2</ETag></CompleteMultipartUploadResult>"};
  ASSERT_TRUE(Complete(InTurn({completed}), kPartETags, {.if_match = "seen"}).ok());
  EXPECT_EQ(requests_[0].head.headers.Find("if-match"), "seen");
  EXPECT_EQ(Complete(InTurn({Error(412)}), kPartETags, {.if_match = "seen"}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Complete(InTurn({completed}), kPartETags, {.only_if_absent = true, .if_match = "seen"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ExchangeTest, CompleteMultipartKnowsItsOwnWrite) {
  ScriptedAnswer ours = kFound;
  ours.headers.Set("ETag", std::string("\"") + kCompletedETag + "\"");
  const auto lost = Broken(HttpErrorKind::kTimeout);
  const auto info = Complete(InTurn({lost, Error(404, "NoSuchUpload"), ours}), kPartETags);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->etag, kCompletedETag);
  EXPECT_EQ(Complete(InTurn({lost, Error(404, "NoSuchUpload"), kFound}), kPartETags).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Complete(InTurn({Error(404, "NoSuchUpload"), ours}), kPartETags).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_EQ(Complete(InTurn({lost, Error(404, "NoSuchUpload"), ours}), {"opaque"}).status().code(),
            absl::StatusCode::kNotFound);
  ASSERT_TRUE(Complete(InTurn({lost, Error(412), ours}), kPartETags, {.only_if_absent = true}).ok());
  // With a key of KMS the checksum decides.
  const ObjectChecksum crc{ObjectChecksum::Kind::kCrc32c, DigestOf(ObjectChecksum::Kind::kCrc32c, AsBytes(body_))};
  ScriptedAnswer encrypted = kFound;
  encrypted.headers.Set("x-amz-server-side-encryption", "aws:kms");
  encrypted.headers.Set("x-amz-checksum-crc32c", ChecksumHeaderValue(crc));
  const CompleteOptions options{.only_if_absent = true, .checksum = crc, .part_checksums = {crc}};
  EXPECT_TRUE(Complete(InTurn({lost, Error(412), encrypted}), {"opaque"}, options).ok());
  EXPECT_EQ(Complete(InTurn({lost, Error(412), kFound}), {"opaque"}, options).status().code(),
            absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace millrace
