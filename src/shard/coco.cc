#include "shard/coco.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "shard/field_value.h"
#include "shard/number_type.h"

namespace millrace {

namespace {

using Json = nlohmann::json;

constexpr int kMaxCocoDepth = 100;
// The members of an image or of an annotation are at this depth: in an object, in a list, in the object of the file.
constexpr int kMemberDepth = 3;

struct CocoImage {
  std::string path;
  std::optional<int64_t> id;
  std::optional<int64_t> height;
  std::optional<int64_t> width;
};

struct CocoAnnotation {
  std::optional<int64_t> image;
  std::optional<int64_t> category;
  std::optional<double> area;
  std::optional<int64_t> crowd;
  std::array<double, 4> box{};
  int box_numbers = -1;  // -1: it has no box
  std::optional<std::string> caption;

  /// An empty caption beside a box says nothing, and the box counts.
  bool is_caption() const { return caption && (!caption->empty() || box_numbers < 0); }
};

// Passes over what nobody asks for.
class CocoReader : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool value) override { return number_integer(value ? 1 : 0); }
  bool number_integer(number_integer_t value) override {
    Whole(value);
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    Whole(static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)));
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Number(value); }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& text) override {
    if (depth_ != kMemberDepth) return true;
    if (list_ == "images" && member_ == "file_name") image_.path = text;
    if (list_ == "annotations" && member_ == "caption") annotation_.caption = text;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == 1) list_ = name;
    if (depth_ == kMemberDepth) member_ = name;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 2) {
      image_ = {};
      annotation_ = {};
      member_.clear();
    }
    return Begin();
  }
  bool end_object() override {
    if (depth_ == kMemberDepth && list_ == "images") images.push_back(std::move(image_));
    if (depth_ == kMemberDepth && list_ == "annotations") annotations.push_back(std::move(annotation_));
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (AtBox(kMemberDepth)) annotation_.box_numbers = 0;
    return Begin();
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    status = absl::InvalidArgumentError(fmt::format("malformed JSON (in UTF-8) at byte {}", at));
    return false;
  }

  std::vector<CocoImage> images;
  std::vector<CocoAnnotation> annotations;
  absl::Status status;

 private:
  bool AtBox(int depth) const { return depth_ == depth && list_ == "annotations" && member_ == "bbox"; }

  bool Begin() {
    if (depth_ < kMaxCocoDepth) return ++depth_ > 0;
    status = absl::InvalidArgumentError("JSON that is nested too deeply");
    return false;
  }
  void Whole(int64_t value) {
    if (depth_ != kMemberDepth) return;
    if (list_ == "images") {
      if (member_ == "id") image_.id = value;
      if (member_ == "height") image_.height = value;
      if (member_ == "width") image_.width = value;
    } else if (list_ == "annotations") {
      if (member_ == "image_id") annotation_.image = value;
      if (member_ == "category_id") annotation_.category = value;
      if (member_ == "iscrowd") annotation_.crowd = value;
    }
  }
  bool Number(double value) {
    if (depth_ == kMemberDepth && list_ == "annotations" && member_ == "area") annotation_.area = value;
    if (!AtBox(kMemberDepth + 1)) return true;
    if (annotation_.box_numbers < 4) annotation_.box[annotation_.box_numbers] = value;
    ++annotation_.box_numbers;
    return true;
  }

  int depth_ = 0;
  std::string list_;    // the member of the file in hand
  std::string member_;  // of an object in it
  CocoImage image_;
  CocoAnnotation annotation_;
};

// Ends as soon as it is clear.
class CocoSigns final : public CocoReader {
 public:
  bool key(string_t& name) override {
    if (depth == 1) list = name;
    return true;
  }
  bool start_object(size_t) override {
    if (depth == 2 && list == "images") has_images = true;
    if (depth == 2 && list == "annotations") has_annotations = true;
    return ++depth < kMaxCocoDepth && !(has_images && has_annotations);
  }
  bool end_object() override { return --depth > 0; }
  bool start_array(size_t) override {
    if (depth == 1 && list == "annotations") empty_annotations = true;
    if (depth == 1 && list == "categories") has_categories = true;
    return depth > 0 && ++depth < kMaxCocoDepth;
  }
  bool end_array() override { return --depth > 0; }

  int depth = 0;
  std::string list;
  bool has_images = false;
  bool has_annotations = false;
  bool empty_annotations = false;  // the list is there, maybe without any
  bool has_categories = false;     // as in the files of test images, which have no annotations
};

std::string TextOf(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{}", static_cast<int64_t>(value))
                                                              : ToDecimal(value);
}

// Returns a JSON list of what `text` makes of each annotation.
template <typename Text>
std::string ListOf(const std::vector<const CocoAnnotation*>& annotations, Text text) {
  std::string list = "[";
  for (const CocoAnnotation* annotation : annotations) {
    if (list.size() > 1) list += ',';
    list += text(*annotation);
  }
  return list + "]";
}

std::string BoxText(const CocoAnnotation& annotation) {
  const auto& [left, top, width, height] = annotation.box;
  return fmt::format("[{},{},{},{}]", TextOf(left), TextOf(top), TextOf(width), TextOf(height));
}

