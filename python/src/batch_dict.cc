#include "batch_dict.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "gil_release.h"
#include "numpy_array.h"
#include "service/frame_buffers.h"
#include "shard/npy.h"

namespace millrace::python {

namespace {

using Kind = BatchField::Kind;

// Holds what an array of a batch keeps alive.
struct BatchOwner {
  std::shared_ptr<Process> process;  // first: the memory goes back to its budget
  std::shared_ptr<void> memory;
};

nb::list ToTexts(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(ToPyText(text));
  return list;
}

[[noreturn]] void ThrowDamaged(const Batch& batch, size_t row, const BatchValues& values, std::string_view what) {
  Throw(absl::DataLossError(fmt::format("sample '{}', entry '{}': {}", batch.keys[row], values.name, what)));
}

std::vector<Py_ssize_t> ToDims(const std::vector<uint64_t>& shape) {
  return {shape.begin(), shape.end()};
}

nb::object ToDtype(NumberType type) {
  return Dtype(NpyDescr(type));
}

constexpr size_t kLeastUsedAgain = size_t{1} << 20;

// Returns memory that others had before, since fresh pages for each batch would cost more than the copy.
std::shared_ptr<Buffer> MemoryUsedAgain(size_t bytes) {
  constexpr size_t kMostFree = 4;
  static auto* const buffers = new FrameBuffers(kMostFree);  // leaked, like all that the interpreter's end may touch
  return buffers->Take(bytes);
}

// Holds an array that is to be filled.
struct NewArray {
  NewArray(nb::handle dtype, const std::vector<Py_ssize_t>& dims, size_t bytes) {
    // The memory is aligned to 64 bytes in any case, as arrays in the loader's memory are.
    auto memory = bytes < kLeastUsedAgain ? std::make_shared<Buffer>(bytes) : MemoryUsedAgain(bytes);
    data = memory->data();
    auto* const held = new std::shared_ptr<Buffer>(std::move(memory));
    const nb::capsule owner(held,
                            [](void* pointer) noexcept { delete static_cast<std::shared_ptr<Buffer>*>(pointer); });
    array = ArrayIn(data, bytes, owner, dtype, dims);
  }

