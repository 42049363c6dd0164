#include "dataset_handle.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <numeric>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "bindings.h"
#include "dataset/skipped_objects.h"
#include "gil_release.h"
#include "interruptible.h"
#include "numpy_array.h"
#include "pipeline/sample_read.h"
#include "plan/plan.h"
#include "store/joined_objects.h"

namespace millrace::python {

namespace {

using Opened = absl::StatusOr<std::unique_ptr<Dataset>>;

Opened OpenWithProgress(Runtime& runtime, Stores& stores, const std::string& uri, const nb::object& progress,
                        OpenOptions options) {
  Opened opened;
  RunInterruptibly(progress, [&](const std::stop_token& stop, const ProgressFn& report) {
    options.stop = stop;
    options.progress = report;
    opened = Dataset::Open(runtime, stores, uri, options);
  });
  return opened;
}

nb::list Texts(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(ToPyText(text));
  return list;
}

using Handles = std::vector<std::shared_ptr<DatasetHandle>>;

Handles ToHandles(const std::shared_ptr<const DatasetHandle>& whole, absl::StatusOr<std::vector<Subset>> subsets) {
  Handles handles;
  for (Subset& subset : ValueOrThrow(std::move(subsets))) {
    handles.push_back(std::make_shared<DatasetHandle>(whole, std::move(subset)));
  }
  return handles;
}

nb::dict ClassCounts(const DatasetHandle& self) {
  const Index& index = self.index();
  ThrowIfError(CheckClassesRead(self.subset()));
  nb::dict counts;
  if (!self.subset().selection) {
    for (const ClassCount& entry : index.class_counts()) counts[ToPyText(entry.name)] = entry.samples;
  } else if (index.has_labels()) {
    const std::vector<Subset> classes =
        ValueOrThrow(WithoutGil([&] { return ByClass(self.runtime(), self.subset()); }));
    for (size_t i = 0; i < classes.size(); ++i) counts[ToPyText(index.class_counts()[i].name)] = classes[i].size();
  }
  return counts;
}

// ---- Subsets

// `samples` ascend, without repeats; what is wrong with them was said in Python.
std::shared_ptr<const Selection> ToSelection(const Index& index, const Numbers& samples) {
  Selection::Builder builder(index.size());
  const int64_t* const numbers = samples.data();
  for (size_t i = 0; i < samples.size(); ++i) {
    if (numbers[i] < 0 || static_cast<uint64_t>(numbers[i]) >= index.size()) {
      throw nb::index_error(fmt::format("there is no sample {}; the index has {}", numbers[i], index.size()).c_str());
    }
    builder.Add(static_cast<uint64_t>(numbers[i]));
  }
  return std::make_shared<const Selection>(std::move(builder).Finish());
}

// Returns the keys of the objects that hold each of the samples, a line each, below the data set's URI.
nb::list ObjectLines(const DatasetHandle& self, const Numbers& samples) {
  const Index& index = self.index();
  std::vector<std::string> lines;
  absl::Status status;
  {
    GilRelease release;
    IndexedSample sample;
    IndexedObject object;
    for (const int64_t number : std::span(samples.data(), samples.size())) {
      status = index.Lookup(static_cast<uint64_t>(number), &sample);
      if (status.ok()) status = index.LookupObject(sample.object, &object);
      if (!status.ok()) break;
      std::string line;
      if (!IsJoinedKey(object.key)) {
        line = object.key + "\n";
      } else {
        absl::StatusOr<std::vector<ObjectInfo>> parts = SplitJoined(object.key, "");
        status = parts.status();
        if (!status.ok()) break;
        for (const ObjectInfo& part : *parts) line += part.key + "\n";
      }
      lines.push_back(std::move(line));
    }
  }
  ThrowIfError(status);
  nb::list list;
  for (const std::string& line : lines) list.append(ToPyBytes(line));
  return list;
}

// Returns (object, why) of each.
nb::list SkippedTuples(const DatasetHandle& self) {
  self.CheckOwnProcess();
  const SkippedObjects found =
      RunInterruptibly([&](const std::stop_token& stop) { return ListSkipped(*self.subset().dataset, stop); });
  nb::list list;
  for (const SkippedObject& object : found.named())
    list.append(nb::make_tuple(ToPyText(object.key), std::string(object.why)));
  return list;
}

using KeyTuple = std::tuple<uint64_t, uint64_t, uint64_t>;

std::shared_ptr<DatasetHandle> WhereHandle(const std::shared_ptr<DatasetHandle>& self,
                                           const std::optional<KeyTuple>& keys, bool key_groups,
                                           std::optional<std::vector<std::string>> classes, const nb::int_& min_bytes,
                                           const nb::int_& max_bytes, std::vector<std::string> has,
                                           std::vector<std::string> has_any, const std::optional<Numbers>& samples) {
  Filter filter;
  if (keys) filter.keys = KeyRange{std::get<0>(*keys), std::get<1>(*keys), std::get<2>(*keys)};
  filter.key_groups = key_groups;
  filter.classes = std::move(classes);
  filter.min_bytes = ToNatural("bytes", min_bytes);
  filter.max_bytes = ToNatural("bytes", max_bytes);
  filter.has = std::move(has);
  filter.has_any = std::move(has_any);
  if (samples) filter.samples = ToSelection(self->index(), *samples);
  self->CheckOwnProcess();
  Subset found = ValueOrThrow(WithoutGil([&] { return Where(self->runtime(), self->subset(), filter); }));
  return std::make_shared<DatasetHandle>(self, std::move(found));
}

constexpr Choice<IndexUse> kIndexUses[] = {{"build", IndexUse::kBuild},
                                           {"beside", IndexUse::kBeside},
                                           {"cache", IndexUse::kCache},
                                           {"require", IndexUse::kRequire}};

using LabelsTuple = std::tuple<std::string, std::string, std::string, bool>;

std::optional<LabelsFile> ToLabelsFile(const std::optional<LabelsTuple>& labels) {
  if (!labels) return std::nullopt;
  return LabelsFile{.uri = std::get<0>(*labels),
                    .key_column = std::get<1>(*labels),
                    .label_column = std::get<2>(*labels),
                    .quotes = std::get<3>(*labels)};
}

std::optional<LabelsTuple> LabelsOf(const DatasetHandle& self) {
  const LabelsFile* const labels = self.subset().dataset->labels();  // memory only: works in a fork
  if (labels == nullptr) return std::nullopt;
  return LabelsTuple(labels->uri, labels->key_column, labels->label_column, labels->quotes);
}

std::shared_ptr<DatasetHandle> InLabelsFileHandle(const std::shared_ptr<DatasetHandle>& self, bool drop) {
  self->CheckOwnProcess();
  const MissingLabels missing = drop ? MissingLabels::kDrop : MissingLabels::kRefuse;
  Subset found = ValueOrThrow(WithoutGil([&] { return InLabelsFile(self->runtime(), self->subset(), missing); }));
  return std::make_shared<DatasetHandle>(self, std::move(found));
}

Handles ClassHandles(const std::shared_ptr<DatasetHandle>& self) {
  self->CheckOwnProcess();
  return ToHandles(self, WithoutGil([&] { return ByClass(self->runtime(), self->subset()); }));
}

// `groups` has a number below `count` for each sample of the subset; less than 0: of no group.
Handles GroupHandles(const std::shared_ptr<DatasetHandle>& self, const Numbers& groups, uint32_t count) {
  self->CheckOwnProcess();
  const int64_t* const group_of = groups.data();
  const auto find = [&](uint64_t rank, const IndexedSample&) -> std::optional<uint32_t> {
    const int64_t group = group_of[rank];
    return group >= 0 && group < count ? std::optional(static_cast<uint32_t>(group)) : std::nullopt;
  };
  return ToHandles(self, WithoutGil([&] { return GroupBy(self->runtime(), self->subset(), count, find); }));
}

// ---- Samples

// Each is (key, [(name, type, value)]). Numbers count within the subset.
nb::list ReadRanks(const DatasetHandle& self, const std::vector<uint64_t>& ranks) {
  self.CheckOwnProcess();
  std::vector<uint64_t> samples;
  for (const uint64_t rank : ranks) {
    if (rank >= self.subset().size()) {
      throw nb::index_error(
          fmt::format("there is no sample {}; the data set has {}", rank, self.subset().size()).c_str());
    }
    samples.push_back(self.subset().SampleAt(rank));
  }
  const std::vector<SampleValues> read =
      RunInterruptibly([&](const std::stop_token& stop) -> absl::StatusOr<std::vector<SampleValues>> {
        const Dataset& dataset = *self.subset().dataset;
        if (samples.size() != 1) return ReadSamples(dataset, samples, self.runtime().memory(), stop);
        ASSIGN_OR_RETURN(SampleValues one, ReadSample(dataset, samples.front(), self.runtime().memory(), stop));
        return std::vector<SampleValues>{std::move(one)};
      });
  nb::list list;
  for (const SampleValues& sample : read) {
    nb::list fields;
    for (const SampleValues::Field& field : sample.fields) {
      fields.append(
          nb::make_tuple(ToPyText(field.name), std::string(FieldTypeName(field.type)), ToPyBytes(field.value)));
    }
    list.append(nb::make_tuple(ToPyText(sample.key), fields));
  }
  return list;
}

// `into` has room for one number a sample. Works in a fork, too, where a data set opens itself again: it is memory
// only.
void SampleNumbers(const DatasetHandle& self, const FillableArray<int64_t>& into) {
  if (into.size() != self.subset().size()) throw nb::value_error("one number a sample is needed");
  const std::span to(reinterpret_cast<uint64_t*>(into.data()), into.size());
  const GilRelease release;
  if (self.subset().selection) {
    self.subset().selection->Read(0, to);
  } else {
    std::iota(to.begin(), to.end(), uint64_t{0});
  }
}

std::vector<KeyTuple> SplitTuples(const std::vector<double>& fractions, const nb::int_& seed) {
  std::vector<KeyTuple> parts;
  for (const KeyRange& keys : ValueOrThrow(SplitKeys(fractions, ToNatural("seed", seed)))) {
    parts.emplace_back(keys.seed, keys.first, keys.last);
  }
  return parts;
}

}  // namespace

IndexUse ToIndexUse(const std::string& index) {
  return Choose("index", index, kIndexUses);
}

DatasetHandle::DatasetHandle(const std::string& uri, const nb::object& progress, OpenOptions options,
                             const AwsChoice& choice)
    : uri_(uri), process_(CurrentProcess()), stores_(&process_->stores.With(choice)) {
  dataset_.reset(
      ValueOrThrow(OpenWithProgress(process_->runtime, *stores_, uri, progress, std::move(options))).release());
  subset_.emplace(*dataset_);
}

DatasetHandle::DatasetHandle(std::shared_ptr<const DatasetHandle> whole, Subset subset)
    : uri_(whole->uri_),
      process_(whole->process_),
      stores_(whole->stores_),
      whole_(std::move(whole)),
      subset_(std::move(subset)) {}

std::tuple<uint64_t, uint64_t, uint64_t> DatasetHandle::Policy(const std::string& shuffle) const {
  const OrderPolicy policy = OrderPolicy::ForSamples(ValueOrThrow(ParseShuffle(shuffle)), index().mean_span_bytes(),
                                                     index().kind() == DataKind::kRawObjects);
  return {policy.extent, policy.window, policy.lanes};
}

void BindDataset(nb::module_& module) {
  using Handle = DatasetHandle;
  nb::class_<Handle> dataset(module, "Dataset");
  BindSampleColumns(dataset);
  dataset
      .def(
          "__init__",
          [](Handle* self, const std::string& uri, const nb::object& progress, std::string path, std::string label,
             std::optional<bool> quotes, const std::optional<LabelsTuple>& labels, std::string endpoint,
             std::string profile, std::string region, std::vector<std::string> classes, const std::string& index,
             uint64_t part, uint64_t parts) {
            const CsvQuotes of_csv = !quotes ? CsvQuotes::kUsual : *quotes ? CsvQuotes::kMarks : CsvQuotes::kText;
            OpenOptions options;
            options.columns = {.path = std::move(path), .label = std::move(label), .quotes = of_csv};
            options.labels = ToLabelsFile(labels);
            options.classes = std::move(classes);
            options.index = ToIndexUse(index);
            const AwsChoice choice{std::move(endpoint), std::move(profile), std::move(region)};
            options.share = {.part = part, .parts = parts};
            new (self) Handle(uri, progress, std::move(options), choice);
          },
          nb::arg("uri"), nb::arg("progress").none(), nb::kw_only(), nb::arg("path_column") = "",
          nb::arg("label_column") = "", nb::arg("csv_quotes") = nb::none(), nb::arg("labels") = nb::none(),
          nb::arg("endpoint") = "", nb::arg("profile") = "", nb::arg("region") = "", nb::arg("classes") = nb::list(),
          nb::arg("index") = "build", nb::arg("part") = 0, nb::arg("parts") = 1)
      .def("policy", &Handle::Policy, nb::arg("shuffle"))
      .def("__len__", [](const Handle& self) { return self.subset().size(); })
      .def_prop_ro("uri", [](const Handle& self) { return ToPyText(self.uri()); })
      .def_prop_ro("fields", [](const Handle& self) { return Texts(self.index().field_names()); })
      .def_prop_ro("classes", [](const Handle& self) { return Texts(self.index().class_names()); })
      .def_prop_ro("class_counts", &ClassCounts)
      .def_prop_ro("class_order", [](const Handle& self) { return Texts(self.subset().dataset->classes()); })
      .def_prop_ro("kind", [](const Handle& self) { return std::string(KindName(self.index().kind())); })
      .def_prop_ro("objects", [](const Handle& self) { return self.index().objects(); })
      .def_prop_ro("total_bytes",
                   [](const Handle& self) { return (self.CheckOwnProcess(), self.subset().total_bytes); })
      .def_prop_ro("fingerprint", [](const Handle& self) { return self.subset().fingerprint(); })
      .def_prop_ro("indexed", [](const Handle& self) { return self.subset().index().size(); })
      .def("samples", &SampleNumbers, nb::arg("into").noconvert())
      .def("skipped", &SkippedTuples)
      .def("read", &ReadRanks, nb::arg("ranks"))
      .def("object_lines", &ObjectLines, nb::arg("samples"))
      .def("where", &WhereHandle, nb::kw_only(), nb::arg("keys"), nb::arg("key_groups"), nb::arg("classes"),
           nb::arg("min_bytes"), nb::arg("max_bytes"), nb::arg("has"), nb::arg("has_any"), nb::arg("samples"))
      .def_prop_ro("labels", &LabelsOf)
      .def("in_labels_file", &InLabelsFileHandle, nb::arg("drop"))
      .def("by_class", &ClassHandles)
      .def("group_by", &GroupHandles, nb::arg("groups"), nb::arg("count"));
  module.def("split_keys", &SplitTuples, nb::arg("fractions"), nb::arg("seed"));
}

}  // namespace millrace::python