// These are the columns, in bytewise order of names.
enum CocoColumn : uint32_t { kArea, kBoxes, kCaptions, kHeight, kImageId, kCrowd, kLabels, kWidth };

Manifest CocoColumns() {
  Manifest manifest;
  manifest.row_word = "image";
  manifest.columns = {
      {.name = "area", .encoding = encoding::kJson},     {.name = "boxes", .encoding = encoding::kJson},
      {.name = "captions", .encoding = encoding::kJson}, {.name = "height", .encoding = encoding::kInt},
      {.name = "image_id", .encoding = encoding::kInt},  {.name = "iscrowd", .encoding = encoding::kJson},
      {.name = "labels", .encoding = encoding::kJson},   {.name = "width", .encoding = encoding::kInt}};
  return manifest;
}

absl::Status CheckAnnotation(const CocoAnnotation& annotation, size_t number) {
  const auto wrong = [number](std::string_view what) {
    return absl::InvalidArgumentError(fmt::format("annotation {}: {}", number, what));
  };
  if (!annotation.image) return wrong("it has no image_id");
  if (annotation.is_caption()) return absl::OkStatus();
  if (annotation.box_numbers != 4) return wrong("its bbox is not four numbers: left, top, width, height");
  if (!annotation.category) return wrong("it has no category_id");
  return absl::OkStatus();
}

// Returns the values of a row, in the order of their columns.
std::vector<std::pair<uint32_t, std::string>> ValuesOf(const CocoImage& image,
                                                       const std::vector<const CocoAnnotation*>& annotations,
                                                       bool captions) {
  const auto whole = [](int64_t value) { return fmt::format("{}", value); };
  std::vector<std::pair<uint32_t, std::string>> values;
  if (!captions) {
    values.emplace_back(kArea, ListOf(annotations, [](const CocoAnnotation& one) {
                          return TextOf(one.area.value_or(one.box[2] * one.box[3]));
                        }));
    values.emplace_back(kBoxes, ListOf(annotations, BoxText));
  } else {
    values.emplace_back(kCaptions, ListOf(annotations, [](const CocoAnnotation& one) {
                          return Json(one.caption.value_or("")).dump();
                        }));
  }
  if (image.height) values.emplace_back(kHeight, whole(*image.height));
  values.emplace_back(kImageId, whole(*image.id));
  if (!captions) {
    values.emplace_back(kCrowd,
                        ListOf(annotations, [&](const CocoAnnotation& one) { return whole(one.crowd.value_or(0)); }));
    values.emplace_back(kLabels, ListOf(annotations, [&](const CocoAnnotation& one) { return whole(*one.category); }));
  }
  if (image.width) values.emplace_back(kWidth, whole(*image.width));
  return values;
}

}  // namespace

bool IsCoco(std::string_view json) {
  // Most files of labels have no such members at all.
  const auto has = [json](std::string_view name) { return json.find(name) != json.npos; };
  if (!has("\"images\"") || !(has("\"annotations\"") || has("\"categories\""))) return false;
  CocoSigns signs;
  Json::sax_parse(json, &signs, Json::input_format_t::json, /*strict=*/false);
  return signs.has_images && (signs.has_annotations || signs.empty_annotations || signs.has_categories);
}

absl::StatusOr<Manifest> ParseCoco(std::string_view json, ManifestSink each) {
  CocoReader reader;
  if (!Json::sax_parse(json, &reader) || !reader.status.ok()) return reader.status;
  absl::flat_hash_map<int64_t, size_t> places;
  for (size_t place = 0; place < reader.images.size(); ++place) {
    const CocoImage& image = reader.images[place];
    if (image.path.empty() || !image.id)
      return absl::InvalidArgumentError(
          fmt::format("image {}: it has no file_name, or no id that is a whole number", place + 1));
    if (!places.emplace(*image.id, place).second)
      return absl::InvalidArgumentError(
          fmt::format("image {}: the id {} is that of another image", place + 1, *image.id));
  }
  std::vector<std::vector<const CocoAnnotation*>> of_image(reader.images.size());
  bool captions = false;
  for (size_t number = 0; number < reader.annotations.size(); ++number) {
    const CocoAnnotation& annotation = reader.annotations[number];
    RETURN_IF_ERROR(CheckAnnotation(annotation, number + 1));
    const auto place = places.find(*annotation.image);
    if (place == places.end()) {
      return absl::InvalidArgumentError(
          fmt::format("annotation {}: there is no image {}", number + 1, *annotation.image));
    }
    captions = captions || annotation.is_caption();
    of_image[place->second].push_back(&annotation);
  }
  Manifest manifest = CocoColumns();
  std::vector<ManifestCell> cells;
  for (size_t place = 0; place < reader.images.size(); ++place) {
    const CocoImage& image = reader.images[place];
    const std::vector<std::pair<uint32_t, std::string>> values = ValuesOf(image, of_image[place], captions);
    cells.clear();
    for (const auto& [column, text] : values) cells.push_back({.column = column, .text = text});
    RETURN_IF_ERROR(each(manifest, {.path = image.path, .line = place + 1, .label = {}, .cells = cells}));
  }
  return manifest;
}

}  // namespace millrace