  nb::object array;
  std::byte* data = nullptr;
};

std::chrono::nanoseconds CpuTimeOfThread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
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
nb::list ToEncodedImages(const BatchValues& values) {
  nb::list list;
  for (size_t row = 0; row < values.rows.size(); ++row) {
    if (values.rows[row].empty()) {
      list.append(nb::none());
      continue;
    }
    const EncodedImage image = EncodedImage::OfValue(values.rows[row]);
    const SourceCrop& crop = image.crop;
    list.append(nb::make_tuple(ToPyBytes(AsText(image.file)), nb::make_tuple(image.size.width, image.size.height),
                               nb::make_tuple(crop.x, crop.y, crop.width, crop.height),
                               nb::make_tuple(crop.left, crop.top, crop.right, crop.bottom), crop.flip));
  }
  return list;
}

}  // namespace

BatchConverter::BatchConverter(HandOver hand_over)
    : to_(std::move(hand_over)),
      scan_json_(nb::module_::import_("json").attr("JSONDecoder")().attr("scan_once")),
      detect_encoding_(nb::module_::import_("json").attr("detect_encoding")) {}

nb::object BatchConverter::Converted(const nb::object& array) const {
  return to_.convert.is_none() ? array : to_.convert(array);
}

// Types that torch lacks, such as texts, dates and records, stay arrays of NumPy.
nb::object BatchConverter::ConvertedIfPossible(const nb::object& array) const {
  try {
    return Converted(array);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    return array;
  }
}

nb::object BatchConverter::ToJson(const std::string& text) const {
  // The bytes are decoded as by json.loads; CheckJson has checked them.
  constexpr size_t kFirst = 4;
  const std::string_view first = std::string_view(text).substr(0, kFirst);
  const bool plain = std::all_of(first.begin(), first.end(), [](char c) { return c > 0; });
  const std::string encoding = plain ? "utf-8" : nb::cast<std::string>(detect_encoding_(ToPyBytes(first)));
  const auto decoded = nb::steal<nb::object>(
      PyUnicode_Decode(text.data(), static_cast<Py_ssize_t>(text.size()), encoding.c_str(), "surrogatepass"));
  if (!decoded.is_valid()) throw nb::python_error();
  return nb::cast<nb::tuple>(scan_json_(decoded.attr("lstrip")(" \t\r\n"), 0))[0];
}

// Returns a list of arrays [n, 4], empty for padding.
nb::object BatchConverter::ToBoxes(const Batch& batch, const BatchValues& values) const {
  const nb::object dtype = Dtype("float32");
  nb::list list;
  for (size_t row = 0; row < values.rows.size(); ++row) {
    const std::string& file = values.rows[row];
    const std::optional<NpyArray> boxes = ParseNpy(AsBytes(file));
    if (!file.empty() && !boxes) ThrowDamaged(batch, row, values, "no boxes");
    const size_t bytes = boxes ? boxes->values.size() : 0;
    const NewArray made(dtype, {boxes ? static_cast<Py_ssize_t>(boxes->shape.front()) : 0, 4}, bytes);
    if (bytes > 0) std::memcpy(made.data, boxes->values.data(), bytes);
    list.append(Converted(made.array));
  }
  return list;
}

void BatchConverter::Pad(const nb::object& stacked, const BatchValues& values) const {
  const auto found = std::find_if(to_.padding.begin(), to_.padding.end(),
                                  [&](const FieldPadding& padding) { return padding.name == values.name; });
  if (found == to_.padding.end()) return;
  nb::object value = nb::float_(found->value);
  if (std::isfinite(found->value) && std::trunc(found->value) == found->value)
    value = nb::int_(static_cast<int64_t>(found->value));
  for (size_t row = 0; row < values.rows.size(); ++row) {
    if (!values.rows[row].empty()) continue;
    try {
      stacked[nb::int_(row)] = value;
    } catch (const nb::python_error& error) {
      if (error.matches(PyExc_MemoryError)) throw;
      Throw(absl::InvalidArgumentError(fmt::format("'{}' of a batch cannot hold the padding {}: {}", values.name,
                                                   found->value, DescribeError(error))));
    }
  }
}

// Does the same for files that ParseNpy does not read (other orders, types and versions): by NumPy itself.
nb::object BatchConverter::LoadArrays(const Batch& batch, const BatchValues& values) const {
  const nb::object load = nb::module_::import_("numpy").attr("load");
  const nb::object bytes_io = nb::module_::import_("io").attr("BytesIO");
  nb::list list;
  nb::object first = nb::none();
  bool alike = true;
  for (size_t row = 0; row < values.rows.size(); ++row) {
    list.append(nb::none());
    if (values.rows[row].empty()) continue;
    nb::object array;
    try {
      array = load(bytes_io(ToPyBytes(values.rows[row])), nb::arg("allow_pickle") = false);
    } catch (const nb::python_error& error) {
      ThrowDamaged(batch, row, values, DescribeError(error));
    }
    if (first.is_none()) first = array;
    alike = alike && array.attr("dtype").equal(first.attr("dtype")) && array.attr("shape").equal(first.attr("shape"));
    list[row] = array;
  }
  const nb::module_ numpy = nb::module_::import_("numpy");
  if (alike && !first.is_none()) {
    const nb::object padding = numpy.attr("zeros_like")(first);
    for (size_t row = 0; row < values.rows.size(); ++row) {
      if (values.rows[row].empty()) list[row] = padding;
    }
    const nb::object stacked = numpy.attr("stack")(list);
    Pad(stacked, values);
    return ConvertedIfPossible(stacked);
  }
  for (size_t row = 0; row < values.rows.size(); ++row) {
    if (values.rows[row].empty()) continue;
    // In the byte order of this machine, as numpy.stack has it: torch knows no other.
    const nb::object dtype = list[row].attr("dtype").attr("newbyteorder")("=");
    list[row] = ConvertedIfPossible(list[row].attr("astype")(dtype, nb::arg("copy") = false));
  }
  return list;
}

// Returns one array if all rows have one type and shape, with zeros, or what was chosen, for padding; else a list, with
// None for padding.
nb::object BatchConverter::ToArrays(const Batch& batch, const BatchValues& values) const {
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
    nb::list list;
    for (const std::optional<NpyArray>& row : rows) {
      if (!row) {
        list.append(nb::none());
        continue;
      }
      const NewArray made(ToDtype(row->type), ToDims(row->shape), row->values.size());
      if (!row->values.empty()) std::memcpy(made.data, row->values.data(), row->values.size());
      list.append(ConvertedIfPossible(made.array));
    }
    return list;
  }
  std::vector<Py_ssize_t> dims = ToDims((*first)->shape);
  dims.insert(dims.begin(), static_cast<Py_ssize_t>(rows.size()));
  const size_t bytes = (*first)->values.size();
  const NewArray stacked(ToDtype((*first)->type), dims, bytes * rows.size());
  std::byte* to = stacked.data;
  for (const auto& row : rows) {
    if (row) {
      std::memcpy(to, row->values.data(), bytes);
    } else {
      std::memset(to, 0, bytes);
    }
    to += bytes;
  }
  Pad(stacked.array, values);
  return ConvertedIfPossible(stacked.array);
}

