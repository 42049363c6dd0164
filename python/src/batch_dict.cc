#include "batch_dict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "gil_release.h"
#include "service/frame_buffers.h"
#include "shard/npy.h"

namespace millrace::python {

namespace {

using Kind = BatchField::Kind;

// What an array of a batch keeps alive.
struct BatchOwner {
  std::shared_ptr<Process> process;  // first: the memory goes back to its budget
  std::shared_ptr<void> memory;
};

py::list ToTexts(const std::vector<std::string>& texts) {
  py::list list(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) list[i] = ToPyText(texts[i]);
  return list;
}

[[noreturn]] void ThrowDamaged(const Batch& batch, size_t row, const BatchValues& values, std::string_view what) {
  Throw(absl::DataLossError(fmt::format("sample '{}', entry '{}': {}", batch.keys[row], values.name, what)));
}

std::vector<py::ssize_t> ToDims(const std::vector<uint64_t>& shape) {
  return {shape.begin(), shape.end()};
}

py::dtype ToDtype(NumberType type) {
  return py::dtype(NpyDescr(type));
}

constexpr size_t kLeastUsedAgain = size_t{1} << 20;

// Memory that others had before, since fresh pages for each batch would cost more than the copy.
std::shared_ptr<Buffer> MemoryUsedAgain(size_t bytes) {
  constexpr size_t kMostFree = 4;
  static auto* const buffers = new FrameBuffers(kMostFree);  // leaked, like all that the interpreter's end may touch
  return buffers->Take(bytes);
}

py::array ArrayIn(std::shared_ptr<Buffer> memory, const py::dtype& dtype, const std::vector<py::ssize_t>& dims) {
  auto* const held = new std::shared_ptr<Buffer>(std::move(memory));
  const py::capsule owner(held, [](void* pointer) { delete static_cast<std::shared_ptr<Buffer>*>(pointer); });
  return py::array(dtype, dims, (*held)->data(), owner);
}

// An array for rows of values.
py::array NewArray(const py::dtype& dtype, const std::vector<py::ssize_t>& dims, size_t bytes) {
  return bytes < kLeastUsedAgain ? py::array(dtype, dims) : ArrayIn(MemoryUsedAgain(bytes), dtype, dims);
}

// Makes numbers of `element` bytes of the pixels of all rows. Rows without a sample are zeros.
template <typename Scale>
void ScaleRows(const Batch& batch, const FloatImage& image, const Scale& scale, size_t element, const uint8_t* from,
               size_t count, uint8_t* to) {
  const size_t row = batch.size == 0 ? 0 : count / batch.size;
  const size_t pixels = row / image.channels;
  for (const std::string& key : batch.keys) {
    if (key.empty()) {
      std::memset(to, 0, row * element);
    } else if (image.channels_first) {
      for (size_t c = 0; c < image.channels; ++c) scale.Plane(from + c * pixels, pixels, c, to + c * pixels * element);
    } else {
      scale.Packed(from, pixels, image.channels, to);
    }
    from += row;
    to += row * element;
  }
}

// (file, (width, height), (x, y, width, height), (left, top, right, bottom), flip), or None for padding: what
// ImageSpec::encoded leaves to others.
py::list ToEncodedImages(const BatchValues& values) {
  py::list list(values.rows.size());
  for (size_t row = 0; row < values.rows.size(); ++row) {
    list[row] = py::none();
    if (values.rows[row].empty()) continue;
    const EncodedImage image = EncodedImage::OfValue(values.rows[row]);
    const SourceCrop& crop = image.crop;
    list[row] = py::make_tuple(py::bytes(reinterpret_cast<const char*>(image.file.data()), image.file.size()),
                               py::make_tuple(image.size.width, image.size.height),
                               py::make_tuple(crop.x, crop.y, crop.width, crop.height),
                               py::make_tuple(crop.left, crop.top, crop.right, crop.bottom), crop.flip);
  }
  return list;
}

}  // namespace

BatchConverter::BatchConverter(HandOver hand_over)
    : to_(std::move(hand_over)),
      scan_json_(py::module_::import("json").attr("JSONDecoder")().attr("scan_once")),
      detect_encoding_(py::module_::import("json").attr("detect_encoding")) {}

py::object BatchConverter::Converted(const py::array& array) const {
  return to_.convert.is_none() ? py::object(array) : to_.convert(array);
}

// Types that torch lacks, such as texts, dates and records, stay arrays of NumPy.
py::object BatchConverter::ConvertedIfPossible(const py::array& array) const {
  try {
    return Converted(array);
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    return array;
  }
}

py::object BatchConverter::ToJson(const std::string& text) const {
  // As json.loads decodes bytes, which CheckJson has checked.
  constexpr size_t kFirst = 4;
  const std::string_view first = std::string_view(text).substr(0, kFirst);
  const bool plain = std::all_of(first.begin(), first.end(), [](char c) { return c > 0; });
  const std::string encoding =
      plain ? "utf-8" : detect_encoding_(py::bytes(first.data(), first.size())).cast<std::string>();
  const auto decoded = py::reinterpret_steal<py::object>(
      PyUnicode_Decode(text.data(), static_cast<py::ssize_t>(text.size()), encoding.c_str(), "surrogatepass"));
  if (!decoded) throw py::error_already_set();
  return scan_json_(decoded.attr("lstrip")(" \t\r\n"), 0).cast<py::tuple>()[0];
}

// A list of arrays [n, 4], empty for padding.
py::object BatchConverter::ToBoxes(const Batch& batch, const BatchValues& values) const {
  py::list list(values.rows.size());
  for (size_t row = 0; row < values.rows.size(); ++row) {
    const std::string& file = values.rows[row];
    const std::optional<NpyArray> boxes = ParseNpy(AsBytes(file));
    if (!file.empty() && !boxes) ThrowDamaged(batch, row, values, "no boxes");
    py::array_t<float> array({boxes ? static_cast<py::ssize_t>(boxes->shape.front()) : 0, py::ssize_t{4}});
    if (boxes && !boxes->values.empty()) std::memcpy(array.mutable_data(), boxes->values.data(), boxes->values.size());
    list[row] = Converted(array);
  }
  return list;
}

void BatchConverter::Pad(const py::array& stacked, const BatchValues& values) const {
  const auto found = std::find_if(to_.padding.begin(), to_.padding.end(),
                                  [&](const FieldPadding& padding) { return padding.name == values.name; });
  if (found == to_.padding.end()) return;
  py::object value = py::float_(found->value);
  if (std::isfinite(found->value) && std::trunc(found->value) == found->value)
    value = py::int_(static_cast<int64_t>(found->value));
  for (size_t row = 0; row < values.rows.size(); ++row) {
    if (!values.rows[row].empty()) continue;
    try {
      stacked[py::int_(row)] = value;
    } catch (const py::error_already_set& error) {
      if (error.matches(PyExc_MemoryError)) throw;
      Throw(absl::InvalidArgumentError(
          fmt::format("'{}' of a batch cannot hold the padding {}: {}", values.name, found->value, error.what())));
    }
  }
}

// The same of files that are not as ParseNpy reads them (other orders, types and versions): by NumPy itself.
py::object BatchConverter::LoadArrays(const Batch& batch, const BatchValues& values) const {
  const py::object load = py::module_::import("numpy").attr("load");
  const py::object bytes_io = py::module_::import("io").attr("BytesIO");
  py::list list(values.rows.size());
  py::object first = py::none();
  bool alike = true;
  for (size_t row = 0; row < values.rows.size(); ++row) {
    list[row] = py::none();
    if (values.rows[row].empty()) continue;
    py::object array;
    try {
      array = load(bytes_io(py::bytes(values.rows[row])), py::arg("allow_pickle") = false);
    } catch (const py::error_already_set& error) {
      ThrowDamaged(batch, row, values, error.what());
    }
    if (first.is_none()) first = array;
    alike = alike && array.attr("dtype").equal(first.attr("dtype")) && array.attr("shape").equal(first.attr("shape"));
    list[row] = array;
  }
  const py::module_ numpy = py::module_::import("numpy");
  if (alike && !first.is_none()) {
    const py::object padding = numpy.attr("zeros_like")(first);
    for (size_t row = 0; row < values.rows.size(); ++row) {
      if (values.rows[row].empty()) list[row] = padding;
    }
    const py::array stacked(numpy.attr("stack")(list));
    Pad(stacked, values);
    return ConvertedIfPossible(stacked);
  }
  for (size_t row = 0; row < values.rows.size(); ++row) {
    if (values.rows[row].empty()) continue;
    // In the byte order of this machine, as numpy.stack has it: torch knows no other.
    const py::object dtype = list[row].attr("dtype").attr("newbyteorder")("=");
    list[row] = ConvertedIfPossible(py::array(list[row].attr("astype")(dtype, py::arg("copy") = false)));
  }
  return list;
}

// One array where all rows have one type and shape, with zeros, or what was chosen, for padding; else a list, with
// None for padding.
py::object BatchConverter::ToArrays(const Batch& batch, const BatchValues& values) const {
  std::vector<std::optional<NpyArray>> rows;
  for (size_t row = 0; row < values.rows.size(); ++row) {
    const std::string& file = values.rows[row];
    rows.push_back(ParseNpy(AsBytes(file)));
    if (!file.empty() && !rows.back()) return LoadArrays(batch, values);
  }
  const auto first = std::find_if(rows.begin(), rows.end(), [](const auto& row) { return row.has_value(); });
  const bool alike = first != rows.end() && std::all_of(first, rows.end(), [&](const auto& row) {
                       return !row || (row->type == (*first)->type && row->shape == (*first)->shape);
                     });
  if (!alike) {
    py::list list(rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      list[row] = py::none();
      if (!rows[row]) continue;
      py::array array(ToDtype(rows[row]->type), ToDims(rows[row]->shape));
      std::memcpy(array.mutable_data(), rows[row]->values.data(), rows[row]->values.size());
      list[row] = ConvertedIfPossible(array);
    }
    return list;
  }
  std::vector<py::ssize_t> dims = ToDims((*first)->shape);
  dims.insert(dims.begin(), static_cast<py::ssize_t>(rows.size()));
  const size_t bytes = (*first)->values.size();
  py::array stacked = NewArray(ToDtype((*first)->type), dims, bytes * rows.size());
  auto* to = static_cast<std::byte*>(stacked.mutable_data());
  for (const auto& row : rows) {
    if (row) {
      std::memcpy(to, row->values.data(), bytes);
    } else {
      std::memset(to, 0, bytes);
    }
    to += bytes;
  }
  Pad(stacked, values);
  return ConvertedIfPossible(stacked);
}

py::object BatchConverter::ToValues(const Batch& batch, const BatchValues& values) const {
  if (values.kind == Kind::kImage) return ToEncodedImages(values);
  if (values.kind == Kind::kText || values.kind == Kind::kLabel) return ToTexts(values.rows);
  if (values.kind == Kind::kArray) return ToArrays(batch, values);
  if (values.kind == Kind::kBoxes) return ToBoxes(batch, values);
  py::list list(values.rows.size());
  for (size_t row = 0; row < values.rows.size(); ++row) {
    if (values.kind == Kind::kBytes) {
      list[row] = py::bytes(values.rows[row]);
      continue;
    }
    list[row] = py::none();
    if (values.rows[row].empty()) continue;  // padding: no JSON is empty
    try {
      list[row] = ToJson(values.rows[row]);
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_MemoryError)) throw;
      ThrowDamaged(batch, row, values, fmt::format("Python's json module does not take it: {}", error.what()));
    }
  }
  return list;
}

