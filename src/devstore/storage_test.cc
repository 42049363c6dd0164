// One suite serves for both storages.

#include "devstore/storage.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

#include "base/rng.h"
#include "devstore/etag_overrides.h"
#include "devstore/testing/storage_helpers.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class StorageTest : public ::testing::TestWithParam<bool> {
 protected:
  StorageTest() { Open(); }
  void Open() {
    storage_ = nullptr;
    if (GetParam()) {
      auto opened = OpenDirStorage(folder_.path());
      ASSERT_TRUE(opened.ok()) << opened.status();
      storage_ = *std::move(opened);
    } else {
      storage_ = MakeMemStorage(64 << 20);
    }
  }

  TempFolder folder_;
  std::unique_ptr<Storage> storage_;
};

INSTANTIATE_TEST_SUITE_P(Storages, StorageTest, ::testing::Bool(),
                         [](const auto& param_info) { return param_info.param ? "Folder" : "Memory"; });

TEST_P(StorageTest, Buckets) {
  EXPECT_EQ(CodeOf(storage_->CheckBucket("one")), "NoSuchBucket");
  EXPECT_TRUE(storage_->CreateBucket("one").ok());
  EXPECT_TRUE(storage_->CreateBucket("another").ok());
  EXPECT_EQ(CodeOf(storage_->CreateBucket("one")), "BucketAlreadyOwnedByYou");
  const auto buckets = storage_->Buckets();
  ASSERT_EQ(buckets->size(), 2u);
  EXPECT_EQ((*buckets)[0].name, "another");
  EXPECT_GT((*buckets)[0].created_s, 1'600'000'000);
  ASSERT_TRUE(Put(*storage_, "one", "deep/er/key", "x").ok());
  EXPECT_EQ(CodeOf(storage_->DeleteBucket("one")), "BucketNotEmpty");
  EXPECT_TRUE(storage_->Delete("one", "deep/er/key", Any).ok());
  EXPECT_TRUE(storage_->DeleteBucket("one").ok());
  EXPECT_EQ(CodeOf(storage_->DeleteBucket("one")), "NoSuchBucket");
  EXPECT_EQ(CodeOf(Put(*storage_, "one", "k", "x")), "NoSuchBucket");
  EXPECT_EQ(CodeOf(storage_->Open("one", "k").status()), "NoSuchBucket");
  EXPECT_EQ(CodeOf(storage_->Delete("one", "k", Any)), "NoSuchBucket");
  EXPECT_EQ(CodeOf(storage_->Walk("one").status()), "NoSuchBucket");
}

TEST_P(StorageTest, KeepsObjectsWithTheirAttributes) {
  ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
  ObjectAttributes attributes;
  attributes.content_type = "text/plain; charset=\"x\"";
  attributes.headers = {{"x-amz-meta-a", "1\xc3\xa9 %"}, {"cache-control", "no-cache"}};
  attributes.checksum = Checksum{ChecksumAlgorithm::kCrc32c, "4waSgw==", false};
  ASSERT_TRUE(Put(*storage_, "bucket", "folder/key", "hello", attributes).ok());
  const auto record = storage_->Describe("bucket", "folder/key");
  ASSERT_TRUE(record.ok());
  EXPECT_EQ((*record)->etag, "5d41402abc4b2a76b9719d911017c592");
  EXPECT_EQ((*record)->size, 5u);
  EXPECT_EQ((*record)->attributes.content_type, attributes.content_type);
  EXPECT_EQ((*record)->attributes.headers, attributes.headers);
  EXPECT_EQ((*record)->attributes.checksum->value, "4waSgw==");
  EXPECT_EQ(*Get(*storage_, "bucket", "folder/key"), "hello");
  EXPECT_EQ(CodeOf(Get(*storage_, "bucket", "folder").status()), "NoSuchKey");
  EXPECT_EQ(CodeOf(Get(*storage_, "bucket", "folder/key/x").status()), "NoSuchKey");
}

TEST_P(StorageTest, KeysAreNeverNormalised) {
  ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
  std::set<std::string> keys = {"a",
                                "a/",
                                "a//b",
                                "a/b",
                                "a/b/",
                                "a/b/c",
                                "..",
                                "../..",
                                "../../etc/passwd",
                                ".",
                                "./x",
                                "/",
                                "/x",
                                "//",
                                "a/../b",
                                "a/./b",
                                "x ",
                                " x",
                                "%2e%2e",
                                "a\\b",
                                "\x01\x7f",
                                std::string("nul\0x", 5),
                                std::string(300, 'n'),
                                "p/" + std::string(300, 'n') + "/q",
                                std::string(1024, 'k'),
                                "\xc3\xa9",
                                ".devstore",
                                ".devstore/meta/x"};
  for (const std::string& key : keys) ASSERT_TRUE(Put(*storage_, "bucket", key, "of " + key).ok()) << key;
  for (int round = 0; round < 2; ++round) {
    for (const std::string& key : keys) {
      const auto text = Get(*storage_, "bucket", key);
      ASSERT_TRUE(text.ok()) << key << " " << text.status();
      EXPECT_EQ(*text, "of " + key);
    }
    EXPECT_EQ(Keys(*storage_, "bucket"), std::vector<std::string>(keys.begin(), keys.end()));
    if (GetParam()) Open();  // a folder survives
    if (!GetParam()) break;
  }
  for (const std::string& key : keys) EXPECT_TRUE(storage_->Delete("bucket", key, Any).ok()) << key;
  EXPECT_EQ(Keys(*storage_, "bucket"), std::vector<std::string>());
  EXPECT_TRUE(storage_->DeleteBucket("bucket").ok());
  EXPECT_FALSE(fs::exists(folder_.path() + "/../etc"));
}

TEST_P(StorageTest, AReplacedObjectIsReadToItsEnd) {
  ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
  ASSERT_TRUE(Put(*storage_, "bucket", "k", "old").ok());
  const StoredObject old = *storage_->Open("bucket", "k");
  ASSERT_TRUE(Put(*storage_, "bucket", "k", "newer").ok());
  EXPECT_EQ(*Get(*storage_, "bucket", "k"), "newer");
  ASSERT_TRUE(storage_->Delete("bucket", "k", Any).ok());
  char text[3];
  ASSERT_TRUE(old.content->Read(0, {reinterpret_cast<std::byte*>(text), 3}).ok());
  EXPECT_EQ(std::string(text, 3), "old");
  EXPECT_EQ(old.record->size, 3u);
}

TEST_P(StorageTest, AVetoedWriteChangesNothing) {
  ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
  const auto veto = [](const ObjectRecord* existing) {
    return existing == nullptr ? absl::OkStatus() : PreconditionFailed("If-None-Match");
  };
  EXPECT_TRUE(storage_->Put("bucket", "k", Blob(*storage_, "1"), {}, "e1", veto).ok());
  EXPECT_EQ(CodeOf(storage_->Put("bucket", "k", Blob(*storage_, "2"), {}, "e2", veto).status()), "PreconditionFailed");
  EXPECT_EQ(CodeOf(storage_->Delete("bucket", "k", veto)), "PreconditionFailed");
  EXPECT_EQ(*Get(*storage_, "bucket", "k"), "1");
  EXPECT_EQ((*storage_->Describe("bucket", "k"))->etag, "e1");
  if (GetParam()) {
    EXPECT_TRUE(fs::is_empty(folder_.path() + "/.devstore/tmp"));
  }
}

TEST_P(StorageTest, OneOfManyRacingWritersWins) {
  ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const auto only_first = [](const ObjectRecord* existing) {
          return existing == nullptr ? absl::OkStatus() : PreconditionFailed("If-None-Match");
        };
        if (storage_->Put("bucket", fmt::format("k{}/x", i), Blob(*storage_, fmt::format("{}", t)), {}, "e", only_first)
                .ok())
          ++won;
        storage_->Open("bucket", "k0/x").IgnoreError();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(won, 25);
}

TEST_P(StorageTest, ContentsCanBeConcatenatedAndSliced) {
  ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
  std::string whole;
  std::vector<std::shared_ptr<const Content>> parts;
  for (const size_t size : {size_t{3'000'000}, size_t{1}, size_t{0}, size_t{1'500'000}}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i + whole.size()) * 2654435761u >> 11);
    parts.push_back(Blob(*storage_, text));
    whole += text;
  }
  const auto joined = storage_->Concatenate(parts);
  ASSERT_TRUE(joined.ok()) << joined.status();
  ASSERT_EQ((*joined)->size(), whole.size());
  for (const ByteRange range : {ByteRange{0, whole.size()}, ByteRange{2'999'999, 3}, ByteRange{1'048'576, 1'048'576},
                                ByteRange{whole.size() - 1, 1}, ByteRange{5, 0}}) {
    std::string text(range.length, '\0');
    ASSERT_TRUE((*joined)->Read(range.offset, AsWritableBytes(text)).ok());
    EXPECT_TRUE(text == whole.substr(range.offset, range.length));
    std::vector<ReplyStep> steps;
    (*joined)->AppendSteps(range, &steps);
    EXPECT_EQ(BodySize(steps), range.length);
  }
}

