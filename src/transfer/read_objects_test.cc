#include "transfer/read_objects.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "store/blocking.h"
#include "store/memory_store.h"

namespace millrace {
namespace {

TEST(ReadObjects, ContentsComeInTheirOrderWhetherSizesAreKnown) {
  MemoryStore store("read-objects");
  MemoryBudget memory(uint64_t{64} << 20);
  std::vector<ObjectInfo> objects;
  std::vector<std::string> expected;
  for (int i = 0; i < 600; ++i) {
    const std::string key = "key" + std::to_string(i);
    // One of them is empty, and one has several pieces.
    expected.emplace_back(i == 7 ? 0 : i == 9 ? 9 << 20 : static_cast<size_t>(i), static_cast<char>('a' + i % 26));
    absl::StatusOr<ObjectInfo> put = PutBlocking(store, key, AsBytes(expected.back()));
    ASSERT_TRUE(put.ok());
    objects.push_back(i % 2 == 0 ? ObjectInfo{.key = key, .size = kUnknownSize} : *put);
  }
  const absl::StatusOr<std::vector<std::string>> read = ReadObjects(store, memory, objects);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, expected);
  EXPECT_EQ(memory.used(), 0U);

  objects[300].key = "none";
  EXPECT_TRUE(absl::IsNotFound(ReadObjects(store, memory, objects).status()));
  objects[300] = objects[301];
  objects[300].etag = "another";
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadObjects(store, memory, objects).status()));
}

}  // namespace
}  // namespace millrace