py::object BatchConverter::ToFloats(const Batch& batch, const ArrayShape& array, const FloatImage& image,
                                    const std::vector<py::ssize_t>& dims) const {
  const ByteSpan bytes = batch.Bytes(image.name);
  const auto* const from = reinterpret_cast<const uint8_t*>(bytes.data());
  const bool is_scaled = array.dtype == "float32";
  const size_t count = is_scaled ? bytes.size() / sizeof(float) : bytes.size();
  const size_t size = count * (image.half ? sizeof(uint16_t) : sizeof(float));
  // Aligned to 64 bytes in any case, as arrays in the loader's memory are.
  py::array made =
      ArrayIn(size < kLeastUsedAgain ? std::make_shared<Buffer>(size) : MemoryUsedAgain(size), image.element, dims);
  auto* const to = static_cast<uint8_t*>(made.mutable_data());
  WithoutGil([&] {
    if (is_scaled) {
      ToHalves(*image.half, from, count, to);
    } else if (image.half) {
      ScaleRows(batch, image, *image.halves, sizeof(uint16_t), from, count, to);
    } else {
      ScaleRows(batch, image, image.scale, sizeof(float), from, count, to);
    }
  });
  py::object converted = Converted(made);
  return image.view.is_none() ? converted : converted.attr("view")(image.view);
}

