#include "s3/xml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;

/// This is from the AWS documentation, "ListObjectsV2", with one more object and an encoding.
constexpr std::string_view kAwsListing = R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>bucket</Name><Prefix/><KeyCount>2</KeyCount><MaxKeys>3</MaxKeys><EncodingType>url</EncodingType>
  <IsTruncated>true</IsTruncated><NextContinuationToken>1ueGcx+/=</NextContinuationToken>
  <Contents><Key>my+image%2B%E2%82%AC.jpg</Key><LastModified>2009-10-12T17:50:30.500Z</LastModified>
    <ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</Size><StorageClass>STANDARD</StorageClass></Contents>
  <Contents><Key>a%2Fb</Key><LastModified>2009-10-12T17:50:30Z</LastModified><ETag>"x-2"</ETag><Size>0</Size></Contents>
  <CommonPrefixes><Prefix>photos%2F2006%2F</Prefix></CommonPrefixes>
</ListBucketResult>)";

TEST(ParseListXml, TheFormOfAws) {
  const auto page = ParseListXml(kAwsListing);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->objects.size(), 2u);
  EXPECT_EQ(page->objects[0].key, "a/b");  // sorted
  EXPECT_EQ(page->objects[0].etag, "x-2");
  EXPECT_EQ(page->objects[0].size, 0u);
  EXPECT_EQ(page->objects[1].key, "my image+€.jpg");
  EXPECT_EQ(page->objects[1].etag, "fba9dede5f27731c9771645a39863328");
  EXPECT_EQ(page->objects[1].size, 434234u);
  EXPECT_EQ(page->objects[1].modified_ms, 1255369830500);
  EXPECT_THAT(page->common_prefixes, ElementsAre("photos/2006/"));
  EXPECT_EQ(page->continuation, "1ueGcx+/=");
}

TEST(ParseListXml, TheFormOfCeph) {
  const auto page = ParseListXml(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult "
      "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
      "<Prefix></Prefix><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>false</"
      "IsTruncated><Contents>"
      "<Key>a%20b%2B%01</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>1</"
      "Size></Contents>"
      "</ListBucketResult>");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->objects.at(0).key, "a b+\x01");
  EXPECT_EQ(page->continuation, "");
}

TEST(ParseListXml, WithoutAnEncodingNamesAreTakenAsTheyAre) {
  const auto page = ParseListXml(
      "<ListBucketResult><Contents><Key>a+%20&amp;  </Key><Size>1</Size></Contents>"
      "<Contents><Key> </Key><Size>2</Size></Contents></ListBucketResult>");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->objects[0].key, " ");
  EXPECT_EQ(page->objects[1].key, "a+%20&  ");
  EXPECT_EQ(page->objects[1].modified_ms, 0);
}

TEST(ParseListXml, AnEmptyPage) {
  const auto page = ParseListXml("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
  ASSERT_TRUE(page.ok());
  EXPECT_TRUE(page->objects.empty());
}

TEST(ParseListXml, TheTokenTellsWhetherThereIsMoreIfNothingElseDoes) {
  const auto continuation = [](const std::string& members) {
    return ParseListXml("<ListBucketResult>" + members + "</ListBucketResult>")->continuation;
  };
  const std::string token = "<NextContinuationToken>t</NextContinuationToken>";
  EXPECT_EQ(continuation(token), "t");
  EXPECT_EQ(continuation("<IsTruncated>True</IsTruncated>" + token), "t");
  EXPECT_EQ(continuation("<IsTruncated>false</IsTruncated>" + token), "");
  EXPECT_EQ(continuation(""), "");
}

class BadListing : public ::testing::TestWithParam<const char*> {};
TEST_P(BadListing, IsRefused) {
  EXPECT_EQ(ParseListXml(GetParam()).status().code(), absl::StatusCode::kInvalidArgument);
}
INSTANTIATE_TEST_SUITE_P(
    Documents, BadListing,
    ::testing::Values(
        "", "text", "<ListBucketResult>", "<html></html>", "<Error><Code>NoSuchBucket</Code></Error>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>1x</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>18446744073709551616</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key></Key><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>a%2</Key><Size>1</Size></Contents></"
        "ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><CommonPrefixes><Prefix>%</Prefix></CommonPrefixes></"
        "ListBucketResult>"));

TEST(ParseListXml, EveryTruncationIsRefused) {
  for (size_t size = 0; size < kAwsListing.size(); ++size) {
    EXPECT_FALSE(ParseListXml(kAwsListing.substr(0, size)).ok()) << size;
  }
}

TEST(ParseErrorXml, TakesWhatItNeeds) {
  const auto error = ParseErrorXml(
      "  \n<?xml version=\"1.0\"?>\n<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region "
      "&apos;us-east-1&apos; is "
      "wrong</Message><Region>eu-west-1</Region><RequestId>4442587FB7D0A2F9</RequestId></Error>");
  // Long operations send white space before the declaration to stay alive.
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "AuthorizationHeaderMalformed");
  EXPECT_EQ(error->message, "the region 'us-east-1' is wrong");
  EXPECT_EQ(error->region, "eu-west-1");
  EXPECT_EQ(error->request_id, "4442587FB7D0A2F9");
}

