#pragma once

#include <string>
#include <utility>

#include "decode/jpeg_guard.h"

namespace millrace {

/// Holds a compressor of libjpeg and the bytes that it makes. It owns both at every moment of an encoding, also if that
/// ends early. (libjpeg's own jpeg_mem_dest says where its buffer is only at the end of a whole encoding.) Not movable,
/// since libjpeg points at it. Not thread-safe.
class JpegTarget {
 public:
  /// Errors are reported to `guard`, which must outlive it.
  explicit JpegTarget(JpegGuard* guard);
  JpegTarget(const JpegTarget&) = delete;
  JpegTarget& operator=(const JpegTarget&) = delete;
  ~JpegTarget();

  /// Creates the compressor: the first call within the guard's Run.
  void Create();
  jpeg_compress_struct* jpeg() { return &jpeg_; }

  /// Returns the bytes that jpeg_finish_compress has completed. Call it once.
  std::string TakeBytes() { return std::move(to_.bytes); }

 private:
  struct Destination : jpeg_destination_mgr {
    std::string bytes;  // at first more than were made
    bool Grow();
  };

  static void OnStart(j_compress_ptr jpeg);
  static boolean OnFull(j_compress_ptr jpeg);
  static void OnEnd(j_compress_ptr jpeg);

  jpeg_compress_struct jpeg_{};
  bool created_ = false;
  Destination to_{};
};

}  // namespace millrace