TEST_P(StorageTest, Uploads) {
  ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
  const auto create = [&](const std::string& bucket, const std::string& key) {
    Upload upload;
    upload.bucket = bucket;
    upload.key = key;
    upload.attributes.content_type = "x/y";
    upload.attributes.checksum = Checksum{ChecksumAlgorithm::kCrc32, "", true};
    return storage_->CreateUpload(upload);
  };
  EXPECT_EQ(CodeOf(create("none", "k").status()), "NoSuchBucket");
  const std::string id = *create("bucket", "a//k");
  const std::string other = *create("bucket", "b");
  const auto put_part = [&](int number, std::string_view text) {
    UploadPart part;
    part.etag = fmt::format("e-{}", text);
    part.checksum = Checksum{ChecksumAlgorithm::kCrc32, "NSRBwg==", false};
    return storage_->PutPart(id, number, Blob(*storage_, text), part);
  };
  ASSERT_TRUE(put_part(2, "two").ok());
  ASSERT_TRUE(put_part(1, "one").ok());
  ASSERT_TRUE(put_part(2, "TWO!").ok());  // sent again
  if (GetParam()) Open();                 // uploads in a folder survive
  const auto upload = storage_->FindUpload("bucket", "a//k", id);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(upload->attributes.content_type, "x/y");
  EXPECT_TRUE(upload->attributes.checksum->composite);
  ASSERT_EQ(upload->parts.size(), 2u);
  EXPECT_EQ(upload->parts.at(2).etag, "e-TWO!");
  EXPECT_EQ(upload->parts.at(2).content->size(), 4u);
  EXPECT_EQ(upload->parts.at(1).checksum->value, "NSRBwg==");
  EXPECT_EQ(CodeOf(storage_->FindUpload("bucket", "other", id).status()), "NoSuchUpload");
  EXPECT_EQ(CodeOf(storage_->FindUpload("bucket", "a//k", "../../x").status()), "NoSuchUpload");
  const auto listed = storage_->Uploads("bucket");
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].id, id);
  const auto whole = storage_->Concatenate({upload->parts.at(1).content, upload->parts.at(2).content});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ((*whole)->size(), 7u);
  EXPECT_TRUE(storage_->RemoveUpload(id).ok());
  EXPECT_EQ(CodeOf(storage_->RemoveUpload(id)), "NoSuchUpload");
  EXPECT_EQ(CodeOf(put_part(3, "late")), "NoSuchUpload");
  if (GetParam()) Open();
  EXPECT_EQ(storage_->Uploads("bucket").size(), 1u);
}