nb::object BatchConverter::ToValues(const Batch& batch, const BatchValues& values) const {
  if (values.kind == Kind::kImage) return ToEncodedImages(values);
  if (values.kind == Kind::kText || values.kind == Kind::kLabel) return ToTexts(values.rows);
  if (values.kind == Kind::kArray) return ToArrays(batch, values);
  if (values.kind == Kind::kBoxes) return ToBoxes(batch, values);
  nb::list list;
  for (size_t row = 0; row < values.rows.size(); ++row) {
    if (values.kind == Kind::kBytes) {
      list.append(ToPyBytes(values.rows[row]));
      continue;
    }
    if (values.rows[row].empty()) {  // padding: no JSON is empty
      list.append(nb::none());
      continue;
    }
    try {
      list.append(ToJson(values.rows[row]));
    } catch (const nb::python_error& error) {
      if (error.matches(PyExc_MemoryError)) throw;
      ThrowDamaged(batch, row, values, fmt::format("Python's json module does not take it: {}", DescribeError(error)));
    }
  }
  return list;
}

nb::object BatchConverter::ToFloats(const Batch& batch, const ArrayShape& array, const FloatImage& image,
                                    const std::vector<Py_ssize_t>& dims) const {
  const ByteSpan bytes = batch.Bytes(image.name);
  const auto* const from = reinterpret_cast<const uint8_t*>(bytes.data());
  const bool is_scaled = array.dtype == "float32";
  const size_t count = is_scaled ? bytes.size() / sizeof(float) : bytes.size();
  const size_t size = count * (image.half ? sizeof(uint16_t) : sizeof(float));
  const NewArray made(image.element, dims, size);
  auto* const to = reinterpret_cast<uint8_t*>(made.data);
  cpu_time_ += WithoutGil([&] {
    const std::chrono::nanoseconds begin = CpuTimeOfThread();
    if (is_scaled) {
      ToHalves(*image.half, from, count, to);
    } else if (image.half) {
      ScaleRows(batch, image, *image.halves, sizeof(uint16_t), from, count, to);
    } else {
      ScaleRows(batch, image, image.scale, sizeof(float), from, count, to);
    }
    return CpuTimeOfThread() - begin;
  });
  nb::object converted = Converted(made.array);
  return image.view.is_none() ? converted : converted.attr("view")(image.view);
}

nb::object BatchConverter::Convert(const BatchShape& shape, const std::shared_ptr<Process>& process,
                                   Batch batch) const {
  nb::dict all = ToDict(shape, process, std::move(batch));
  if (to_.as_tuple.empty()) return all;
  nb::list chosen;
  for (const std::string& name : to_.as_tuple) chosen.append(all[ToPyText(name)]);
  return nb::tuple(chosen);
}

nb::dict BatchConverter::ToDict(const BatchShape& shape, const std::shared_ptr<Process>& process, Batch batch) const {
  auto* const held = new ProcessLocal<BatchOwner>(new BatchOwner{process, batch.memory});
  const nb::capsule owner(held, [](void* pointer) noexcept { delete static_cast<ProcessLocal<BatchOwner>*>(pointer); });
  batch.memory = nullptr;
  nb::dict result;
  for (const ArrayShape& array : shape) {
    // Ordinals stay below 2^60: as int64 they suit torch, which has hardly any operations on uint64.
    std::vector<Py_ssize_t> dims(array.dims.begin(), array.dims.end());
    dims.front() = static_cast<Py_ssize_t>(batch.size);
    const auto image = std::find_if(to_.floats.begin(), to_.floats.end(),
                                    [&](const FloatImage& each) { return each.name == array.name; });
    if (image != to_.floats.end()) {
      result[ToPyText(array.name)] = ToFloats(batch, array, *image, dims);
      continue;
    }
    const auto bytes = batch.Bytes(array.name);
    auto* const data = const_cast<std::byte*>(bytes.data());
    result[ToPyText(array.name)] = Converted(ArrayIn(data, bytes.size(), owner, Dtype(array.dtype), dims));
  }
  for (BatchValues& values : batch.values) {
    result[ToPyText(values.name)] = ToValues(batch, values);
    std::vector<std::string>().swap(values.rows);
  }
  result["key"] = ToTexts(batch.keys);
  return result;
}

}  // namespace millrace::python