py::object BatchConverter::Convert(const BatchShape& shape, const std::shared_ptr<Process>& process,
                                   Batch batch) const {
  py::dict all = ToDict(shape, process, std::move(batch));
  if (to_.as_tuple.empty()) return std::move(all);
  py::tuple chosen(to_.as_tuple.size());
  for (size_t i = 0; i < to_.as_tuple.size(); ++i) chosen[i] = all[ToPyText(to_.as_tuple[i])];
  return std::move(chosen);
}

py::dict BatchConverter::ToDict(const BatchShape& shape, const std::shared_ptr<Process>& process, Batch batch) const {
  auto* const held = new ProcessLocal<BatchOwner>(new BatchOwner{process, batch.memory});
  const py::capsule owner(held, [](void* pointer) { delete static_cast<ProcessLocal<BatchOwner>*>(pointer); });
  batch.memory = nullptr;
  py::dict result;
  for (const ArrayShape& array : shape) {
    // Ordinals stay below 2^60: as int64 they suit torch, which has hardly any operations on uint64.
    std::vector<py::ssize_t> dims(array.dims.begin(), array.dims.end());
    dims.front() = static_cast<py::ssize_t>(batch.size);
    const auto image = std::find_if(to_.floats.begin(), to_.floats.end(),
                                    [&](const FloatImage& each) { return each.name == array.name; });
    result[ToPyText(array.name)] =
        image != to_.floats.end()
            ? ToFloats(batch, array, *image, dims)
            : Converted(py::array(py::dtype(array.dtype), dims, batch.Bytes(array.name).data(), owner));
  }
  for (BatchValues& values : batch.values) {
    result[ToPyText(values.name)] = ToValues(batch, values);
    std::vector<std::string>().swap(values.rows);
  }
  result["key"] = ToTexts(batch.keys);
  return result;
}

}  // namespace millrace::python
