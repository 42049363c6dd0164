#include "dataset/labels_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/unicode_forms.h"
#include "dataset/index_format.h"
#include "dataset/index_writer.h"
#include "dataset/label_rows.h"
#include "shard/field_value.h"
#include "shard/label_kinds.h"
#include "shard/sample_name.h"
#include "store/blocking.h"
#include "transfer/artifact.h"

namespace millrace {

namespace {

constexpr uint64_t kLabelsDomain = 0x4d522d6c6162656c;  // "MR-label"
constexpr uint64_t kReading = 2;                        // changes with what rows of a file mean
constexpr uint64_t kProbes = 1024;                      // samples that are looked for among the rows
constexpr uint64_t kRowsBetweenStops = 4096;

absl::Status CheckStop(const std::stop_token& stop) {
  return stop.stop_requested() ? absl::CancelledError("reading the labels was interrupted") : absl::OkStatus();
}

// Returns true if only zeros in front are missing, as after a spreadsheet or pandas has read the names as numbers.
bool HasLostZeros(std::string_view written, std::string_view key) {
  const std::string_view digits = written.substr(0, written.find('.'));
  const std::string_view base = key.substr(key.rfind('/') + 1);
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return is_number(digits) && is_number(base) && base.starts_with('0') && digits.size() < base.size() &&
         (digits == "0" || !digits.starts_with('0'));
}

// Returns advice for the case that no row has the key of a sample.
std::string_view AdviceOnKeys(std::string_view written, std::string_view key) {
  if (written.find('\\') != std::string_view::npos)
    return "the path has backslashes, as on Windows: write slashes, as in the names of samples";
  if (HasLostZeros(written, key)) {
    return "zeros in front are lost, as when a spreadsheet or pandas reads names as numbers: write the names as texts "
           "(in pandas dtype=str)";
  }
  if (written.starts_with(' ') || written.starts_with('\t'))
    return "the key begins with a blank, which is a part of it to CSV: write no blanks behind delimiters";
  if (std::count(written.begin(), written.end(), '/') > std::count(key.begin(), key.end(), '/'))
    return "its keys have folders that the samples do not have: open the folder above, or leave them out of the file";
  if (key.find('/') != std::string_view::npos && written.find('/') == std::string_view::npos)
    return "the samples have folders in their keys: write them in front of the names, or say which column holds the "
           "keys: --key-column X, in Python Labels(uri, key_column=\"X\")";
  return "say which column holds the keys: --key-column X, in Python Labels(uri, key_column=\"X\")";
}

// Says how the rows write the keys of samples.
class KeyForm {
 public:
  explicit KeyForm(const DatasetPlace& data) : root_(data.store->Uri(data.Key(""))) {}

  bool of_files = false;     // as names of files
  bool at_last_dot = false;  // these names have their keys before it, and not before the first one

  // Returns the key that is meant.
  std::string_view KeyOf(std::string_view written) {
    if (!of_files) return written;
    if (written.starts_with(root_)) written.remove_prefix(root_.size());
    while (written.starts_with('/')) written.remove_prefix(1);
    const std::optional<SampleName> name = at_last_dot ? SplitObjectName(written) : SplitSampleName(written);
    if (!name) return written;
    key_ = name->key;
    return key_;
  }

 private:
  const std::string root_;
  std::string key_;
};

// Represents the contents of a file of labels in memory.
struct Labels {
  Manifest manifest;
  LabelRows rows;
  std::string first_key;  // as it is written

