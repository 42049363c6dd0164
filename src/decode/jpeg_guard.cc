#include "decode/jpeg_guard.h"

#include <fmt/format.h>
#include <jerror.h>

namespace millrace {
namespace {

constexpr int kMaxScans = 100;  // encoders write about ten

const char* const kOwnMessages[] = {"it has more scans than any sound image needs"};

// Returns true if the frame that libjpeg does not know is one of the four lossless kinds.
bool IsLossless(int frame) {
  return frame == 0xc3 || frame == 0xc7 || frame == 0xcb || frame == 0xcf;
}

}  // namespace

JpegGuard::JpegGuard() {
  jpeg_std_error(&manager_);
  manager_.addon_message_table = kOwnMessages;
  manager_.first_addon_message = kTooManyScans;
  manager_.last_addon_message = kTooManyScans;
  manager_.error_exit = OnError;
  manager_.emit_message = OnMessage;
  manager_.output_message = OnOutput;
}

void JpegGuard::Attach(jpeg_common_struct* object) {
  object->err = &manager_;
  object->client_data = this;
  warnings_ = 0;
}

void JpegGuard::LimitScans(jpeg_decompress_struct* object, jpeg_progress_mgr* progress) {
  progress->progress_monitor = OnProgress;
  object->progress = progress;
}

void JpegGuard::OnProgress(j_common_ptr object) {
  const auto* jpeg = reinterpret_cast<j_decompress_ptr>(object);
  if (jpeg->input_scan_number > kMaxScans) {
    object->err->msg_code = kTooManyScans;
    object->err->error_exit(object);
  }
}

bool JpegGuard::Run(absl::FunctionRef<void()> body) {
  if (setjmp(jump_) != 0) return false;
  body();
  return true;
}

absl::Status JpegGuard::status() const {
  switch (code_) {
    case JERR_SOF_UNSUPPORTED:
      if (IsLossless(manager_.msg_parm.i[0])) {
        return absl::InvalidArgumentError(
            "cannot decode a lossless JPEG (SOF type 0xc3 and the like), as medical scanners and raw photos have it; "
            "store it as a PNG");
      }
      [[fallthrough]];
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_IMAGE_TOO_BIG:
      return absl::InvalidArgumentError(
          fmt::format("cannot decode this kind of JPEG: {}; store it as a baseline 8-bit JPEG", message_));
    case JERR_NO_BACKING_STORE:
      return absl::InvalidArgumentError(
          "cannot decode this JPEG: its scans must be held in memory and exceed the limit; store it as a baseline "
          "JPEG");
    case JERR_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError("out of memory while decoding or encoding a JPEG");
    default:
      return absl::DataLossError(fmt::format("the JPEG is damaged: {}", message_));
  }
}

bool JpegGuard::ended_early() const {
  return code_ == JWRN_JPEG_EOF;
}

void JpegGuard::OnError(j_common_ptr object) {
  static_cast<JpegGuard*>(object->client_data)->Leave(object);
}

void JpegGuard::OnMessage(j_common_ptr object, int level) {
  if (level >= 0) return;  // a trace
  if (object->err->msg_code == JWRN_JPEG_EOF) static_cast<JpegGuard*>(object->client_data)->Leave(object);
  ++static_cast<JpegGuard*>(object->client_data)->warnings_;
}

void JpegGuard::LeaveAtEnd(j_common_ptr object) {
  object->err->msg_code = JWRN_JPEG_EOF;
  static_cast<JpegGuard*>(object->client_data)->Leave(object);
}

void JpegGuard::OnOutput(j_common_ptr) {}

void JpegGuard::Leave(j_common_ptr object) {
  code_ = object->err->msg_code;
  object->err->format_message(object, message_);
  std::longjmp(jump_, 1);
}

}  // namespace millrace
