#include "s3/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "s3/testing/exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

ScriptedAnswer XmlAnswer(std::string body) {
  return {.status = 200, .headers = {}, .body = std::move(body)};
}

class ListExchangesTest : public ExchangeTest {
 protected:
  absl::StatusOr<BucketPage> Buckets(ExchangeDriver::Store store, const std::string& continuation = "") {
    return Run<absl::StatusOr<BucketPage>>(std::move(store), [&](S3Context& context, auto done) {
      return NewListBucketsExchange(context, continuation, std::move(done));
    });
  }
  absl::StatusOr<UploadPage> Uploads(ExchangeDriver::Store store, const std::string& prefix, UploadMarker after = {}) {
    return Run<absl::StatusOr<UploadPage>>(std::move(store), [&](S3Context& context, auto done) {
      return NewListUploadsExchange(context, "bucket", prefix, after, std::move(done));
    });
  }
};

TEST_F(ListExchangesTest, Buckets) {
  const auto page = Buckets(InTurn(
      {XmlAnswer("<ListAllMyBucketsResult><Owner><ID>me</ID></Owner><Buckets><Bucket><Name>one</Name><CreationDate>"
                 "2009-10-12T17:50:30.000Z</CreationDate></Bucket><Bucket><Name>two</Name></Bucket></Buckets>"
                 "<ContinuationToken>next</ContinuationToken></ListAllMyBucketsResult>")}));
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_THAT(page->buckets, SizeIs(2));
  EXPECT_EQ(page->buckets[0].name, "one");
  EXPECT_EQ(page->buckets[0].created_ms, 1'255'369'830'000);
  EXPECT_EQ(page->buckets[1].created_ms, 0);
  EXPECT_EQ(page->continuation, "next");
  EXPECT_EQ(requests_[0].head.method, "GET");
  EXPECT_EQ(requests_[0].head.target, "/");
}

TEST_F(ListExchangesTest, BucketsOfAnEndpointBelowAPathAndOfAws) {
  const auto empty = InTurn({XmlAnswer("<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>")});
  S3Config config = TestS3Config();
  config.endpoint_url = "http://host:1/base";
  Use(config);
  EXPECT_THAT(Buckets(empty)->buckets, IsEmpty());
  EXPECT_EQ(requests_[0].head.target, "/base/");
  config.endpoint_url = "";
  Use(config);
  EXPECT_TRUE(Buckets(empty, "a b").ok());
  EXPECT_EQ(requests_[0].endpoint.host, "s3.us-east-1.amazonaws.com");
  EXPECT_EQ(requests_[0].head.target, "/?continuation-token=a%20b");
}

TEST_F(ListExchangesTest, BucketsThatCannotBeListed) {
  const auto denied = Buckets(InTurn({Error(403, "AccessDenied")}));
  EXPECT_TRUE(absl::IsPermissionDenied(denied.status()));
  EXPECT_THAT(std::string(denied.status().message()), HasSubstr("the buckets of http://"));
  EXPECT_FALSE(Buckets(InTurn({XmlAnswer("<html/>")})).ok());
  EXPECT_EQ(requests_.size(), 3u);
  const std::string again =
      "<ListAllMyBucketsResult><Buckets/><ContinuationToken>c</ContinuationToken></ListAllMyBucketsResult>";
  EXPECT_TRUE(Buckets(InTurn({XmlAnswer(again)}), "b").ok());
  EXPECT_TRUE(absl::IsDataLoss(Buckets(InTurn({XmlAnswer(again)}), "c").status()));
}

std::string UploadsXml(const std::string& inside) {
  return "<ListMultipartUploadsResult>" + inside + "</ListMultipartUploadsResult>";
}

TEST_F(ListExchangesTest, Uploads) {
  const auto page = Uploads(
      InTurn({XmlAnswer(UploadsXml("<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextKeyMarker>p/b+c"
                                   "</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker><Upload><Key>p/a%2B</Key>"
                                   "<UploadId>1</UploadId><Initiated>2009-10-12T17:50:30.000Z</Initiated></Upload>"
                                   "<Upload><Key>p/b+c</Key><UploadId>2</UploadId></Upload>"))}),
      "p/", {.key = "p/a", .upload_id = "0"});
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_THAT(page->uploads, SizeIs(2));
  EXPECT_EQ(page->uploads[0].key, "p/a+");
  EXPECT_EQ(page->uploads[0].upload_id, "1");
  EXPECT_EQ(page->uploads[0].begun_ms, 1'255'369'830'000);
  EXPECT_TRUE(page->more);
  EXPECT_EQ(page->next, (UploadMarker{.key = "p/b c", .upload_id = "2"}));
  EXPECT_EQ(requests_[0].head.target,
            "/bucket?uploads=&max-uploads=1000&prefix=p%2F&key-marker=p%2Fa&upload-id-marker=0");
}

