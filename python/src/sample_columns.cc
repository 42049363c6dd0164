#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "arguments.h"
#include "bindings.h"
#include "dataset_handle.h"
#include "gil_release.h"
#include "interruptible.h"
#include "numpy_array.h"
#include "pipeline/column_read.h"
#include "pipeline/distinct_keys.h"

namespace millrace::python {

namespace {

nb::list Keys(const DatasetHandle& self) {
  self.CheckOwnProcess();
  std::vector<std::string> keys;
  const auto add = [&keys](uint64_t, const IndexedSample& entry) { keys.push_back(entry.key); };
  ThrowIfError(WithoutGil([&] { return ScanSubset(self.subset(), add); }));
  nb::list list;
  for (const std::string& key : keys) list.append(ToPyText(key));
  return list;
}

// `into` has room for one number a sample. MismatchError for keys of which many are equal.
void KeyHashes(const DatasetHandle& self, const nb::int_& seed, const FillableArray<uint64_t>& into) {
  self.CheckOwnProcess();
  if (into.size() != self.subset().size()) throw nb::value_error("one number a sample is needed");
  const uint64_t of = ToNatural("seed", seed);
  uint64_t* const to = into.data();
  size_t rank = 0;
  ThrowIfError(WithoutGil([&]() -> absl::Status {
    RETURN_IF_ERROR(CheckKeysDiffer(self.index(), self.subset().dataset->uri()));
    return ScanSubset(self.subset(),
                      [&](uint64_t, const IndexedSample& entry) { to[rank++] = KeyRange::Hash(entry.key, of); });
  }));
}

// Returns (samples of the index that have one of the keys, places of the keys that no sample has).
nb::tuple FindKeys(const DatasetHandle& self, const std::vector<std::string>& keys) {
  self.CheckOwnProcess();
  std::vector<int64_t> samples;
  std::vector<bool> found(keys.size());
  ThrowIfError(WithoutGil([&] {
    absl::flat_hash_map<std::string_view, size_t> places;
    for (size_t place = 0; place < keys.size(); ++place) {
      if (!places.emplace(keys[place], place).second) found[place] = true;  // the first one is looked for
    }
    return self.index().Scan(0, self.index().size(), [&](uint64_t sample, const IndexedSample& entry) {
      const auto place = places.find(entry.key);
      if (place == places.end()) return;
      found[place->second] = true;
      samples.push_back(static_cast<int64_t>(sample));
    });
  }));
  std::vector<size_t> missing;
  for (size_t place = 0; place < found.size(); ++place) {
    if (!found[place]) missing.push_back(place);
  }
  return nb::make_tuple(ArrayOf(std::move(samples)), missing);
}

// Returns (type, value) of each sample, or None.
nb::list Column(const DatasetHandle& self, const std::string& field) {
  self.CheckOwnProcess();
  const std::vector<std::optional<ColumnValue>> values = RunInterruptibly(
      [&](const std::stop_token& stop) { return ReadColumn(self.subset(), field, self.runtime().memory(), stop); });
  nb::list list;
  for (const std::optional<ColumnValue>& value : values) {
    if (value) {
      list.append(nb::make_tuple(std::string(FieldTypeName(value->type)), ToPyBytes(value->value)));
    } else {
      list.append(nb::none());
    }
  }
  return list;
}

}  // namespace

void BindSampleColumns(nb::class_<DatasetHandle>& dataset) {
  dataset.def("keys", &Keys)
      .def("key_hashes", &KeyHashes, nb::arg("seed"), nb::arg("into").noconvert())
      .def("find_keys", &FindKeys, nb::arg("keys"))
      .def("column", &Column, nb::arg("field"));
}

}  // namespace millrace::python