TEST(ParseErrorXml, OtherDocumentsAreNoErrors) {
  for (const char* text : {"", "oops", "<Error>", "<html><Error><Code>x</Code></Error></html>"})
    EXPECT_FALSE(ParseErrorXml(text)) << text;
}

TEST(Multipart, ResultsOfTheStore) {
  EXPECT_EQ(*ParseInitiateMultipartXml("<InitiateMultipartUploadResult><Bucket>b</Bucket><UploadId>VX/+=</UploadId></"
                                       "InitiateMultipartUploadResult>"),
            "VX/+=");
  EXPECT_EQ(*ParseCompleteMultipartResultXml(
                "\n\n<CompleteMultipartUploadResult><ETag>&quot;abc-2&quot;</ETag></CompleteMultipartUploadResult>"),
            "abc-2");
  EXPECT_FALSE(ParseInitiateMultipartXml("<InitiateMultipartUploadResult/>").ok());
  EXPECT_FALSE(
      ParseCompleteMultipartResultXml("<CompleteMultipartUploadResult><ETag/></CompleteMultipartUploadResult>").ok());
  EXPECT_FALSE(ParseCompleteMultipartResultXml("<Error/>").ok());
}

TEST(Multipart, TheRequestRoundTrips) {
  const std::vector<CompletedPart> parts = {
      {1, "abc", "", ""}, {2, "d&<\"e", "CRC32C", "4waSgw=="}, {10000, "f", "CRC64NVME", "rosUhgp5mIg="}};
  const auto parsed = ParseCompleteMultipartXml(WriteCompleteMultipartXml(parts));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, parts);
  EXPECT_TRUE(ParseCompleteMultipartXml(WriteCompleteMultipartXml({}))->empty());
}

TEST(Multipart, BadRequests) {
  for (const char* text :
       {"", "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part></CompleteMultipartUpload>",
        "<CompleteMultipartUpload><Part><PartNumber>x</PartNumber><ETag>a</ETag></Part></CompleteMultipartUpload>",
        "<CompleteMultipartUpload><Part><PartNumber>99999999999</PartNumber><ETag>a</ETag></Part></"
        "CompleteMultipartUpload>",
        "<Delete/>"}) {
    EXPECT_FALSE(ParseCompleteMultipartXml(text).ok()) << text;
  }
}

TEST(DeleteObjects, Requests) {
  const auto request = ParseDeleteObjectsXml(
      "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet><Object><Key>a&amp;b</Key></Object>"
      "<Object><Key>  </Key><VersionId>null</VersionId></Object></Delete>");
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(request->quiet);
  EXPECT_THAT(request->keys, ElementsAre("a&b", "  "));
  EXPECT_FALSE(ParseDeleteObjectsXml("<Delete/>")->quiet);
  EXPECT_FALSE(ParseDeleteObjectsXml("<Delete><Object/></Delete>").ok());
}

TEST(XmlWriter, NestsAndEscapes) {
  XmlWriter writer("Root");
  writer.Open("Outer");
  writer.Element("Text", "<a & \"b\">\x01\r\n");
  writer.Close();
  writer.Open("Left");
  writer.Element("Number", uint64_t{18446744073709551615u});
  EXPECT_EQ(
      std::move(writer).Finish(),
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Root xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Outer>"
      "<Text>&lt;a &amp; "
      "&quot;b&quot;&gt;?&#13;&#10;</Text></Outer><Left><Number>18446744073709551615</Number></Left></Root>");
}

TEST(XmlTime, RoundTrips) {
  EXPECT_EQ(FormatXmlTime(1255369830500), "2009-10-12T17:50:30.500Z");
  EXPECT_EQ(ParseXmlTime(FormatXmlTime(1255369830500)), 1255369830500);
  EXPECT_EQ(ParseXmlTime("yesterday"), 0);
}

TEST(DeleteObjects, EachKeyThatXmlCanCarryArrives) {
  for (const std::string key :
       {"plain", " ", "  two  ", "\t\r\n", "a\r\nb", "<&>\"']]>", "\x7f", "\xe2\x82\xac", "\xf0\x9f\x8c\x8a"}) {
    ASSERT_TRUE(XmlCanCarry(key)) << key;
    const auto request = ParseDeleteObjectsXml(WriteDeleteObjectsXml({.keys = {key}, .quiet = true}));
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_TRUE(request->quiet);
    EXPECT_THAT(request->keys, ElementsAre(key));
  }
  for (const std::string key :
       {"\x01", "a\x1f", "\xff", "\x80", "\xe2\x82", "\xc0\x80", "\xed\xbf\xbf", "\xef\xbf\xbe"}) {
    EXPECT_FALSE(XmlCanCarry(key));
  }
}

TEST(DeleteObjects, Results) {
  const auto errors = ParseDeleteResultXml(
      "<DeleteResult><Deleted><Key>a</Key></Deleted>"
      "<Error><Key>b&amp;</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>");
  ASSERT_TRUE(errors.ok()) << errors.status();
  ASSERT_EQ(errors->size(), 1u);
  EXPECT_EQ(errors->at(0).key, "b&");
  EXPECT_EQ(errors->at(0).code, "AccessDenied");
  EXPECT_FALSE(ParseDeleteResultXml("<Other/>").ok());
}

}  // namespace
}  // namespace millrace
