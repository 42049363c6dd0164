#include "pipeline/boxes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "decode/warp.h"
#include "shard/npy.h"

namespace millrace {

namespace {

using Json = nlohmann::json;
using Four = std::array<double, 4>;

constexpr std::string_view kNormalizedWord = ",normalized";
constexpr uint64_t kMaxBoxes = 1'000'000;

absl::Status NoBoxes(std::string_view why) {
  return absl::DataLossError(
      fmt::format("no boxes, which are an .npy file [n, 4] or JSON lists of four numbers: {}", why));
}

template <typename T>
double NumberOf(const std::byte* bytes) {
  return static_cast<double>(LoadLe<T>(bytes));
}

double NumberAt(NumberType type, const std::byte* bytes) {
  using Kind = NumberType::Kind;
  if (type.kind == Kind::kFloat) {
    if (type.size == 2) return HalfToFloat(LoadLe<uint16_t>(bytes));
    if (type.size == 4) return std::bit_cast<float>(LoadLe<uint32_t>(bytes));
    return std::bit_cast<double>(LoadLe<uint64_t>(bytes));
  }
  const bool is_signed = type.kind == Kind::kSigned;
  switch (type.size) {
    case 1:
      return is_signed ? static_cast<double>(static_cast<int8_t>(*bytes)) : static_cast<double>(*bytes);
    case 2:
      return is_signed ? static_cast<double>(static_cast<int16_t>(LoadLe<uint16_t>(bytes))) : NumberOf<uint16_t>(bytes);
    case 4:
      return is_signed ? static_cast<double>(static_cast<int32_t>(LoadLe<uint32_t>(bytes))) : NumberOf<uint32_t>(bytes);
    default:
      return is_signed ? static_cast<double>(static_cast<int64_t>(LoadLe<uint64_t>(bytes))) : NumberOf<uint64_t>(bytes);
  }
}

absl::StatusOr<std::vector<Four>> FromNpy(ByteSpan value) {
  const std::optional<NpyArray> array = ParseNpy(value);
  if (!array) return NoBoxes("no array as NumPy saves it");
  const bool empty = array->values.empty();
  const bool one = array->shape.size() == 1 && array->shape[0] == 4;
  if (!empty && !one && (array->shape.size() != 2 || array->shape[1] != 4)) return NoBoxes("an array of another shape");
  std::vector<Four> boxes(array->values.size() / (4 * array->type.size));
  const std::byte* at = array->values.data();
  for (Four& box : boxes) {
    for (double& number : box) {
      number = NumberAt(array->type, at);
      at += array->type.size;
    }
  }
  return boxes;
}

bool IsBox(const Json& node) {
  return node.is_array() && node.size() == 4 &&
         std::all_of(node.begin(), node.end(), [](const Json& item) { return item.is_number(); });
}

absl::Status AddBoxes(const Json& node, std::string_view path, std::vector<Four>* boxes) {
  if (path.empty()) {
    if (IsBox(node)) {
      if (boxes->size() == kMaxBoxes) return NoBoxes("more than a million of them");
      boxes->push_back({node[0].get<double>(), node[1].get<double>(), node[2].get<double>(), node[3].get<double>()});
      return absl::OkStatus();
    }
    if (!node.is_array()) return NoBoxes(fmt::format("there is a JSON {}", node.type_name()));
    for (const Json& item : node) {
      if (!IsBox(item)) return NoBoxes("an element of the list is no list of four numbers");
      RETURN_IF_ERROR(AddBoxes(item, path, boxes));
    }
    return absl::OkStatus();
  }
  if (node.is_array()) {
    for (const Json& item : node) {
      if (item.is_array()) return NoBoxes(fmt::format("a list within a list, and members '{}' are asked for", path));
      RETURN_IF_ERROR(AddBoxes(item, path, boxes));
    }
    return absl::OkStatus();
  }
  const std::string_view name = path.substr(0, path.find('.'));
  const auto found = node.is_object() ? node.find(name) : node.end();
  if (found == node.end()) return NoBoxes(fmt::format("there is no member '{}'", name));
  return AddBoxes(*found, path.substr(std::min(path.size(), name.size() + 1)), boxes);
}

absl::StatusOr<std::vector<Four>> FromJson(std::string_view text, std::string_view path) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return NoBoxes("it is neither");
  std::vector<Four> boxes;
  RETURN_IF_ERROR(AddBoxes(json, path, &boxes));
  return boxes;
}

Box ToBox(const Four& numbers, BoxSpec::Form form) {
  const auto& [a, b, c, d] = numbers;
  switch (form) {
    case BoxSpec::Form::kXyxy:
      return {a, b, c, d};
    case BoxSpec::Form::kXywh:
      return {a, b, a + c, b + d};
    case BoxSpec::Form::kCxcywh:
      return {a - c / 2, b - d / 2, a + c / 2, b + d / 2};
  }
  return {};
}

}  // namespace

