#include "pipeline/testing/token_pair.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/bytes.h"
#include "shard/testing/token_builder.h"
#include "store/blocking.h"

namespace millrace {

std::unique_ptr<Dataset> OpenTokenPair(Runtime& runtime, Stores& stores, const std::string& uri,
                                       const std::vector<uint32_t>& lengths) {
  std::string bin;
  std::vector<int64_t> documents;
  for (uint32_t document = 0; document < lengths.size(); ++document) {
    documents.push_back(document);
    for (uint32_t token = 0; token < lengths[document]; ++token) AppendLe(bin, 1 + (document << 20) + token);
  }
  documents.push_back(static_cast<int64_t>(lengths.size()));
  constexpr uint8_t kInt32 = 4;
  const std::string idx = testing::MegatronIdx(kInt32, sizeof(int32_t), {lengths.begin(), lengths.end()}, documents);
  const Location data = *stores.Open(uri);
  EXPECT_TRUE(PutBlocking(*data.store, "a.bin", AsBytes(bin)).ok());
  EXPECT_TRUE(PutBlocking(*data.store, "a.idx", AsBytes(idx)).ok());
  absl::StatusOr<std::unique_ptr<Dataset>> opened = Dataset::Open(runtime, stores, uri);
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : nullptr;
}

}  // namespace millrace
