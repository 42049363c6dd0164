#include "store/request_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/blocking.h"
#include "store/memory_store.h"

namespace millrace {
namespace {

RequestCounts All(uint64_t n) {
  return {.get = n, .head = n, .list = n, .put = n, .del = n, .retries = n, .hedges = n, .bytes_read = n};
}

TEST(RequestCounts, AddAndSubtractEachCount) {
  RequestCounts counts = All(3);
  counts += All(4);
  counts = counts - All(5);
  for (const uint64_t one :
       {counts.get, counts.head, counts.list, counts.put, counts.del, counts.retries, counts.hedges, counts.bytes_read})
    EXPECT_EQ(one, 2u);
}

TEST(StoreCounts, CountEachStoreOnce) {
  StoreCounts counts;
  MetricsText none;
  counts.Collect(&none);
  EXPECT_EQ(none.Text(), "");
  MemoryStore first("first");
  MemoryStore second("second");
  for (MemoryStore* store : {&first, &second, &second}) {
    counts.Add(*store);
    EXPECT_TRUE(PutBlocking(*store, "key", AsBytes("text"), {}).ok());
  }
  EXPECT_EQ(counts.Sum().put, 3u);
  EXPECT_EQ(counts.Sum().get, 0u);
  MetricsText text;
  counts.Collect(&text);
  EXPECT_THAT(text.Text(), ::testing::HasSubstr("millrace_store_requests_total{method=\"PUT\"} 3\n"));
}

}  // namespace
}  // namespace millrace
