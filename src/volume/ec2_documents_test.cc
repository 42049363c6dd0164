#include "volume/ec2_documents.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

constexpr std::string_view kVolumes = R"(<?xml version="1.0" encoding="UTF-8"?>
<DescribeVolumesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>59dbff89-35bd-4eac-99ed-be587EXAMPLE</requestId>
  <volumeSet>
    <item>
      <volumeId>vol-1234567890abcdef0</volumeId><size>80</size><snapshotId/>
      <availabilityZone>us-east-1a</availabilityZone><status>in-use</status>
      <attachmentSet>
        <item><volumeId>vol-1234567890abcdef0</volumeId><instanceId>i-1</instanceId><device>/dev/sdh</device>
          <status>attached</status></item>
        <item><instanceId>i-0</instanceId><device>/dev/sdg</device><status>detached</status></item>
      </attachmentSet>
      <tagSet><item><key>millrace:volume</key><value>a &amp; b</value></item></tagSet>
      <volumeType>gp3</volumeType><iops>3000</iops><throughput>125</throughput>
    </item>
  </volumeSet>
  <nextToken>more</nextToken>
</DescribeVolumesResponse>)";

TEST(Ec2Documents, ReadsVolumes) {
  const auto page = ParseVolumes(kVolumes);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->next, "more");
  ASSERT_EQ(page->entries.size(), 1U);
  const Ec2Volume& volume = page->entries[0];
  EXPECT_EQ(volume.id, "vol-1234567890abcdef0");
  EXPECT_EQ(volume.zone, "us-east-1a");
  EXPECT_EQ(volume.state, "in-use");
  EXPECT_EQ(volume.size_gib, 80U);
  EXPECT_EQ(volume.iops, 3000U);
  EXPECT_EQ(volume.tags.at("millrace:volume"), "a & b");
  ASSERT_EQ(volume.attachments.size(), 1U);  // one that has ended is none
  EXPECT_EQ(volume.attachments[0].device, "/dev/sdh");
}

TEST(Ec2Documents, ReadsSnapshots) {
  const auto page = ParseSnapshots(
      "<DescribeSnapshotsResponse><snapshotSet><item><snapshotId>snap-1</snapshotId><volumeId>vol-1</volumeId>"
      "<status>pending</status><startTime>2026-11-28T21:40:07.250Z</startTime><progress>40%</progress></item>"
      "<item><snapshotId>snap-2</snapshotId><startTime>soon</startTime></item></snapshotSet>"
      "</DescribeSnapshotsResponse>");
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->entries.size(), 2U);
  EXPECT_EQ(page->entries[0].volume, "vol-1");
  EXPECT_EQ(page->entries[0].started, absl::FromUnixMillis(1795902007250));
  EXPECT_EQ(page->entries[1].started, absl::InfiniteFuture());  // it does not say
}

TEST(Ec2Documents, RefusesOtherAnswers) {
  EXPECT_FALSE(ParseVolumes("").ok());
  EXPECT_FALSE(ParseVolumes("<html>not EC2</html>").ok());
  EXPECT_FALSE(ParseSnapshots(kVolumes).ok());
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "<a>";
  for (int i = 0; i < 1000; ++i) deep += "</a>";
  EXPECT_FALSE(ParseVolumes(deep).ok());
}

TEST(Ec2Documents, TellsErrorsApart) {
  const auto code = [](std::string_view name, int status = 400) {
    const std::string xml = fmt::format(
        "<Response><Errors><Error><Code>{}</Code><Message>why</Message></Error></Errors><RequestID>1</RequestID></"
        "Response>",
        name);
    return Ec2Error("AttachVolume", status, xml).code();
  };
  EXPECT_EQ(code("UnauthorizedOperation", 403), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code("AuthFailure", 401), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(code("RequestLimitExceeded", 503), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code("VolumeLimitExceeded"), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(code("InvalidVolume.NotFound"), absl::StatusCode::kNotFound);
  EXPECT_EQ(code("InvalidVolume.ZoneMismatch"), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code("IncorrectState"), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(code("InvalidParameterValue"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Ec2Error("X", 502, "<html>").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Ec2Error("X", 404, "").code(), absl::StatusCode::kInvalidArgument);
  const absl::Status denied = Ec2Error(
      "AttachVolume", 403,
      "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>no</Message></Error></Errors></Response>");
  EXPECT_NE(denied.message().find("allow ec2:AttachVolume"), absl::string_view::npos) << denied;
}

TEST(Ec2Documents, WritesForms) {
  EXPECT_EQ(Ec2Body("CreateTags", {{"Tag.1.Key", "millrace:volume"}, {"Tag.1.Value", "a b&c=ä"}}),
            "Action=CreateTags&Version=2016-11-15&Tag.1.Key=millrace%3Avolume&Tag.1.Value=a%20b%26c%3D%C3%A4");
}

}  // namespace
}  // namespace millrace
