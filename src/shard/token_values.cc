#include "shard/token_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "shard/field_value.h"

namespace millrace {

namespace {

constexpr std::string_view kNdarray = "ndarray:";  // of MDS

template <typename From, typename To>
absl::Status Convert(ByteSpan stored, std::byte* out) {
  const uint64_t count = stored.size() / sizeof(From);
  for (uint64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, stored.data() + i * sizeof(From), sizeof value);
    if (!std::in_range<To>(value)) {
      return absl::DataLossError(
          fmt::format("token {} does not fit into {}", value, sizeof(To) == 4 ? "int32" : "int64"));
    }
    const To token = static_cast<To>(value);
    std::memcpy(out + i * sizeof(To), &token, sizeof token);
  }
  return absl::OkStatus();
}

template <typename To>
absl::Status ConvertTo(NumberType from, ByteSpan stored, std::byte* out) {
  const bool is_signed = from.kind == NumberType::Kind::kSigned;
  switch (from.size) {
    case 1:
      return is_signed ? Convert<int8_t, To>(stored, out) : Convert<uint8_t, To>(stored, out);
    case 2:
      return is_signed ? Convert<int16_t, To>(stored, out) : Convert<uint16_t, To>(stored, out);
    case 4:
      return is_signed ? Convert<int32_t, To>(stored, out) : Convert<uint32_t, To>(stored, out);
    default:
      return is_signed ? Convert<int64_t, To>(stored, out) : Convert<uint64_t, To>(stored, out);
  }
}

}  // namespace

std::string_view TokenTypeName(TokenType type) {
  return type == TokenType::kInt32 ? "int32" : "int64";
}

std::optional<uint64_t> TokenHeadBytes(std::string_view encoding, NumberType type, uint64_t bytes) {
  if (!encoding.starts_with(kNdarray) || encoding.find(':', kNdarray.size()) != std::string_view::npos) return 0;
  // They are the number of axes and the size of their lengths, and the one length.
  for (int log = 0; log <= 3; ++log) {
    const uint64_t head = 1 + (uint64_t{1} << log);
    if (bytes < head || (bytes - head) % type.size != 0) continue;
    const uint64_t tokens = (bytes - head) / type.size;
    const uint64_t least = log == 0 ? 0 : uint64_t{1} << (4 << log);  // fewer fit into a smaller length
    if (tokens >= least && (log == 3 || tokens < uint64_t{1} << (8 << log))) return head;
  }
  return std::nullopt;
}

std::byte TokenHeadMark(uint64_t head_bytes) {
  constexpr int kOneAxis = 1 << 2;
  return std::byte(kOneAxis | std::countr_zero(head_bytes - 1));
}

absl::StatusOr<NumberType> TokensOfEncoding(std::string_view encoding) {
  std::optional<NumberType> type;
  if (encoding.starts_with(kNdarray)) {
    const size_t shape = std::min(encoding.find(':', kNdarray.size()), encoding.size());
    type = ParseNumpyName(encoding.substr(kNdarray.size(), shape - kNdarray.size()));
  } else if (encoding.ends_with('s')) {
    type = ParseNumberType(encoding.substr(0, encoding.size() - 1));
  }
  if (!type) {
    if (encoding.empty()) {
      return absl::FailedPreconditionError(
          "it is stored as bytes; say what the numbers in them are (Tokens(stored='int64')), or write the tokens by "
          "millrace.TokenWriter");
    }
    return absl::FailedPreconditionError(
        fmt::format("it is stored as {}, and the index does not say how many numbers it holds; token files "
                    "(Megatron's pairs, arrays) and MDS columns such as ndarray:int32 serve. Write others by "
                    "millrace.TokenWriter",
                    encoding));
  }
  if (type->kind == NumberType::Kind::kFloat) {
    return absl::FailedPreconditionError(fmt::format("its numbers are {}; tokens are whole numbers", NumpyName(*type)));
  }
  return *type;
}

absl::Status ConvertTokens(NumberType from, ByteSpan stored, TokenType to, std::byte* out) {
  return to == TokenType::kInt32 ? ConvertTo<int32_t>(from, stored, out) : ConvertTo<int64_t>(from, stored, out);
}

void FillTokens(TokenType type, int64_t token, std::byte* out, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if (type == TokenType::kInt32) {
      StoreLe(out + i * 4, static_cast<uint32_t>(token));
    } else {
      StoreLe(out + i * 8, static_cast<uint64_t>(token));
    }
  }
}

}  // namespace millrace
