#include "s3/denial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

S3Denial Of(std::string_view verb, std::string_view message, std::string_view code = "AccessDenied") {
  return {.verb = verb, .code = code, .message = message, .bucket = "b", .key = verb == "LIST" ? "" : "k"};
}

TEST(S3Denial, EachOperationNeedsAnAction) {
  for (const auto& [verb, action] : std::vector<std::pair<std::string_view, std::string_view>>{
           {"GET", "s3:GetObject"},
           {"HEAD", "s3:GetObject"},
           {"LIST", "s3:ListBucket"},
           {"PUT", "s3:PutObject"},
           {"CopyObject", "s3:PutObject"},
           {"CreateMultipartUpload", "s3:PutObject"},
           {"CompleteMultipartUpload", "s3:PutObject"},
           {"UploadPart", "s3:PutObject"},
           {"DELETE", "s3:DeleteObject"},
           {"DeleteObjects", "s3:DeleteObject"},
           {"AbortMultipartUpload", "s3:AbortMultipartUpload"},
           {"GetObjectTagging", "s3:GetObjectTagging"},
       }) {
    EXPECT_EQ(PermissionOf(Of(verb, "Access Denied")), action);
    EXPECT_THAT(RemedyOfDenial(Of(verb, "Access Denied")), HasSubstr(std::string(action) + " on arn:aws:s3:::b"));
  }
  EXPECT_THAT(RemedyOfDenial({.verb = "LIST"}), HasSubstr("s3:ListAllMyBuckets"));
}

TEST(S3Denial, ThePolicyThatDeniesIsNamed) {
  const std::string begin =
      "User: arn:aws:iam::1:user/ann is not authorized to perform: s3:PutObject on resource: \"arn:aws:s3:::b/k\" "
      "with an explicit deny in a ";
  EXPECT_THAT(RemedyOfDenial(Of("PUT", begin + "service control policy")), HasSubstr("SCP"));
  EXPECT_THAT(RemedyOfDenial(Of("PUT", begin + "resource control policy")), HasSubstr("RCP"));
  EXPECT_THAT(RemedyOfDenial(Of("PUT", begin + "VPC endpoint policy")), HasSubstr("VPC endpoint denies s3:PutObject"));
  EXPECT_THAT(RemedyOfDenial(Of("PUT", begin + "permissions boundary")), HasSubstr("permissions boundary"));
  EXPECT_THAT(RemedyOfDenial(Of("PUT", begin + "session policy")), HasSubstr("session policy"));
  const std::string of_bucket = begin + "resource-based policy";
  EXPECT_THAT(RemedyOfDenial(Of("PUT", of_bucket)), HasSubstr("MILLRACE_S3_SSE=aws:kms"));
  S3Denial encrypted = Of("PUT", of_bucket);
  encrypted.encrypts = true;
  EXPECT_THAT(RemedyOfDenial(encrypted), Not(HasSubstr("MILLRACE_S3_SSE")));
  EXPECT_THAT(RemedyOfDenial(Of("GET", of_bucket)), Not(HasSubstr("MILLRACE_S3_SSE")));
}

TEST(S3Denial, KeysOfKms) {
  const std::string message =
      "User: arn:aws:iam::1:user/ann is not authorized to perform: kms:GenerateDataKey on resource: "
      "arn:aws:kms:eu-west-1:1:key/abc because no identity-based policy allows the kms:GenerateDataKey action";
  const std::string remedy = RemedyOfDenial(Of("PUT", message));
  EXPECT_THAT(remedy, HasSubstr("kms:GenerateDataKey on arn:aws:kms:eu-west-1:1:key/abc"));
  EXPECT_THAT(RemedyOfDenial(Of("GET", "The ciphertext refers to a customer master key that does not exist")),
              HasSubstr("kms:Decrypt"));
}

TEST(S3Denial, SettingsThatHelp) {
  EXPECT_THAT(RemedyOfDenial(Of("GET", "Access Denied")), HasSubstr("MILLRACE_S3_REQUESTER_PAYS=1"));
  S3Denial paying = Of("GET", "Access Denied");
  paying.requester_pays = true;
  EXPECT_THAT(RemedyOfDenial(paying), Not(HasSubstr("MILLRACE_S3_REQUESTER_PAYS")));
  S3Denial anonymous = Of("GET", "Access Denied");
  anonymous.anonymous = true;
  EXPECT_THAT(RemedyOfDenial(anonymous), HasSubstr("MILLRACE_S3_ANONYMOUS"));
  EXPECT_THAT(RemedyOfDenial(Of("GET", "", "SecondLevelDomainForbidden")), HasSubstr("addressing_style = virtual"));
  EXPECT_THAT(RemedyOfDenial(Of("GET", "", "AllAccessDisabled")), HasSubstr("check its name"));
  EXPECT_THAT(RemedyOfDenial(Of("DELETE", "Access Denied because object protected by object lock.")),
              HasSubstr("s3:BypassGovernanceRetention"));
  EXPECT_THAT(RemedyOfDenial(Of("HEAD", "", "")), HasSubstr("the object does not exist"));
}

}  // namespace
}  // namespace millrace