absl::StatusOr<BoxSpec> BoxSpec::Parse(std::string_view text) {
  BoxSpec spec;
  std::string_view form = text.substr(0, text.find(':'));
  if (form.size() < text.size()) spec.json_path = std::string(text.substr(form.size() + 1));
  if (form.ends_with(kNormalizedWord)) {
    spec.normalized = true;
    form.remove_suffix(kNormalizedWord.size());
  }
  if (form == "xyxy") {
    spec.form = Form::kXyxy;
  } else if (form == "xywh") {
    spec.form = Form::kXywh;
  } else if (form == "cxcywh") {
    spec.form = Form::kCxcywh;
  } else {
    return absl::InvalidArgumentError(fmt::format("unknown form of boxes \"{}\"; use xyxy, xywh or cxcywh", form));
  }
  return spec;
}

absl::StatusOr<std::vector<Box>> ParseBoxes(ByteSpan value, const BoxSpec& spec, const ImageSize& image) {
  const bool npy = AsText(value).starts_with(kNpyMagic);
  ASSIGN_OR_RETURN(const std::vector<Four> numbers, npy ? FromNpy(value) : FromJson(AsText(value), spec.json_path));
  std::vector<Box> boxes;
  boxes.reserve(numbers.size());
  for (const Four& four : numbers) {
    if (!std::all_of(four.begin(), four.end(), [](double number) { return std::isfinite(number); }))
      return NoBoxes("a number is not finite");
    Box box = ToBox(four, spec.form);
    if (spec.normalized) {
      box.left *= image.width;
      box.right *= image.width;
      box.top *= image.height;
      box.bottom *= image.height;
    }
    boxes.push_back(box);
  }
  return boxes;
}

Box ShownBox(const Box& box, const Frame& frame, int width, int height) {
  const SourceCrop& crop = frame.crop;
  // A box ends at the image's edge, even if a crop reaches beyond it.
  const auto x = [&](double at) {
    const double shown = (std::clamp<double>(at, 0, frame.image.width) - crop.x) / crop.width * width;
    return std::clamp<double>(crop.flip ? width - shown : shown, 0, width);
  };
  const auto y = [&](double at) {
    const double shown = (std::clamp<double>(at, 0, frame.image.height) - crop.y) / crop.height * height;
    return std::clamp<double>(crop.flip_vertical ? height - shown : shown, 0, height);
  };
  Box shown{.left = x(box.left), .top = y(box.top), .right = x(box.right), .bottom = y(box.bottom)};
  if (crop.flip) std::swap(shown.left, shown.right);
  if (crop.flip_vertical) std::swap(shown.top, shown.bottom);
  for (const Warp& warp : frame.warps) {
    if (shown.right <= shown.left || shown.bottom <= shown.top) return Box();
    const std::array<double, 4> warped =
        WarpRectangle(warp, {shown.left, shown.top, shown.right, shown.bottom}, {width, height});
    shown = {warped[0], warped[1], warped[2], warped[3]};
  }
  // The comparison is in float32, the type that is delivered.
  const bool has_area = static_cast<float>(shown.right) > static_cast<float>(shown.left) &&
                        static_cast<float>(shown.bottom) > static_cast<float>(shown.top);
  return has_area ? shown : Box();
}

std::string BoxesToNpy(const std::vector<Box>& boxes) {
  std::string file;
  AppendNpyHead(file, {.kind = NumberType::Kind::kFloat, .size = 4}, std::array<uint64_t, 2>{boxes.size(), 4});
  for (const Box& box : boxes) {
    for (const double number : {box.left, box.top, box.right, box.bottom})
      AppendLe(file, std::bit_cast<uint32_t>(static_cast<float>(number)));
  }
  return file;
}

}  // namespace millrace
