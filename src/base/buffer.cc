#include "base/buffer.h"

#include <new>
#include <utility>

namespace millrace {

namespace {
constexpr std::align_val_t kAlignment{64};
}

Buffer::Buffer(size_t size) : size_(size) {
  if (size > 0) data_ = static_cast<std::byte*>(::operator new(size, kAlignment));
}

Buffer::~Buffer() {
  if (data_ != nullptr) ::operator delete(data_, kAlignment);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace millrace
