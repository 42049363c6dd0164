#include "channel/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::HasSubstr;

TEST(ParseChannel, TakesNameAndUri) {
  const absl::StatusOr<Channel> channel = ParseChannel("train=s3://bucket/data/");
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(channel->name, "train");
  EXPECT_EQ(channel->uri, "s3://bucket/data/");
  EXPECT_EQ(channel->content_type, "");
}

TEST(ParseChannel, TakesTheContractsDefaults) {
  const absl::StatusOr<Channel> channel = ParseChannel(
      "a.B-9_=/data,mode=File,type=S3Prefix,distribution=FullyReplicated,compression=None,wrapper=None,"
      "content-type=application/x-image");
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(channel->name, "a.B-9_");
  EXPECT_EQ(channel->uri, "/data");
  EXPECT_EQ(channel->content_type, "application/x-image");
}

TEST(ParseChannel, UrisMayHoldCommasAndEqualsSigns) {
  for (const char* uri : {"s3://b/a,b", "s3://b/x=1/y=2", "s3://b/a,year=2024/b", "/data/a,b=c/d"}) {
    const absl::StatusOr<Channel> channel = ParseChannel(std::string("train=") + uri + ",mode=File");
    ASSERT_TRUE(channel.ok()) << channel.status();
    EXPECT_EQ(channel->uri, uri);
  }
}

TEST(ParseChannel, RefusesWhatIsNone) {
  const std::string long_name(65, 'n');
  for (const std::string& text :
       std::vector<std::string>{"", "train", "=s3://b/p", "a b=s3://b/p", "..=s3://b/p", "a/b=s3://b/p",
                                long_name + "=s3://b/p", "train=", "train=,mode=File", "train=ftp://host/p",
                                "train=s3://b/p,mode=Files", "train=s3://b/p,colour=red", "train=s3://b/p,mode=file"}) {
    EXPECT_EQ(ParseChannel(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_THAT(ParseChannel("train=s3://b/p,colour=red").status().message(), HasSubstr("distribution"));
}

TEST(ParseChannel, TakesPipes) {
  const absl::StatusOr<Channel> channel = ParseChannel(
      "train=s3://b/m,mode=Pipe,type=AugmentedManifestFile,attributes=source-ref+label/x,wrapper=RecordIO,"
      "compression=Gzip,distribution=ShardedByS3Key,shuffle-seed=7,epochs=3");
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(channel->uri, "s3://b/m");
  EXPECT_EQ(channel->mode, ChannelMode::kPipe);
  EXPECT_EQ(channel->type, ChannelType::kAugmentedManifest);
  EXPECT_EQ(channel->attributes, (std::vector<std::string>{"source-ref", "label/x"}));
  EXPECT_TRUE(channel->recordio && channel->gzip && channel->sharded);
  EXPECT_EQ(channel->shuffle_seed, 7u);
  EXPECT_EQ(channel->epochs, 3u);
}

TEST(ParseChannel, RefusesWhatDoesNotGoTogether) {
  for (const char* options :
       {"compression=Gzip", "wrapper=RecordIO", "epochs=2", "type=AugmentedManifestFile,attributes=a",
        "mode=Pipe,attributes=a", "mode=Pipe,type=AugmentedManifestFile", "mode=Pipe,shuffle-seed=x",
        "mode=Pipe,type=AugmentedManifestFile,attributes=a++b", "mode=Pipe,epochs=0", "mode=Pipe,epochs=65",
        "mode=Pipe,type=AugmentedManifestFile,attributes=1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16+17"}) {
    const absl::Status status = ParseChannel(std::string("train=s3://b/p,") + options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << options;
    EXPECT_THAT(status.message(), HasSubstr("channel train")) << options;
  }
}

}  // namespace
}  // namespace millrace
