#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/number_type.h"

/// Converts tokens as they are stored to tokens as they are delivered. Pure.

namespace millrace {

enum class TokenType : uint8_t { kInt32, kInt64 };
inline uint64_t TokenBytes(TokenType type) {
  return type == TokenType::kInt32 ? 4 : 8;
}
std::string_view TokenTypeName(TokenType type);  // "int32", "int64"

/// Returns the type of the numbers in fields of that encoding (shard/field_value.h), one after another, after a head
/// (TokenHeadBytes). Returns FailedPrecondition if such fields hold something else, or no whole numbers.
absl::StatusOr<NumberType> TokensOfEncoding(std::string_view encoding);

/// Counts the bytes before the tokens of a field of so many bytes. In arrays of MDS whose encoding does not say their
/// shape ("ndarray:int32") this is the number of tokens, in as few bytes as it takes. The result is 0 for other
/// encodings, and nullopt if no array of one axis has so many bytes.
std::optional<uint64_t> TokenHeadBytes(std::string_view encoding, NumberType type, uint64_t bytes);

/// Returns the first byte of that head.
std::byte TokenHeadMark(uint64_t head_bytes);

/// Converts whole numbers of type `from` to `to`; `out` has room for as many. Returns DataLoss when one does not fit,
/// and then `out` holds anything.
absl::Status ConvertTokens(NumberType from, ByteSpan stored, TokenType to, std::byte* out);

/// Writes the same number over and over.
void FillTokens(TokenType type, int64_t token, std::byte* out, uint64_t count);

}  // namespace millrace
