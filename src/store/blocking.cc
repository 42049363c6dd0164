#include "store/blocking.h"

#include <fmt/format.h>

#include <utility>

#include "store/completion.h"

namespace millrace {

absl::StatusOr<GetResult> GetBlocking(ObjectStore& store, std::string key, MutableByteSpan into, GetOptions options) {
  Completion<absl::StatusOr<GetResult>> completion;
  store.Get(std::move(key), into, std::move(options), completion.Callback());
  return completion.Wait();
}

absl::StatusOr<ObjectInfo> HeadBlocking(ObjectStore& store, std::string key) {
  Completion<absl::StatusOr<ObjectInfo>> completion;
  store.Head(std::move(key), completion.Callback());
  return completion.Wait();
}

absl::StatusOr<ObjectInfo> PutBlocking(ObjectStore& store, std::string key, ByteSpan body, PutOptions options) {
  Completion<absl::StatusOr<ObjectInfo>> completion;
  store.Put(std::move(key), body, std::move(options), completion.Callback());
  return completion.Wait();
}

absl::Status DeleteBlocking(ObjectStore& store, std::string key) {
  Completion<absl::Status> completion;
  store.Delete(std::move(key), completion.Callback());
  return completion.Wait();
}

absl::StatusOr<ListPage> ListBlocking(ObjectStore& store, ListOptions options) {
  Completion<absl::StatusOr<ListPage>> completion;
  store.List(std::move(options), completion.Callback());
  return completion.Wait();
}

absl::StatusOr<std::string> ReadAll(ObjectStore& store, std::string key, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const ObjectInfo info, HeadBlocking(store, key));
  if (info.size > max_bytes) {
    return absl::ResourceExhaustedError(
        fmt::format("{}: has {} bytes, where at most {} are expected", store.Uri(key), info.size, max_bytes));
  }
  std::string bytes(info.size, '\0');
  if (bytes.empty()) return bytes;
  const MutableByteSpan into(reinterpret_cast<std::byte*>(bytes.data()), bytes.size());
  GetOptions options;
  options.range = {0, info.size};
  options.if_match = info.etag;
  RETURN_IF_ERROR(GetBlocking(store, std::move(key), into, std::move(options)).status());
  return bytes;
}

absl::Status ForEachPage(ObjectStore& store, std::string prefix,
                         absl::FunctionRef<absl::Status(const ListPage&)> each) {
  ListOptions options;
  options.prefix = std::move(prefix);
  for (;;) {
    ASSIGN_OR_RETURN(ListPage page, ListBlocking(store, options));
    RETURN_IF_ERROR(each(page));
    if (page.continuation.empty()) return absl::OkStatus();
    if (page.continuation == options.continuation) {
      return absl::DataLossError(fmt::format("{}: the listing does not advance: the store answers the same page again",
                                             store.Uri(options.prefix)));
    }
    options.continuation = std::move(page.continuation);
  }
}

absl::StatusOr<std::vector<ObjectInfo>> ListAll(ObjectStore& store, std::string prefix) {
  std::vector<ObjectInfo> objects;
  RETURN_IF_ERROR(ForEachPage(store, std::move(prefix), [&objects](const ListPage& page) {
    objects.insert(objects.end(), page.objects.begin(), page.objects.end());
    return absl::OkStatus();
  }));
  return objects;
}

}  // namespace millrace
