#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "interruptible.h"
#include "process.h"
#include "store/blocking.h"
#include "transfer/key_pattern.h"
#include "transfer/read_objects.h"

namespace millrace::python {

namespace {

// Folders' own markers, and what Millrace keeps beside data, are nobody's data.
bool IsData(std::string_view key) {
  return !key.ends_with('/') && !IsOwnFile(key);
}

absl::StatusOr<std::vector<std::pair<std::string, ObjectInfo>>> ListData(Stores& stores, const std::string& uri,
                                                                         const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Location at, stores.OpenInTree(uri));
  std::vector<std::pair<std::string, ObjectInfo>> found;
  const auto add = [&](const ListPage& page) {
    for (const ObjectInfo& object : page.objects) {
      if (IsData(object.key)) found.emplace_back(at.store->Uri(object.key), object);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachPage(*at.store, at.prefix, "", add, stop));
  return found;
}

nb::list ListObjects(const std::string& uri) {
  const std::shared_ptr<Process> process = CurrentProcess();
  const auto found =
      RunInterruptibly([&](const std::stop_token& stop) { return ListData(process->stores, uri, stop); });
  nb::list list;
  for (const auto& [name, object] : found) {
    list.append(nb::make_tuple(ToPyText(name), object.size, ToPyText(object.etag)));
  }
  return list;
}

using ObjectTuple = std::tuple<std::string, int64_t, std::string>;

// There is one ObjectReader for each store; mostly there is one store.
absl::StatusOr<std::vector<std::string>> ReadAllOf(Process& process, const std::vector<ObjectTuple>& objects,
                                                   const std::stop_token& stop) {
  std::map<ObjectStore*, std::pair<std::vector<size_t>, std::vector<ObjectInfo>>> by_store;
  for (size_t i = 0; i < objects.size(); ++i) {
    const auto& [uri, size, etag] = objects[i];
    ASSIGN_OR_RETURN(Location at, process.stores.OpenObjectInTree(uri));
    auto& [places, infos] = by_store[at.store];
    places.push_back(i);
    infos.push_back({.key = std::move(at.prefix), .size = size < 0 ? kUnknownSize : static_cast<uint64_t>(size)});
    infos.back().etag = etag;
  }
  std::vector<std::string> contents(objects.size());
  for (auto& [store, group] : by_store) {
    auto& [places, infos] = group;
    ASSIGN_OR_RETURN(std::vector<std::string> read,
                     ReadObjects(*store, process.runtime.memory(), std::move(infos), stop));
    for (size_t i = 0; i < places.size(); ++i) contents[places[i]] = std::move(read[i]);
  }
  return contents;
}

nb::list ReadObjectList(const std::vector<ObjectTuple>& objects) {
  const std::shared_ptr<Process> process = CurrentProcess();
  const std::vector<std::string> contents =
      RunInterruptibly([&](const std::stop_token& stop) { return ReadAllOf(*process, objects, stop); });
  nb::list list;
  for (const std::string& content : contents) list.append(ToPyBytes(content));
  return list;
}

}  // namespace

void BindObjectList(nb::module_& module) {
  module.def("list_objects", &ListObjects, nb::arg("uri"));
  module.def("read_objects", &ReadObjectList, nb::arg("objects"));
}

}  // namespace millrace::python
