#include "shard/field_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/crypto.h"
#include "base/utf8.h"
#include "shard/mds_format.h"
#include "shard/npy.h"
#include "shard/recordio_format.h"
#include "shard/tf_example.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxClassDigits = 20;  // a 64-bit number
constexpr NumberType kInt64{.kind = NumberType::Kind::kSigned, .size = 8};
constexpr NumberType kFloat32{.kind = NumberType::Kind::kFloat, .size = 4};

absl::Status Wrong(std::string_view encoding, std::string_view what) {
  return absl::DataLossError(fmt::format("its stored bytes are not \"{}\": {}", encoding, what));
}

// Parses an encoding such as "f4s".
std::optional<NumberType> ParseListType(std::string_view encoding) {
  return encoding.size() == 3 && encoding[2] == 's' ? ParseNumberType(encoding.substr(0, 2)) : std::nullopt;
}

FieldType TypeOf(NumberType type) {
  return type.kind == NumberType::Kind::kFloat ? FieldType::kFloat : FieldType::kInt;
}

absl::Status AppendArray(std::string_view encoding, NumberType type, std::span<const uint64_t> shape, ByteSpan values,
                         std::string* out) {
  const std::optional<uint64_t> count = CountOf(shape);
  if (!count || values.size() % type.size != 0 || values.size() / type.size != *count) {
    return Wrong(encoding, fmt::format("{} bytes of values do not fill its shape", values.size()));
  }
  AppendNpyHead(*out, type, shape);
  out->append(AsText(values));
  return absl::OkStatus();
}

absl::Status AppendList(std::string_view encoding, NumberType type, ByteSpan values, std::string* out) {
  const uint64_t count = values.size() / type.size;
  return AppendArray(encoding, type, {&count, 1}, values, out);
}

// Takes the type off the front of what follows "ndarray" in the encoding, or else of the stored bytes.
absl::StatusOr<NumberType> TakeType(std::string_view encoding, std::string_view* rest, ByteSpan* stored) {
  if (rest->empty()) {
    if (stored->empty()) return Wrong(encoding, "it has no type");
    const auto code = static_cast<uint8_t>(stored->front());
    *stored = stored->subspan(1);
    if (const std::optional<NumberType> type = ParseMdsTypeCode(code)) return *type;
    return Wrong(encoding, fmt::format("unknown type {}", code));
  }
  const size_t end = std::min(rest->find(':', 1), rest->size());
  const std::optional<NumberType> type = ParseNumpyName(rest->substr(1, end - 1));
  rest->remove_prefix(end);
  if (type) return *type;
  return absl::InvalidArgumentError(fmt::format("unknown type of array \"{}\"", encoding));
}

// Takes the shape in the same way.
absl::StatusOr<std::vector<uint64_t>> TakeShape(std::string_view encoding, std::string_view rest, ByteSpan* stored) {
  std::vector<uint64_t> shape;
  if (rest.empty()) {
    if (stored->empty()) return Wrong(encoding, "it has no shape");
    const auto head = static_cast<uint32_t>(stored->front());
    const size_t axes = head >> 2;
    const size_t axis_bytes = size_t{1} << (head & 3);
    *stored = stored->subspan(1);
    if (stored->size() < axes * axis_bytes) return Wrong(encoding, "its shape is cut short");
    for (size_t i = 0; i < axes; ++i) std::memcpy(&shape.emplace_back(), stored->data() + i * axis_bytes, axis_bytes);
    *stored = stored->subspan(axes * axis_bytes);
    return shape;
  }
  while (!rest.empty()) {
    rest.remove_prefix(1);  // ':' or ','
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), shape.emplace_back());
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (error != std::errc() || shape.size() > kMaxAxes || (!rest.empty() && rest.front() != ',')) {
      return absl::InvalidArgumentError(fmt::format("unknown shape of array \"{}\"", encoding));
    }
  }
  return shape;
}

// Takes an array as MDS writes it: the type and the shape, unless the encoding says them ("ndarray[:TYPE[:SHAPE]]"),
// and the values.
absl::Status AppendMdsArray(std::string_view encoding, ByteSpan stored, std::string* out) {
  std::string_view rest = encoding.substr(encoding::kNdarray.size());
  ASSIGN_OR_RETURN(const NumberType type, TakeType(encoding, &rest, &stored));
  ASSIGN_OR_RETURN(const std::vector<uint64_t> shape, TakeShape(encoding, rest, &stored));
  return AppendArray(encoding, type, shape, stored, out);
}

