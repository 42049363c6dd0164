#include "aws/request_log.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using Shows = RequestLog::Shows;

constexpr absl::Time kBegin = absl::UnixEpoch();

HttpRequest Request(std::string target) {
  HttpRequest request;
  request.endpoint = {"host", 9000, false};
  request.head.method = "GET";
  request.head.target = std::move(target);
  request.head.headers.Add("Authorization", "AWS4-HMAC-SHA256 Credential=canary, Signature=canary");
  request.head.headers.Add("X-Amz-Security-Token", "canary");
  request.head.headers.Add("Range", "bytes=0-99");
  return request;
}

HttpResponseHead Head(int status, const char* id) {
  HttpResponseHead head{status, "", {}, std::nullopt};
  head.headers.Add("x-amz-request-id", id);
  head.headers.Add("Set-Cookie", "canary");
  return head;
}

TEST(RequestLog, TellsARequestAndItsAnswer) {
  RequestLog log(Request("/bucket/a%20b?partNumber=1"), Shows::kTarget, 2, false, kBegin);
  log.OnHead(Head(206, "ABC"), kBegin + absl::Milliseconds(20));
  HttpResult result;
  result.wire_bytes = 100;
  result.text = "canary";
  EXPECT_EQ(log.Line(result, kBegin + absl::Milliseconds(31.5)),
            "GET http://host:9000/bucket/a%20b?partNumber=1 range=bytes=0-99 status=206 ms=31.5 first_byte_ms=20.0 "
            "bytes=100 attempt=2 request=ABC");
}

TEST(RequestLog, TellsOfRequestsWithoutAnAnswer) {
  const RequestLog log(Request("/b/k"), Shows::kTarget, 1, true, kBegin);
  HttpResult result;
  result.error = HttpErrorKind::kConnect;
  EXPECT_EQ(log.Line(result, kBegin),
            "GET http://host:9000/b/k range=bytes=0-99 status=- ms=0.0 bytes=0 attempt=1 hedge error=connect");
}

TEST(RequestLog, HidesWhatMayBeASecret) {
  for (const char* target : {"/b/k?X-Amz-Signature=canary", "/b/k?a=b&x-amz-security-token=canary&c=d",
                             "/b/k?X-Amz-Credential=canary&", "/b/k?Signature=canary&AWSAccessKeyId=canary"}) {
    const RequestLog log(Request(target), Shows::kTarget, 1, false, kBegin);
    const std::string line = log.Line({}, kBegin);
    EXPECT_EQ(line.find("canary"), std::string::npos) << line;
    EXPECT_NE(line.find("(hidden)"), std::string::npos) << line;
  }
  const RequestLog log(Request("/canary?canary"), Shows::kServer, 1, false, kBegin);
  EXPECT_EQ(log.Line({}, kBegin), "GET http://host:9000 status=- ms=0.0 bytes=0 attempt=1");
}

TEST(RequestLog, IsOneLineWhateverTheServerSays) {
  RequestLog log(Request("/b/k"), Shows::kTarget, 1, false, kBegin);
  log.OnHead(Head(200, "a b\x1b[31m\n\"c"), kBegin);
  const std::string line = log.Line({}, kBegin);
  EXPECT_TRUE(line.ends_with(" request=a?b?[31m??c")) << line;
  RequestLog long_one(Request("/" + std::string(100'000, 'k')), Shows::kTarget, 1, false, kBegin);
  long_one.OnHead(Head(200, std::string(100'000, 'i').c_str()), kBegin);
  EXPECT_LT(long_one.Line({}, kBegin).size(), 3000u);
}

}  // namespace
}  // namespace millrace
