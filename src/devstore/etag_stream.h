#pragma once

#include <optional>
#include <string>

#include "base/crypto.h"

namespace millrace {

/// Says what ETags of bytes look like. They are their MD5, as S3 has it of plain objects, or another hash of as many
/// digits, as it has it of objects that are encrypted by KMS.
enum class ETagKind { kMd5, kOpaque };

/// Computes the ETag of an object or part that is uploaded by one request, as a stream.
class ETagStream {
 public:
  explicit ETagStream(ETagKind kind) {
    if (kind == ETagKind::kMd5) {
      md5_.emplace();
    } else {
      xxh3_.emplace();
      xxh3_->UpdateLe64(kDomain);
    }
  }

  void Update(ByteSpan bytes) {
    if (md5_) md5_->Update(bytes);
    if (xxh3_) xxh3_->Update(bytes);
  }

  std::string Finish() { return md5_ ? HexEncode(md5_->Finish()) : xxh3_->Digest().Hex(); }

 private:
  static constexpr uint64_t kDomain = 0x65746167;  // so that it is not the plain hash of the bytes either
  std::optional<Md5Stream> md5_;
  std::optional<Xxh3Stream> xxh3_;
};

}  // namespace millrace
