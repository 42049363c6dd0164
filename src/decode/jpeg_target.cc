#include "decode/jpeg_target.h"

#include <jerror.h>

#include <algorithm>
#include <exception>

namespace millrace {
namespace {

constexpr size_t kFirstBytes = 4096;

}  // namespace

JpegTarget::JpegTarget(JpegGuard* guard) {
  guard->Attach(reinterpret_cast<j_common_ptr>(&jpeg_));
  to_.init_destination = OnStart;
  to_.empty_output_buffer = OnFull;
  to_.term_destination = OnEnd;
}

JpegTarget::~JpegTarget() {
  if (created_) jpeg_destroy_compress(&jpeg_);
}

void JpegTarget::Create() {
  jpeg_create_compress(&jpeg_);
  created_ = true;
  jpeg_.dest = &to_;
}

// Returns false without memory. An exception must not pass libjpeg, and a jump must not pass this function.
bool JpegTarget::Destination::Grow() {
  const size_t made = bytes.size();
  try {
    bytes.resize(std::max(2 * made, kFirstBytes));
  } catch (const std::exception&) {
    return false;
  }
  next_output_byte = reinterpret_cast<JOCTET*>(bytes.data() + made);
  free_in_buffer = bytes.size() - made;
  return true;
}

void JpegTarget::OnStart(j_compress_ptr jpeg) {
  static_cast<Destination*>(jpeg->dest)->bytes.clear();
  OnFull(jpeg);
}

// libjpeg calls this when all bytes are used, whatever the fields of the destination say then.
boolean JpegTarget::OnFull(j_compress_ptr jpeg) {
  if (!static_cast<Destination*>(jpeg->dest)->Grow()) ERREXIT1(jpeg, JERR_OUT_OF_MEMORY, 0);
  return TRUE;
}

void JpegTarget::OnEnd(j_compress_ptr jpeg) {
  auto* to = static_cast<Destination*>(jpeg->dest);
  to->bytes.resize(to->bytes.size() - to->free_in_buffer);
}

}  // namespace millrace
