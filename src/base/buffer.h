#pragma once

#include <cstddef>

#include "base/bytes.h"

namespace millrace {

/// Owned bytes, aligned to a cache line (64 bytes) and not initialised; 1 MiB and more are aligned to a page (4 KiB),
/// as direct writes to a disk need it. Move-only; empty after a move.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t size);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  MutableByteSpan span() { return {data_, size_}; }
  ByteSpan span() const { return {data_, size_}; }

 private:
  void* block_ = nullptr;  // holds data_
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace
