#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/buffer.h"

namespace millrace {

/// Memory for batches that arrive, used again and again: fresh memory costs a page fault for every 4 KiB, which is a
/// good part of what receiving costs. It keeps as much as was in use at one time, or a number of buffers, and never
/// more. Thread-safe.
class FrameBuffers {
 public:
  /// `most_free` bounds the buffers that are kept while nobody uses them.
  explicit FrameBuffers(size_t most_free = SIZE_MAX);
  ~FrameBuffers();
  FrameBuffers(const FrameBuffers&) = delete;
  FrameBuffers& operator=(const FrameBuffers&) = delete;

  /// Returns a buffer of at least so many bytes, which comes back when the last pointer to it goes, also after this has
  /// gone. Throws std::bad_alloc.
  std::shared_ptr<Buffer> Take(size_t bytes);

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace millrace
