#include "service/frame_buffers.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

namespace millrace {
namespace {

TEST(FrameBuffersTest, MemoryIsUsedAgain) {
  FrameBuffers buffers;
  std::shared_ptr<Buffer> first = buffers.Take(100'000);
  ASSERT_GE(first->size(), 100'000u);
  std::shared_ptr<Buffer> second = buffers.Take(100'000);
  EXPECT_NE(first->data(), second->data()) << "the first one is in use";
  const std::byte* const memory = first->data();
  first.reset();
  EXPECT_EQ(buffers.Take(99'000)->data(), memory);
  EXPECT_EQ(buffers.Take(110'000)->data(), memory) << "batches differ by some bytes";
}

TEST(FrameBuffersTest, TheSmallestThatFitsIsTaken) {
  FrameBuffers buffers;
  std::shared_ptr<Buffer> large = buffers.Take(1'000'000);
  std::shared_ptr<Buffer> small = buffers.Take(1'000);
  const std::byte* const memory = small->data();
  large.reset();
  small.reset();
  EXPECT_EQ(buffers.Take(500)->data(), memory);
  EXPECT_GE(buffers.Take(2'000'000)->size(), 2'000'000u);
}

TEST(FrameBuffersTest, NoMoreThanANumberAreKept) {
  FrameBuffers buffers(1);
  std::shared_ptr<Buffer> first = buffers.Take(100'000);
  std::shared_ptr<Buffer> second = buffers.Take(200'000);
  first.reset();
  second.reset();  // which would be large enough
  EXPECT_LT(buffers.Take(150'000)->size(), 200'000u);
}

TEST(FrameBuffersTest, BuffersOutliveTheirPool) {
  std::optional<FrameBuffers> buffers(std::in_place);
  const std::shared_ptr<Buffer> buffer = buffers->Take(10);
  buffers.reset();
  std::memset(buffer->data(), 1, buffer->size());
}

}  // namespace
}  // namespace millrace
