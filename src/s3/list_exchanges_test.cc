#include "s3/list_exchanges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "s3/testing/exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ScriptedAnswer Answer(std::string body) {
  return {.status = 200, .headers = {}, .body = std::move(body)};
}

class ListExchangesTest : public ExchangeTest {
 protected:
  absl::StatusOr<BucketPage> Buckets(ExchangeDriver::Store store, const std::string& continuation = "") {
    return Run<absl::StatusOr<BucketPage>>(std::move(store), [&](S3Context& context, auto done) {
      return std::make_unique<ListBucketsExchange>(context, continuation, std::move(done));
    });
  }
  absl::StatusOr<UploadPage> Uploads(ExchangeDriver::Store store, const std::string& prefix, UploadMarker after = {}) {
    return Run<absl::StatusOr<UploadPage>>(std::move(store), [&](S3Context& context, auto done) {
      return std::make_unique<ListUploadsExchange>(context, "bucket", prefix, after, std::move(done));
    });
  }
};

TEST_F(ListExchangesTest, Buckets) {
  const auto page = Buckets(
      InTurn({Answer("<ListAllMyBucketsResult><Owner><ID>me</ID></Owner><Buckets><Bucket><Name>one</Name><CreationDate>"
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
  const auto empty = InTurn({Answer("<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>")});
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
  EXPECT_FALSE(Buckets(InTurn({Answer("<html/>")})).ok());
  EXPECT_EQ(requests_.size(), 3u);
  const std::string again =
      "<ListAllMyBucketsResult><Buckets/><ContinuationToken>c</ContinuationToken></ListAllMyBucketsResult>";
  EXPECT_TRUE(Buckets(InTurn({Answer(again)}), "b").ok());
  EXPECT_TRUE(absl::IsDataLoss(Buckets(InTurn({Answer(again)}), "c").status()));
}

std::string UploadsXml(const std::string& inside) {
  return "<ListMultipartUploadsResult>" + inside + "</ListMultipartUploadsResult>";
}

TEST_F(ListExchangesTest, Uploads) {
  const auto page = Uploads(
      InTurn({Answer(UploadsXml("<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextKeyMarker>p/b+c"
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
      Uploads(InTurn({Answer(UploadsXml("<Upload><Key>other</Key><UploadId>1</UploadId></Upload>"))}), "p/");
  EXPECT_TRUE(absl::IsDataLoss(page.status()));
  EXPECT_THAT(std::string(page.status().message()), HasSubstr("\"other\""));
}

TEST_F(ListExchangesTest, PagesOfUploadsMustGoOn) {
  const auto next = [](const std::string& key, const std::string& id) {
    return InTurn({Answer(UploadsXml("<IsTruncated>true</IsTruncated><NextKeyMarker>" + key +
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
    EXPECT_FALSE(Uploads(InTurn({Answer(UploadsXml(body))}), "").ok()) << body;
    EXPECT_EQ(requests_.size(), 3u);
  }
  EXPECT_TRUE(absl::IsNotFound(Uploads(InTurn({Error(404, "NoSuchBucket")}), "").status()));
}

}  // namespace
}  // namespace millrace
