#include "dataset/testing/index_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

namespace millrace::testing {

namespace {

std::string RandomMd5(Rng& rng) {
  const uint64_t high = rng.Next();  // one after the other, the same with every compiler
  return fmt::format("{:016x}{:016x}", high, rng.Next());
}

std::string RandomEtag(Rng& rng, uint64_t number) {
  std::string hex = RandomMd5(rng);
  switch (rng.Below(5)) {
    case 0:
      return hex;
    case 1:
      return fmt::format("{}-{}", hex, 1 + rng.Below(10000));
    case 2:
      return fmt::format("{}-007", hex);
    case 3:
      return fmt::format("file:{}", number);
    default:
      return "";
  }
}

ModelSample RandomTarSample(const std::string& key, uint64_t* end, Rng& rng) {
  ModelSample sample{.key = key, .fields = {}, .crc32c = static_cast<uint32_t>(rng.Next()), .label = {}};
  std::vector<std::string> names = {"jpg", "json", "seg.png", ""};
  if (rng.Below(20) == 0) names.push_back(fmt::format("rare{}", rng.Below(50)));
  const uint64_t count = 1 + rng.Below(names.size());
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t pick = rng.Below(names.size());
    const uint64_t gap = rng.Below(5) == 0 ? rng.Below(9) : 1;
    const uint64_t offset = (*end + 511) / 512 * 512 + gap * 512;
    const uint64_t length = rng.Below(10) == 0 ? rng.Next() >> (10 + rng.Below(54)) : rng.Below(200'000);
    sample.fields.push_back({.name = names[pick], .offset = offset, .length = length});
    names.erase(names.begin() + static_cast<ptrdiff_t>(pick));
    *end = offset + length;
  }
  if (rng.Below(2) == 0) sample.label = fmt::format("{}", rng.Below(12));
  if (rng.Below(4) == 0) sample.crc32c.reset();
  return sample;
}

// Makes a sample of a format in which fields lie anywhere and have encodings.
ModelSample RandomRecord(const std::string& key, uint64_t* end, Rng& rng) {
  constexpr std::string_view kEncodings[] = {"", "jpeg", "tf.int", "tf.floats", "ndarray:float32:3,224,224"};
  ModelSample sample = RandomTarSample(key, end, rng);
  const uint64_t shift = rng.Below(512);
  for (ModelField& field : sample.fields) {
    field.offset += shift;
    field.encoding = kEncodings[rng.Below(std::size(kEncodings))];
  }
  *end += shift;
  return sample;
}

std::string RandomKey(uint64_t number, Rng& rng) {
  if (rng.Below(10) == 0) {
    std::string key(rng.Below(300), '\0');
    for (char& c : key) c = static_cast<char>(rng.Next());
    return key;
  }
  return fmt::format("train/{:06}", number);
}

// Makes raw objects "folder/name". The folders are in the order of a listing, which is not their own.
Model RandomRaw(uint64_t samples, Rng& rng) {
  Model model{.kind = DataKind::kRawObjects, .objects = {}};
  const std::vector<std::string> folders = {"", "a-b/", "a/", "a0/", "b/"};
  for (uint64_t i = 0; i < samples; ++i) {
    const std::string& folder = folders[i * folders.size() / std::max<uint64_t>(samples, 1)];
    const std::string key = fmt::format("{}{:07}", folder.empty() ? "0" : folder, i);
    ModelObject object{.info = {.key = key + ".jpg", .size = rng.Below(1 << 20), .etag = RandomEtag(rng, i)},
                       .samples = {}};
    ModelSample sample{.key = key, .fields = {}, .crc32c = static_cast<uint32_t>(rng.Next()), .label = {}};
    sample.fields.push_back({.name = rng.Below(9) == 0 ? "png" : "jpg", .offset = 0, .length = object.info.size});
    if (!folder.empty()) sample.label = folder.substr(0, folder.size() - 1);
    if (rng.Below(2) == 0) sample.crc32c.reset();
    object.samples.push_back(std::move(sample));
    model.objects.push_back(std::move(object));
  }
  return model;
}

std::string DescribeField(const IndexedField& field) {
  return field.is_inline ? fmt::format(" {}='{}'{}", field.name, field.inline_text, field.encoding)
                         : fmt::format(" {}@{}+{}{}", field.name, field.offset, field.length, field.encoding);
}

// Provides the totals that the index states.
struct Totals {
  uint64_t samples = 0, without_crc = 0, objects = 0, bytes = 0, max_span = 0;
  std::set<std::string> fields;
};

std::string DescribeTotals(const Totals& totals) {
  return fmt::format("{} samples ({} without CRC) {} objects {} bytes max {} fields {}\n", totals.samples,
                     totals.without_crc, totals.objects, totals.bytes, totals.max_span, fmt::join(totals.fields, ","));
}

std::string DescribeSample(const std::string& key, uint64_t object, ByteRange span, std::optional<uint32_t> crc,
                           const std::vector<IndexedField>& fields, std::string_view label) {
  std::string text = fmt::format("'{}' in {} at {}+{} crc {}:", key, object, span.offset, span.length,
                                 crc ? fmt::format("{:08x}", *crc) : "none");
  for (const IndexedField& field : fields) text += DescribeField(field);
  if (!label.empty()) text += fmt::format(" of class '{}'", label);
  return text + '\n';
}

std::string DescribeObject(const IndexedObject& object) {
  return fmt::format("object '{}' {} '{}'{}\n", object.key, object.size, object.etag,
                     object.incomplete ? " incomplete" : "");
}

}  // namespace

Model RandomModel(DataKind kind, uint64_t samples, Rng& rng) {
  if (kind == DataKind::kRawObjects) return RandomRaw(samples, rng);
  Model model{.kind = kind, .objects = {}};
  uint64_t made = 0;
  for (uint64_t number = 0; made < samples || rng.Below(3) == 0; ++number) {
    ModelObject object{.info = {.key = fmt::format("s-{:06}.tar", number), .size = 0, .etag = RandomEtag(rng, number)},
                       .samples = {}};
    uint64_t end = 0;
    // Some shards are empty, some span many blocks.
    const uint64_t count = rng.Below(4) == 0 ? 0 : rng.Below(1 + (rng.Below(3) == 0 ? 200 : 10));
    for (uint64_t i = 0; i < count && made < samples; ++i, ++made)
      object.samples.push_back(
          (kind == DataKind::kTar ? RandomTarSample : RandomRecord)(RandomKey(made, rng), &end, rng));
    object.info.size = (end + 511) / 512 * 512 + 1024;
    model.objects.push_back(std::move(object));
  }
  return model;
}

Model UsualModel(uint64_t samples, Rng& rng) {
  Model model;
  for (uint64_t i = 0; i < samples; ++i) {
    if (i % 2000 == 0) {
      const std::string etag = RandomMd5(rng) + "-32";
      model.objects.push_back(
          {.info = {.key = fmt::format("shard-{:06}.tar", i / 2000), .size = 256 << 20, .etag = etag}, .samples = {}});
    }
    ModelObject& object = model.objects.back();
    const uint64_t before = object.samples.empty() ? 0 : object.samples.back().fields.back().offset + 512;
    const uint64_t length = 100'000 + rng.Below(30'000);
    ModelSample sample{
        .key = fmt::format("{:08}", i), .fields = {}, .crc32c = static_cast<uint32_t>(rng.Next()), .label = {}};
    sample.fields.push_back({.name = "jpg", .offset = before + 512, .length = length});
    sample.fields.push_back({.name = "cls", .offset = (before + 512 + length + 511) / 512 * 512 + 512, .length = 3});
    sample.label = fmt::format("{}", rng.Below(1000));
    object.samples.push_back(std::move(sample));
  }
  return model;
}

