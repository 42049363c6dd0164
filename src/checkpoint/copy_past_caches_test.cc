#include "checkpoint/copy_past_caches.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/rng.h"

namespace millrace {
namespace {

// The bytes lie at any place within a line of the caches, and are of any length around some lines; nothing beside them
// changes.
TEST(CopyPastCaches, CopiesJustTheBytes) {
  std::string text(1000, '\0');
  Rng rng(7);
  for (char& c : text) c = static_cast<char>(rng.Next());
  for (size_t size = 0; size < 300; size += size < 140 ? 1 : 13) {
    for (const size_t from : {0, 1, 16, 63}) {
      for (size_t to = 0; to < 64; to += to < 18 ? 1 : 9) {
        std::string copy(1000, '?');
        std::string expected = copy;
        expected.replace(to, size, text, from, size);
        CopyPastCaches(AsWritableBytes(copy).subspan(to, size), AsBytes(text).subspan(from, size));
        ASSERT_EQ(copy, expected) << size << " from " << from << " to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace millrace
