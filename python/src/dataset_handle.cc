#include "dataset_handle.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

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
#include "pipeline/sample_read.h"
#include "plan/plan.h"
#include "store/joined_objects.h"

namespace millrace::python {

namespace {

using Opened = absl::StatusOr<std::unique_ptr<Dataset>>;

Opened OpenWithProgress(Runtime& runtime, Stores& stores, const std::string& uri, const py::object& progress,
                        OpenOptions options) {
  Opened opened;
  RunInterruptibly(progress, [&](const std::stop_token& stop, const ProgressFn& report) {
    options.stop = stop;
    options.progress = report;
    opened = Dataset::Open(runtime, stores, uri, options);
  });
  return opened;
}

py::list Texts(const std::vector<std::string>& texts) {
  py::list list;
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

py::dict ClassCounts(const DatasetHandle& self) {
  const Index& index = self.index();
  ThrowIfError(CheckClassesRead(self.subset()));
  py::dict counts;
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

using Numbers = py::array_t<int64_t, py::array::c_style>;

// `samples` ascend, without repeats; what is wrong with them was said in Python.
std::shared_ptr<const Selection> ToSelection(const Index& index, const Numbers& samples) {
  Selection::Builder builder(index.size());
  const int64_t* const numbers = samples.data();
  for (py::ssize_t i = 0; i < samples.size(); ++i) {
    if (numbers[i] < 0 || static_cast<uint64_t>(numbers[i]) >= index.size()) {
      throw py::index_error(fmt::format("there is no sample {}; the index has {}", numbers[i], index.size()));
    }
    builder.Add(static_cast<uint64_t>(numbers[i]));
  }
  return std::make_shared<const Selection>(std::move(builder).Finish());
}

// The keys of the objects that hold each of the samples, a line each, below the data set's URI.
py::list ObjectLines(const DatasetHandle& self, const Numbers& samples) {
  const Index& index = self.index();
  std::vector<std::string> lines;
  absl::Status status;
  {
    GilRelease release;
    IndexedSample sample;
    IndexedObject object;
    for (const int64_t number : std::span(samples.data(), static_cast<size_t>(samples.size()))) {
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
  py::list list;
  for (const std::string& line : lines) list.append(py::bytes(line));
  return list;
}

// (object, why) of each.
py::list SkippedTuples(const DatasetHandle& self) {
  self.CheckOwnProcess();
  const SkippedObjects found =
      RunInterruptibly([&](const std::stop_token& stop) { return ListSkipped(*self.subset().dataset, stop); });
  py::list list;
  for (const SkippedObject& object : found.named())
    list.append(py::make_tuple(ToPyText(object.key), std::string(object.why)));
  return list;
}

using KeyTuple = std::tuple<uint64_t, uint64_t, uint64_t>;

std::shared_ptr<DatasetHandle> WhereHandle(const std::shared_ptr<DatasetHandle>& self,
                                           const std::optional<KeyTuple>& keys, bool key_groups,
                                           std::optional<std::vector<std::string>> classes, const py::int_& min_bytes,
                                           const py::int_& max_bytes, std::vector<std::string> has,
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
py::list ReadRanks(const DatasetHandle& self, const std::vector<uint64_t>& ranks) {
  self.CheckOwnProcess();
  std::vector<uint64_t> samples;
  for (const uint64_t rank : ranks) {
    if (rank >= self.subset().size()) {
      throw py::index_error(fmt::format("there is no sample {}; the data set has {}", rank, self.subset().size()));
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
  py::list list;
  for (const SampleValues& sample : read) {
    py::list fields;
    for (const SampleValues::Field& field : sample.fields) {
      fields.append(
          py::make_tuple(ToPyText(field.name), std::string(FieldTypeName(field.type)), py::bytes(field.value)));
    }
    list.append(py::make_tuple(ToPyText(sample.key), fields));
  }
  return list;
}

// `into` has room for one number a sample. Works in a fork, too, where a data set opens itself again: it is memory
// only.
void SampleNumbers(const DatasetHandle& self, Numbers& into) {
  if (static_cast<uint64_t>(into.size()) != self.subset().size())
    throw py::value_error("one number a sample is needed");
  const std::span to(reinterpret_cast<uint64_t*>(into.mutable_data()), static_cast<size_t>(into.size()));
  const GilRelease release;
  if (self.subset().selection) {
    self.subset().selection->Read(0, to);
  } else {
    std::iota(to.begin(), to.end(), uint64_t{0});
  }
}

std::vector<KeyTuple> SplitTuples(const std::vector<double>& fractions, const py::int_& seed) {
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

DatasetHandle::DatasetHandle(const std::string& uri, const py::object& progress, OpenOptions options,
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

void BindDataset(py::module_& module) {
  using Handle = DatasetHandle;
  py::class_<Handle, std::shared_ptr<Handle>> dataset(module, "Dataset");
  BindSampleColumns(dataset);
  dataset
      .def(py::init([](const std::string& uri, const py::object& progress, std::string path, std::string label,
                       std::optional<bool> quotes, const std::optional<LabelsTuple>& labels, std::string endpoint,
                       std::string profile, std::string region, std::vector<std::string> classes,
                       const std::string& index, uint64_t part, uint64_t parts) {
             const CsvQuotes of_csv = !quotes ? CsvQuotes::kUsual : *quotes ? CsvQuotes::kMarks : CsvQuotes::kText;
             OpenOptions options;
             options.columns = {.path = std::move(path), .label = std::move(label), .quotes = of_csv};
             options.labels = ToLabelsFile(labels);
             options.classes = std::move(classes);
             options.index = ToIndexUse(index);
             const AwsChoice choice{std::move(endpoint), std::move(profile), std::move(region)};
             options.share = {.part = part, .parts = parts};
             return std::make_shared<Handle>(uri, progress, std::move(options), choice);
           }),
           py::arg("uri"), py::arg("progress"), py::kw_only(), py::arg("path_column") = "",
           py::arg("label_column") = "", py::arg("csv_quotes") = py::none(), py::arg("labels") = py::none(),
           py::arg("endpoint") = "", py::arg("profile") = "", py::arg("region") = "", py::arg("classes") = py::list(),
           py::arg("index") = "build", py::arg("part") = 0, py::arg("parts") = 1)
      .def("policy", &Handle::Policy, py::arg("shuffle"))
      .def("__len__", [](const Handle& self) { return self.subset().size(); })
      .def_property_readonly("uri", [](const Handle& self) { return ToPyText(self.uri()); })
      .def_property_readonly("fields", [](const Handle& self) { return Texts(self.index().field_names()); })
      .def_property_readonly("classes", [](const Handle& self) { return Texts(self.index().class_names()); })
      .def_property_readonly("class_counts", &ClassCounts)
      .def_property_readonly("class_order", [](const Handle& self) { return Texts(self.subset().dataset->classes()); })
      .def_property_readonly("kind", [](const Handle& self) { return std::string(KindName(self.index().kind())); })
      .def_property_readonly("objects", [](const Handle& self) { return self.index().objects(); })
      .def_property_readonly("total_bytes",
                             [](const Handle& self) { return (self.CheckOwnProcess(), self.subset().total_bytes); })
      .def_property_readonly("fingerprint", [](const Handle& self) { return self.subset().fingerprint(); })
      .def_property_readonly("indexed", [](const Handle& self) { return self.subset().index().size(); })
      .def("samples", &SampleNumbers, py::arg("into").noconvert())
      .def("skipped", &SkippedTuples)
      .def("read", &ReadRanks, py::arg("ranks"))
      .def("object_lines", &ObjectLines, py::arg("samples"))
      .def("where", &WhereHandle, py::kw_only(), py::arg("keys"), py::arg("key_groups"), py::arg("classes"),
           py::arg("min_bytes"), py::arg("max_bytes"), py::arg("has"), py::arg("has_any"), py::arg("samples"))
      .def_property_readonly("labels", &LabelsOf)
      .def("in_labels_file", &InLabelsFileHandle, py::arg("drop"))
      .def("by_class", &ClassHandles)
      .def("group_by", &GroupHandles, py::arg("groups"), py::arg("count"));
  module.def("split_keys", &SplitTuples, py::arg("fractions"), py::arg("seed"));
}

}  // namespace millrace::python
