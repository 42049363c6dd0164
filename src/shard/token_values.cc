#include "shard/token_values.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "shard/field_value.h"

namespace millrace {

namespace {

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

absl::StatusOr<NumberType> TokensOfEncoding(std::string_view encoding) {
  std::optional<NumberType> type;
  constexpr std::string_view kNdarray =
      "ndarray:";  // of MDS; with a shape behind the type, the values are all there is
  const size_t shape = encoding.starts_with(kNdarray) ? encoding.find(':', kNdarray.size()) : std::string_view::npos;
  if (shape != std::string_view::npos) {
    type = ParseNumpyName(encoding.substr(kNdarray.size(), shape - kNdarray.size()));
  } else if (encoding.ends_with('s')) {
    type = ParseNumberType(encoding.substr(0, encoding.size() - 1));
  }
  if (!type) {
    return absl::FailedPreconditionError(
        fmt::format("it is stored as {}, of which the index does not tell how many numbers it holds; token files "
                    "(Megatron's pairs, arrays) and MDS columns such as ndarray:int32:2048 serve",
                    encoding.empty() ? "bytes" : encoding));
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