/// Returns what ListKeys should find, by brute force.
ListingPage Expected(const std::set<std::string>& keys, const ListingQuery& query) {
  ListingPage listing;
  std::string last_prefix;
  for (const std::string& key : keys) {
    if (key < query.from || !key.starts_with(query.prefix)) continue;
    const size_t at = query.delimiter.empty() ? std::string::npos : key.find(query.delimiter, query.prefix.size());
    const std::string prefix = at == std::string::npos ? "" : key.substr(0, at + query.delimiter.size());
    if (!prefix.empty() && prefix == last_prefix) continue;
    if (listing.keys.size() + listing.common_prefixes.size() == query.max_keys) {
      listing.truncated = query.max_keys > 0;
      return listing;
    }
    (prefix.empty() ? listing.keys : listing.common_prefixes).push_back(prefix.empty() ? key : prefix);
    last_prefix = prefix;
  }
  return listing;
}

TEST_P(StorageTest, ListsAsBruteForceDoes) {
  ASSERT_TRUE(storage_->CreateBucket("bucket").ok());
  Rng rng(5);
  std::set<std::string> keys;
  constexpr std::string_view kLetters = "ab/-0/";
  for (int i = 0; i < 300; ++i) {
    std::string key;
    const size_t length = 1 + rng.Below(7);
    for (size_t c = 0; c < length; ++c) key += kLetters[rng.Below(kLetters.size())];
    if (keys.insert(key).second) {
      ASSERT_TRUE(Put(*storage_, "bucket", key, "x").ok());
    }
  }
  const std::vector<std::string> all(keys.begin(), keys.end());
  for (int i = 0; i < 1000; ++i) {
    ListingQuery query;
    query.max_keys = rng.Below(20);
    if (rng.Below(2) == 0) query.delimiter = rng.Below(4) == 0 ? "a/" : "/";
    if (rng.Below(2) == 0) query.prefix = all[rng.Below(all.size())].substr(0, rng.Below(5));
    if (rng.Below(2) == 0) query.from = all[rng.Below(all.size())] + (rng.Below(2) == 0 ? "" : "a");
    auto walk = storage_->Walk("bucket");
    const auto listing = ListKeys(**walk, query);
    ASSERT_TRUE(listing.ok());
    const ListingPage expected = Expected(keys, query);
    ASSERT_EQ(listing->keys, expected.keys) << query.prefix << " from " << query.from;
    ASSERT_EQ(listing->common_prefixes, expected.common_prefixes);
    ASSERT_EQ(listing->truncated, expected.truncated);
    if (listing->truncated) {  // the next page goes on where this one ends
      ListingQuery rest = query;
      rest.max_keys = 10'000;
      ListingQuery next = rest;
      next.from = listing->next;
      const auto more = ListKeys(**storage_->Walk("bucket"), next);
      const ListingPage together = Expected(keys, rest);
      ASSERT_EQ(listing->keys.size() + more->keys.size(), together.keys.size());
      ASSERT_EQ(listing->common_prefixes.size() + more->common_prefixes.size(), together.common_prefixes.size());
    }
  }
}

