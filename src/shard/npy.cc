#include "shard/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace millrace {

namespace {

constexpr std::string_view kMagic{"\x93NUMPY\x01\x00", 8};  // of version 1.0
constexpr size_t kPrefixBytes = 10;                         // the magic and a u16
constexpr size_t kAlignment = 64;
constexpr size_t kGrowthDigits = 21;  // NumPy leaves room for the longest number of an axis
constexpr uint64_t kMaxCount = uint64_t{1} << 62;

std::string ShapeText(std::span<const uint64_t> shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

// Takes `text` off the front.
bool Skip(std::string_view* from, std::string_view text) {
  if (!from->starts_with(text)) return false;
  from->remove_prefix(text.size());
  return true;
}

// Returns the text before `end`, which is taken off as well.
std::optional<std::string_view> Until(std::string_view* from, std::string_view end) {
  const size_t at = from->find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view found = from->substr(0, at);
  from->remove_prefix(at + end.size());
  return found;
}

std::optional<std::vector<uint64_t>> ParseShape(std::string_view text) {
  std::vector<uint64_t> shape;
  while (!text.empty()) {
    uint64_t axis = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), axis);
    if (error != std::errc() || shape.size() == kMaxAxes) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    shape.push_back(axis);
    if (!text.empty() && !Skip(&text, ", ") && !Skip(&text, ",")) return std::nullopt;
  }
  return shape;
}

std::optional<NumberType> ParseDescr(std::string_view descr) {
  if (descr.size() != 3) return std::nullopt;
  const std::optional<NumberType> type = ParseNumberType(descr.substr(1));
  return type && NpyDescr(*type) == descr ? type : std::nullopt;
}

// Quotes text from the file, for a message.
std::string Quoted(std::string_view text) {
  std::string quoted(text.substr(0, 100));
  std::replace_if(
      quoted.begin(), quoted.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return quoted;
}

constexpr std::string_view kSaveAnew =
    "write it again: numpy.save(FILE, numpy.ascontiguousarray(array, dtype=\"int32\"))";

absl::Status OtherType(std::string_view descr) {
  if (descr.starts_with('>')) {
    return absl::InvalidArgumentError(fmt::format(
        "its numbers are big-endian ('{}'), and only little-endian ones are read; {}", Quoted(descr), kSaveAnew));
  }
  if (descr.find('O') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        fmt::format("it holds Python objects ('{}'), whose pickles can run any code and are never read; {}",
                    Quoted(descr), kSaveAnew));
  }
  return absl::InvalidArgumentError(fmt::format(
      "its values are of type '{}'; int8 to int64, uint8 to uint64 and float16 to float64 are read", Quoted(descr)));
}

}  // namespace

absl::StatusOr<NpyHead> ParseNpyDict(std::string_view dict) {
  std::string_view rest = dict;
  const auto strange = [&dict] {
    return absl::InvalidArgumentError(fmt::format("its head is not as NumPy writes it: {}", Quoted(dict)));
  };
  if (!Skip(&rest, "{'descr': ")) return strange();
  if (rest.starts_with('[')) return absl::InvalidArgumentError("an array of records, not of numbers");
  if (!Skip(&rest, "'")) return strange();
  const std::optional<std::string_view> descr = Until(&rest, "', 'fortran_order': ");
  const std::optional<std::string_view> fortran = descr ? Until(&rest, ", 'shape': (") : std::nullopt;
  const std::optional<std::string_view> axes = fortran ? Until(&rest, "), }") : std::nullopt;
  if (!axes || rest.find_first_not_of(" \n") != std::string_view::npos) return strange();
  const std::optional<NumberType> type = ParseDescr(*descr);
  if (!type) return OtherType(*descr);
  if (*fortran == "True")
    return absl::InvalidArgumentError(fmt::format("it is in Fortran order (column by column); {}", kSaveAnew));
  std::optional<std::vector<uint64_t>> shape = ParseShape(*axes);
  if (*fortran != "False" || !shape) return strange();
  return NpyHead{.type = *type, .shape = *std::move(shape)};
}

std::optional<uint64_t> CountOf(std::span<const uint64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  uint64_t count = 1;
  for (const uint64_t axis : shape) {
    if (axis > kMaxCount / count) return std::nullopt;
    count *= axis;
  }
  return count;
}

void AppendNpyHead(std::string& out, NumberType type, std::span<const uint64_t> shape) {
  std::string head =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", NpyDescr(type), ShapeText(shape));
  if (!shape.empty()) head.append(kGrowthDigits - fmt::format("{}", shape.front()).size(), ' ');
  head.append(kAlignment - (kPrefixBytes + head.size() + 1) % kAlignment, ' ');
  head.push_back('\n');
  out.append(kMagic);
  AppendLe(out, static_cast<uint16_t>(head.size()));
  out.append(head);
}

