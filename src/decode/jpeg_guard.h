#pragma once

// jpeglib.h relies on what cstdio declares.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
// clang-format on

#include <csetjmp>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "base/status.h"

namespace millrace {

/// libjpeg reports errors by a callback that must not return; this is the one place where Millrace jumps out of it.
/// Holds one error manager for one libjpeg object. Not thread-safe, not movable (libjpeg points at it).
class JpegGuard {
 public:
  /// This is a message code of our own, for an error_exit beside those of libjpeg.
  static constexpr int kTooManyScans = 1000;

  JpegGuard();
  JpegGuard(const JpegGuard&) = delete;
  JpegGuard& operator=(const JpegGuard&) = delete;

  /// Makes `object`, not yet created, report here. Uses its client_data.
  void Attach(jpeg_common_struct* object);

  /// Ends the reading of an attached object with an error after more scans than any encoder writes. Each scan visits
  /// all pixels, so a small file with many would cost without end. `progress` must outlive the object.
  static void LimitScans(jpeg_decompress_struct* object, jpeg_progress_mgr* progress);

  /// Runs libjpeg calls. After an error, or if the file ends too early, the rest of `body` is skipped and status() says
  /// why: so `body` must own nothing (no destructors run). The libjpeg object may then only be destroyed. Other
  /// warnings are counted: libjpeg continues after them, and so do other programs.
  bool Run(absl::FunctionRef<void()> body);

  /// Ends the body of Run as if libjpeg had found that the file ends too early.
  [[noreturn]] static void LeaveAtEnd(j_common_ptr object);

  /// Returns true if Run returned false because the file ends too early.
  bool ended_early() const;

  /// Returns the number of warnings of libjpeg since Attach that leave an image to show.
  uint64_t warnings() const { return warnings_; }

  /// Says why Run returned false: InvalidArgument for kinds of JPEG that cannot be decoded, ResourceExhausted without
  /// memory, else DataLoss.
  absl::Status status() const;

 private:
  static void OnProgress(j_common_ptr object);
  static void OnError(j_common_ptr object);
  static void OnMessage(j_common_ptr object, int level);
  static void OnOutput(j_common_ptr object);
  [[noreturn]] void Leave(j_common_ptr object);

  jpeg_error_mgr manager_{};
  std::jmp_buf jump_;
  int code_ = 0;
  uint64_t warnings_ = 0;
  char message_[JMSG_LENGTH_MAX] = {};
};

}  // namespace millrace