TEST(MemStorage, IsBounded) {
  const auto storage = MakeMemStorage(3 << 20);
  ASSERT_TRUE(storage->CreateBucket("bucket").ok());
  ASSERT_TRUE(Put(*storage, "bucket", "a", std::string(2 << 20, 'x')).ok());
  auto writer = storage->NewBlob(uint64_t{1} << 40);  // takes no memory for what is only announced
  ASSERT_TRUE(writer.ok());
  const std::string text(2 << 20, 'y');
  const absl::Status full = (*writer)->Append(AsBytes(text));
  EXPECT_NE(full.message().find("is full"), absl::string_view::npos) << full;
  *writer = nullptr;
  ASSERT_TRUE(storage->Delete("bucket", "a", Any).ok());
  EXPECT_TRUE(Put(*storage, "bucket", "b", text).ok());
}

TEST(Listing, HelpersOfPages) {
  EXPECT_EQ(AfterMarker("a/", "", "/"), "a0");  // NextMarker was a common prefix
  EXPECT_EQ(AfterMarker("a/b", "", "/"), std::string("a/b\0", 4));
  EXPECT_EQ(AfterMarker("a/", "", ""), std::string("a/\0", 3));
  for (const std::string& from : {std::string(), std::string("k\0", 2), std::string("\xff/+ ")}) {
    EXPECT_EQ(DecodeContinuation(EncodeContinuation(from)), from);
  }
  EXPECT_EQ(DecodeContinuation(""), std::nullopt);
  EXPECT_EQ(DecodeContinuation("!!!"), std::nullopt);
  EXPECT_EQ(DecodeContinuation("MmFi"), std::nullopt);  // another version
  EXPECT_EQ(UrlEncodeName("a b/c+d\x01\xc3\xa9"), "a+b/c%2Bd%01%C3%A9");
}

TEST(ETagOverrides, LastUntilTheObjectIsWrittenAnew) {
  ETagOverrides overrides;
  EXPECT_EQ(overrides.Effective("b", "k", "e1"), "e1");
  overrides.Change("b/k");
  const std::string changed = overrides.Effective("b", "k", "e1");
  EXPECT_NE(changed, "e1");
  EXPECT_EQ(overrides.Effective("b", "k", "e1"), changed);
  EXPECT_EQ(overrides.Effective("b", "other", "e1"), "e1");
  overrides.Change("b/k");
  EXPECT_NE(overrides.Effective("b", "k", "e1"), changed);
  EXPECT_EQ(overrides.Effective("b", "k", "e2"), "e2");
  EXPECT_EQ(overrides.Effective("b", "k", "e1"), "e1");
  overrides.Change("b/m");
  EXPECT_TRUE(overrides.Effective("b", "m", "e-7").ends_with("-7"));
}

}  // namespace
}  // namespace millrace