// The stored bytes are u32 width, height and length of the mode; the mode; rows of pixels.
absl::Status AppendPil(ByteSpan stored, std::string* out) {
  constexpr size_t kHead = 12;
  if (stored.size() < kHead) return Wrong(encoding::kPil, "its head is cut short");
  const auto width = LoadLe<uint32_t>(stored.data());
  const auto height = LoadLe<uint32_t>(stored.data() + 4);
  const auto mode_bytes = LoadLe<uint32_t>(stored.data() + 8);
  stored = stored.subspan(kHead);
  if (stored.size() < mode_bytes) return Wrong(encoding::kPil, "its head is cut short");
  const std::string_view mode = AsText(stored.first(mode_bytes));
  struct Mode {
    std::string_view name;
    std::string_view type;
    uint64_t channels;
  };
  constexpr Mode kModes[] = {{"L", "u1", 1},    {"P", "u1", 1},     {"LA", "u1", 2},   {"PA", "u1", 2},
                             {"RGB", "u1", 3},  {"YCbCr", "u1", 3}, {"HSV", "u1", 3},  {"LAB", "u1", 3},
                             {"RGBA", "u1", 4}, {"RGBX", "u1", 4},  {"CMYK", "u1", 4}, {"I", "i4", 1},
                             {"F", "f4", 1},    {"I;16", "u2", 1}};
  const auto* known = std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& m) { return m.name == mode; });
  if (known == std::end(kModes)) {
    return absl::InvalidArgumentError("an image of PIL in a mode other than L, RGB, RGBA and their like");
  }
  std::vector<uint64_t> shape = {height, width};
  if (known->channels > 1) shape.push_back(known->channels);
  return AppendArray(encoding::kPil, *ParseNumberType(known->type), shape, stored.subspan(mode_bytes), out);
}

std::string JsonOf(const std::vector<std::string_view>& texts) {
  nlohmann::json list = nlohmann::json::array();
  for (const std::string_view text : texts) {
    if (FirstNotUtf8(text) == text.size()) {
      list.push_back(std::string(text));
    } else {
      list.push_back({{"base64", Base64Encode({reinterpret_cast<const uint8_t*>(text.data()), text.size()})}});
    }
  }
  return list.dump();
}

absl::Status AppendTf(std::string_view encoding, ByteSpan stored, std::string* out) {
  TfFeature feature;
  TfValues values;
  if (!ParseTfEntry(stored, &feature, &values)) return Wrong(encoding, "no feature of a tf.train.Example");
  const bool single = encoding == encoding::kTfInt || encoding == encoding::kTfFloat;
  if (single && values.count != 1) return Wrong(encoding, fmt::format("{} values", values.count));
  TfValues::Kind kind = TfValues::Kind::kBytes;
  if (encoding == encoding::kTfInt || encoding == encoding::kTfInts) kind = TfValues::Kind::kInts;
  if (encoding == encoding::kTfFloat || encoding == encoding::kTfFloats) kind = TfValues::Kind::kFloats;
  if (values.kind != kind) return Wrong(encoding, "a feature of another kind");
  if (encoding == encoding::kTfTexts) {
    *out = JsonOf(values.bytes);
  } else if (encoding == encoding::kTfInt) {
    *out = fmt::format("{}", values.ints.front());
  } else if (encoding == encoding::kTfFloat) {
    *out = ToDecimal(values.floats.front());
  } else if (encoding == encoding::kTfInts) {
    return AppendList(encoding, kInt64, std::as_bytes(std::span(values.ints)), out);
  } else {
    return AppendList(encoding, kFloat32, std::as_bytes(std::span(values.floats)), out);
  }
  return absl::OkStatus();
}

// Takes out what each head of a part has after the magic, which stands for itself.
std::string JoinParts(ByteSpan stored) {
  std::string joined;
  joined.reserve(stored.size());
  size_t begin = 0;
  for (size_t at = 0; at + kRecordIoAlignment <= stored.size(); at += kRecordIoAlignment) {
    if (LoadLe<uint32_t>(stored.data() + at) != kRecordIoMagic) continue;
    joined.append(AsText(stored.subspan(begin, at + kRecordIoAlignment - begin)));
    at += kRecordIoHeadBytes - kRecordIoAlignment;
    begin = std::min(at + kRecordIoAlignment, stored.size());
  }
  return joined.append(AsText(stored.subspan(begin)));
}

bool IsTf(std::string_view encoding) {
  return encoding == encoding::kTfInt || encoding == encoding::kTfInts || encoding == encoding::kTfFloat ||
         encoding == encoding::kTfFloats || encoding == encoding::kTfTexts;
}

bool IsMdsArray(std::string_view encoding) {
  return encoding == encoding::kNdarray || encoding.starts_with("ndarray:");
}

// Returns the type of encodings whose stored bytes are the value.
std::optional<FieldType> AsItIs(std::string_view encoding) {
  if (encoding == encoding::kBytes || IsImageEncoding(encoding)) return FieldType::kBytes;
  if (encoding == encoding::kText) return FieldType::kText;
  if (encoding == encoding::kJson) return FieldType::kJson;
  if (encoding == encoding::kInt) return FieldType::kInt;
  if (encoding == encoding::kFloat) return FieldType::kFloat;
  return std::nullopt;
}

}  // namespace

std::string_view FieldTypeName(FieldType type) {
  constexpr std::string_view kNames[] = {"bytes", "int", "float", "text", "json", "ndarray"};
  return kNames[static_cast<size_t>(type)];
}

