#include "pipeline/sample_digest.h"

#include <gtest/gtest.h>

#include <array>

namespace millrace {
namespace {

// Computes the digest by its definition, a second time and the slow way.
Uint128 ByTheBook(uint64_t epoch, uint64_t position, const std::string& key,
                  const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string all;
  AppendLe(all, epoch);
  AppendLe(all, position);
  AppendLe(all, uint64_t{key.size()});
  all += key;
  for (const auto& [name, bytes] : fields) {
    AppendLe(all, uint64_t{name.size()});
    all += name;
    AppendLe(all, uint64_t{bytes.size()});
    all += bytes;
  }
  Xxh3Stream stream;
  stream.Update(AsBytes(all));
  return stream.Digest();
}

TEST(SampleHasher, FollowsTheDefinition) {
  IndexedSample sample;
  sample.key = "cats/0001";
  sample.fields = {{.name = "cls", .inline_text = "3", .is_inline = true}, {.name = "jpg", .offset = 2, .length = 4}};
  SampleHasher hasher;
  const Uint128 expected = ByTheBook(1, 42, "cats/0001", {{"cls", "3"}, {"jpg", "JPEG"}});
  EXPECT_EQ(*hasher.Hash(1, 42, sample, AsBytes("..JPEG..")), expected);
  EXPECT_EQ(*hasher.Hash(1, 42, sample, AsBytes("..JPEG..")), expected);  // no state is left behind
  EXPECT_NE(*hasher.Hash(0, 42, sample, AsBytes("..JPEG..")), expected);
  EXPECT_EQ(
      *hasher.Hash(1, 42, sample, AsBytes("..JPEG.."), std::array{SampleHasher::Decoded{"jpg", AsBytes("pixels")}}),
      ByTheBook(1, 42, "cats/0001", {{"cls", "3"}, {"jpg", "pixels"}}));
}

}  // namespace
}  // namespace millrace
