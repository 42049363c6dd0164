#include "base/buffer.h"

#include <cstdint>
#include <new>
#include <utility>

namespace millrace {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPage = 4096;
constexpr size_t kLarge = size_t{1} << 20;

}  // namespace

// This is not done by an aligned operator new: glibc (until 2.38) takes more from the heap than it gives back for
// these. A freed block then never holds the next one of its size. A process that continues with equal buffers grows to
// three times what it has in use.
Buffer::Buffer(size_t size) : size_(size) {
  if (size == 0) return;
  const size_t alignment = size >= kLarge ? kPage : kAlignment;
  block_ = ::operator new(size + alignment);
  const auto address = reinterpret_cast<uintptr_t>(block_);
  data_ = reinterpret_cast<std::byte*>((address + alignment - 1) / alignment * alignment);
}

Buffer::~Buffer() {
  ::operator delete(block_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : block_(std::exchange(other.block_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(block_, other.block_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace millrace
