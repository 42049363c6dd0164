#include "store/testing/contract.h"

#include <utility>

#include "base/rng.h"
#include "store/blocking.h"

namespace millrace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreContract);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreCopyContract);

std::string RandomText(size_t size, uint64_t seed) {
  Rng rng(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng.Next());
  return text;
}

void StoreContract::SetUp() {
  place_ = GetParam().make();
  ASSERT_NE(place_, nullptr);
  store_ = place_->Open();
  ASSERT_NE(store_, nullptr);
}

void StoreContract::TearDown() {
  store_.reset();
  place_.reset();
}

void StoreContract::PutText(const std::string& key, std::string_view text) {
  const auto put = PutBlocking(store(), key, AsBytes(text));
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(put->size, text.size());
  EXPECT_NE(put->etag, "");
}

std::string StoreContract::Contents(const std::string& key) {
  auto all = ReadAll(store(), key, uint64_t{1} << 30);
  return all.ok() ? *std::move(all) : "error: " + all.status().ToString();
}

absl::StatusOr<std::string> StoreContract::GetText(const std::string& key, ByteRange range, GetOptions options) {
  std::string text(range.length, '?');
  options.range = range;
  RETURN_IF_ERROR(GetBlocking(store(), key, AsWritableBytes(text), std::move(options)).status());
  return text;
}

std::vector<std::string> StoreContract::Keys(const std::string& prefix) {
  const auto all = ListAll(store(), prefix);
  EXPECT_TRUE(all.ok()) << all.status();
  std::vector<std::string> keys;
  if (all.ok()) {
    for (const ObjectInfo& object : *all) keys.push_back(object.key);
  }
  return keys;
}

}  // namespace millrace