std::optional<NpyArray> ParseNpy(ByteSpan file) {
  std::string_view text = AsText(file);
  if (!Skip(&text, kMagic) || text.size() < sizeof(uint16_t)) return std::nullopt;
  const auto head_bytes = LoadLe<uint16_t>(text.data());
  text.remove_prefix(sizeof(uint16_t));
  if (text.size() < head_bytes) return std::nullopt;
  absl::StatusOr<NpyHead> head = ParseNpyDict(text.substr(0, head_bytes));
  if (!head.ok()) return std::nullopt;
  const std::optional<uint64_t> count = CountOf(head->shape);
  const ByteSpan values = file.subspan(kPrefixBytes + head_bytes);
  if (!count || values.size() % head->type.size != 0 || values.size() / head->type.size != *count) return std::nullopt;
  return NpyArray{.type = head->type, .shape = std::move(head->shape), .values = values};
}

namespace {

// Returns the text after "'name':" in the dictionary, whose order is descr, fortran_order, shape, without spaces before
// it. Returns "" if it is not there. Fields of records, which are in descr, may have such names, too.
std::string_view NpyMember(std::string_view dict, std::string_view name) {
  const std::string quoted = fmt::format("'{}'", name);
  const size_t at = name == "descr" ? dict.find(quoted) : dict.rfind(quoted);
  if (at == std::string_view::npos) return {};
  std::string_view rest = dict.substr(at + quoted.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" :"), rest.size()));
  return rest;
}

// Returns the bytes of a value of a type such as "<f4", "|b1", ">c16" or "<U7". Returns nullopt if it is not
// understood.
std::optional<uint64_t> BytesOfDescr(std::string_view descr) {
  if (!descr.empty() && std::string_view("<>|=").find(descr.front()) != std::string_view::npos) descr.remove_prefix(1);
  if (descr.size() < 2) return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(descr.data() + 1, descr.data() + descr.size(), number);
  if (error != std::errc() || number > (uint64_t{1} << 31)) return std::nullopt;
  return descr.front() == 'U' ? 4 * number : number;
}

}  // namespace

absl::Status CheckNpy(ByteSpan file) {
  std::string_view text = AsText(file);
  if (text.starts_with("PK\3\4")) {
    return absl::DataLossError(
        "no array but an archive of arrays (.npz). Deliver its bytes (Python: millrace.Bytes in fields) and open them "
        "by "
        "numpy.load(io.BytesIO(value)), or save each array as a field of its own by numpy.save");
  }
  if (!Skip(&text, kNpyMagic) || text.size() < 2) {
    return absl::DataLossError("no array: the file does not begin as an .npy file");
  }
  const int version = static_cast<uint8_t>(text.front());
  text.remove_prefix(2);
  const size_t length_bytes = version == 1 ? sizeof(uint16_t) : sizeof(uint32_t);
  if (version < 1 || version > 3) {
    return absl::DataLossError(fmt::format("no array: version {} of .npy files is not known", version));
  }
  if (text.size() < length_bytes) return absl::DataLossError("no array: the .npy file is cut off in its head");
  const uint64_t head = version == 1 ? LoadLe<uint16_t>(text.data()) : LoadLe<uint32_t>(text.data());
  text.remove_prefix(length_bytes);
  if (text.size() < head) return absl::DataLossError("no array: the .npy file is cut off in its head");
  const std::string_view dict = text.substr(0, head);
  const uint64_t value_bytes = text.size() - head;
  std::string_view type = NpyMember(dict, "descr");
  const std::string_view order = NpyMember(dict, "fortran_order");
  std::string_view axes = NpyMember(dict, "shape");
  const bool known_order = order.starts_with("True") || order.starts_with("False");
  if (type.empty() || !known_order || !Skip(&axes, "(")) {
    return absl::DataLossError(fmt::format("no array: its head is not as NumPy writes it: {}", Quoted(dict)));
  }
  const std::string_view records = type.substr(0, type.find("'fortran_order'"));
  const bool plain = Skip(&type, "'");
  const std::string_view descr = plain ? type.substr(0, type.find('\'')) : records;
  const std::string_view named = order.starts_with("True") ? "Fortran" : "C";
  if (plain ? descr.find('O') != descr.npos : records.find("'|O") != records.npos) {
    return absl::DataLossError(fmt::format(
        "an array of Python objects (dtype {}, {} order), whose pickles can run any code and are never read; save "
        "numbers: numpy.save(FILE, numpy.asarray(array, dtype=\"float32\"))",
        Quoted(descr), named));
  }
  std::string numbers(axes.substr(0, axes.find(')')));
  std::erase(numbers, 'L');  // as Python 2 writes long integers
  const std::optional<std::vector<uint64_t>> shape = ParseShape(numbers);
  const std::optional<uint64_t> count = shape ? CountOf(*shape) : std::nullopt;
  if (!count) return absl::DataLossError(fmt::format("no array: its shape is not understood: {}", Quoted(dict)));
  const std::optional<uint64_t> each = plain ? BytesOfDescr(descr) : std::nullopt;
  if (each && *each > 0 && *count > value_bytes / *each) {
    return absl::DataLossError(fmt::format("the array is cut off: {} values of dtype '{}' ({} order), and {} bytes",
                                           *count, Quoted(descr), named, value_bytes));
  }
  return absl::OkStatus();
}

}  // namespace millrace
