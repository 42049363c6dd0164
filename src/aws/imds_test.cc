#include "aws/imds.h"

#include <gtest/gtest.h>

#include "aws/testing/fake_imds.h"

namespace millrace {
namespace {

constexpr char kDocument[] = "/latest/meta-data/instance-id";

class ImdsSessionTest : public ::testing::Test {
 protected:
  absl::Status Renew() {
    const TextAnswer answer = imds_.Answer(session_.TokenRequest());
    return session_.TakeToken(answer.result.text, answer.head.headers, imds_.now);
  }

  FakeImds imds_;
  ImdsSession session_{{.server = {"169.254.169.254", 80, false}, .base_path = ""}};
};

TEST_F(ImdsSessionTest, ReadsWithAToken) {
  imds_.documents[kDocument] = "i-1";
  imds_.ttl = absl::Minutes(5);
  EXPECT_FALSE(session_.has_token());
  ASSERT_TRUE(Renew().ok());
  EXPECT_TRUE(session_.has_token());
  EXPECT_EQ(session_.token_expires(), imds_.now + absl::Minutes(5));
  EXPECT_EQ(imds_.Answer(session_.ReadRequest(kDocument)).result.text, "i-1");
  imds_.now = session_.token_expires();
  EXPECT_EQ(imds_.Answer(session_.ReadRequest(kDocument)).head.status, 401);
  ASSERT_TRUE(Renew().ok());
  EXPECT_EQ(imds_.Answer(session_.ReadRequest(kDocument)).result.text, "i-1");
  session_.DropToken();
  EXPECT_FALSE(session_.has_token());
}

TEST_F(ImdsSessionTest, OtherTextsAreNoTokens) {
  ASSERT_TRUE(Renew().ok());
  const absl::Time expires = session_.token_expires();
  for (const char* text : {"", " \n", "<html>\nlog in</html>", "a\r\nInjected: yes"})
    EXPECT_FALSE(session_.TakeToken(text, {}, imds_.now + absl::Hours(1)).ok()) << text;
  EXPECT_FALSE(session_.TakeToken(std::string(40'000, 'a'), {}, imds_.now).ok());
  EXPECT_EQ(session_.token_expires(), expires) << "the old token stays";
}

TEST_F(ImdsSessionTest, ALifetimeThatMakesNoSenseIsNotBelieved) {
  for (const char* text : {"", "soon", "99999999", "9223372036854775807"}) {
    HttpHeaders headers;
    headers.Add("X-aws-ec2-metadata-token-ttl-seconds", text);
    ASSERT_TRUE(session_.TakeToken("t\n", headers, imds_.now).ok());
    EXPECT_EQ(session_.token_expires(), imds_.now + absl::Hours(6)) << text;
  }
  EXPECT_EQ(session_.ReadRequest(kDocument).head.headers.Find("x-aws-ec2-metadata-token"), "t");
}

TEST_F(ImdsSessionTest, TheServiceMayLieBelowAPath) {
  const ImdsSession session({.server = {"h", 9, false}, .base_path = "/imds/i-1"});
  EXPECT_EQ(session.TokenRequest().head.target, "/imds/i-1/latest/api/token");
  EXPECT_EQ(session.ReadRequest(kDocument).head.target, "/imds/i-1/latest/meta-data/instance-id");
  EXPECT_EQ(session.ReadRequest(kDocument).endpoint, (HttpEndpoint{"h", 9, false}));
}

}  // namespace
}  // namespace millrace