  bool Replaces(std::string_view field) const {
    if (manifest.has_labels && field == kClassField) return true;
    return std::any_of(manifest.columns.begin(), manifest.columns.end(),
                       [field](const ManifestColumn& column) { return column.name == field; });
  }
};

absl::Status CheckColumns(const Manifest& manifest) {
  if (!manifest.has_labels && manifest.columns.empty())
    return absl::InvalidArgumentError("it has no column but that of the keys");
  for (const ManifestColumn& column : manifest.columns) {
    if (!manifest.has_labels || column.name != kClassField) continue;
    return absl::InvalidArgumentError(
        "it has a column 'cls' beside the label, which becomes the field 'cls'; rename that column");
  }
  return absl::OkStatus();
}

absl::StatusOr<Labels> ParseLabels(const LabelsFile& file, std::string_view text, KeyForm* form, MemoryBudget& memory,
                                   const std::stop_token& stop) {
  // An array in JSON may hold many rows in a line.
  const auto lines = static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  const bool json = *ManifestFormatOf(file.uri) == ManifestFormat::kJson;
  const auto objects = json ? static_cast<uint64_t>(std::count(text.begin(), text.end(), '{')) : 0;
  ASSIGN_OR_RETURN(LabelRows rows, LabelRows::Create(std::max(lines, objects), memory));
  Labels labels{.manifest = {}, .rows = std::move(rows), .first_key = {}};
  const auto add = [&](const Manifest& manifest, const ManifestRow& row) -> absl::Status {
    if (labels.rows.size() % kRowsBetweenStops == 0) RETURN_IF_ERROR(CheckStop(stop));
    if (labels.rows.size() == 0) labels.first_key = std::string(row.path);
    return Annotate(labels.rows.Add(form->KeyOf(row.path), row), fmt::format("{} {}", manifest.row_word, row.line));
  };
  ASSIGN_OR_RETURN(labels.manifest, ParseManifest(*ManifestFormatOf(file.uri), text, file.columns(), add));
  RETURN_IF_ERROR(CheckColumns(labels.manifest));
  if (const std::optional<LabelRows::Twice> twice = labels.rows.Sort()) {
    return absl::InvalidArgumentError(fmt::format("{} {} and {} have the same key; a sample has one row: remove one",
                                                  labels.manifest.row_word == "line" ? "lines" : "entries", twice->line,
                                                  twice->other_line));
  }
  return labels;
}

// Returns true if rows name samples in this form, by a look at some of the samples.
absl::StatusOr<bool> NameSamples(const Labels& labels, const Index& base) {
  IndexedSample entry;
  LabelRows::Row row;
  size_t place = 0;
  const uint64_t probes = std::min(kProbes, base.size());
  for (uint64_t i = 0; i < probes; ++i) {
    RETURN_IF_ERROR(base.Lookup(
        static_cast<uint64_t>(static_cast<double>(i) / static_cast<double>(probes) * static_cast<double>(base.size())),
        &entry));
    if (labels.rows.Find(entry.key, &row, &place)) return true;
  }
  return false;
}

// Writes the samples of an index as the labels have them.
class Relabeller {
 public:
  Relabeller(const Index& base, const Labels& labels, std::unique_ptr<ObjectWriter> out)
      : base_(base), labels_(labels), writer_(base.kind(), std::move(out)), used_(labels.rows.size()) {
    const Manifest& manifest = labels.manifest;
    const bool names = manifest.has_labels && !manifest.numeric_labels && !manifest.float_labels;
    writer_.SetLabelled(base.fingerprint(), names);
    for (const std::string& field : base.field_names()) {
      if (labels.Replaces(field)) replaced_.push_back(field);
    }
  }

  absl::Status Run(const std::stop_token& stop) {
    uint64_t block = 0;
    for (uint64_t number = 0; number < base_.objects(); ++number) {
      if (number % kRowsBetweenStops == 0) RETURN_IF_ERROR(CheckStop(stop));
      IndexedObject object;
      RETURN_IF_ERROR(base_.LookupObject(static_cast<uint32_t>(number), &object));
      RETURN_IF_ERROR(base_.ScanObject(static_cast<uint32_t>(number), &block,
                                       [this](const NewSample& sample) { return Add(sample); }));
      RETURN_IF_ERROR(writer_.AddObject(object));
    }
    return writer_.Finish().status();
  }

  uint64_t samples_found() const { return found_; }
  uint64_t rows_unused() const { return static_cast<uint64_t>(std::count(used_.begin(), used_.end(), false)); }
  uint64_t FirstUnusedLine() const {
    uint64_t line = UINT64_MAX;
    for (size_t place = 0; place < used_.size(); ++place) {
      if (!used_[place]) line = std::min(line, labels_.rows.LineAt(place));
    }
    return line;
  }

 private:
  bool IsReplaced(std::string_view field) const {
    return std::find(replaced_.begin(), replaced_.end(), field) != replaced_.end();
  }

  void AddValue(std::string_view name, std::string text, std::string_view encoding) {
    texts_.push_back({.name = name, .text = std::move(text), .encoding = encoding});
  }

  // Sets the class of the sample.
  void AddLabel(std::string_view label, NewSample* sample) {
    sample->label = {};
    if (label.empty()) return;
    if (labels_.manifest.float_labels) {
      AddValue(kClassField, ManifestValueText({.name = {}, .encoding = encoding::kFloat}, label), encoding::kFloat);
    } else if (labels_.manifest.numeric_labels) {
      AddValue(kClassField, std::string(label), encoding::kInt);
      if (!label.starts_with('-')) sample->label = label;  // as in shards, -1 is no class
    } else {
      sample->label = label;
    }
  }