TEST_F(ListExchangesTest, UploadsOutsideThePrefixAreRefused) {
  const auto page =
      Uploads(InTurn({XmlAnswer(UploadsXml("<Upload><Key>other</Key><UploadId>1</UploadId></Upload>"))}), "p/");
  EXPECT_TRUE(absl::IsDataLoss(page.status()));
  EXPECT_THAT(std::string(page.status().message()), HasSubstr("\"other\""));
}

TEST_F(ListExchangesTest, PagesOfUploadsMustGoOn) {
  const auto next = [](const std::string& key, const std::string& id) {
    return InTurn({XmlAnswer(UploadsXml("<IsTruncated>true</IsTruncated><NextKeyMarker>" + key +
                                        "</NextKeyMarker><NextUploadIdMarker>" + id + "</NextUploadIdMarker>"))});
  };
  const UploadMarker after{.key = "k", .upload_id = "1"};
  EXPECT_TRUE(Uploads(next("k", "0"), "", after).ok());  // by time, not by id
  EXPECT_TRUE(Uploads(next("l", "1"), "", after).ok());
  EXPECT_TRUE(absl::IsDataLoss(Uploads(next("k", "1"), "", after).status()));
  EXPECT_TRUE(absl::IsDataLoss(Uploads(next("j", "1"), "", after).status()));
}

TEST_F(ListExchangesTest, AnswersThatAreNoListOfUploads) {
  for (const char* body : {"<Upload><Key>a</Key></Upload>", "<Upload><UploadId>1</UploadId></Upload>",
                           "<IsTruncated>true</IsTruncated>"}) {
    EXPECT_FALSE(Uploads(InTurn({XmlAnswer(UploadsXml(body))}), "").ok()) << body;
    EXPECT_EQ(requests_.size(), 3u);
  }
  EXPECT_TRUE(absl::IsNotFound(Uploads(InTurn({Error(404, "NoSuchBucket")}), "").status()));
}

// ---- Tags

class TagsExchangeTest : public ExchangeTest {
 protected:
  absl::StatusOr<ObjectTags> Tags(ExchangeDriver::Store store) {
    return Run<absl::StatusOr<ObjectTags>>(std::move(store), [](S3Context& context, auto done) {
      return NewTagsExchange(context, "bucket", "key", std::move(done));
    });
  }
};

TEST_F(TagsExchangeTest, ReadsThemInTheStoresOrder) {
  const auto tags = Tags(InTurn(
      {{.status = 200,
        .headers = {},
        .body = "<Tagging><TagSet><Tag><Key>team</Key><Value>a &amp; b</Value></Tag><Tag><Key>empty</Key><Value/>"
                "</Tag></TagSet></Tagging>"}}));
  ASSERT_TRUE(tags.ok()) << tags.status();
  EXPECT_THAT(*tags, ElementsAre(Pair("team", "a & b"), Pair("empty", "")));
  EXPECT_EQ(requests_[0].head.method, "GET");
  EXPECT_EQ(requests_[0].head.target, "/bucket/key?tagging=");
}

TEST_F(TagsExchangeTest, AStoreWithoutTagsHasNone) {
  for (const ScriptedAnswer& answer :
       {Error(404, "NoSuchTagSet"), Error(501, "NotImplemented"), Error(405, "MethodNotAllowed"),
        ScriptedAnswer{.status = 200, .headers = {}, .body = "<Tagging><TagSet/></Tagging>"},
        ScriptedAnswer{.status = 200, .headers = {}, .body = ""}}) {
    const auto tags = Tags(InTurn({answer}));
    ASSERT_TRUE(tags.ok()) << tags.status();
    EXPECT_THAT(*tags, IsEmpty());
  }
}

TEST_F(TagsExchangeTest, WhatIsForbiddenIsAnError) {
  EXPECT_TRUE(absl::IsPermissionDenied(Tags(InTurn({Error(403, "AccessDenied")})).status()));
  EXPECT_TRUE(absl::IsNotFound(Tags(InTurn({Error(404, "NoSuchKey")})).status()));
}

TEST_F(TagsExchangeTest, AnAnswerThatIsNoTagsIsAskedForAgain) {
  const ScriptedAnswer odd = {.status = 200, .headers = {}, .body = "<html/>"};
  const ScriptedAnswer nameless = {
      .status = 200, .headers = {}, .body = "<Tagging><TagSet><Tag><Value>v</Value></Tag></TagSet></Tagging>"};
  const ScriptedAnswer good = {.status = 200, .headers = {}, .body = "<Tagging><TagSet/></Tagging>"};
  EXPECT_TRUE(Tags(InTurn({odd, nameless, good})).ok());
  EXPECT_EQ(requests_.size(), 3u);
}

}  // namespace
}  // namespace millrace
