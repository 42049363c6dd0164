#include "store/blocking.h"

#include <fmt/format.h>

#include <utility>

#include "store/completion.h"
#include "store/learn.h"
#include "store/lister.h"

namespace millrace {

namespace {

template <typename T>
absl::StatusOr<T> WaitUnlessStopped(Completion<absl::StatusOr<T>>& call, const std::stop_token& stop,
                                    std::string_view uri) {
  if (!call.WaitOrStop(stop)) return absl::CancelledError(fmt::format("{}: interrupted", uri));
  return call.Wait();
}

}  // namespace

absl::StatusOr<GetResult> GetBlocking(ObjectStore& store, std::string key, MutableByteSpan into, GetOptions options) {
  Completion<absl::StatusOr<GetResult>> completion;
  store.Get(std::move(key), into, std::move(options), completion.Callback());
  return completion.Wait();
}

absl::StatusOr<ObjectInfo> HeadBlocking(ObjectStore& store, std::string key, const std::stop_token& stop) {
  Completion<absl::StatusOr<ObjectInfo>> call;
  const std::string uri = store.Uri(key);
  store.Head(std::move(key), {}, call.Callback());
  return WaitUnlessStopped(call, stop, uri);
}

absl::StatusOr<ObjectInfo> LearnBlocking(ObjectStore& store, ObjectInfo object, const std::stop_token& stop) {
  Completion<absl::StatusOr<ObjectInfo>> call;
  const std::string uri = store.Uri(object.key);
  LearnObject(store, std::move(object), call.Callback());
  return WaitUnlessStopped(call, stop, uri);
}

absl::StatusOr<ObjectInfo> PutBlocking(ObjectStore& store, std::string key, ByteSpan body, PutOptions options) {
  Completion<absl::StatusOr<ObjectInfo>> completion;
  store.Put(std::move(key), body, std::move(options), completion.Callback());
  return completion.Wait();
}

absl::Status DeleteBlocking(ObjectStore& store, std::string key) {
  Completion<std::vector<absl::Status>> completion;
  store.Delete({std::move(key)}, completion.Callback());
  return completion.Wait().front();
}

absl::Status DeleteVersionBlocking(ObjectStore& store, std::string key, std::string etag) {
  Completion<absl::Status> completion;
  store.DeleteVersion(std::move(key), std::move(etag), completion.Callback());
  return completion.Wait();
}

absl::StatusOr<ObjectInfo> CommitBlocking(PieceWriter& writer, uint64_t object_bytes) {
  Completion<absl::StatusOr<ObjectInfo>> completion;
  writer.Commit(object_bytes, completion.Callback());
  return completion.Wait();
}

absl::StatusOr<ListPage> ListBlocking(ObjectStore& store, ListOptions options, const std::stop_token& stop) {
  Completion<absl::StatusOr<ListPage>> call;
  const std::string uri = store.Uri(options.prefix);
  store.List(std::move(options), call.Callback());
  return WaitUnlessStopped(call, stop, uri);
}

absl::StatusOr<std::string> ReadAll(ObjectStore& store, std::string key, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(ObjectInfo info, HeadBlocking(store, key));
  info.key = std::move(key);
  return ReadAll(store, info, max_bytes);
}

absl::StatusOr<std::string> ReadAll(ObjectStore& store, const ObjectInfo& object, uint64_t max_bytes) {
  if (object.size > max_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: has {} bytes, where at most {} are expected", store.Uri(object.key), object.size, max_bytes));
  }
  std::string bytes(object.size, '\0');
  if (bytes.empty()) return bytes;
  const MutableByteSpan into = AsWritableBytes(bytes);
  GetOptions options;
  options.range = {0, object.size};
  options.if_match = object.etag;
  options.whole = true;
  RETURN_IF_ERROR(GetBlocking(store, object.key, into, std::move(options)).status());
  return bytes;
}

namespace {

// Folders are few: they are listed page by page.
absl::Status ForEachPageOfFolder(ObjectStore& store, ListOptions options, PageSink each, const std::stop_token& stop) {
  for (;;) {
    ASSIGN_OR_RETURN(ListPage page, ListBlocking(store, options, stop));
    RETURN_IF_ERROR(each(page));
    if (page.continuation.empty()) return absl::OkStatus();
    if (page.continuation == options.continuation) {
      return absl::DataLossError(fmt::format("{}: the listing does not advance: the store answers the same page again",
                                             store.Uri(options.prefix)));
    }
    options.continuation = std::move(page.continuation);
  }
}

}  // namespace

absl::Status ForEachPage(ObjectStore& store, std::string prefix, std::string delimiter, PageSink each,
                         std::stop_token stop) {
  if (!delimiter.empty()) {
    ListOptions options;
    options.prefix = std::move(prefix);
    options.delimiter = std::move(delimiter);
    return ForEachPageOfFolder(store, std::move(options), each, stop);
  }
  Lister lister(store, std::move(prefix), std::move(stop));
  for (;;) {
    ListPage page;
    ASSIGN_OR_RETURN(page.objects, lister.Next());
    if (page.objects.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(each(page));
  }
}

absl::StatusOr<std::vector<ObjectInfo>> ListAll(ObjectStore& store, std::string prefix) {
  std::vector<ObjectInfo> objects;
  RETURN_IF_ERROR(ForEachPage(store, std::move(prefix), "", [&objects](const ListPage& page) {
    objects.insert(objects.end(), page.objects.begin(), page.objects.end());
    return absl::OkStatus();
  }));
  return objects;
}

}  // namespace millrace