  absl::Status Add(const NewSample& before) {
    size_t place = 0;
    const bool found = labels_.rows.Find(before.key, &row_, &place);
    if (found) used_[place] = true;
    found_ += found ? 1 : 0;
    NewSample sample = before;
    fields_.assign(before.fields.begin(), before.fields.end());
    for (NewSampleField& field : fields_) {
      if (IsReplaced(field.name)) field.name = index_format::kHiddenField;
    }
    texts_.clear();
    for (const NewSampleValue& value : before.values) {
      if (!IsReplaced(value.name)) AddValue(value.name, std::string(value.text), value.encoding);
    }
    if (found) {
      for (const ManifestCell& cell : row_.cells) {
        const ManifestColumn& column = labels_.manifest.columns[cell.column];
        if (IsManifestValue(column, cell.text))
          AddValue(column.name, ManifestValueText(column, cell.text), column.encoding);
      }
    }
    const bool has_labels = labels_.manifest.has_labels;
    if (labels_.manifest.nan_labels.count > 0 && IsNanText(row_.label)) row_.label = {};
    if (has_labels) AddLabel(found ? row_.label : std::string_view(), &sample);
    if (found && (has_labels ? !row_.label.empty() : !row_.cells.empty())) AddValue(index_format::kHiddenField, "", "");
    std::sort(texts_.begin(), texts_.end(), [](const Value& a, const Value& b) { return a.name < b.name; });
    values_.clear();
    for (const Value& value : texts_)
      values_.push_back({.name = value.name, .text = value.text, .encoding = value.encoding});
    sample.fields = fields_;
    sample.values = values_;
    return writer_.AddSample(sample);
  }

  struct Value {
    std::string_view name;
    std::string text;
    std::string_view encoding;
  };

  const Index& base_;
  const Labels& labels_;
  IndexWriter writer_;
  std::vector<std::string> replaced_;  // fields of `base`
  std::vector<bool> used_;             // rows
  uint64_t found_ = 0;
  // These belong to the current sample:
  LabelRows::Row row_;
  std::vector<NewSampleField> fields_;
  std::vector<Value> texts_;
  std::vector<NewSampleValue> values_;
};

// Makes the index, with everything that this takes.
class LabelJoin {
 public:
  LabelJoin(Runtime& runtime, const DatasetPlace& data, const Index& base, const LabelsFile& file,
            const std::stop_token& stop)
      : memory_(runtime.memory()), data_(data), base_(base), file_(file), stop_(stop) {}

  absl::Status Build(const Location& place, const ObjectInfo& info, OpenArtifact create) {
    ASSIGN_OR_RETURN(const Labels labels, Read(place, info));
    ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, create());
    Relabeller relabeller(base_, labels, std::move(out));
    RETURN_IF_ERROR(relabeller.Run(stop_));
    if (const NanLabels& nan = labels.manifest.nan_labels; nan.count > 0) {
      Log(LogLevel::kWarning, "dataset",
          fmt::format("{}: {} {}: the label '{}' is no number: {} so; missing=\"drop\" (--missing-labels drop) leaves "
                      "their samples out",
                      file_.uri, labels.manifest.row_word, nan.line, nan.first,
                      nan.count == 1 ? "1 row is" : fmt::format("{} rows are", nan.count)));
    }
    if (const uint64_t unused = relabeller.rows_unused(); unused > 0) {
      Log(LogLevel::kWarning, "dataset",
          fmt::format("{}: {} of its {} name no sample of {}, the first in {} {}", file_.uri, unused,
                      Counted(labels.rows.size(), "row"), data_.uri, labels.manifest.row_word,
                      relabeller.FirstUnusedLine()));
    }
    return absl::OkStatus();
  }

