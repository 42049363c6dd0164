// These tests are of copies that the store makes by itself.

#include <gmock/gmock.h>

#include <atomic>

#include "store/blocking.h"
#include "store/completion.h"
#include "store/memory_store.h"
#include "store/testing/contract.h"

namespace millrace {

namespace {

absl::StatusOr<ObjectInfo> CopyBlocking(ObjectStore& store, const ObjectStore& from, ObjectInfo source, std::string key,
                                        CopyOptions options = {}) {
  Completion<absl::StatusOr<ObjectInfo>> copied;
  store.Copy(from, std::move(source), std::move(key), std::move(options), copied.Callback());
  return copied.Wait();
}

}  // namespace

TEST_P(StoreContract, CopiesOrSaysThatItDoesNot) {
  const MemoryStore stranger("stranger");
  EXPECT_FALSE(store().CopiesFrom(stranger));
  EXPECT_TRUE(absl::IsUnimplemented(CopyBlocking(store(), stranger, {.key = "a"}, "b").status()));
  if (store().CopiesFrom(store())) return;
  PutText("a", "text");
  EXPECT_TRUE(absl::IsUnimplemented(CopyBlocking(store(), store(), *HeadBlocking(store(), "a"), "b").status()));
  EXPECT_EQ(Contents("b").substr(0, 5), "error");
}

TEST_P(StoreCopyContract, CopiesKeepTheBytes) {
  for (const std::string& key : {std::string("plain"), std::string("a b/+%2F?versionId=x&y#z"), std::string("ü/日本"),
                                 std::string("=:@,$;'\"<>")}) {
    PutText(key, "bytes of " + key);
    std::atomic<uint64_t> moved{0};
    CopyOptions options;
    options.moved = [&moved](uint64_t bytes) { moved += bytes; };
    const auto copied = CopyBlocking(store(), store(), *HeadBlocking(store(), key), "to/" + key, std::move(options));
    ASSERT_TRUE(copied.ok()) << copied.status();
    EXPECT_EQ(Contents("to/" + key), "bytes of " + key);
    EXPECT_EQ(Contents(key), "bytes of " + key);
    EXPECT_EQ(copied->etag, HeadBlocking(store(), "to/" + key)->etag);
    EXPECT_EQ(copied->size, HeadBlocking(store(), "to/" + key)->size);
    EXPECT_EQ(moved, copied->size);
  }
  PutText("empty", "");
  ASSERT_TRUE(CopyBlocking(store(), store(), *HeadBlocking(store(), "empty"), "plain").ok());
  EXPECT_EQ(Contents("plain"), "") << "an older one is replaced";
}

TEST_P(StoreCopyContract, ACopyIsOfTheVersionThatWasSeen) {
  PutText("a", "one");
  const auto seen = HeadBlocking(store(), "a");
  PutText("a", "two");
  const absl::Status changed = CopyBlocking(store(), store(), *seen, "b").status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition) << changed;
  EXPECT_THAT(ToStd(changed.message()), ::testing::HasSubstr(store().Uri("a")));
  const absl::Status missing = CopyBlocking(store(), store(), {.key = "gone"}, "b").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_THAT(ToStd(missing.message()), ::testing::HasSubstr(store().Uri("gone")));
  EXPECT_NE(Contents("b"), "one") << "Ceph ignores the condition, and has copied the newer one";
}

TEST_P(StoreCopyContract, CopiesOfKeysThatCannotBeAreRefused) {
  PutText("a", "text");
  const std::string too_long(1025, 'x');
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>("a", ""), {"", "b"}, {"a", too_long}, {too_long, "b"}}) {
    const absl::Status status = CopyBlocking(store(), store(), {.key = from}, to).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

TEST_P(StoreCopyContract, ACopyReplacesNothingIfItMustNot) {
  PutText("a", "one");
  const auto copy = [&](const std::string& to) {
    return CopyBlocking(store(), store(), *HeadBlocking(store(), "a"), to, {.only_if_absent = true}).status();
  };
  EXPECT_TRUE(copy("b").ok());
  PutText("b", "theirs");
  const absl::Status exists = copy("b");
  EXPECT_EQ(exists.code(), absl::StatusCode::kAlreadyExists) << exists;
  EXPECT_EQ(Contents("b"), "theirs");
  PutText("b", "one");
  EXPECT_EQ(copy("b").code(), absl::StatusCode::kAlreadyExists) << "also of the same bytes";
  auto seen = *HeadBlocking(store(), "a");
  PutText("a", "changed");
  const absl::Status changed = CopyBlocking(store(), store(), seen, "c", {.only_if_absent = true}).status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition) << changed;
}

}  // namespace millrace
