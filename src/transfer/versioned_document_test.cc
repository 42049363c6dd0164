#include "transfer/versioned_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "store/blocking.h"
#include "store/file_store.h"
#include "store/s3_store.h"
#include "store/testing/devstore_bucket.h"
#include "store/testing/forwarding_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

// Some listings show nothing, like one during which the only file was replaced.
class RacyListings final : public ForwardingStore {
 public:
  explicit RacyListings(std::unique_ptr<ObjectStore> below) : ForwardingStore(std::move(below)) {}
  int empty = 0;
  int lists = 0;
  void List(ListOptions options, ListCallback done) override {
    ++lists;
    if (empty > 0) {
      --empty;
      return done(ListPage());
    }
    ForwardingStore::List(std::move(options), std::move(done));
  }
};

TEST(VersionedDocument, AListingThatShowsNothingIsNoProof) {
  TempFolder folder;
  RacyListings store(std::make_unique<FileStore>(folder.path()));
  const VersionedDocument document(store, "LATEST", 1000);
  ASSERT_TRUE(document.numbered());
  EXPECT_TRUE(document.Read({})->version.empty());
  EXPECT_GT(store.lists, 1);
  ASSERT_TRUE(document.Replace("one", "").ok());
  for (const int empty : {1, 2}) {
    store.empty = empty;
    const auto read = document.Read({});
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->text, "one") << empty;
    EXPECT_EQ(store.empty, 0);
  }
}

TEST(VersionedDocument, ABucketThatDoesNotExistIsNotOneWithoutTheDocument) {
  const DevstoreBucket bucket({});
  const auto client = bucket.NewClient();
  EXPECT_TRUE(VersionedDocument(client->store, "run-7/LATEST", 1000).Read({})->version.empty());
  S3Store missing(client->runtime, client->s3, "nobucket", "");
  const absl::Status status = VersionedDocument(missing, "run-7/LATEST", 1000).Read({}).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("s3://nobucket: LIST failed: the bucket does not"));
}

TEST(VersionedDocument, CredentialsNeedNotBeAllowedToList) {
  DevstoreOptions options;
  options.faults = {"GET bkt/run-7/ error=403:AccessDenied count=2"};  // the listings of the first two reads
  const DevstoreBucket bucket(std::move(options));
  const auto client = bucket.NewClient();
  const VersionedDocument document(client->store, "run-7/LATEST", 1000);
  ASSERT_TRUE(document.Read({}).ok());
  EXPECT_TRUE(document.Read({})->version.empty());
  ASSERT_TRUE(document.Replace("one", "").ok());
  EXPECT_EQ(document.Read({})->text, "one");
}

}  // namespace
}  // namespace millrace