std::string_view ImageEncoding(ByteSpan bytes) {
  const std::string_view text = AsText(bytes);
  if (text.starts_with("\xff\xd8\xff")) return encoding::kJpeg;
  return text.starts_with("\x89PNG\r\n\x1a\n") ? encoding::kPng : encoding::kBytes;
}

bool IsImageEncoding(std::string_view encoding) {
  if (encoding.starts_with(encoding::kRecordIoParts)) encoding.remove_prefix(encoding::kRecordIoParts.size());
  return encoding == encoding::kJpeg || encoding == encoding::kPng;
}

FieldType TypeOfEncoding(std::string_view encoding) {
  if (encoding.starts_with(encoding::kRecordIoParts)) encoding.remove_prefix(encoding::kRecordIoParts.size());
  if (const std::optional<FieldType> type = AsItIs(encoding)) return *type;
  if (const std::optional<NumberType> type = ParseNumberType(encoding)) return TypeOf(*type);
  if (encoding == encoding::kTfInt) return FieldType::kInt;
  if (encoding == encoding::kTfFloat) return FieldType::kFloat;
  if (encoding == encoding::kTfTexts) return FieldType::kJson;
  const bool array = ParseListType(encoding) || IsTf(encoding) || IsMdsArray(encoding) || encoding == encoding::kPil;
  return array ? FieldType::kNdarray : FieldType::kBytes;
}

bool IsStoredAsValue(std::string_view encoding) {
  return AsItIs(encoding).has_value();
}

uint64_t ValueBytesAbout(std::string_view encoding, uint64_t stored_bytes) {
  constexpr uint64_t kDecimalBytes = 24;   // of a number
  constexpr uint64_t kNpyHeadBytes = 128;  // of an array
  if (encoding.starts_with(encoding::kRecordIoParts)) encoding.remove_prefix(encoding::kRecordIoParts.size());
  switch (TypeOfEncoding(encoding)) {
    case FieldType::kInt:
    case FieldType::kFloat:
      return IsStoredAsValue(encoding) ? stored_bytes : kDecimalBytes;
    case FieldType::kNdarray:
      // A number of a tf.train.Example may take one byte there, and takes eight in an array.
      return kNpyHeadBytes + (encoding == encoding::kTfInts ? sizeof(int64_t) * stored_bytes : stored_bytes);
    default:
      return stored_bytes;
  }
}

uint64_t ValueBytesAtMost(std::string_view encoding, uint64_t stored_bytes) {
  constexpr uint64_t kEscaped = 6;  // a control character in JSON
  constexpr uint64_t kAround = 64;
  const bool json = encoding.ends_with(encoding::kTfTexts);
  return json ? kEscaped * stored_bytes + kAround : ValueBytesAbout(encoding, stored_bytes);
}

absl::StatusOr<ByteSpan> FieldValue(std::string_view encoding, ByteSpan stored, std::string* scratch) {
  if (encoding.empty()) return stored;
  if (encoding.starts_with(encoding::kRecordIoParts)) {
    const std::string joined = JoinParts(stored);
    ASSIGN_OR_RETURN(const ByteSpan value,
                     FieldValue(encoding.substr(encoding::kRecordIoParts.size()), AsBytes(joined), scratch));
    if (value.data() == AsBytes(joined).data()) *scratch = joined;
    return AsBytes(*scratch);
  }
  if (AsItIs(encoding)) return stored;
  scratch->clear();
  if (const std::optional<NumberType> type = ParseNumberType(encoding)) {
    if (stored.size() != type->size) return Wrong(encoding, fmt::format("{} bytes", stored.size()));
    *scratch = ToDecimal(*type, stored.data());
  } else if (const std::optional<NumberType> list = ParseListType(encoding)) {
    RETURN_IF_ERROR(AppendList(encoding, *list, stored, scratch));
  } else if (IsTf(encoding)) {
    RETURN_IF_ERROR(AppendTf(encoding, stored, scratch));
  } else if (IsMdsArray(encoding)) {
    RETURN_IF_ERROR(AppendMdsArray(encoding, stored, scratch));
  } else if (encoding == encoding::kPil) {
    RETURN_IF_ERROR(AppendPil(stored, scratch));
  } else {
    return absl::InvalidArgumentError(
        fmt::format("this Millrace does not know values of encoding \"{}\"; build the index again with `millrace index "
                    "URI`",
                    encoding));
  }
  return AsBytes(*scratch);
}

std::string ClassNumber(std::string_view encoding, ByteSpan stored) {
  constexpr std::string_view kSpace = " \t\r\n";
  constexpr uint64_t kMaxStored = 256;  // of any encoding, names included
  std::string scratch;
  if (stored.size() > kMaxStored) return {};
  const absl::StatusOr<ByteSpan> value = FieldValue(encoding, stored, &scratch);
  if (!value.ok() || value->size() > kMaxClassDigits) return {};
  std::string_view text = AsText(*value);
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  return text.find_first_not_of("0123456789") == std::string_view::npos ? std::string(text) : std::string();
}

}  // namespace millrace