void AddValues(Model* model, Rng& rng) {
  constexpr std::string_view kEncodings[] = {"", "int", "text", "json"};
  for (ModelObject& object : model->objects) {
    object.info.incomplete = rng.Below(7) == 0;
    for (ModelSample& sample : object.samples) {
      // Ascending names that no field has: "rareN" are between "p" and "z".
      for (const std::string_view name : {"", "caption", "p", "zz", "zzz"}) {
        const bool is_field = std::any_of(sample.fields.begin(), sample.fields.end(),
                                          [name](const ModelField& field) { return field.name == name; });
        if (is_field || rng.Below(3) == 0) continue;
        std::string text(rng.Below(20) == 0 ? rng.Below(20'000) : rng.Below(20), '\0');
        for (char& c : text) c = static_cast<char>(rng.Next());
        sample.values.push_back({.name = std::string(name),
                                 .text = std::move(text),
                                 .encoding = std::string(kEncodings[rng.Below(std::size(kEncodings))])});
      }
    }
  }
}

absl::StatusOr<std::string> WriteIndex(const Model& model) {
  std::string bytes;
  IndexWriter writer(model.kind, std::make_unique<StringWriter>(&bytes));
  for (const ModelObject& object : model.objects) {
    for (const ModelSample& sample : object.samples) {
      std::vector<NewSampleField> fields;
      for (const ModelField& field : sample.fields)
        fields.push_back(
            {.name = field.name, .offset = field.offset, .length = field.length, .encoding = field.encoding});
      std::vector<NewSampleValue> values;
      for (const ModelValue& value : sample.values)
        values.push_back({.name = value.name, .text = value.text, .encoding = value.encoding});
      RETURN_IF_ERROR(writer.AddSample({.key = sample.key,
                                        .fields = fields,
                                        .crc32c = sample.crc32c,
                                        .label = sample.label,
                                        .values = values,
                                        .class_file_bytes = sample.class_file_bytes}));
    }
    RETURN_IF_ERROR(writer.AddObject(object.info));
  }
  RETURN_IF_ERROR(writer.Finish().status());
  return bytes;
}

std::string Describe(const Index& index) {
  Totals totals{.samples = index.size(),
                .without_crc = index.samples_without_crc(),
                .objects = index.objects(),
                .bytes = index.total_bytes(),
                .max_span = index.max_span_bytes(),
                .fields = {}};
  totals.fields.insert(index.field_names().begin(), index.field_names().end());
  std::string text = DescribeTotals(totals);
  for (const ClassCount& one : index.class_counts()) text += fmt::format("class '{}': {}\n", one.name, one.samples);
  text += fmt::format("{} runs, folders {}\n", index.class_runs(), fmt::join(index.class_names(), ","));
  IndexedSample sample;
  for (uint64_t i = 0; i < index.size(); ++i) {
    const absl::Status status = index.Lookup(i, &sample);
    if (!status.ok()) return status.ToString();
    const std::string label = sample.label ? index.class_counts()[*sample.label].name : "";
    text += DescribeSample(sample.key, sample.object, sample.span, sample.crc32c, sample.fields, label);
  }
  IndexedObject object;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    const absl::Status status = index.LookupObject(static_cast<uint32_t>(i), &object);
    if (!status.ok()) return status.ToString();
    text += DescribeObject(object);
  }
  return text;
}

namespace {

// Describes one sample of the model as the index does; `folders` are those of raw objects.
std::string DescribeModelSample(const ModelSample& sample, size_t object, const std::vector<std::string>& folders) {
  const uint64_t begin = sample.fields.front().offset;
  std::vector<IndexedField> fields;
  for (const ModelField& field : sample.fields) {
    fields.push_back({.name = field.name,
                      .offset = field.offset - begin,
                      .length = field.length,
                      .inline_text = {},
                      .is_inline = false,
                      .encoding = field.encoding});
  }
  const auto add_inline = [&fields](std::string_view name, std::string_view text, std::string_view encoding) {
    fields.push_back({.name = name,
                      .offset = 0,
                      .length = text.size(),
                      .inline_text = text,
                      .is_inline = true,
                      .encoding = encoding});
  };
  for (const ModelValue& value : sample.values) add_inline(value.name, value.text, value.encoding);
  std::string text_of_class;
  const auto folder = std::find(folders.begin(), folders.end(), sample.label);
  if (folder != folders.end()) {
    text_of_class = fmt::format("{}", folder - folders.begin());
    add_inline("cls", text_of_class, "int");
  }
  std::sort(fields.begin(), fields.end(), [](const IndexedField& a, const IndexedField& b) { return a.name < b.name; });
  const ModelField& last = sample.fields.back();
  return DescribeSample(sample.key, object, {begin, last.offset + last.length - begin}, sample.crc32c, fields,
                        sample.label);
}

}  // namespace

std::string Describe(const Model& model) {
  const bool raw = model.kind == DataKind::kRawObjects;
  Totals totals{
      .samples = 0, .without_crc = 0, .objects = model.objects.size(), .bytes = 0, .max_span = 0, .fields = {}};
  std::map<std::string, uint64_t> counts;
  std::vector<std::string> labels;
  for (const ModelObject& object : model.objects) {
    for (const ModelSample& sample : object.samples) {
      ++totals.samples;
      totals.without_crc += sample.crc32c ? 0 : 1;
      const uint64_t span = sample.fields.back().offset + sample.fields.back().length - sample.fields.front().offset;
      totals.bytes += span;
      totals.max_span = std::max(totals.max_span, span);
      for (const ModelField& field : sample.fields) totals.fields.insert(field.name);
      for (const ModelValue& value : sample.values) totals.fields.insert(value.name);
      if (sample.label.empty()) continue;
      if (raw) totals.fields.insert("cls");
      ++counts[sample.label];
      labels.push_back(sample.label);
    }
  }
  std::vector<std::pair<std::string, uint64_t>> classes(counts.begin(), counts.end());
  if (!raw)
    std::sort(classes.begin(), classes.end(), [](auto& a, auto& b) { return std::stoi(a.first) < std::stoi(b.first); });
  std::string text = DescribeTotals(totals);
  std::vector<std::string> folders;
  for (const auto& [name, count] : classes) text += fmt::format("class '{}': {}\n", name, count);
  for (const auto& one : classes) folders.push_back(one.first);
  size_t runs = 0;
  for (size_t i = 0; i < labels.size(); ++i) runs += i == 0 || labels[i] != labels[i - 1] ? 1 : 0;
  text += fmt::format("{} runs, folders {}\n", runs, raw ? fmt::format("{}", fmt::join(folders, ",")) : "");

  if (!raw) folders.clear();
  for (size_t o = 0; o < model.objects.size(); ++o) {
    for (const ModelSample& sample : model.objects[o].samples) text += DescribeModelSample(sample, o, folders);
  }
  for (const ModelObject& object : model.objects) text += DescribeObject(object.info);
  return text;
}

}  // namespace millrace::testing