 private:
  // Reads the file. The text is not needed any more once the rows are there.
  absl::StatusOr<Labels> Read(const Location& place, const ObjectInfo& info) {
    const Reservation reserved = memory_.TryReserve(info.size);
    if (!reserved) {
      return absl::ResourceExhaustedError(fmt::format("{}, which is read as a whole; {} of {} of memory are in use",
                                                      FormatSize(info.size), FormatSize(memory_.used()),
                                                      FormatSize(memory_.limit())));
    }
    std::string text(info.size, '\0');
    GetOptions options;
    options.range = {.offset = 0, .length = info.size};
    options.if_match = info.etag;
    options.stop = stop_;
    if (!text.empty())
      RETURN_IF_ERROR(GetBlocking(*place.store, place.prefix, AsWritableBytes(text), std::move(options)).status());
    KeyForm form(data_);
    std::string first_key;
    uint64_t rows = 0;
    // Some samples are usually enough; if few samples have a row, all are looked up.
    for (const bool of_all : {false, true}) {
      for (const bool of_files : {false, true}) {
        form.of_files = of_files;
        if (of_files) {
          ASSIGN_OR_RETURN(form.at_last_dot, KeysEndAtLastDot());
        }
        absl::StatusOr<Labels> labels = ParseLabels(file_, text, &form, memory_, stop_);
        // If the rows are no valid names of files, the error is that no row has the key of a sample.
        if (!labels.ok() && !of_files) return labels.status();
        if (!labels.ok()) break;
        first_key = labels->first_key;
        rows = labels->rows.size();
        ASSIGN_OR_RETURN(const bool fits, of_all ? AnyFits(*labels) : NameSamples(*labels, base_));
        if (fits) return labels;
      }
    }
    if (rows == 0) return absl::InvalidArgumentError("it has no rows");
    IndexedSample first;
    if (base_.size() > 0) RETURN_IF_ERROR(base_.Lookup(0, &first));
    return absl::InvalidArgumentError(
        fmt::format("none of its {} has the key of a sample of {}: the first key is '{}', and the first sample is "
                    "called '{}'; {}{}",
                    Counted(rows, "row"), data_.uri, first_key, first.key, AdviceOnKeys(first_key, first.key),
                    OnUnicodeForms(first_key, first.key)));
  }

  // Returns true if keys end at the last dot. Members of tar shards are split at the first dot. If the keys themselves
  // have dots, Millrace wrote the shards, and the names of their samples were split at the last dot.
  absl::StatusOr<bool> KeysEndAtLastDot() const {
    if (base_.kind() != DataKind::kTar) return true;
    bool has_dots = false;
    RETURN_IF_ERROR(base_.Scan(0, base_.size(), [&has_dots](uint64_t, const IndexedSample& entry) {
      has_dots = has_dots || entry.key.find('.', entry.key.rfind('/') + 1) != std::string_view::npos;
    }));
    return has_dots;
  }

  absl::StatusOr<bool> AnyFits(const Labels& labels) const {
    bool any = false;
    LabelRows::Row row;
    size_t place = 0;
    RETURN_IF_ERROR(base_.Scan(0, base_.size(), [&](uint64_t, const IndexedSample& entry) {
      any = any || labels.rows.Find(entry.key, &row, &place);
    }));
    return any;
  }

  MemoryBudget& memory_;
  const DatasetPlace& data_;
  const Index& base_;
  const LabelsFile& file_;
  const std::stop_token& stop_;
};

}  // namespace

absl::StatusOr<LabelledIndex> OpenLabelledIndex(Runtime& runtime, Stores& stores, const DatasetPlace& data,
                                                const Index& base, const LabelsFile& file,
                                                const std::string& cache_folder, const std::stop_token& stop) {
  if (!ManifestFormatOf(file.uri)) {
    return absl::InvalidArgumentError(
        fmt::format("{} is no file of labels; its name must end with .csv, .tsv, .jsonl, .ndjson or .json", file.uri));
  }
  ASSIGN_OR_RETURN(const Location place, stores.OpenObject(file.uri));
  ASSIGN_OR_RETURN(const ObjectInfo info, HeadBlocking(*place.store, place.prefix, stop));
  LabelledIndex labelled;
  const auto hash = [](std::string_view text) { return Xxh3(AsBytes(text)); };
  labelled.id =
      HashKey(kLabelsDomain,
              {base.fingerprint(), base.ObjectsChecksum(), hash(place.store->Uri(place.prefix)), info.size,
               hash(info.etag), hash(file.key_column), hash(file.label_column) ^ (file.quotes ? 0 : 1), kReading}) |
      1;
  const std::string name = fmt::format("labels-{:016x}", labelled.id);
  const auto check = [](const SharedArtifact& artifact) { return Index::Open(artifact).status(); };
  const auto verify = [](const SharedArtifact& artifact) -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<Index> index, Index::Open(artifact));
    return index->Verify();
  };
  const auto build = [&](OpenArtifact create) {
    return Annotate(LabelJoin(runtime, data, base, file, stop).Build(place, info, create), file.uri);
  };
  ArtifactPlaces places(stores,
                        {.beside = {.store = data.store, .prefix = data.Key(fmt::format("{}{}", kDatasetFolder, name))},
                         .cache_folder = cache_folder,
                         .stem = StemFor(StemFor(name, data.store->traits()), place.store->traits()),
                         .suffix = "",
                         .one_version = true,
                         .title = name,
                         .stop = stop});
  ASSIGN_OR_RETURN(const SharedArtifact artifact, places.GetOrBuild(check, verify, build));
  labelled.uri = artifact->uri();
  ASSIGN_OR_RETURN(labelled.index, Index::Open(artifact));
  return labelled;
}

}  // namespace millrace
