#include "s3/bucket_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(BucketNames, ThoseOfAccessPoints) {
  for (const char* arn : {"arn:aws:s3:us-west-2:123456789012:accesspoint/my-point",
                          "arn:aws:s3:us-west-2:123456789012:accesspoint:my-point"}) {
    const absl::StatusOr<S3BucketName> name = ParseBucketName(arn);
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(name->kind, S3BucketName::Kind::kAccessPoint);
    EXPECT_EQ(name->label, "my-point-123456789012");
    EXPECT_EQ(name->region, "us-west-2");
    EXPECT_EQ(BucketResource(arn), "arn:aws:s3:us-west-2:123456789012:accesspoint/my-point");
    EXPECT_EQ(ObjectResource(arn, "a/b"), "arn:aws:s3:us-west-2:123456789012:accesspoint/my-point/object/a/b");
  }
  EXPECT_EQ(BucketResource("b"), "arn:aws:s3:::b");
  EXPECT_EQ(ObjectResource("b", "k"), "arn:aws:s3:::b/k");
}

TEST(BucketNames, ArnsThatAreRefusedSayWhatToWrite) {
  const auto why = [](const char* arn) { return std::string(ParseBucketName(arn).status().message()); };
  EXPECT_THAT(why("arn:aws:s3:::bucket"), HasSubstr("write s3://bucket"));
  EXPECT_THAT(why("arn:aws:s3-object-lambda:us-west-2:123456789012:accesspoint/x"), HasSubstr("Object Lambda"));
  EXPECT_THAT(why("arn:aws:s3::123456789012:accesspoint/x.mrap"), HasSubstr("SigV4A"));
  EXPECT_THAT(why("arn:aws:s3-outposts:us-west-2:123456789012:outpost/op-1/accesspoint/x"), HasSubstr("Outposts"));
  EXPECT_THAT(why("arn:aws:s3express:us-west-2:123456789012:bucket/x--usw2-az1--x-s3"), HasSubstr("s3://NAME"));
  for (const char* arn :
       {"arn:", "arn:aws:s3", "arn:aws:ec2:us-west-2:123456789012:accesspoint/x",
        "arn:a?b:s3:us-west-2:123456789012:accesspoint/x", "arn:aws:s3:us-west-2:123456789012:accesspoint/",
        "arn:aws:s3:us-west-2::accesspoint/x", "arn:aws:s3:evil.example/:123456789012:accesspoint/x",
        "arn:aws:s3:us-west-2:123456789012:accesspoint/a.b", "arn:aws:s3:us-west-2:123456789012:accesspoint/a/b",
        "arn:aws:s3:us-west-2:123456789012:bucket/a"}) {
    EXPECT_THAT(why(arn), HasSubstr("expected arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME")) << arn;
  }
}

TEST(BucketNames, TheArnEndsInFrontOfTheKey) {
  const auto arn = [](std::string_view text) { return CanonicalArn(text.substr(0, ArnLength(text))); };
  const std::string expected = "arn:aws:s3:r:1:accesspoint:x";
  for (const char* text :
       {"arn:aws:s3:r:1:accesspoint/x", "arn:aws:s3:r:1:accesspoint/x/", "arn:aws:s3:r:1:accesspoint/x/key/y",
        "arn:aws:s3:r:1:accesspoint:x", "arn:aws:s3:r:1:accesspoint:x/accesspoint/y"}) {
    EXPECT_EQ(arn(text), expected) << text;
  }
  EXPECT_EQ(arn("arn:aws:s3:::bucket/key"), "arn:aws:s3:::bucket");
  for (const char* text : {"arn:aws:s3:r:1:accesspoint/accesspoint/key", "arn:aws:s3:r:1:accesspoint:accesspoint/key"})
    EXPECT_EQ(arn(text), "arn:aws:s3:r:1:accesspoint:accesspoint");
}

TEST(BucketNames, ThoseOfDirectoryBuckets) {
  for (const char* bucket : {"data--usw2-az1--x-s3", "a--b--usw2-az1--x-s3", "point--usw2-az1--xa-s3"}) {
    const absl::StatusOr<S3BucketName> name = ParseBucketName(bucket);
    ASSERT_TRUE(name.ok()) << name.status();
    EXPECT_EQ(name->kind, S3BucketName::Kind::kDirectory) << bucket;
    EXPECT_EQ(name->zone, "usw2-az1") << bucket;
    EXPECT_TRUE(IsDirectoryBucket(bucket));
    EXPECT_EQ(ObjectResource(bucket, "k"), "arn:aws:s3express:*:*:bucket/" + std::string(bucket));
  }
  for (const char* bucket : {"data--x-s3", "data----x-s3", "--usw2-az1--x-s3", "da.ta--usw2-az1--x-s3"})
    EXPECT_THAT(std::string(ParseBucketName(bucket).status().message()), HasSubstr("NAME--ZONE--x-s3")) << bucket;
  for (const char* bucket : {"x-s3", "name-abc-s3alias", "my-s3", "--x-s3"}) EXPECT_FALSE(IsDirectoryBucket(bucket));
}

}  // namespace
}  // namespace millrace
