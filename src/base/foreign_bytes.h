#pragma once

#include <string_view>

#include "base/bytes.h"

namespace millrace {

/// Says what a file is that other programs leave under the name of an image or a shard, by its first bytes, with the
/// remedy. It may be a pointer of Git LFS, a web page, an answer in XML or JSON, a compressed file, an archive or
/// base64. "" for others. Completes "it begins as ...". Pure.
std::string_view NameForeignBytes(ByteSpan first);

}  // namespace millrace
