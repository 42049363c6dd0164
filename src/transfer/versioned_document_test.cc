#include "transfer/versioned_document.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "store/blocking.h"
#include "store/file_store.h"
#include "store/testing/forwarding_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

// Some listings show nothing, as one in whose midst the only file was replaced.
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

}  // namespace
}  // namespace millrace
