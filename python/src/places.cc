#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/own_folder.h"
#include "bindings.h"
#include "errors.h"
#include "interruptible.h"
#include "process.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/lister.h"
#include "transfer/artifact.h"
#include "transfer/copy_object.h"

namespace millrace::python {

namespace {

constexpr size_t kRemovalBatch = 1000;  // ObjectStore::Delete

struct Listed {
  // The names are what follows the place: "" is a key that ends with '/', which is the place's own.
  std::vector<std::pair<std::string, ObjectInfo>> objects;
  std::vector<std::string> folders;  // ending with '/'
};

absl::StatusOr<Listed> List(Stores& stores, const std::string& uri, bool flat, int64_t limit,
                            const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Location at, stores.OpenInTree(uri));
  Listed listed;
  ListOptions options{.prefix = at.prefix, .delimiter = flat ? "" : "/"};
  if (limit > 0) options.max_keys = static_cast<int>(std::min<int64_t>(limit, options.max_keys));
  do {
    ASSIGN_OR_RETURN(ListPage page, ListBlocking(*at.store, options, stop));
    for (ObjectInfo& object : page.objects) {
      std::string name = object.key.substr(at.prefix.size());
      listed.objects.emplace_back(std::move(name), std::move(object));
    }
    for (const std::string& folder : page.common_prefixes) listed.folders.push_back(folder.substr(at.prefix.size()));
    options.continuation = std::move(page.continuation);
  } while (!options.continuation.empty() && (limit <= 0 || std::ssize(listed.objects) < limit));
  return listed;
}

nb::tuple ToTuple(const std::string& uri, const ObjectInfo& object) {
  return nb::make_tuple(ToPyText(uri), object.size, ToPyText(object.etag), object.modified_ms);
}

nb::tuple ListPlace(const std::string& uri, bool flat, int64_t limit) {
  const std::shared_ptr<Process> process = CurrentProcess();
  const Listed found =
      RunInterruptibly([&](const std::stop_token& stop) { return List(process->stores, uri, flat, limit, stop); });
  nb::list objects;
  for (const auto& [name, object] : found.objects) objects.append(ToTuple(name, object));
  nb::list folders;
  for (const std::string& folder : found.folders) folders.append(ToPyText(folder));
  return nb::make_tuple(std::move(objects), std::move(folders));
}

nb::tuple StatObject(const std::string& uri) {
  const std::shared_ptr<Process> process = CurrentProcess();
  return ToTuple(uri, RunInterruptibly([&](const std::stop_token& stop) -> absl::StatusOr<ObjectInfo> {
                   ASSIGN_OR_RETURN(const Location at, process->stores.OpenObjectInTree(uri));
                   return HeadBlocking(*at.store, at.prefix, stop);
                 }));
}

// The first error names its object; the others of its request are tried all the same.
absl::Status Remove(Stores& stores, const std::vector<std::string>& uris, const std::stop_token& stop) {
  std::map<ObjectStore*, std::vector<std::string>> by_store;
  for (const std::string& uri : uris) {
    ASSIGN_OR_RETURN(Location at, stores.OpenObjectInTree(uri));
    by_store[at.store].push_back(std::move(at.prefix));
  }
  for (auto& [store, keys] : by_store) {
    for (size_t first = 0; first < keys.size(); first += kRemovalBatch) {
      const size_t count = std::min(kRemovalBatch, keys.size() - first);
      Completion<std::vector<absl::Status>> removed;
      store->Delete(
          {keys.begin() + static_cast<ptrdiff_t>(first), keys.begin() + static_cast<ptrdiff_t>(first + count)},
          removed.Callback());
      if (!removed.WaitOrStop(stop)) return absl::CancelledError("removing was interrupted");
      for (const absl::Status& status : removed.Wait()) RETURN_IF_ERROR(status);
    }
  }
  return absl::OkStatus();
}

void RemoveObjects(const std::vector<std::string>& uris) {
  const std::shared_ptr<Process> process = CurrentProcess();
  RunInterruptibly([&](const std::stop_token& stop) { return Remove(process->stores, uris, stop); });
}

absl::StatusOr<uint64_t> Copy(Stores& stores, const std::string& source, const std::string& target, bool only_if_absent,
                              const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const Location from, stores.OpenObjectInTree(source));
  ASSIGN_OR_RETURN(const Location to, stores.OpenObjectInTree(target));
  ASSIGN_OR_RETURN(const ObjectInfo info, HeadBlocking(*from.store, from.prefix, stop));
  CopyObjectOptions options;
  options.only_if_absent = only_if_absent;
  options.stop = stop;
  ASSIGN_OR_RETURN(const CopiedObject copied, CopyObject(*from.store, info, *to.store, to.prefix, options));
  return copied.info.size;
}

uint64_t CopyOneObject(const std::string& source, const std::string& target, bool only_if_absent) {
  const std::shared_ptr<Process> process = CurrentProcess();
  return RunInterruptibly(
      [&](const std::stop_token& stop) { return Copy(process->stores, source, target, only_if_absent, stop); });
}

// Returns a folder of this user's alone in the cache folder (base/own_folder.h).
std::string OwnCacheFolder(const std::string& name) {
  const std::string folder = DefaultCacheFolder();
  if (folder.empty()) {
    Throw(absl::NotFoundError("there is no cache folder: set MILLRACE_CACHE to a folder that can be written to"));
  }
  absl::StatusOr<OwnFolder> own = TakeOwnFolder(folder, name, FolderSharing::kNobody);
  if (!own.ok()) Throw(own.status());
  return own->path;
}

// `name` for what is made of these data and kept there (StemFor).
std::string ArtifactStem(std::string name, const std::vector<std::string>& uris) {
  const std::shared_ptr<Process> process = CurrentProcess();
  std::set<std::string> told;
  for (const std::string& uri : uris) {
    const absl::StatusOr<Location> at = process->stores.OpenInTree(uri);
    if (!at.ok()) Throw(at.status());
    if (told.insert(at->store->traits().principal).second) name = StemFor(name, at->store->traits());
  }
  return name;
}

}  // namespace

void BindPlaces(nb::module_& module) {
  module.def("list_place", &ListPlace, nb::arg("uri"), nb::arg("flat"), nb::arg("limit"));
  module.def("stat_object", &StatObject, nb::arg("uri"));
  module.def("remove_objects", &RemoveObjects, nb::arg("uris"));
  module.def("own_cache_folder", &OwnCacheFolder, nb::arg("name"));
  module.def("artifact_stem", &ArtifactStem, nb::arg("name"), nb::arg("uris"));
  module.def("copy_object", &CopyOneObject, nb::arg("source"), nb::arg("target"), nb::arg("only_if_absent") = false);
}

}  // namespace millrace::python
