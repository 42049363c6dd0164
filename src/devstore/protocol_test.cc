// These tests are for devstore's requests: signatures, encodings, digests, ranges, conditions, names.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "devstore/auth.h"
#include "devstore/aws_chunked.h"
#include "devstore/checksum.h"
#include "devstore/conditions.h"
#include "devstore/operations.h"
#include "devstore/request_body.h"
#include "devstore/s3_error.h"
#include "devstore/testing/storage_helpers.h"

namespace millrace {
namespace {

S3Request Request(std::string method, std::string target, HttpHeaders headers = {}) {
  HttpRequestHead head{std::move(method), std::move(target), std::move(headers)};
  if (!head.headers.Has("host")) head.headers.Add("Host", "127.0.0.1:9000");
  auto request = ParseS3Request(std::move(head));
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? *std::move(request) : S3Request{};
}

HttpHeaders Headers(std::initializer_list<std::pair<const char*, std::string>> fields) {
  HttpHeaders headers;
  for (const auto& [name, value] : fields) headers.Add(name, value);
  return headers;
}

// The examples of AWS's documentation, "Authenticating Requests (AWS Signature Version 4)".
const AuthSettings kAwsExample = {
    {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""}, "us-east-1", false};
const absl::Time kAwsTime = absl::FromUnixSeconds(1369353600);  // 20130524T000000Z

S3Request AwsGetExample() {
  return Request(
      "GET", "/test.txt",
      Headers({{"Host", "examplebucket.s3.amazonaws.com"},
               {"Range", "bytes=0-9"},
               {"x-amz-content-sha256", std::string(kEmptyPayloadHash)},
               {"x-amz-date", "20130524T000000Z"},
               {"Authorization",
                "AWS4-HMAC-SHA256 "
                "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,SignedHeaders=host;range;"
                "x-amz-content-sha256;x-amz-date,Signature="
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"}}));
}

TEST(Auth, AcceptsTheExampleOfAws) {
  const auto result = Authenticate(AwsGetExample(), kAwsExample, kAwsTime + absl::Minutes(14));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->payload_hash, kEmptyPayloadHash);
  EXPECT_TRUE(result->is_signed);
}

TEST(Auth, AcceptsThePresignedExampleOfAws) {
  const std::string target =
      "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%"
      "2Faws4_request"
      "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
      "&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
  const auto check = [&](const std::string& text, absl::Time now) {
    return CodeOf(
        Authenticate(Request("GET", text, Headers({{"Host", "examplebucket.s3.amazonaws.com"}})), kAwsExample, now)
            .status());
  };
  EXPECT_EQ(check(target, kAwsTime + absl::Hours(23)), "");
  EXPECT_EQ(check(target, kAwsTime + absl::Hours(25)), "AccessDenied");  // expired
  EXPECT_EQ(check(target, kAwsTime - absl::Hours(1)), "AccessDenied");   // not yet valid
  EXPECT_EQ(check(target + "0", kAwsTime), "SignatureDoesNotMatch");
  EXPECT_EQ(check(target + "&extra=1", kAwsTime), "SignatureDoesNotMatch");
  EXPECT_EQ(check("/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256", kAwsTime), "AuthorizationQueryParametersError");
}

TEST(Auth, RefusesEveryChangeOfASignedRequest) {
  const auto check = [](S3Request request, absl::Time now = kAwsTime, AuthSettings settings = kAwsExample) {
    return CodeOf(Authenticate(request, settings, now).status());
  };
  S3Request request = AwsGetExample();
  request.head.headers.Set("Range", "bytes=0-10");
  EXPECT_EQ(check(request), "SignatureDoesNotMatch");
  request = AwsGetExample();
  request.head.method = "PUT";
  EXPECT_EQ(check(request), "SignatureDoesNotMatch");
  request = AwsGetExample();
  request.head.target = "/test.txt2";
  EXPECT_EQ(check(request), "SignatureDoesNotMatch");
  request = AwsGetExample();
  request.head.headers.Set("x-amz-content-sha256", std::string(kUnsignedPayload));
  EXPECT_EQ(check(request), "SignatureDoesNotMatch");
  request = AwsGetExample();
  request.head.headers.Add("x-amz-acl", "public-read");  // a header that is not signed
  EXPECT_EQ(check(request), "AccessDenied");
  request = AwsGetExample();
  request.head.headers.Set("x-amz-content-sha256", "nonsense");
  EXPECT_EQ(check(request), "InvalidArgument");
  request.head.headers.Remove("x-amz-content-sha256");
  EXPECT_EQ(check(request), "InvalidRequest");
  request = AwsGetExample();
  request.head.headers.Remove("x-amz-date");
  EXPECT_EQ(check(request), "AccessDenied");
  request.head.headers.Set("Authorization", "AWS AKIAIOSFODNN7EXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=");
  EXPECT_EQ(check(request), "InvalidRequest");
  request.head.headers.Set("Authorization", "AWS4-HMAC-SHA256 Credential=x");
  EXPECT_EQ(check(request), "AuthorizationHeaderMalformed");
  request.head.headers.Remove("Authorization");
  EXPECT_EQ(check(request), "AccessDenied");

  EXPECT_EQ(check(AwsGetExample(), kAwsTime + absl::Minutes(16)), "RequestTimeTooSkewed");
  EXPECT_EQ(check(AwsGetExample(), kAwsTime - absl::Minutes(16)), "RequestTimeTooSkewed");
  AuthSettings settings = kAwsExample;
  settings.credentials.secret_key += "x";
  EXPECT_EQ(check(AwsGetExample(), kAwsTime, settings), "SignatureDoesNotMatch");
  settings = kAwsExample;
  settings.credentials.access_key = "OTHER";
  EXPECT_EQ(check(AwsGetExample(), kAwsTime, settings), "InvalidAccessKeyId");
  settings = kAwsExample;
  settings.region = "eu-west-1";
  EXPECT_EQ(check(AwsGetExample(), kAwsTime, settings), "AuthorizationHeaderMalformed");
  settings.anonymous = true;
  EXPECT_EQ(check(AwsGetExample(), kAwsTime, settings), "");
}

TEST(Auth, RefusesTheWrongServiceAndDay) {
  const auto with = [](std::string_view from, std::string_view to) {
    S3Request request = AwsGetExample();
    std::string header(*request.Header("authorization"));
    header.replace(header.find(from), from.size(), to);
    request.head.headers.Set("Authorization", header);
    return Authenticate(request, kAwsExample, kAwsTime).status();
  };
  EXPECT_EQ(CodeOf(with("/s3/", "/sts/")), "AuthorizationHeaderMalformed");
  EXPECT_EQ(CodeOf(with("/20130524/", "/20130525/")), "AuthorizationHeaderMalformed");
  EXPECT_EQ(CodeOf(with("host;range", "range")), "AccessDenied");  // the host must be signed
  EXPECT_NE(with("/us-east-1/", "/mars/").message().find("expecting 'us-east-1'"), absl::string_view::npos);
}

// The format is that of "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks",
// and the same with trailers.
std::string ChunkedBody(std::vector<std::pair<size_t, std::string>> chunks, std::string trailer) {
  std::string body;
  for (const auto& [size, signature] : chunks) {
    body += fmt::format("{:x}{}{}\r\n", size, signature.empty() ? "" : ";chunk-signature=", signature) +
            std::string(size, 'a');
    if (size > 0) body += "\r\n";
  }
  return body + trailer + "\r\n";
}

const std::string kAwsChunked =
    ChunkedBody({{65536, "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648"},
                 {1024, "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497"},
                 {0, "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"}},
                "");
const std::string kAwsTrailer =
    ChunkedBody({{65536, "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2"},
                 {1024, "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7"},
                 {0, "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"}},
                "x-amz-checksum-crc32c:sOO8/Q==\r\n"
                "x-amz-trailer-signature:"
                "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n");

AwsChunkedDecoder::Signing Signing(std::string seed) {
  return {kAwsExample.credentials.secret_key, kAwsTime, {"us-east-1", "s3"}, std::move(seed)};
}
const char* const kSeed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
const char* const kTrailerSeed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";

absl::StatusOr<std::string> Decode(AwsChunkedDecoder decoder, std::string_view body, size_t step) {
  std::string out;
  for (size_t at = 0; at < body.size(); at += step) {
    RETURN_IF_ERROR(decoder.Update(AsBytes(body.substr(at, step)), [&out](ByteSpan bytes) {
      out += AsText(bytes);
      return absl::OkStatus();
    }));
  }
  RETURN_IF_ERROR(decoder.Finish());
  for (const auto& [name, value] : decoder.trailers()) out += "|" + name + "=" + value;
  return out;
}

TEST(AwsChunked, DecodesTheExamplesOfAwsInAnyPieces) {
  for (const size_t step : {size_t{1}, size_t{7}, size_t{4096}, size_t{1} << 20}) {
    const auto plain = Decode(AwsChunkedDecoder(Signing(kSeed), false), kAwsChunked, step);
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_TRUE(*plain == std::string(66560, 'a'));
    const auto trailer = Decode(AwsChunkedDecoder(Signing(kTrailerSeed), true), kAwsTrailer, step);
    ASSERT_TRUE(trailer.ok()) << trailer.status();
    EXPECT_TRUE(*trailer == std::string(66560, 'a') + "|x-amz-checksum-crc32c=sOO8/Q==");
  }
}

TEST(AwsChunked, RefusesABrokenChain) {
  EXPECT_EQ(CodeOf(Decode(AwsChunkedDecoder(Signing(kTrailerSeed), false), kAwsChunked, 4096).status()),
            "SignatureDoesNotMatch");
  std::string tampered = kAwsChunked;
  tampered[1000] = 'b';
  EXPECT_EQ(CodeOf(Decode(AwsChunkedDecoder(Signing(kSeed), false), tampered, 4096).status()), "SignatureDoesNotMatch");
  std::string trailer = kAwsTrailer;
  trailer.replace(trailer.find("sOO8"), 4, "sOO9");
  EXPECT_EQ(CodeOf(Decode(AwsChunkedDecoder(Signing(kTrailerSeed), true), trailer, 4096).status()),
            "SignatureDoesNotMatch");
  // The trailer is unsigned where a signed one is due.
  std::string unsigned_trailer = kAwsTrailer;
  unsigned_trailer.erase(unsigned_trailer.find("x-amz-trailer-signature"));
  EXPECT_EQ(CodeOf(Decode(AwsChunkedDecoder(Signing(kTrailerSeed), true), unsigned_trailer + "\r\n", 4096).status()),
            "IncompleteBody");
}

TEST(AwsChunked, RefusesBadFraming) {
  const auto decode = [](std::string_view body, bool trailer = true) {
    return CodeOf(Decode(AwsChunkedDecoder(std::nullopt, trailer), body, 3).status());
  };
  EXPECT_EQ(decode("3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n"), "");
  EXPECT_EQ(decode("0\r\n\r\n"), "");
  EXPECT_EQ(decode("3\r\nabcd\r\n0\r\n\r\n"), "IncompleteBody");
  EXPECT_EQ(decode("3\r\nab"), "IncompleteBody");
  EXPECT_EQ(decode("xyz\r\n"), "IncompleteBody");
  EXPECT_EQ(decode("-3\r\nabc\r\n0\r\n\r\n"), "IncompleteBody");
  EXPECT_EQ(decode("ffffffffffffffffff\r\n"), "IncompleteBody");
  EXPECT_EQ(decode("3\r\nabc\r\n0\r\n\r\nmore"), "IncompleteBody");
  EXPECT_EQ(decode("3\r\nabc\r\n0\r\nx: y\r\n\r\n", /*trailer=*/false), "IncompleteBody");
  EXPECT_EQ(decode("3;" + std::string(10'000, 'x')), "IncompleteBody");
  EXPECT_EQ(decode("3\r\nabc\r\n0\r\nx:y\r\n"), "IncompleteBody");
}

TEST(Checksum, KnownValues) {
  const auto of = [](ChecksumAlgorithm algorithm) {
    ChecksumStream stream(algorithm);
    stream.Update(AsBytes("1234"));
    stream.Update(AsBytes("56789"));
    return stream.Finish();
  };
  EXPECT_EQ(of(ChecksumAlgorithm::kCrc32), "y/Q5Jg==");
  EXPECT_EQ(of(ChecksumAlgorithm::kCrc32c), "4waSgw==");
  EXPECT_EQ(of(ChecksumAlgorithm::kCrc64Nvme), "rosUhgp5mIg=");
  EXPECT_EQ(of(ChecksumAlgorithm::kSha256), "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=");
  EXPECT_EQ(Crc64Nvme(AsBytes("123456789")), 0xae8b14860a799888u);
  EXPECT_EQ(Crc32(AsBytes("123456789")), 0xcbf43926u);
}

struct BodyCase {
  HttpHeaders headers;
  std::string body;
  std::string payload_hash = std::string(kUnsignedPayload);
};

std::string Receive(const BodyCase& test) {
  AuthResult auth;
  auth.payload_hash = test.payload_hash;
  HttpRequestFacts facts;
  facts.content_length = test.body.size();
  auto body = RequestBody::Create(Request("PUT", "/b/k", test.headers), facts, auth, "secret", ETagKind::kMd5, 1000);
  if (!body.ok()) return CodeOf(body.status());
  const absl::Status update = (*body)->Update(AsBytes(test.body), [](ByteSpan) { return absl::OkStatus(); });
  return CodeOf(update.ok() ? (*body)->Finish() : update);
}

TEST(RequestBody, ChecksEveryDigest) {
  const std::string sha = HexEncode(Sha256(AsBytes("abc")));
  EXPECT_EQ(Receive({{}, "abc", sha}), "");
  EXPECT_EQ(Receive({{}, "abd", sha}), "XAmzContentSHA256Mismatch");
  EXPECT_EQ(Receive({Headers({{"Content-MD5", "kAFQmDzST7DWlj99KOF/cg=="}}), "abc"}), "");
  EXPECT_EQ(Receive({Headers({{"Content-MD5", "kAFQmDzST7DWlj99KOF/cg=="}}), "abd"}), "BadDigest");
  EXPECT_EQ(Receive({Headers({{"Content-MD5", "short"}}), "abc"}), "InvalidDigest");
  EXPECT_EQ(Receive({Headers({{"x-amz-checksum-crc32", "NSRBwg=="}}), "abc"}), "");
  EXPECT_EQ(Receive({Headers({{"x-amz-checksum-crc32", "NSRBwg=="}}), "abd"}), "BadDigest");
  EXPECT_EQ(Receive({Headers({{"x-amz-checksum-crc32", "%%%"}}), "abc"}), "InvalidRequest");
  EXPECT_EQ(Receive({Headers({{"x-amz-checksum-crc32c", "Nks/tw=="}}), "abc"}), "");
  EXPECT_EQ(Receive({Headers({{"x-amz-checksum-sha256", "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="}}), "abc"}), "");
  EXPECT_EQ(Receive({Headers({{"x-amz-checksum-sha1", "qZk+NkcGgWq6PiVxeFDCbJzQ2J0="}}), "abc"}), "NotImplemented");
  EXPECT_EQ(Receive({Headers({{"x-amz-checksum-crc32", "NSRBwg=="}, {"x-amz-checksum-crc32c", "Nks/tw=="}}), "abc"}),
            "InvalidRequest");
  EXPECT_EQ(Receive({{}, std::string(1001, 'x')}), "EntityTooLarge");
}

TEST(RequestBody, TakesChecksumsFromTrailers) {
  const auto receive = [](std::string body, std::string decoded_length = "3") {
    return Receive(
        {Headers({{"x-amz-trailer", "x-amz-checksum-crc32"}, {"x-amz-decoded-content-length", decoded_length}}), body,
         "STREAMING-UNSIGNED-PAYLOAD-TRAILER"});
  };
  EXPECT_EQ(receive("3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n"), "");
  EXPECT_EQ(receive("3\r\nabd\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n"), "BadDigest");
  EXPECT_EQ(receive("3\r\nabc\r\n0\r\n\r\n"), "InvalidRequest");
  EXPECT_EQ(receive("3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n", "4"), "IncompleteBody");
  EXPECT_EQ(receive("3\r\nabc\r\n0\r\nx-amz-checksum-crc32:NSRBwg==\r\n\r\n", "2"), "IncompleteBody");
  EXPECT_EQ(receive("", "no number"), "MissingContentLength");
  EXPECT_EQ(receive("", "1001"), "EntityTooLarge");
  EXPECT_EQ(Receive({Headers({{"x-amz-trailer", "x-amz-checksum-crc32"}}), "abc"}), "InvalidRequest");
}

TEST(Range, FollowsS3) {
  const auto parse = [](const char* header, uint64_t size) {
    const RangeRequest range = ParseRange(header, size);
    switch (range.kind) {
      case RangeKind::kWhole:
        return std::string("whole");
      case RangeKind::kUnsatisfiable:
        return std::string("416");
      case RangeKind::kPart:
        break;
    }
    return fmt::format("{}+{}", range.range.offset, range.range.length);
  };
  EXPECT_EQ(parse("bytes=0-9", 100), "0+10");
  EXPECT_EQ(parse("bytes=90-200", 100), "90+10");
  EXPECT_EQ(parse("bytes=99-", 100), "99+1");
  EXPECT_EQ(parse("bytes=-5", 100), "95+5");
  EXPECT_EQ(parse("bytes=-500", 100), "0+100");
  EXPECT_EQ(parse("bytes=100-", 100), "416");
  EXPECT_EQ(parse("bytes=100-200", 100), "416");
  EXPECT_EQ(parse("bytes=-0", 100), "416");
  EXPECT_EQ(parse("bytes=0-", 0), "416");
  EXPECT_EQ(parse("bytes=-5", 0), "416");
  EXPECT_EQ(parse("bytes=0-18446744073709551615", 100), "0+100");
  for (const char* ignored : {"bytes=9-5", "bytes=0-1,3-4", "items=0-1", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-1x",
                              "bytes=99999999999999999999-"}) {
    EXPECT_EQ(parse(ignored, 100), "whole") << ignored;
  }
  EXPECT_EQ(ParseRange(std::nullopt, 5).kind, RangeKind::kWhole);
  EXPECT_EQ(*ParseCopyRange("bytes=5-9", 10), (ByteRange{5, 5}));
  EXPECT_EQ(CodeOf(ParseCopyRange("bytes=5-10", 10).status()), "InvalidRange");
  EXPECT_EQ(CodeOf(ParseCopyRange("bytes=5-", 10).status()), "InvalidArgument");
}

TEST(Conditions, OfReads) {
  const int64_t modified = 784111777;  // Sun, 06 Nov 1994 08:49:37 GMT
  const auto check = [&](std::initializer_list<std::pair<const char*, std::string>> fields) {
    return CodeOf(CheckReadConditions(Request("GET", "/b/k", Headers(fields)), "abc", modified));
  };
  const char* const same = "Sun, 06 Nov 1994 08:49:37 GMT";
  const char* const earlier = "Sun, 06 Nov 1994 08:49:36 GMT";
  EXPECT_EQ(check({}), "");
  EXPECT_EQ(check({{"If-Match", "\"abc\""}}), "");
  EXPECT_EQ(check({{"If-Match", "abc"}}), "");
  EXPECT_EQ(check({{"If-Match", "\"x\", \"abc\""}}), "");
  EXPECT_EQ(check({{"If-Match", "*"}}), "");
  EXPECT_EQ(check({{"If-Match", "\"x\""}}), "PreconditionFailed");
  EXPECT_EQ(check({{"If-None-Match", "\"abc\""}}), "NotModified");
  EXPECT_EQ(check({{"If-None-Match", "\"x\""}}), "");
  EXPECT_EQ(check({{"If-Modified-Since", same}}), "NotModified");
  EXPECT_EQ(check({{"If-Modified-Since", earlier}}), "");
  EXPECT_EQ(check({{"If-Unmodified-Since", same}}), "");
  EXPECT_EQ(check({{"If-Unmodified-Since", earlier}}), "PreconditionFailed");
  EXPECT_EQ(check({{"If-Modified-Since", "yesterday"}}), "");
  // A matching tag outweighs a date.
  EXPECT_EQ(check({{"If-Match", "\"abc\""}, {"If-Unmodified-Since", earlier}}), "");
  EXPECT_EQ(check({{"If-None-Match", "\"x\""}, {"If-Modified-Since", same}}), "");
  EXPECT_EQ(CodeOf(CheckReadConditions(Request("PUT", "/b/k", Headers({{"x-amz-copy-source-if-none-match", "abc"}})),
                                       "abc", modified, "x-amz-copy-source-")),
            "PreconditionFailed");
}

TEST(Conditions, OfWrites) {
  const auto check = [](std::initializer_list<std::pair<const char*, std::string>> fields, const char* existing) {
    const auto conditions = ParseWriteConditions(Request("PUT", "/b/k", Headers(fields)));
    if (!conditions.ok()) return CodeOf(conditions.status());
    const std::string etag = existing == nullptr ? "" : existing;
    return CodeOf(CheckWriteConditions(*conditions, existing == nullptr ? nullptr : &etag, "k"));
  };
  EXPECT_EQ(check({{"If-None-Match", "*"}}, nullptr), "");
  EXPECT_EQ(check({{"If-None-Match", "*"}}, "abc"), "PreconditionFailed");
  EXPECT_EQ(check({{"If-None-Match", "\"abc\""}}, nullptr), "NotImplemented");
  EXPECT_EQ(check({{"If-Match", "\"abc\""}}, "abc"), "");
  EXPECT_EQ(check({{"If-Match", "\"abc\""}}, "def"), "PreconditionFailed");
  EXPECT_EQ(check({{"If-Match", "\"abc\""}}, nullptr), "NoSuchKey");
}

TEST(S3Request, TakesTargetsApart) {
  const S3Request request = Request("GET", "/my-bucket/a%20b/c+d%2Fe//?list-type=2&prefix=x%2Fy");
  EXPECT_EQ(request.bucket, "my-bucket");
  EXPECT_EQ(request.key, "a b/c+d/e//");
  EXPECT_EQ(request.ParameterOr("prefix"), "x/y");
  EXPECT_EQ(Request("GET", "/").bucket, "");
  EXPECT_EQ(Request("GET", "/b").Subject(), "b/");
  EXPECT_EQ(Request("GET", "/b?prefix=p/q").Subject(), "b/p/q");
  EXPECT_EQ(Request("GET", "/b/k").Subject(), "b/k");
  const S3Request virtual_host = Request("GET", "/k/l", Headers({{"Host", "bucket.localhost:9000"}}));
  EXPECT_EQ(virtual_host.bucket, "bucket");
  EXPECT_EQ(virtual_host.key, "k/l");
}

TEST(S3Request, MayNameTheWholeUrl) {
  const S3Request request = Request("GET", "http://127.0.0.1:9000/b/a%20b?prefix=p");
  EXPECT_EQ(request.bucket, "b");
  EXPECT_EQ(request.key, "a b");
  EXPECT_EQ(request.ParameterOr("prefix"), "p");
  EXPECT_EQ(request.head.target, "/b/a%20b?prefix=p");  // which is what was signed
  EXPECT_EQ(Request("GET", "https://store.test").Subject(), "");
  EXPECT_EQ(Request("GET", "http://store.test?prefix=p").head.target, "/?prefix=p");
  EXPECT_EQ(CodeOf(ParseS3Request({"GET", "http://x/../x", {}}).status()), "InvalidBucketName");
}

TEST(S3Request, RefusesBucketsThatCouldLeaveTheRoot) {
  for (const char* target : {"/../x", "/..%2Fetc/passwd", "/.devstore/meta", "/a%2Fb/c", "/%00/x", "//x"}) {
    const auto request = ParseS3Request({"GET", target, Headers({{"Host", "x"}})});
    EXPECT_EQ(CodeOf(request.status()), "InvalidBucketName") << target;
  }
  EXPECT_EQ(CodeOf(ParseS3Request({"GET", "/b/%zz", {}}).status()), "InvalidURI");
  EXPECT_EQ(CodeOf(ParseS3Request({"GET", "ftp://x/b", {}}).status()), "InvalidURI");
  EXPECT_EQ(CodeOf(ParseS3Request({"GET", "/b/" + std::string(1025, 'k'), {}}).status()), "KeyTooLongError");
}

TEST(S3Request, IsClassified) {
  const auto classify = [](std::string method, std::string target, HttpHeaders headers = {}) {
    const auto operation = FindOperation(Request(std::move(method), std::move(target), std::move(headers)));
    return operation.ok() ? std::string((*operation)->name) : CodeOf(operation.status());
  };
  EXPECT_EQ(classify("GET", "/"), "ListBuckets");
  EXPECT_EQ(classify("GET", "/b"), "ListObjects");
  EXPECT_EQ(classify("GET", "/b/?list-type=2"), "ListObjectsV2");
  EXPECT_EQ(classify("GET", "/b?list-type=3"), "InvalidArgument");
  EXPECT_EQ(classify("GET", "/b?uploads"), "ListMultipartUploads");
  EXPECT_EQ(classify("POST", "/b?delete"), "DeleteObjects");
  EXPECT_EQ(classify("POST", "/b/k?uploads"), "CreateMultipartUpload");
  EXPECT_EQ(classify("POST", "/b/k?uploadId=x"), "CompleteMultipartUpload");
  EXPECT_EQ(classify("PUT", "/b/k?uploadId=x&partNumber=1"), "UploadPart");
  EXPECT_EQ(classify("PUT", "/b/k?uploadId=x&partNumber=1", Headers({{"x-amz-copy-source", "a/b"}})), "UploadPartCopy");
  EXPECT_EQ(classify("PUT", "/b/k", Headers({{"x-amz-copy-source", "a/b"}})), "CopyObject");
  EXPECT_EQ(classify("GET", "/b/k?acl"), "NotImplemented");
  EXPECT_EQ(classify("GET", "/b/k?attributes"), "NotImplemented");
  EXPECT_EQ(classify("GET", "/b/k?versionId=abc"), "InvalidArgument");
  EXPECT_EQ(classify("PATCH", "/b/k"), "MethodNotAllowed");
  EXPECT_EQ(classify("POST", "/b"), "MethodNotAllowed");
  EXPECT_EQ(classify("PUT", "/"), "MethodNotAllowed");
}

TEST(S3Request, ChecksNamesOfNewBuckets) {
  for (const char* good : {"b", "abc", "my-bucket.2", "000"}) EXPECT_TRUE(CheckNewBucketName(good).ok()) << good;
  for (const std::string& bad :
       {std::string(), std::string("Abc"), std::string("a_b"), std::string("-ab"), std::string("ab-"),
        std::string("a..b"), std::string("1.2.3.4"), std::string(64, 'a'), std::string("a/b")}) {
    EXPECT_EQ(CodeOf(CheckNewBucketName(bad)), "InvalidBucketName") << bad;
  }
}

TEST(S3Error, CarriesCodeAndDetails) {
  const absl::Status error = S3Error(s3code::kInvalidRange, "no", {{"A", "1 < 2"}, {"B", ""}});
  const S3ErrorFacts facts = DescribeS3Error(error);
  EXPECT_EQ(facts.name, "InvalidRange");
  EXPECT_EQ(facts.http_status, 416);
  EXPECT_EQ(S3ErrorXml(facts, "/b/k", "ID"),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>InvalidRange</Code><Message>no</Message><A>1 "
            "&lt; 2</A><B></B>"
            "<Resource>/b/k</Resource><RequestId>ID</RequestId></Error>");
  EXPECT_EQ(DescribeS3Error(absl::UnknownError("x")).name, "InternalError");
}

}  // namespace
}  // namespace millrace
