#include "aws/sigv4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "aws/testing/sigv4_vectors.h"
#include "base/crypto.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

absl::Time Time(const char* text) {
  absl::Time time;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, nullptr));
  return time;
}

std::string Hash(std::string_view body) {
  return HexEncode(Sha256(AsBytes(body)));
}

/// AWS documentation, "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)", the four
/// examples for a single chunk. The keys are AWS's published examples.
struct AwsExample {
  const char* name;
  const char* method;
  const char* target;
  HttpHeaders::Field header;
  const char* body;
  const char* signature;
};

class AwsExamples : public ::testing::TestWithParam<AwsExample> {};

TEST_P(AwsExamples, Match) {
  const AwsExample& example = GetParam();
  HttpRequestHead request{example.method, example.target, {}};
  request.headers.Add("Host", "examplebucket.s3.amazonaws.com");
  if (!example.header.first.empty()) request.headers.Add(example.header.first, example.header.second);
  if (request.method == "PUT") request.headers.Add("x-amz-storage-class", "REDUCED_REDUNDANCY");
  request.headers.Add("User-Agent", "is not signed");
  const Credentials credentials{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
  SignRequest(request, Hash(example.body), credentials, {.region = "us-east-1"}, Time("2013-05-24T00:00:00Z"));
  const std::string authorization(*request.headers.Find("authorization"));
  EXPECT_TRUE(authorization.starts_with(
      "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, SignedHeaders="))
      << authorization;
  EXPECT_TRUE(authorization.ends_with(std::string(", Signature=") + example.signature)) << authorization;
}

INSTANTIATE_TEST_SUITE_P(
    Published, AwsExamples,
    ::testing::Values(AwsExample{"GetObject",
                                 "GET",
                                 "/test.txt",
                                 {"Range", "bytes=0-9"},
                                 "",
                                 "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
                      AwsExample{"PutObject",
                                 "PUT",
                                 "/test%24file.text",
                                 {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                                 "Welcome to Amazon S3.",
                                 "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
                      AwsExample{"GetLifecycle",
                                 "GET",
                                 "/?lifecycle",
                                 {},
                                 "",
                                 "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
                      AwsExample{"ListObjects",
                                 "GET",
                                 "/?max-keys=2&prefix=J",
                                 {},
                                 "",
                                 "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"}),
    [](const auto& instance) { return instance.param.name; });

TEST(SigV4, AgreesWithBotocore) {
  for (const SigV4Vector& vector : kSigV4Vectors) {
    HttpRequestHead request{vector.method, vector.target, {}};
    request.headers.Add("Host", "127.0.0.1:9000");
    for (const auto& [name, value] : vector.headers) request.headers.Add(name, value);
    SignRequest(request, Hash(vector.body), {kVectorAccessKey, kVectorSecretKey, vector.token},
                {.region = vector.region}, Time(kVectorTime));
    EXPECT_EQ(request.headers.Find("Authorization"), vector.authorization) << vector.target;
    if (*vector.key == '\0') continue;
    // Our encoding of keys is the one that was signed.
    const std::string_view target = vector.target;
    EXPECT_EQ("/bucket/" + UriEncode(vector.key, true), target.substr(0, target.find('?')));
  }
}

TEST(SigV4, SigningAgainReplacesTheOldSignature) {
  HttpRequestHead request{"GET", "/a", {}};
  request.headers.Add("Host", "h");
  const Credentials credentials{"key", "secret", "token"};
  SignRequest(request, kEmptyPayloadHash, credentials, {.region = "us-east-1"}, Time("2026-01-01T00:00:00Z"));
  const std::string first(*request.headers.Find("authorization"));
  const size_t fields = request.headers.size();
  SignRequest(request, kEmptyPayloadHash, credentials, {.region = "us-east-1"}, Time("2026-01-01T00:00:01Z"));
  EXPECT_EQ(request.headers.size(), fields);
  EXPECT_NE(request.headers.Find("authorization"), first);
  EXPECT_EQ(request.headers.Find("x-amz-date"), "20260101T000001Z");
}

TEST(SigV4, EveryPartOfARequestIsCovered) {
  const auto sign = [](std::string method, std::string target, std::string header, std::string hash, const char* time) {
    HttpRequestHead request{std::move(method), std::move(target), {}};
    request.headers.Add("Host", "h");
    request.headers.Add("Range", std::move(header));
    SignRequest(request, hash, {"key", "secret", ""}, {.region = "us-east-1"}, Time(time));
    return std::string(*request.headers.Find("authorization"));
  };
  const std::string base = sign("GET", "/a?b=c", "bytes=0-1", Hash(""), "2026-01-01T00:00:00Z");
  EXPECT_NE(base, sign("PUT", "/a?b=c", "bytes=0-1", Hash(""), "2026-01-01T00:00:00Z"));
  EXPECT_NE(base, sign("GET", "/A?b=c", "bytes=0-1", Hash(""), "2026-01-01T00:00:00Z"));
  EXPECT_NE(base, sign("GET", "/a?b=d", "bytes=0-1", Hash(""), "2026-01-01T00:00:00Z"));
  EXPECT_NE(base, sign("GET", "/a?b=c", "bytes=0-2", Hash(""), "2026-01-01T00:00:00Z"));
  EXPECT_NE(base, sign("GET", "/a?b=c", "bytes=0-1", Hash("x"), "2026-01-01T00:00:00Z"));
  EXPECT_NE(base, sign("GET", "/a?b=c", "bytes=0-1", Hash(""), "2026-01-01T00:00:01Z"));
}

TEST(SigV4, RequestsOfSeveralKeysAndPlacesMayAlternate) {
  struct Way {
    const char* key;
    const char* secret;
    const char* region;
    const char* time;
  };
  const auto sign = [](const Way& way) {
    HttpRequestHead request{"GET", "/a", {}};
    request.headers.Add("Host", "h");
    SignRequest(request, Hash(""), {way.key, way.secret, ""}, {.region = way.region}, Time(way.time));
    return std::string(*request.headers.Find("authorization"));
  };
  constexpr const char* kTime = "2026-01-01T23:59:59Z";
  const std::vector<Way> ways = {{"key", "secret", "us-east-1", kTime},
                                 {"key", "other", "us-east-1", kTime},
                                 {"other", "secret", "us-east-1", kTime},
                                 {"key", "secret", "eu-west-1", kTime},
                                 {"key", "secret", "us-east-1", "2026-01-02T00:00:00Z"},
                                 {"key", "secret", "us-east-1", "2026-01-01T23:59:58Z"}};
  std::vector<std::string> alone;
  for (const Way& way : ways) {
    // A thread has nothing left of requests before.
    std::thread([&] { alone.push_back(sign(way)); }).join();
  }
  EXPECT_EQ(std::set(alone.begin(), alone.end()).size(), ways.size());
  for (size_t one = 0; one < ways.size(); ++one) {
    for (size_t two = 0; two < ways.size(); ++two) {
      for (const size_t way : {one, two, one}) EXPECT_EQ(sign(ways[way]), alone[way]) << one << ", " << two;
    }
  }
}

TEST(SigV4, QueriesAreSortedByEncodedNameThenValue) {
  HttpHeaders headers;
  const std::string canonical = CanonicalRequest("GET", "/?b=2&a=%7e&B=1&a=%2B&c", headers, {}, "hash");
  EXPECT_EQ(canonical, "GET\n/\nB=1&a=%2B&a=~&b=2&c=\n\n\nhash");
}

TEST(SigV4, RepeatedHeadersAreJoined) {
  HttpHeaders headers;
  headers.Add("X-Amz-Meta-A", " one ");
  headers.Add("x-amz-meta-a", "two");
  EXPECT_EQ(CanonicalRequest("GET", "/", headers, {"x-amz-meta-a"}, "hash"),
            "GET\n/\n\nx-amz-meta-a:one,two\n\nx-amz-meta-a\nhash");
}

TEST(UriEncoding, RoundTripsEveryByte) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  for (const bool keep_slash : {false, true}) {
    const std::string encoded = UriEncode(all, keep_slash);
    EXPECT_EQ(UriDecode(encoded), all);
    EXPECT_EQ(encoded.find('/') != std::string::npos, keep_slash);
  }
  EXPECT_EQ(UriEncode("a b/c+\xff", false), "a%20b%2Fc%2B%FF");
}

TEST(UriEncoding, BrokenEscapesAreRefused) {
  for (const char* text : {"%", "%1", "a%2", "%zz", "%1g", "%-1"}) EXPECT_EQ(UriDecode(text), std::nullopt) << text;
  EXPECT_EQ(UriDecode("a+b%2b"), "a+b+");
}

TEST(ParseQuery, DecodesPairsInOrder) {
  EXPECT_THAT(*ParseQuery("b=1&a&c=&d=x%3Dy=z&&%20=%26"),
              ElementsAre(Pair("b", "1"), Pair("a", ""), Pair("c", ""), Pair("d", "x=y=z"), Pair(" ", "&")));
  EXPECT_TRUE(ParseQuery("")->empty());
  EXPECT_EQ(ParseQuery("a=%"), std::nullopt);
  EXPECT_EQ(ParseQuery("%=a"), std::nullopt);
}

}  // namespace
}  // namespace millrace
