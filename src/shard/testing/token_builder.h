#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "shard/token_format.h"

namespace millrace::testing {

/// Returns an .idx of Megatron for sequences of these lengths, of the type with that code, which takes `size` bytes.
inline std::string MegatronIdx(uint8_t code, uint64_t size, const std::vector<int32_t>& lengths,
                               const std::vector<int64_t>& documents, std::string_view modes = {}) {
  std::string idx(kMegatronMagic);
  AppendLe(idx, uint64_t{1});
  AppendLe(idx, code);
  AppendLe(idx, uint64_t{lengths.size()});
  AppendLe(idx, uint64_t{documents.size()});
  for (const int32_t length : lengths) AppendLe(idx, length);
  uint64_t offset = 0;
  for (const int32_t length : lengths) {
    AppendLe(idx, offset);
    offset += static_cast<uint64_t>(length) * size;
  }
  for (const int64_t document : documents) AppendLe(idx, document);
  return idx.append(modes);
}

}  // namespace millrace::testing
