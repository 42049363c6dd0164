#include "transfer/read_objects.h"

#include <fmt/format.h>

#include <deque>
#include <optional>
#include <utility>

#include "base/size.h"
#include "store/completion.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

constexpr size_t kMaxHeads = 256;  // in flight

using Heads = std::deque<std::pair<ObjectInfo*, Completion<absl::StatusOr<ObjectInfo>>>>;

absl::Status EndFirst(ObjectStore& store, const std::stop_token& stop, Heads* heads) {
  auto& [object, head] = heads->front();
  if (!head.WaitOrStop(stop)) return absl::CancelledError(fmt::format("{}: interrupted", store.Uri(object->key)));
  ASSIGN_OR_RETURN(*object, head.Wait());
  heads->pop_front();
  return absl::OkStatus();
}

absl::Status LearnSizes(ObjectStore& store, std::vector<ObjectInfo>* objects, const std::stop_token& stop) {
  Heads heads;
  for (ObjectInfo& object : *objects) {
    if (object.size != kUnknownSize) continue;
    if (heads.size() == kMaxHeads) RETURN_IF_ERROR(EndFirst(store, stop, &heads));
    auto& [of, head] = heads.emplace_back();
    of = &object;
    store.Head(object.key, {}, head.Callback());
  }
  while (!heads.empty()) RETURN_IF_ERROR(EndFirst(store, stop, &heads));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadObjects(ObjectStore& store, MemoryBudget& memory,
                                                     std::vector<ObjectInfo> objects, const std::stop_token& stop) {
  RETURN_IF_ERROR(LearnSizes(store, &objects, stop));
  size_t next = 0;
  const auto source = [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
    if (next == objects.size()) return std::nullopt;
    ObjectReader::Request request = ObjectReader::All(objects[next]);
    ++next;
    return request;
  };
  ObjectReader reader(store, memory, source, stop);
  std::vector<std::string> contents;
  contents.reserve(objects.size());
  while (contents.size() < objects.size()) {
    std::string& content = contents.emplace_back();
    const ObjectInfo& object = objects[contents.size() - 1];
    if (object.size > memory.limit()) {
      return absl::ResourceExhaustedError(fmt::format("{}: has {}, and the process may take {}; read it in parts",
                                                      store.Uri(object.key), FormatSize(object.size),
                                                      FormatSize(memory.limit())));
    }
    content.reserve(object.size);
    for (bool last = false; !last;) {
      ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reader.Next());
      if (!piece) return absl::InternalError("a reader ended before its last request");
      if (piece->first) content.clear();
      content.append(reinterpret_cast<const char*>(piece->bytes.data()), piece->bytes.size());
      last = piece->last;
    }
  }
  return contents;
}

}  // namespace millrace
