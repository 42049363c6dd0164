// One suite tests unfinished uploads of both storages.

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>
#include <utility>

#include "base/rng.h"
#include "devstore/storage.h"
#include "devstore/testing/upload_test.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

class AnyUploadTest : public UploadTest, public ::testing::WithParamInterface<bool> {
 protected:
  void Open() override {
    if (GetParam()) return UploadTest::Open();
    if (storage_ == nullptr) storage_ = MakeMemStorage(64 << 20);  // does not survive: nothing to open again
  }
};

INSTANTIATE_TEST_SUITE_P(Storages, AnyUploadTest, ::testing::Bool(),
                         [](const auto& param_info) { return param_info.param ? "Folder" : "Memory"; });

TEST_P(AnyUploadTest, PartsMayComeAtOnceAndInAnyOrder) {
  std::vector<int> numbers(12);
  std::iota(numbers.begin(), numbers.end(), 1);
  std::map<int, std::string> parts;
  std::string whole;
  for (const int n : numbers) {
    parts[n] = Bytes(n == 12 ? 7 : kPart, static_cast<uint64_t>(n));
    whole += parts[n];
  }
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (const int first : {4, 3, 2, 1}) {
    threads.emplace_back([&, first] {
      for (int n = first; n <= 12; n += 4) failed += PutPart(n, parts[n]).ok() ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(failed, 0);
  ExpectParts(parts);
  Open();
  ExpectParts(parts);
  ASSERT_TRUE(Complete(numbers).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == whole);
}

TEST_P(AnyUploadTest, APartThatIsDroppedChangesNoOther) {
  const std::map<int, std::string> parts = {{1, Bytes(kPart, 1)}, {2, Bytes(kPart, 2)}, {3, Bytes(kPart, 3)}};
  for (const auto& [number, text] : parts) ASSERT_TRUE(PutPart(number, text).ok());
  for (int number = 1; number <= 5; ++number) {
    const std::string text = Bytes(kPart, 99);
    Written(text);  // e.g. its checksum was wrong
    auto writer = storage_->NewBlob(kPart);
    ASSERT_TRUE((*writer)->Append(AsBytes(text.substr(0, kPart / 2))).ok());  // cut
  }
  ExpectParts(parts);
  ASSERT_TRUE(Complete({1, 2, 3}).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == parts.at(1) + parts.at(2) + parts.at(3));
}

TEST_P(AnyUploadTest, ReadersOfAReplacedPartGoOn) {
  const std::string old = Bytes(kPart, 1);
  ASSERT_TRUE(PutPart(1, old).ok());
  ASSERT_TRUE(PutPart(2, "end").ok());
  const auto joined = Join({1, 2});
  ASSERT_TRUE(joined.ok()) << joined.status();
  const std::string replacement = Bytes(kPart, 2);
  ASSERT_TRUE(PutPart(1, replacement).ok());
  EXPECT_TRUE(Text(**joined) == old + "end");
  ExpectParts({{1, replacement}, {2, "end"}});
  ASSERT_TRUE(Complete({1, 2}).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == replacement + "end");
  EXPECT_TRUE(Text(**joined) == old + "end");
}

TEST_P(AnyUploadTest, TheSamePartTwiceAtOnce) {
  const std::string first = Bytes(kPart, 1);
  const std::string second = Bytes(kPart, 2);
  const auto one = Written(first);
  const auto two = Written(second);
  ASSERT_TRUE(Store(1, two, second).ok());
  ExpectParts({{1, second}});
  ASSERT_TRUE(Store(1, one, first).ok());
  ExpectParts({{1, first}});
  Open();
  ExpectParts({{1, first}});
  ASSERT_TRUE(Complete({1}).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == first);
}

TEST_P(AnyUploadTest, AVetoedCompleteLeavesTheUploadAsItWas) {
  std::map<int, std::string> parts = {{1, Bytes(kPart, 1)}, {2, Bytes(kPart, 2)}};
  for (const auto& [number, text] : parts) ASSERT_TRUE(PutPart(number, text).ok());
  const auto veto = [](const ObjectRecord*) { return PreconditionFailed("If-Match"); };
  EXPECT_EQ(CodeOf(PutJoined({1, 2}, veto)), "PreconditionFailed");
  EXPECT_EQ(CodeOf(PutJoined({1}, veto)), "PreconditionFailed");
  ExpectParts(parts);
  parts[3] = Bytes(kPart, 3);
  parts[2] = Bytes(kPart - 1, 4);
  ASSERT_TRUE(PutPart(3, parts[3]).ok());
  ASSERT_TRUE(PutPart(2, parts[2]).ok());
  ExpectParts(parts);
  ASSERT_TRUE(Complete({1, 2, 3}).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == parts[1] + parts[2] + parts[3]);
}

TEST_P(AnyUploadTest, AnObjectIsNotChangedByWhatComesLater) {
  const std::string one = Bytes(kPart, 1);
  ASSERT_TRUE(PutPart(1, one).ok());
  const std::string text = Bytes(kPart, 9);
  auto in_flight = storage_->NewBlob(kPart);  // begun before, goes on after
  ASSERT_TRUE((*in_flight)->Append(AsBytes(text.substr(0, 10))).ok());
  ASSERT_TRUE(PutJoined({1}).ok());
  ASSERT_TRUE((*in_flight)->Append(AsBytes(text.substr(10))).ok());
  ASSERT_TRUE(Store(2, *(*in_flight)->Finish(), text).ok());
  for (const int number : {1, 2, 3}) ASSERT_TRUE(PutPart(number, text).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one);
  Open();
  for (const int number : {1, 2, 3, 4}) ASSERT_TRUE(PutPart(number, text).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one);
  ExpectParts({{1, text}, {2, text}, {3, text}, {4, text}});
  ASSERT_TRUE(storage_->RemoveUpload(id_).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one);
}

TEST_P(AnyUploadTest, AnObjectIsNotChangedByWhatReplacesItsParts) {
  const std::string one = Bytes(kPart, 1);
  ASSERT_TRUE(PutPart(1, one).ok());
  ASSERT_TRUE(PutJoined({1}).ok());
  const std::string text = Bytes(kPart, 9);
  Written(text);
  ASSERT_TRUE(PutPart(2, text).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one);
  EXPECT_EQ((*storage_->Describe("bucket", "k"))->etag, "etag-2");
  ASSERT_TRUE(PutPart(1, text).ok());
  Open();  // nothing says any more that the object's bytes were a part
  ASSERT_TRUE(PutPart(2, text).ok());
  ASSERT_TRUE(PutPart(1, text).ok());
  EXPECT_TRUE(*Get(*storage_, "bucket", "k") == one);
  ExpectParts({{1, text}, {2, text}});
}

TEST_P(AnyUploadTest, ManyCompletesAtOnce) {
  for (int round = 0; round < 20; ++round) {
    Begin();
    const std::string one = Bytes(5000, 1);
    const std::string two = Bytes(4000, 2);
    ASSERT_TRUE(PutPart(1, one).ok());
    ASSERT_TRUE(PutPart(2, two).ok());
    std::atomic<int> stored{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const auto upload = storage_->FindUpload("bucket", "k", id_);
        if (!upload.ok()) return;
        // One of them leaves a part out.
        std::vector<std::shared_ptr<const Content>> contents = {upload->parts.at(1).content};
        if (t > 0) contents.push_back(upload->parts.at(2).content);
        auto whole = storage_->Concatenate(contents);
        if (!whole.ok()) return;
        ObjectAttributes attributes;
        attributes.content_type = t > 0 ? "both" : "one";
        if (storage_->Put("bucket", "k", *std::move(whole), attributes, "e-2", Any).ok()) ++stored;
        const auto read = Get(*storage_, "bucket", "k");
        EXPECT_TRUE(read.ok() && (*read == one || *read == one + two));
        storage_->RemoveUpload(id_).IgnoreError();
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_GT(stored, 0);
    const auto record = storage_->Describe("bucket", "k");
    ASSERT_EQ((*record)->etag, "e-2");  // the record is of the file that is there
    EXPECT_TRUE(*Get(*storage_, "bucket", "k") == ((*record)->attributes.content_type == "one" ? one : one + two));
    EXPECT_EQ(CodeOf(storage_->RemoveUpload(id_)), "NoSuchUpload");
  }
}

/// Random parts, sent, cut, replaced and completed, beside a map that says what must be there.
TEST_P(AnyUploadTest, BehavesAsAMapDoes) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Begin();
    std::map<int, std::string> parts;
    std::vector<std::pair<int, std::string>> texts;  // of what is being written
    std::vector<std::unique_ptr<BlobWriter>> writers;
    std::string object;
    const bool mostly_even = rng.Below(4) != 0;
    for (int step = 0; step < 60; ++step) {
      const uint64_t what = rng.Below(20);
      if (what < 8) {
        const int number = static_cast<int>(1 + rng.Below(8));
        const size_t size = mostly_even && rng.Below(8) != 0 ? 4099 : rng.Below(9000);
        texts.emplace_back(number, Bytes(size, rng.Below(UINT64_MAX)));
        writers.push_back(*storage_->NewBlob(size));
        ASSERT_TRUE(writers.back()->Append(AsBytes(texts.back().second.substr(0, size / 2))).ok());
      } else if (what < 16 && !writers.empty()) {
        const size_t at = rng.Below(writers.size());
        const auto writer = std::exchange(writers[at], std::move(writers.back()));
        const auto [number, text] = std::exchange(texts[at], std::move(texts.back()));
        writers.pop_back();
        texts.pop_back();
        if (rng.Below(4) == 0) continue;  // cut
        ASSERT_TRUE(writer->Append(AsBytes(text.substr(text.size() / 2))).ok());
        std::shared_ptr<Content> content = *writer->Finish();
        if (rng.Below(4) == 0) continue;  // wrong checksum
        ASSERT_TRUE(Store(number, std::move(content), text).ok());
        parts[number] = text;
      } else if (what == 16) {
        writers.clear();
        texts.clear();
        Open();
      } else if (what < 19 && !parts.empty()) {
        std::vector<int> numbers;
        std::string whole;
        const bool all = rng.Below(2) == 0;
        for (const auto& [number, text] : parts) {
          if (!all && rng.Below(3) == 0) continue;
          numbers.push_back(number);
          whole += text;
        }
        if (numbers.empty()) continue;
        if (rng.Below(3) == 0) {
          const auto veto = [](const ObjectRecord*) { return PreconditionFailed("If-Match"); };
          ASSERT_EQ(CodeOf(PutJoined(numbers, veto)), "PreconditionFailed");
        } else {
          ASSERT_TRUE(PutJoined(numbers).ok());
          object = whole;
        }
      }
      ExpectParts(parts);
      if (!object.empty()) {
        ASSERT_TRUE(*Get(*storage_, "bucket", "k") == object);
        ASSERT_EQ((*storage_->Describe("bucket", "k"))->etag, "etag-2");
      }
    }
    writers.clear();
    ASSERT_TRUE(storage_->RemoveUpload(id_).ok());
  }
  if (GetParam()) {
    EXPECT_TRUE(fs::is_empty(folder_.path() + "/.devstore/uploads"));
    EXPECT_TRUE(fs::is_empty(folder_.path() + "/.devstore/tmp"));
  }
}

}  // namespace
}  // namespace millrace
